//! One shard's part of a subscription: a task with a connection of its own to the shard's thread,
//! which it makes again whenever it is lost, and goes on where it was.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duolog_engine::ids::{Hlc, Lsn, ShardId};
use tokio::io::{Interest, Ready};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

use super::merge::Piece;
use crate::client::chance::Backoff;
use crate::client::dial::Link;
use crate::client::error::Error;
use crate::client::event::RecordedEvent;
use crate::client::search::{Aim, Search};
use crate::limits::SUBSCRIPTION_SILENCE_MS;
use crate::wire::{
    ErrorCode, ErrorView, Events, FrameKind, Message, Origin, Scope, Subscribe, SubscriptionAsk,
    encode_frame,
};

/// The subscription's correlation id; the connection has no other.
const SUBSCRIPTION: u64 = 1;
/// That of signs of life.
const PING: u64 = 2;
/// Reads from the socket in one go at most, so that the subscriber's words are not forgotten.
const READS_MAX: usize = 16;

/// What the subscriber says, gathered until the task sends it: any number of words take no room.
#[derive(Debug, Default)]
pub(super) struct Words {
    taken: AtomicU64,
    settle: AtomicU64,
    /// Received and not taken, bytes.
    untaken: AtomicU64,
    said: Notify,
}

impl Words {
    pub(super) fn take(&self, bytes: u32) {
        self.taken.fetch_add(bytes.into(), Ordering::AcqRel);
        self.untaken.fetch_sub(bytes.into(), Ordering::AcqRel);
        self.said.notify_one();
    }

    pub(super) fn settle(&self, stamp: Hlc) {
        self.settle.fetch_max(stamp.0, Ordering::AcqRel);
        self.said.notify_one();
    }

    /// Appends frames of what was said since.
    fn encode(&self, out: &mut Vec<u8>) {
        let taken = self.taken.swap(0, Ordering::AcqRel);
        if taken > 0 {
            let taken = u32::try_from(taken).unwrap_or(u32::MAX);
            SubscriptionAsk::Taken(taken).encode(out, SUBSCRIPTION);
        }
        let settle = self.settle.swap(0, Ordering::AcqRel);
        if settle > 0 {
            SubscriptionAsk::Settle(Hlc(settle)).encode(out, SUBSCRIPTION);
        }
    }
}

/// What the task tells its subscription.
#[derive(Debug)]
pub(super) enum News {
    Piece(Piece),
    /// Another connection; what was asked on the one before is forgotten.
    Connected,
    /// The server has cut the subscriber off; it goes on when everything was taken.
    CutOff,
    /// It is over.
    Failed(Error),
}

/// What is wanted, owning its texts.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub name: String,
    /// `None`: the stream called `name`.
    pub log: Option<bool>,
    pub kind: Option<String>,
    pub window_bytes: u32,
}

/// The task.
#[derive(Debug)]
pub(super) struct Feed {
    pub index: usize,
    pub shard: ShardId,
    pub wanted: Wanted,
    /// Where it goes on: of the last piece, or of the beginning.
    pub origin: Origin,
    pub search: Search,
    pub words: Arc<Words>,
    pub out: mpsc::Sender<(usize, News)>,
}

/// Why a connection is left.
#[derive(Debug)]
enum Left {
    /// For another one.
    Lost,
    /// The subscriber was cut off: once it has taken everything, it goes on here.
    CutOff,
    /// Nobody takes events any more.
    Released,
    Failed(Error),
}

impl Feed {
    /// Runs until nobody takes its events.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new();
        let mut found = None;
        loop {
            let link = match found.take() {
                Some(link) => Ok(link),
                None => self.search.round().await,
            };
            if let Ok(link) = link {
                let began = Instant::now();
                let address = link.info.address.clone();
                match self.serve(link).await {
                    Left::Released => return,
                    Left::Failed(error) => {
                        // Nobody is there to hear it if this fails.
                        let _ = self.out.send((self.index, News::Failed(error))).await;
                        return;
                    }
                    Left::Lost | Left::CutOff => self.search.leave(&address),
                }
                if began.elapsed() > Duration::from_secs(1) {
                    backoff = Backoff::new();
                }
            }
            if self.out.is_closed() {
                return;
            }
            found = self.search.pause(backoff.pause()).await;
        }
    }

    /// Subscribes and hands on what comes.
    async fn serve(&mut self, mut link: Link) -> Left {
        if self.out.send((self.index, News::Connected)).await.is_err() {
            return Left::Released;
        }
        // The server begins with an empty window.
        self.words.taken.store(0, Ordering::Release);
        let mut out = Vec::new();
        if let Err(error) = self.subscribe(&mut out) {
            return Left::Failed(Error::BadRequest { text: error.to_string() });
        }
        let silence = Duration::from_millis(SUBSCRIPTION_SILENCE_MS);
        let mut life = Life { last_sign: Instant::now(), asked: false };
        let mut known = self.search.nodes.watch();
        let aims_at_leader = self.search.aim == Aim::Leader;
        loop {
            self.words.encode(&mut out);
            if write(&link, &mut out).is_err() {
                return Left::Lost;
            }
            tokio::select! {
                biased;
                ready = ready(&link, !out.is_empty()) => {
                    let Ok(ready) = ready else { return Left::Lost };
                    if ready.is_readable() || ready.is_read_closed() {
                        life = Life { last_sign: Instant::now(), asked: false };
                        let outcome = match self.read(&mut link).await {
                            Err(Left::CutOff) => self.wait_taken(&mut out).await,
                            other => other,
                        };
                        if let Err(left) = outcome {
                            return left;
                        }
                        life.last_sign = Instant::now();
                    }
                }
                () = self.words.said.notified() => {}
                () = self.out.closed() => return Left::Released,
                Ok(()) = known.changed() => {
                    // Another connection has heard of a newer reign.
                    let newer = known.borrow_and_update().epoch > link.info.epoch;
                    if newer && aims_at_leader {
                        return Left::Lost;
                    }
                }
                () = sleep_until(life.alarm(silence)) => {
                    if life.asked {
                        return Left::Lost;
                    }
                    life.asked = true;
                    encode_frame(&mut out, FrameKind::Ping, PING, b"");
                }
            }
        }
    }

    fn subscribe(&self, out: &mut Vec<u8>) -> Result<(), crate::wire::BodyError> {
        let Wanted { name, log, kind, window_bytes } = &self.wanted;
        let scope = match *log {
            None => Scope::Stream(name),
            Some(system) => Scope::Log { prefix: name, system },
        };
        let subscribe = Subscribe {
            shard: self.shard,
            scope,
            origin: self.origin,
            kind: kind.as_deref(),
            window_bytes: *window_bytes,
        };
        subscribe.encode(out, SUBSCRIPTION)
    }

    /// After a cut: waits until everything that came was taken, then subscribes again.
    async fn wait_taken(&mut self, out: &mut Vec<u8>) -> Result<(), Left> {
        if self.out.send((self.index, News::CutOff)).await.is_err() {
            return Err(Left::Released);
        }
        while self.words.untaken.load(Ordering::Acquire) > 0 {
            tokio::select! {
                () = self.words.said.notified() => {}
                () = self.out.closed() => return Err(Left::Released),
            }
        }
        self.words.taken.store(0, Ordering::Release);
        let failed = |error: crate::wire::BodyError| {
            Left::Failed(Error::BadRequest { text: error.to_string() })
        };
        self.subscribe(out).map_err(failed)
    }

    /// Reads what is there and hands it on.
    async fn read(&mut self, link: &mut Link) -> Result<(), Left> {
        for _ in 0..READS_MAX {
            match link.stream.try_read(link.frames.space()) {
                Ok(0) => return Err(Left::Lost),
                Ok(count) => link.frames.filled(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(Left::Lost),
            }
            while let Some(piece) = self.next_piece(link)? {
                self.words.untaken.fetch_add(piece.bytes.into(), Ordering::AcqRel);
                if self.out.send((self.index, News::Piece(piece))).await.is_err() {
                    return Err(Left::Released);
                }
            }
        }
        Ok(())
    }

    /// The next piece among the frames that are there whole.
    fn next_piece(&mut self, link: &mut Link) -> Result<Option<Piece>, Left> {
        let garbage = |text: String| {
            let text = format!("the server sent garbage on a subscription: {text}");
            Left::Failed(Error::Protocol { text })
        };
        loop {
            let frame = link.frames.next_frame().map_err(|error| garbage(error.to_string()))?;
            let Some(frame) = frame else { return Ok(None) };
            match Message::decode(&frame).map_err(|error| garbage(error.to_string()))? {
                Message::Events(events) => {
                    let piece = owned(&events).map_err(garbage)?;
                    self.origin = Origin::From(events.tail.next);
                    return Ok(Some(piece));
                }
                Message::Standing(standing) => {
                    self.search.nodes.learn(standing.epoch, standing.leader);
                    link.info.stands(&standing);
                    if self.search.aim == Aim::Leader && !standing.role.serves() {
                        return Err(Left::Lost);
                    }
                }
                Message::Error(error) => {
                    return Err(match error.code() {
                        Some(ErrorCode::CutOff) => Left::CutOff,
                        Some(ErrorCode::Busy | ErrorCode::ShuttingDown | ErrorCode::NotLeader) => {
                            Left::Lost
                        }
                        _ => Left::Failed(failure(&error)),
                    });
                }
                Message::Pong(_) => {}
                _ => return Err(garbage(format!("{:?}", frame.kind))),
            }
        }
    }
}

/// The server's last word on a subscription.
fn failure(error: &ErrorView<'_>) -> Error {
    let text = error.text.to_owned();
    match error.code() {
        Some(ErrorCode::BadRequest) => Error::BadRequest { text },
        Some(ErrorCode::Damaged) => {
            Error::Damaged { first: Lsn(error.a), last: Lsn(error.b), text }
        }
        _ => Error::Protocol { text },
    }
}

fn owned(events: &Events<'_>) -> Result<Piece, String> {
    let records = events.records;
    let bytes = u32::try_from(records.bytes().len()).unwrap_or(u32::MAX);
    let owned = records.map(|record| record.map(RecordedEvent::from));
    let owned: Result<Vec<_>, _> = owned.collect();
    Ok(Piece {
        events: owned.map_err(|error| error.to_string())?,
        bytes,
        committed: events.tail.committed,
        settled: events.tail.settled,
        caught_up: events.tail.caught_up,
    })
}

/// When the server was heard last.
#[derive(Debug)]
struct Life {
    last_sign: Instant,
    /// It was asked for a sign since.
    asked: bool,
}

impl Life {
    fn alarm(&self, silence: Duration) -> Instant {
        self.last_sign + if self.asked { silence } else { silence / 2 }
    }
}

async fn ready(link: &Link, writes: bool) -> std::io::Result<Ready> {
    let interest =
        if writes { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    link.stream.ready(interest).await
}

fn write(link: &Link, out: &mut Vec<u8>) -> Result<(), ()> {
    while !out.is_empty() {
        match link.stream.try_write(out) {
            Ok(count) => {
                out.drain(..count);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(_) => return Err(()),
        }
    }
    Ok(())
}
