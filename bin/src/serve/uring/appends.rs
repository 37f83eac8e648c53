//! Requests on their way in, answers on their way out.

use std::rc::Rc;
use std::sync::Arc;

use duolog_engine::append::AppendView;
use duolog_engine::ids::{MonoUs, ShardId};
use duolog_engine::route::shard_of;
use duolog_engine::shard::{Actions, Event, Outcome, Refusal, RequestId};
use duolog_net::session::{Answers, Request, Ticket};
use duolog_net::wire::{
    Appended, ErrorCode, ErrorFrame, ReadStream, StreamSpan, encode_admin_answer,
};

use super::asked::{Asked, Origin};
use super::connection::Connection;
use super::shard_loop::ShardLoop;
use super::{log_read, stream_read, subscribe};
use crate::serve::admin;
use crate::serve::cluster::message::ToControl;
use crate::serve::inbox::{ForeignRequest, Message};
use crate::serve::refusal::RefusalText;
use crate::serve::visit::Asker;

/// What a client waits when another shard's inbox is full, milliseconds.
const INBOX_RETRY_AFTER_MS: u32 = 10;

impl ShardLoop {
    /// A request of a connection of this shard. The session is borrowed: answers that are due at
    /// once go into `answers`, everything else into `actions`.
    pub(super) fn request(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        ticket: Ticket,
        request: Request<'_>,
        answers: &mut Answers,
        actions: &mut Actions,
    ) {
        let count = self.session_settings().shard_count;
        self.metrics().requested(&request);
        match request {
            Request::Append(body) => {
                let view = match AppendView::parse(body, self.event_max_bytes) {
                    Ok(view) => view,
                    Err(error) => {
                        return answers.refuse(ticket, &ErrorFrame::from(&error), error);
                    }
                };
                let first = view.streams().next().expect("parse() wants at least one stream");
                let target = shard_of(first.name, count);
                if target != self.id() {
                    let foreign = ForeignRequest::Append(body.to_vec());
                    return self.forward(connection, ticket, target, foreign, answers);
                }
                let id = self.insert(Origin::Local(Rc::clone(connection), ticket));
                self.step_into(Event::Append { to: id, view }, actions);
            }
            Request::ReadStream(read) => {
                let target = shard_of(read.stream.as_bytes(), count);
                if target != self.id() {
                    let foreign = ForeignRequest::ReadStream(stream_read::body_of(&read));
                    return self.forward(connection, ticket, target, foreign, answers);
                }
                let correlation = ticket.correlation();
                let id = self.insert(Origin::Local(Rc::clone(connection), ticket));
                stream_read::spawn(self, id, correlation, &read);
            }
            Request::ReadLog(read) => {
                if read.shard != self.id() {
                    let foreign = ForeignRequest::ReadLog(read);
                    return self.forward(connection, ticket, read.shard, foreign, answers);
                }
                let correlation = ticket.correlation();
                let id = self.insert(Origin::Local(Rc::clone(connection), ticket));
                log_read::spawn(self, id, correlation, read);
            }
            Request::Subscribe(subscribe) => {
                subscribe::begin(self, connection, ticket, &subscribe, answers);
            }
            Request::Admin(json) if self.pair.is_some() => {
                let (correlation, body) = (ticket.correlation(), json.as_bytes().to_vec());
                let id = self.insert(Origin::Local(Rc::clone(connection), ticket));
                let from = self.id();
                self.tell_control(ToControl::Admin { from, id, correlation, body });
            }
            Request::Admin(json) => self.admin(connection, ticket, json, answers),
        }
    }

    /// An operator's request.
    fn admin(
        &self,
        connection: &Rc<Connection>,
        ticket: Ticket,
        json: &str,
        answers: &mut Answers,
    ) {
        let settings = self.session_settings();
        match admin::answer(json, &settings, &self.inboxes) {
            Ok(admin::Told::Events { last }) => {
                let asked = |asker| self.journal.answer(asker, last);
                self.leave_to_another_thread(connection, ticket, answers, asked);
            }
            Ok(admin::Told::Visit { reach }) => {
                let asked = |asker| self.visits.ask(asker, reach);
                self.leave_to_another_thread(connection, ticket, answers, asked);
            }
            Ok(admin::Told::Text(answer)) => answers.answer(ticket, |out, correlation| {
                encode_admin_answer(out, correlation, &answer);
            }),
            Err(refused) => {
                answers.refuse(ticket, &ErrorFrame::new(ErrorCode::Refused), refused);
            }
        }
    }

    fn leave_to_another_thread(
        &self,
        connection: &Rc<Connection>,
        ticket: Ticket,
        answers: &mut Answers,
        ask: impl FnOnce(Asker) -> bool,
    ) {
        let correlation = ticket.correlation();
        let id = self.insert(Origin::Local(Rc::clone(connection), ticket));
        let inbox = Arc::clone(&self.inboxes[self.id().0 as usize]);
        let node = self.session_settings().node.to_string();
        if ask(Asker { inbox, id, correlation, node }) {
            return;
        }
        let asked = self.requests.borrow_mut().remove(id.0 as usize);
        if let Origin::Local(_, ticket) = asked.origin {
            let refused = ErrorFrame::new(ErrorCode::Refused);
            answers.refuse(ticket, &refused, "the thread that answers this is busy: ask again");
        }
    }

    fn insert(&self, origin: Origin) -> RequestId {
        self.insert_of(origin, self.now_us())
    }

    fn insert_of(&self, origin: Origin, arrived: MonoUs) -> RequestId {
        RequestId(self.requests.borrow_mut().insert(Asked { origin, arrived }) as u64)
    }

    /// Sends a request to the shard that can serve it.
    fn forward(
        &self,
        connection: &Rc<Connection>,
        ticket: Ticket,
        target: ShardId,
        request: ForeignRequest,
        answers: &mut Answers,
    ) {
        let correlation = ticket.correlation();
        let id = self.insert(Origin::Local(Rc::clone(connection), ticket));
        let (from, arrived) = (self.id(), self.now_us());
        let message = Message::Request { from, id, correlation, arrived, request };
        if self.inboxes[target.0 as usize].send(message).is_ok() {
            return;
        }
        let asked = self.requests.borrow_mut().remove(id.0 as usize);
        if let Origin::Local(_, ticket) = asked.origin {
            let busy = ErrorFrame::new(ErrorCode::Busy).retry_after_ms(INBOX_RETRY_AFTER_MS);
            answers.refuse(ticket, &busy, format_args!("shard {target} has a full inbox"));
        }
    }

    /// A request from another shard's connection.
    pub(super) fn foreign(
        self: &Rc<Self>,
        from: ShardId,
        id: RequestId,
        correlation: u64,
        arrived: MonoUs,
        request: ForeignRequest,
    ) {
        let own = self.insert_of(Origin::Foreign { from, id, correlation }, arrived);
        self.hear_stamps();
        match request {
            ForeignRequest::Append(body) => {
                let view = AppendView::parse(&body, self.event_max_bytes);
                let view = view.expect("the shard that received the append has parsed it");
                self.step(Event::Append { to: own, view });
            }
            ForeignRequest::ReadStream(body) => {
                let read = ReadStream::decode(&body);
                let read = read.expect("the shard that received the read has decoded it");
                stream_read::spawn(self, own, correlation, &read);
            }
            ForeignRequest::ReadLog(read) => log_read::spawn(self, own, correlation, read),
        }
    }

    /// The answer to an append.
    pub(super) fn reply(&self, to: RequestId, outcome: &Outcome, actions: &Actions) {
        let Asked { origin, arrived } = self.requests.borrow_mut().remove(to.0 as usize);
        self.count_outcome(arrived, outcome);
        match origin {
            Origin::Local(connection, ticket) => {
                connection.session.borrow_mut().answers().answer(ticket, |out, correlation| {
                    self.encode(out, correlation, outcome, actions);
                });
                self.touch(&connection);
            }
            Origin::Foreign { from, id, correlation } => {
                let mut frame = Vec::with_capacity(128);
                self.encode(&mut frame, correlation, outcome, actions);
                self.answer_foreign(from, id, frame);
            }
        }
    }

    fn encode(&self, out: &mut Vec<u8>, correlation: u64, outcome: &Outcome, actions: &Actions) {
        match outcome {
            Outcome::Refused(refused @ Refusal::NotLeader) => {
                self.refuse_as_follower(out, correlation, RefusalText(refused));
            }
            Outcome::Refused(refused) => {
                ErrorFrame::from(refused).encode(out, correlation, RefusalText(refused));
            }
            Outcome::Appended(receipt) => {
                let appended = Appended::of(receipt, self.id());
                let spans = actions.ranges_of(receipt).iter().map(StreamSpan::from);
                appended.encode(out, correlation, spans);
            }
        }
    }

    /// The answer to a read, a whole frame.
    pub(super) fn answer_frame(self: &Rc<Self>, to: RequestId, frame: Vec<u8>) {
        let asked = self.requests.borrow_mut().remove(to.0 as usize);
        self.count_requests();
        match asked.origin {
            Origin::Local(connection, ticket) => {
                let mut session = connection.session.borrow_mut();
                session.answers().answer(ticket, |out, _| out.extend_from_slice(&frame));
                drop(session);
                connection.send(self);
                self.list(&connection);
            }
            Origin::Foreign { from, id, .. } => self.answer_foreign(from, id, frame),
        }
    }

    fn answer_foreign(&self, from: ShardId, id: RequestId, frame: Vec<u8>) {
        let message = Message::Answer { id, frame };
        if let Err(message) = self.inboxes[from.0 as usize].send(message) {
            self.undelivered.borrow_mut().push_back((from, message));
        }
    }
}
