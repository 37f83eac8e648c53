//! One connection's background task: connects when somebody wants it, sends calls as they come,
//! matches answers by correlation id, and gives up a server that owes answers and is silent.
//!
//! Correlation ids are never used twice, over all of a task's connections: a late answer can only
//! meet the call it belongs to, or nobody.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use duolog_engine::ids::LeaseEpoch;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{Interest, Ready};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, Sleep, sleep_until};

use super::chance::Backoff;
use super::dial::{Link, ServerInfo};
use super::search::{Aim, Down, Search};
use crate::limits::CLIENT_UNSENT_MAX_BYTES;
use crate::wire::{ErrorCode, ErrorView, Frame, FrameKind, Standing, encode_frame};

/// Reads from the socket in one go at most, so that sending is not forgotten.
const READS_MAX: usize = 64;

/// Who may decide a call's fate: as long as it waits, the task may send it or the caller may
/// abandon it; whoever comes first.
#[derive(Debug, Default)]
pub(super) struct Claim(AtomicU8);

impl Claim {
    const WAITING: u8 = 0;
    const SENT: u8 = 1;
    const ABANDONED: u8 = 2;

    fn turn(&self, to: u8) -> bool {
        let (order, read) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.compare_exchange(Self::WAITING, to, order, read).is_ok()
    }

    /// True: the call was not sent and never will be. False: it may have been sent.
    pub(super) fn abandon(&self) -> bool {
        self.turn(Self::ABANDONED)
    }

    fn send(&self) -> bool {
        self.turn(Self::SENT)
    }
}

/// A call on its way to the socket.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) kind: FrameKind,
    pub(super) body: Arc<Vec<u8>>,
    /// What it counts in the server's limit on bytes in flight.
    pub(super) cost_bytes: usize,
    pub(super) claim: Arc<Claim>,
    pub(super) reply: oneshot::Sender<Outcome>,
}

/// A frame that answers a call.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) kind: FrameKind,
    pub(super) body: Vec<u8>,
}

/// What became of a call.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The server answered.
    Answered(Answer),
    /// It may have been sent, and the connection ended.
    Lost(String),
    /// It may have been sent, and the server sent what is no answer.
    Garbage(String),
    /// It was not sent: larger than the server takes.
    TooLarge {
        /// Bytes.
        size: usize,
        /// Bytes.
        limit: usize,
    },
}

/// What the task tells its callers about the connection.
#[derive(Clone, Debug)]
pub(super) struct Status {
    /// The server reached last.
    pub(super) info: ServerInfo,
    /// Why there is no connection now.
    pub(super) down: Option<Down>,
}

/// Why a connection is not used any more.
#[derive(Debug)]
enum End {
    /// Nobody can call any more.
    Released,
    /// The server asked for it, and everything is answered.
    Left,
    /// The socket, or the server's silence.
    Lost(String),
    /// The server sent what is no answer.
    Garbage(String),
}

/// The task.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) search: Search,
    pub(super) silence: Duration,
    pub(super) queue: mpsc::Receiver<Outgoing>,
    pub(super) status: watch::Sender<Status>,
    /// A call taken from the queue that could not be sent yet.
    pub(super) waiting: Option<Outgoing>,
    pub(super) next_correlation: u64,
}

impl Connection {
    /// Runs until nobody can call any more. `first`: a connection made already.
    pub(super) async fn run(mut self, first: Option<Link>) {
        let mut link = first;
        loop {
            let connected = match link.take() {
                Some(link) => link,
                None => match self.reconnect().await {
                    Some(link) => link,
                    None => return,
                },
            };
            let status = Status { info: connected.info.clone(), down: None };
            self.status.send_replace(status);
            let mut live = Live::new(connected, self.silence);
            let end = self.serve(&mut live).await.unwrap_or_else(|end| end);
            let down = match &end {
                End::Released => return,
                End::Left => "the server is stopping or does not lead".to_owned(),
                End::Lost(text) | End::Garbage(text) => text.clone(),
            };
            self.search.leave(&live.link.info.address);
            self.status.send_modify(|status| status.down = Some(Down::Ended(down)));
            live.fail_all(&end);
        }
    }

    /// Waits until somebody wants the connection, then searches.
    async fn reconnect(&mut self) -> Option<Link> {
        let mut backoff = Backoff::new();
        loop {
            while self.waiting.as_ref().is_none_or(|call| call.reply.is_closed()) {
                self.waiting = Some(self.queue.recv().await?);
            }
            match self.search.round().await {
                Ok(link) => return Some(link),
                Err(down) => self.status.send_modify(|status| status.down = Some(down)),
            }
            if let Some(link) = self.search.pause(backoff.pause()).await {
                return Some(link);
            }
        }
    }

    async fn serve(&mut self, live: &mut Live) -> Result<End, End> {
        let alarm = sleep_until(live.last_sign + self.silence / 2);
        tokio::pin!(alarm);
        let mut known = self.search.nodes.watch();
        loop {
            if live.pending.is_empty() && self.has_call() {
                live.look()?;
            }
            self.start_calls(live);
            live.write()?;
            if live.leaving && live.pending.is_empty() {
                return Ok(End::Left);
            }
            let wants_calls = self.waiting.is_none() && !live.leaving;
            tokio::select! {
                biased;
                ready = live.ready() => {
                    let ready = ready.map_err(|error| End::Lost(error.to_string()))?;
                    if ready.is_readable() || ready.is_read_closed() {
                        live.read(&self.search)?;
                        if std::mem::take(&mut live.stands_anew) {
                            let info = live.link.info.clone();
                            self.status.send_modify(|status| status.info = info);
                        }
                    }
                }
                Ok(()) = known.changed() => {
                    // Another connection has heard of a newer reign.
                    let newer = known.borrow_and_update().epoch > live.link.info.epoch;
                    live.leaving |= newer && self.search.aim == Aim::Leader;
                }
                call = self.queue.recv(), if wants_calls => {
                    let Some(call) = call else { return Ok(End::Released) };
                    self.waiting = Some(call);
                }
                () = alarm.as_mut(), if !live.pending.is_empty() => {
                    live.check_sign_of_life(&mut self.next_correlation, alarm.as_mut())?;
                }
            }
        }
    }

    fn has_call(&mut self) -> bool {
        self.waiting = self.waiting.take().or_else(|| self.queue.try_recv().ok());
        self.waiting.is_some()
    }

    /// Moves waiting calls into the out-buffer as far as the limits of both sides allow.
    fn start_calls(&mut self, live: &mut Live) {
        while !live.leaving
            && live.out.len() - live.sent_bytes < CLIENT_UNSENT_MAX_BYTES
            && self.has_call()
        {
            let Some(call) = self.waiting.take() else { return };
            if !live.has_room(call.cost_bytes) {
                self.waiting = Some(call);
                return;
            }
            let (size, limit) = (call.body.len(), live.link.info.frame_body_max_bytes);
            if size > limit {
                let _ = call.reply.send(Outcome::TooLarge { size, limit });
            } else if !call.reply.is_closed() && call.claim.send() {
                let correlation = self.next_correlation;
                self.next_correlation += 1;
                live.start(correlation, call);
            }
        }
    }
}

#[derive(Debug)]
struct Pending {
    reply: oneshot::Sender<Outcome>,
    cost_bytes: usize,
}

/// A connection in use.
#[derive(Debug)]
struct Live {
    link: Link,
    out: Vec<u8>,
    sent_bytes: usize,
    pending: HashMap<u64, Pending>,
    pending_bytes: usize,
    silence: Duration,
    /// When the server last took or sent a byte, or began to owe an answer.
    last_sign: Instant,
    /// A ping that was not answered yet.
    ping: Option<u64>,
    /// When the server was asked for a sign of life.
    asked_at: Option<Instant>,
    /// The server will not serve: no further calls go there.
    leaving: bool,
    /// The server has said what it is now.
    stands_anew: bool,
}

impl Live {
    fn new(link: Link, silence: Duration) -> Self {
        Self {
            link,
            out: Vec::new(),
            sent_bytes: 0,
            pending: HashMap::new(),
            pending_bytes: 0,
            silence,
            last_sign: Instant::now(),
            ping: None,
            asked_at: None,
            leaving: false,
            stands_anew: false,
        }
    }

    fn has_room(&self, cost_bytes: usize) -> bool {
        let info = &self.link.info;
        // A single call always goes: if it is over a limit, the server says which.
        self.pending.is_empty()
            || self.pending.len() < info.requests_max
                && self.pending_bytes + cost_bytes <= info.bytes_max
    }

    fn start(&mut self, correlation: u64, call: Outgoing) {
        if self.pending.is_empty() {
            self.last_sign = Instant::now();
        }
        encode_frame(&mut self.out, call.kind, correlation, &call.body);
        let Outgoing { reply, cost_bytes, .. } = call;
        self.pending_bytes += cost_bytes;
        let twin = self.pending.insert(correlation, Pending { reply, cost_bytes });
        assert!(twin.is_none(), "correlation ids are never used twice");
    }

    async fn ready(&self) -> std::io::Result<Ready> {
        let interest = if self.out.is_empty() {
            Interest::READABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        };
        self.link.stream.ready(interest).await
    }

    fn write(&mut self) -> Result<(), End> {
        while self.sent_bytes < self.out.len() {
            match self.link.stream.try_write(&self.out[self.sent_bytes..]) {
                Ok(count) => {
                    self.sent_bytes += count;
                    self.last_sign = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(End::Lost(format!("cannot send: {error}"))),
            }
        }
        self.sent_bytes = 0;
        self.out.clear();
        self.out.shrink_to(CLIENT_UNSENT_MAX_BYTES);
        Ok(())
    }

    /// Looks whether an idle connection has ended unseen: a call that was not sent yet goes to the
    /// next connection. The runtime looks at its sockets only between tasks; yielding to it here
    /// cost far more than this call (one request at a time over loopback, two cores: 10,000 a
    /// second instead of 49,000).
    fn look(&self) -> Result<(), End> {
        let (mut byte, flags) = ([0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        match rustix::net::recv(&self.link.stream, &mut byte[..], flags) {
            Ok((0, _)) => Err(End::Lost("the server closed the connection".to_owned())),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(End::Lost(format!("cannot receive: {error}"))),
        }
    }

    /// Reads what is there.
    fn read(&mut self, search: &Search) -> Result<(), End> {
        for _ in 0..READS_MAX {
            match self.link.stream.try_read(self.link.frames.space()) {
                Ok(0) => return Err(End::Lost("the server closed the connection".to_owned())),
                Ok(count) => self.link.frames.filled(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(End::Lost(format!("cannot receive: {error}"))),
            }
            self.last_sign = Instant::now();
            self.deliver(search)?;
        }
        Ok(())
    }

    fn deliver(&mut self, search: &Search) -> Result<(), End> {
        let leads = search.aim == Aim::Leader;
        let garbage = |text: String| End::Garbage(format!("the server sent garbage: {text}"));
        loop {
            let frame = self.link.frames.next_frame();
            let Some(frame) = frame.map_err(|error| garbage(error.to_string()))? else {
                return Ok(());
            };
            if self.ping == Some(frame.correlation) && frame.kind == FrameKind::Pong {
                self.ping = None;
                continue;
            }
            if frame.kind == FrameKind::Standing {
                let standing = Standing::decode(frame.body);
                let standing = standing.map_err(|error| garbage(error.to_string()))?;
                search.nodes.learn(standing.epoch, standing.leader);
                self.link.info.stands(&standing);
                self.stands_anew = true;
                self.leaving |= leads && !standing.role.serves();
                continue;
            }
            let refusal = refusal(&frame);
            match refusal.and_then(|error| Some((error.code()?, error))) {
                Some((ErrorCode::NotLeader, error)) => {
                    search.nodes.learn(LeaseEpoch(error.a), error.leader);
                    self.leaving |= leads || search.leads_away_from(&self.link.info.address);
                }
                Some((ErrorCode::ShuttingDown, _)) => {
                    self.leaving |= search.leads_away_from(&self.link.info.address);
                }
                _ => {}
            }
            match (self.pending.remove(&frame.correlation), refusal) {
                (Some(pending), _) => {
                    self.pending_bytes -= pending.cost_bytes;
                    let answer = Answer { kind: frame.kind, body: frame.body.to_vec() };
                    // A caller that gave up is not there to hear it.
                    let _ = pending.reply.send(Outcome::Answered(answer));
                }
                (None, Some(error)) => return Err(End::Lost(error.text.to_owned())),
                (None, None) => {
                    let (kind, correlation) = (frame.kind, frame.correlation);
                    return Err(garbage(format!("{kind:?} {correlation}, which answers no call")));
                }
            }
        }
    }

    /// Half the time of silence has passed: a ping. The other half too: the server is given up.
    fn check_sign_of_life(
        &mut self,
        next_correlation: &mut u64,
        alarm: Pin<&mut Sleep>,
    ) -> Result<(), End> {
        let (now, half) = (Instant::now(), self.silence / 2);
        match self.asked_at {
            Some(asked_at) if self.last_sign <= asked_at => {
                if now >= asked_at + half {
                    let silent_ms = (now - self.last_sign).as_millis();
                    return Err(End::Lost(format!("no sign of life for {silent_ms} ms")));
                }
                alarm.reset(asked_at + half);
            }
            _ if now < self.last_sign + half => alarm.reset(self.last_sign + half),
            _ => {
                self.asked_at = Some(now);
                alarm.reset(now + half);
                self.ask(next_correlation)?;
            }
        }
        Ok(())
    }

    /// Sends a ping, unless one is on its way, or requests that wait for the socket are before it.
    fn ask(&mut self, next_correlation: &mut u64) -> Result<(), End> {
        if self.ping.is_some() || !self.out.is_empty() {
            return Ok(());
        }
        self.ping = Some(*next_correlation);
        encode_frame(&mut self.out, FrameKind::Ping, *next_correlation, &[]);
        *next_correlation += 1;
        // Not a sign of life: the kernel takes a ping for a dead server as well.
        let last_sign = self.last_sign;
        self.write()?;
        self.last_sign = last_sign;
        Ok(())
    }

    fn fail_all(self, end: &End) {
        for (_, pending) in self.pending {
            let _ = pending.reply.send(match end {
                End::Garbage(text) => Outcome::Garbage(text.clone()),
                End::Lost(text) => Outcome::Lost(text.clone()),
                End::Left | End::Released => Outcome::Lost("the connection was left".to_owned()),
            });
        }
    }
}

fn refusal<'a>(frame: &Frame<'a>) -> Option<ErrorView<'a>> {
    (frame.kind == FrameKind::Error).then(|| ErrorView::decode(frame.body).ok()).flatten()
}
