//! Subscriptions of this shard's events: each a task that reads the log as any reader does and
//! pushes what it finds. The machine that decides is [`duolog_net::session::Feed`]; the log itself
//! is what a slow subscriber's events wait in.

mod hub;
mod seek;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use duolog_engine::ids::{Hlc, Lsn, Revision, StreamId};
use duolog_engine::record::EventRecord;
use duolog_net::limits::{CONNECTION_SUBSCRIPTIONS_MAX, CONNECTION_WINDOWS_MAX_BYTES};
use duolog_net::session::{Answers, Feed, Ticket, Turn};
use duolog_net::wire::{
    Consistency, Direction, ErrorCode, ErrorFrame, Events, EventsTail, Origin, ReadStream, Scope,
    Subscribe, SubscriptionAsk,
};

pub(super) use hub::Hub;

use super::connection::Connection;
use super::fetch::FetchError;
use super::log_read::{self, Selection};
use super::notify::Notify;
use super::shard_loop::ShardLoop;
use super::stream_read;

/// Bytes of the log that are looked at for one piece, whatever belongs to it: some 100 us.
const LOOKED_AT_MAX: usize = 256 << 10;
/// A subscriber to whom nothing belongs hears how far its subscription is after so many events.
const PROGRESS_EVENTS: u64 = 16_384;

/// What a subscription is about, owning its texts.
#[derive(Debug)]
struct Wanted {
    name: String,
    /// `None`: the one stream called `name`; else streams that begin so, and whether system streams
    /// are among them.
    log: Option<bool>,
    kind: Option<String>,
}

impl Wanted {
    fn scope(&self) -> Scope<'_> {
        match self.log {
            None => Scope::Stream(&self.name),
            Some(system) => Scope::Log { prefix: &self.name, system },
        }
    }
}

/// One subscription.
#[derive(Debug)]
pub(super) struct Subscriber {
    connection: Rc<Connection>,
    correlation: u64,
    wanted: Wanted,
    window_bytes: u32,
    feed: RefCell<Feed>,
    /// Rings when the feed's turn may have changed.
    bell: Notify,
    /// It is over for its connection.
    over: Cell<bool>,
}

/// How a subscription ends.
#[derive(Debug)]
enum End {
    /// The connection is over.
    Gone,
    Unsubscribed,
    CutOff,
    Unreadable(FetchError),
}

impl From<FetchError> for End {
    fn from(error: FetchError) -> Self {
        Self::Unreadable(error)
    }
}

impl Subscriber {
    /// The subscriber said this.
    pub(super) fn hear(&self, ask: SubscriptionAsk) {
        self.feed.borrow_mut().hear(ask);
        self.bell.ring();
    }

    /// Its connection is over.
    pub(super) fn end(&self) {
        self.over.set(true);
        self.bell.ring();
    }

    /// Something that may belong to it was committed; nothing before `from` does.
    fn news(&self, from: Option<Lsn>) {
        self.feed.borrow_mut().news(from.map(|lsn| lsn.0));
        self.bell.ring();
    }
}

/// Begins a subscription. The session is borrowed: a refusal goes into `answers` at once.
pub(super) fn begin(
    shard: &Rc<ShardLoop>,
    connection: &Rc<Connection>,
    ticket: Ticket,
    subscribe: &Subscribe<'_>,
    answers: &mut Answers,
) {
    let correlation = ticket.correlation();
    let window_bytes = subscribe.window();
    let mut feeds = connection.feeds.borrow_mut();
    let windows: u64 = feeds.values().map(|other| u64::from(other.window_bytes)).sum();
    let full = windows + u64::from(window_bytes) > u64::from(CONNECTION_WINDOWS_MAX_BYTES);
    if connection.is_over() {
        return answers.refuse(ticket, &ErrorFrame::new(ErrorCode::ShuttingDown), "it is over");
    }
    if feeds.contains_key(&correlation) {
        let text = format_args!("correlation id {correlation} names another subscription");
        return answers.refuse(ticket, &ErrorFrame::new(ErrorCode::BadRequest), text);
    }
    if feeds.len() >= CONNECTION_SUBSCRIPTIONS_MAX || full {
        let count = feeds.len();
        let text = format_args!(
            "the connection has {count} subscriptions with windows of {windows} bytes; the limits \
             are {CONNECTION_SUBSCRIPTIONS_MAX} and {CONNECTION_WINDOWS_MAX_BYTES} bytes: use \
             another connection"
        );
        return answers.refuse(ticket, &ErrorFrame::new(ErrorCode::Busy), text);
    }
    let (name, log) = match subscribe.scope {
        Scope::Stream(name) => (name.to_owned(), None),
        Scope::Log { prefix, system } => (prefix.to_owned(), Some(system)),
    };
    let kind = subscribe.kind.map(str::to_owned);
    let subscriber = Rc::new(Subscriber {
        connection: Rc::clone(connection),
        correlation,
        wanted: Wanted { name, log, kind },
        window_bytes,
        feed: RefCell::new(Feed::new(0, window_bytes, shard.subscriber_stall_us)),
        bell: Notify::default(),
        over: Cell::new(false),
    });
    feeds.insert(correlation, Rc::clone(&subscriber));
    drop(feeds);
    let (shard, origin) = (Rc::clone(shard), subscribe.origin);
    glommio::spawn_local(async move {
        // A spawned task runs at once, here inside a session that is borrowed: wait a turn.
        futures_lite::future::yield_now().await;
        run(&shard, &subscriber, ticket, origin).await;
    })
    .detach();
}

async fn run(shard: &Rc<ShardLoop>, subscriber: &Rc<Subscriber>, ticket: Ticket, origin: Origin) {
    let mut first = Some(ticket);
    let end = match serve(shard, subscriber, &mut first, origin).await {
        Ok(never) => match never {},
        Err(end) => end,
    };
    shard.hub.borrow_mut().remove(subscriber);
    count(shard);
    let (connection, correlation) = (&subscriber.connection, subscriber.correlation);
    connection.feeds.borrow_mut().remove(&correlation);
    if subscriber.over.get() {
        return;
    }
    let next = subscriber.feed.borrow().next();
    let mut frame = Vec::new();
    match end {
        End::Gone => return,
        End::Unsubscribed => SubscriptionAsk::Unsubscribe.encode(&mut frame, correlation),
        End::CutOff => {
            let text = format_args!(
                "the subscriber has taken nothing for {} ms (limits.subscriber_stall_ms) while \
                 there was more for it; the subscription ended before {next}",
                shard.subscriber_stall_us / 1000,
            );
            let cut_off = ErrorFrame::new(ErrorCode::CutOff).numbers(next, 0);
            cut_off.encode(&mut frame, correlation, text);
        }
        End::Unreadable(error) => {
            tracing::error!(shard = shard.id().0, next, %error, event = "read_failed");
            let text = format_args!(
                "the log cannot give the events from {next} on ({error}): run `duolog verify` on \
                 the data directory"
            );
            let damaged = ErrorFrame::new(ErrorCode::Damaged).numbers(next, next);
            damaged.encode(&mut frame, correlation, text);
        }
    }
    push(shard, subscriber, &mut first, &frame);
}

/// Shows how many there are.
fn count(shard: &ShardLoop) {
    shard.metrics().subscribers.set(shard.hub.borrow().count() as u64);
}

/// Sends a frame: the first one answers the request.
fn push(shard: &Rc<ShardLoop>, subscriber: &Subscriber, first: &mut Option<Ticket>, frame: &[u8]) {
    let connection = &subscriber.connection;
    let mut session = connection.session.borrow_mut();
    match first.take() {
        Some(ticket) => session.answers().answer(ticket, |out, _| out.extend_from_slice(frame)),
        None => session.answers().push(|out| out.extend_from_slice(frame)),
    }
    drop(session);
    connection.send(shard);
}

/// Feeds the subscriber until it ends.
async fn serve(
    shard: &Rc<ShardLoop>,
    subscriber: &Rc<Subscriber>,
    first: &mut Option<Ticket>,
    origin: Origin,
) -> Result<std::convert::Infallible, End> {
    let next = begins(shard, subscriber, origin).await?;
    let feed = &subscriber.feed;
    feed.replace_with(|old| old.begin_at(next));
    let committed = shard.shard.borrow().committed().lsn;
    shard.hub.borrow_mut().add(subscriber, committed);
    count(shard);
    let mut sent = Sent { next, caught_up: false };
    let mut frame = Vec::new();
    loop {
        if subscriber.over.get() {
            return Err(End::Gone);
        }
        shard.look_at_the_clock();
        let turn = feed.borrow_mut().turn(shard.now_us());
        match turn {
            Turn::Read { bytes_max } => {
                frame.clear();
                shard.reads.take().await;
                let piece = read(shard, subscriber, bytes_max, &mut frame).await;
                shard.reads.release();
                let worth = sent.is_worth(&piece?, first.is_some());
                if worth && !subscriber.over.get() {
                    push(shard, subscriber, first, &frame);
                }
                frame.shrink_to(LOOKED_AT_MAX);
                futures_lite::future::yield_now().await;
            }
            Turn::Tell { stamp } => {
                let settled = shard.settled();
                if settled < stamp {
                    shard.hub.borrow_mut().wait_to_settle(subscriber);
                    subscriber.bell.wait().await;
                    continue;
                }
                frame.clear();
                let open = Events::begin(&mut frame, subscriber.correlation);
                finish(shard, subscriber, open, &mut frame);
                push(shard, subscriber, first, &frame);
            }
            Turn::Wait => {
                // An idle subscription keeps no buffer.
                frame = Vec::new();
                subscriber.bell.wait().await;
            }
            Turn::CutOff => return Err(End::CutOff),
            Turn::End => return Err(End::Unsubscribed),
        }
    }
}

/// The first revision or LSN.
async fn begins(shard: &ShardLoop, subscriber: &Subscriber, origin: Origin) -> Result<u64, End> {
    let stream = subscriber.wanted.log.is_none();
    Ok(match origin {
        Origin::From(revision) if stream => revision,
        Origin::From(lsn) => lsn.max(1),
        Origin::End if stream => {
            let stream = StreamId::of(subscriber.wanted.name.as_bytes());
            stream_read::end(shard, stream).await?.0
        }
        Origin::End => shard.shard.borrow().committed().lsn.next().0,
        Origin::Behind(position) if position.shard == shard.id() => position.lsn.next().0,
        Origin::Behind(position) => {
            seek::first_with_stamp(shard, position.first_stamp_behind(shard.id())).await?.0
        }
    })
}

/// What the subscriber was sent last.
#[derive(Debug)]
struct Sent {
    next: u64,
    caught_up: bool,
}

impl Sent {
    /// Whether a piece that may have no events is worth sending; notes that it is sent.
    fn is_worth(&mut self, piece: &Piece, first: bool) -> bool {
        let news = piece.count > 0 || piece.answers;
        let caught_up = piece.caught_up && !self.caught_up;
        let worth = first || news || caught_up || piece.next - self.next >= PROGRESS_EVENTS;
        if worth {
            self.next = piece.next;
            self.caught_up |= piece.caught_up;
        }
        worth
    }
}

#[derive(Debug)]
struct Piece {
    count: u32,
    next: u64,
    caught_up: bool,
    /// The subscriber has asked for what it says.
    answers: bool,
}

/// Reads the next piece into `frame`.
async fn read(
    shard: &Rc<ShardLoop>,
    subscriber: &Subscriber,
    bytes_max: u32,
    frame: &mut Vec<u8>,
) -> Result<Piece, FetchError> {
    let mut open = Events::begin(frame, subscriber.correlation);
    let wanted = &subscriber.wanted;
    let next = subscriber.feed.borrow().next();
    let kind = wanted.kind.as_deref();
    let (next, end) = if wanted.log.is_none() {
        let read = ReadStream {
            from: Revision(next),
            events_max: 0,
            bytes_max,
            direction: Direction::Forwards,
            consistency: Consistency::Any,
            stream: &wanted.name,
            kind,
        };
        let tail = stream_read::fill(shard, &read, &mut open, frame).await?;
        (tail.next.0, tail.end)
    } else {
        let scope = wanted.scope();
        let all = kind.is_none() && scope == (Scope::Log { prefix: "", system: true });
        let choice = |event: &EventRecord<'_>| {
            all || scope.takes(event.stream) && kind.is_none_or(|kind| kind == event.kind)
        };
        let selection =
            Selection { events_max: 0, bytes_max, looked_at_max: LOOKED_AT_MAX, choice: &choice };
        let mut next = Lsn(next);
        let tail = log_read::fill(shard, &selection, &mut open, frame, &mut next).await?;
        (tail.next.0, tail.end)
    };
    let (count, bytes) = (open.record_count(), open.record_bytes(frame));
    subscriber.feed.borrow_mut().fed(next, bytes, end);
    let answers = finish(shard, subscriber, open, frame);
    let caught_up = subscriber.feed.borrow().is_caught_up();
    Ok(Piece { count, next, caught_up, answers })
}

/// Closes the piece with where the feed is now. Whether it answers the subscriber's question.
// O1: no wait lies between the feed's last look at the log and what it says is settled.
fn finish(
    shard: &ShardLoop,
    subscriber: &Subscriber,
    open: duolog_net::wire::OpenPage,
    frame: &mut [u8],
) -> bool {
    let mut feed = subscriber.feed.borrow_mut();
    let caught_up = feed.is_caught_up();
    let logs = subscriber.wanted.log.is_some();
    let settled = if caught_up && logs { shard.settled() } else { Hlc(0) };
    let committed = shard.shard.borrow().committed().lsn;
    let tail = EventsTail { next: feed.next(), committed, settled, caught_up };
    open.finish_events(frame, &tail);
    feed.told(settled)
}
