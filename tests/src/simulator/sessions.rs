//! Clients' connections: each speaks the real protocol with a real session of the node's, byte for
//! byte, and what is sent may come in pieces.

use duolog_engine::append::AppendView;
use duolog_engine::ids::{LeaseEpoch, Lsn, Revision, ShardId, StreamId};
use duolog_engine::shard::{Actions, Event, Outcome, RequestId, StreamEnd};
use duolog_net::limits::answer_body_max_bytes;
use duolog_net::session::{Flow, Request, Session, Settings, Ticket};
use duolog_net::wire::{
    Appended, ErrorCode, ErrorFrame, FrameBuffer, Hello, Message, NodeRole, Standing, StreamPage,
    StreamSpan, StreamTail,
};

use super::node::ToNode;
use super::plan::{Mistake, Profile};
use super::world::{Due, World};

/// Largest answer: no event here has more than some hundred bytes.
const ANSWER_MAX_BYTES: usize = answer_body_max_bytes(1 << 20);

/// A connection of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(pub u64);

/// The client's end.
#[derive(Debug)]
pub struct Line {
    pub id: LineId,
    pub node: usize,
    /// The life of the node that it leads to.
    pub life: u32,
    frames: FrameBuffer,
    /// Nothing that is sent later arrives before this.
    arrives_us: u64,
}

/// The node's end of a client's newest connection.
#[derive(Debug)]
pub struct Guest {
    line: LineId,
    session: Session,
    /// Nothing that is sent later arrives before this.
    arrives_us: u64,
    /// The connection has ended: what still comes is dropped.
    over: bool,
}

/// A request, out of its session.
enum Asked {
    Append(Vec<u8>),
    Read(String),
}

impl World {
    /// A client's connection to this node: the one it has, or a new one that says hello.
    pub fn line_to(&mut self, client: usize, node: usize) {
        let life = self.nodes[node].life;
        let known = self.clients.line(client).as_ref();
        if known.is_some_and(|line| (line.node, line.life) == (node, life)) {
            return;
        }
        let id = self.clients.next_line();
        let frames = FrameBuffer::new(ANSWER_MAX_BYTES);
        *self.clients.line(client) = Some(Line { id, node, life, frames, arrives_us: 0 });
        let mut hello = Vec::new();
        Hello::new(Some(ShardId(0))).encode(&mut hello, 0);
        self.client_sends(client, &hello);
    }

    /// Bytes on their way to a node, now and then in two pieces.
    pub fn client_sends(&mut self, client: usize, bytes: &[u8]) {
        let pieces = self.pieces(bytes);
        let now = self.now_us;
        let wire_us = self.plan.wire_us;
        for bytes in pieces {
            let gap = self.chance.below(200);
            let Some(line) = self.clients.line(client) else { return };
            line.arrives_us = line.arrives_us.max(now + wire_us + gap);
            let (line, node, life, due) = (line.id, line.node, line.life, line.arrives_us);
            let what = ToNode::FromClient { client, line, bytes };
            self.at(due, Due::Node { node, life, what });
        }
    }

    fn pieces(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        if bytes.len() > 1 && self.chance.percent(10) {
            let (head, rest) = bytes.split_at(1 + self.chance.index(bytes.len() - 1));
            return vec![head.to_vec(), rest.to_vec()];
        }
        vec![bytes.to_vec()]
    }

    /// Bytes of a client arrive.
    pub fn hear_client(&mut self, node: usize, client: usize, line: LineId, bytes: &[u8]) {
        let (role, epoch) = self.standing(node);
        let guests = &mut self.process(node).guests;
        if guests.get(&client).is_none_or(|guest| guest.line < line) {
            let mut session = Session::new(Settings::default());
            session.set_standing(&Standing { role, epoch, leader: "" });
            guests.insert(client, Guest { line, session, arrives_us: 0, over: false });
        }
        let guest = guests.get_mut(&client).expect("it is there or was put there");
        if guest.line != line || guest.over {
            return; // of a connection that has ended
        }
        let mut asked = Vec::new();
        let flow = guest.session.receive(bytes, &mut |ticket, request, _| {
            let request = match request {
                Request::Append(body) => Asked::Append(body.to_vec()),
                Request::ReadStream(read) => Asked::Read(read.stream.to_owned()),
                other => panic!("A8: no client sends {other:?}"),
            };
            asked.push((ticket, request));
        });
        guest.session.check();
        assert!(flow != Flow::Pause, "a client here stays within its limits and takes its answers");
        for (ticket, request) in asked {
            match request {
                Asked::Append(body) => self.take_append(node, client, ticket, &body),
                Asked::Read(stream) => self.take_read(node, client, ticket, &stream),
            }
        }
        self.send_answers(node, client);
    }

    fn take_append(&mut self, node: usize, client: usize, ticket: Ticket, body: &[u8]) {
        let to = RequestId(ticket.correlation());
        let view = AppendView::parse(body, 1 << 20);
        let view = view.expect("clients send requests in the right form");
        let process = self.process(node);
        let line = process.guests[&client].line;
        process.tickets.insert(to.0, (client, line, ticket));
        self.shard_step(node, Event::Append { to, view });
    }

    /// A linearizable read of a stream's end: the leader's, under its grant.
    fn take_read(&mut self, node: usize, client: usize, ticket: Ticket, stream: &str) {
        let now = self.nodes[node].now(self.now_us).mono.ms();
        let hands_over = self.makes(Mistake::ReadsWhileHandingOver);
        let process = self.process(node);
        let leads = process.grant.is_some_and(|grant| {
            if hands_over { grant.serves(now) } else { grant.answers_reads(now) }
        });
        let committed = process.shard.committed().lsn;
        let StreamEnd::Known(next) = process.shard.stream_end(StreamId::of(stream.as_bytes()))
        else {
            panic!("D7: all heads stay in memory");
        };
        let (_, epoch) = self.standing(node);
        let guest = self.process(node).guests.get_mut(&client).expect("it has just asked");
        if !leads {
            let refused = ErrorFrame::not_leader(epoch);
            return guest.session.answers().refuse(ticket, &refused, "it does not lead");
        }
        guest.session.answers().answer(ticket, |out, correlation| {
            let page = StreamPage::begin(out, correlation);
            let tail = StreamTail { next, stream_next: next, committed, end: true };
            page.finish_stream(out, &tail);
        });
        self.saw("a linearizable read");
        if self.plan.profile == Profile::Bounded {
            let number = super::clients::stream_number(stream);
            self.check_read(node, number, next.0);
        }
    }

    /// A shard's answer goes to whoever asked.
    pub fn reply(&mut self, node: usize, to: RequestId, outcome: &Outcome, actions: &Actions) {
        if let Outcome::Appended(receipt) = outcome
            && let Some(operation) = self.clients.operation_of(to.0)
        {
            self.check_receipt(node, operation, receipt);
        }
        let process = self.process(node);
        let Some((client, line, ticket)) = process.tickets.remove(&to.0) else { return };
        let Some(guest) = process.guests.get_mut(&client) else { return };
        if guest.line != line {
            return; // nobody waits there any more
        }
        let answers = guest.session.answers();
        match outcome {
            Outcome::Appended(receipt) => {
                let spans = actions.ranges_of(receipt).iter().map(StreamSpan::from);
                answers.appended(ticket, &Appended::of(receipt, ShardId(0)), spans);
            }
            Outcome::Refused(refusal) => {
                answers.refuse(ticket, &ErrorFrame::from(refusal), "refused");
            }
        }
        self.send_answers(node, client);
    }

    /// What a session has to say goes out. Now and then the connection ends instead.
    fn send_answers(&mut self, node: usize, client: usize) {
        let mut bytes = Vec::new();
        let Some(guest) = self.process(node).guests.get_mut(&client) else { return };
        guest.session.answers().take_unsent(&mut bytes);
        guest.session.answers().sent(bytes.len());
        guest.session.check();
        let line = guest.line;
        if bytes.is_empty() || guest.over {
            return;
        }
        let mut pieces = self.pieces(&bytes);
        if self.chance.percent(2) {
            self.saw("a client's connection ends before its answer");
            self.process(node).guests.get_mut(&client).expect("it was found above").over = true;
            // Whatever of the answer is on its way, and then the end.
            pieces.truncate(pieces.len() - 1);
            pieces.push(Vec::new());
        }
        let wire_us = self.plan.wire_us;
        for bytes in pieces {
            let due = self.now_us + wire_us + self.chance.below(200);
            let guest = self.process(node).guests.get_mut(&client).expect("it was found above");
            guest.arrives_us = guest.arrives_us.max(due);
            let due = guest.arrives_us;
            self.at(due, Due::ToClient { client, line, bytes });
        }
    }

    /// What this node is to clients, as the program judges it (`pair/member.rs`).
    fn standing(&mut self, node: usize) -> (NodeRole, LeaseEpoch) {
        let now = self.nodes[node].now(self.now_us).mono.ms();
        let process = self.process(node);
        let role = if process.grant.is_some_and(|grant| grant.admits(now)) {
            NodeRole::Leader
        } else if process.follow.is_some() {
            NodeRole::Follower
        } else {
            NodeRole::Other
        };
        let followed = process.follow.map(|(_, epoch)| epoch);
        (role, process.reign.or(followed).unwrap_or_default())
    }

    /// Tells every client if the node has become something else.
    pub fn tell_standing(&mut self, node: usize) {
        let (role, epoch) = self.standing(node);
        for client in 0..self.plan.clients {
            let Some(guest) = self.process(node).guests.get_mut(&client) else { continue };
            guest.session.set_standing(&Standing { role, epoch, leader: "" });
            self.send_answers(node, client);
        }
    }

    /// Bytes of a node arrive at a client; none: the connection has ended.
    pub fn hear_node(&mut self, client: usize, line: LineId, mut bytes: &[u8]) {
        let Some(known) = self.clients.line(client).take_if(|known| known.id == line) else {
            return;
        };
        if bytes.is_empty() {
            return self.client_is_cut_off(client);
        }
        let Line { mut frames, node, .. } = known;
        let mut heard = Vec::new();
        while !bytes.is_empty() {
            let space = frames.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            frames.filled(count);
            bytes = &bytes[count..];
            while let Some(frame) = frames.next_frame().expect("A8: nodes send whole frames") {
                let message = Message::decode(&frame).expect("A8: nodes send what is documented");
                heard.extend(Heard::of(frame.correlation, &message));
            }
        }
        *self.clients.line(client) = Some(Line { frames, ..known });
        for heard in heard {
            self.digest.add(&(client, &heard));
            self.client_hears(client, node, heard);
        }
    }
}

/// What a node told a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// It is this to clients now.
    Role(NodeRole),
    /// The append is stored.
    Appended { request: u64, first: Lsn, last: Lsn, replayed: bool },
    /// The request is refused.
    Refused { request: u64, code: ErrorCode, next: Revision },
    /// A stream's end.
    End { request: u64, next: Revision },
}

impl Heard {
    fn of(request: u64, message: &Message<'_>) -> Option<Self> {
        Some(match message {
            Message::HelloAccepted(accepted, _) => Self::Role(accepted.role),
            Message::Standing(standing) => Self::Role(standing.role),
            Message::Appended(view) => {
                let Appended { first_lsn: first, last_lsn: last, replayed, .. } = view.head;
                Self::Appended { request, first, last, replayed }
            }
            Message::Error(view) => {
                let code = view.code().expect("A8: refusals have known codes");
                Self::Refused { request, code, next: Revision(view.b) }
            }
            Message::StreamPage(page) => Self::End { request, next: page.tail.stream_next },
            other => panic!("A8: nobody asked for {other:?}"),
        })
    }
}
