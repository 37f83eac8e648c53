//! The shard's driver: hands events to the machine and does what it asks for.
//!
//! Single-threaded; `RefCell` borrows never live across an `.await`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam::channel::Sender;
use duolog_engine::disk::shard_dir::ShardDir;
use duolog_engine::disk::uring::{LogFile, LogFiles};
use duolog_engine::ids::{Generation, MonoUs, Now, ShardId};
use duolog_engine::shard::{Action, Actions, Event, Shard};
use duolog_net::session::{Flow, Session, Settings};
use slab::Slab;

use super::asked::Asked;
use super::connection::Connection;
use super::fetch::IndexFiles;
use super::log_walk::LogMap;
use super::notify::Notify;
use super::pair::{Calls, Control, Member};
use super::subscribe::Hub;
use crate::serve::background::FileJob;
use crate::serve::clock::Clock;
use crate::serve::cluster::PairSettings;
use crate::serve::cluster::gauges::ShardGauge;
use crate::serve::inbox::{Inbox, Message};
use crate::serve::index::{IndexJob, SavedIndexes};
use crate::serve::journal::Journal;
use crate::serve::metrics::{Blocks, ShardMetrics};
use crate::serve::stamps::NewestStamp;
use crate::serve::visit::Visits;

/// See the module.
#[derive(Debug)]
pub(super) struct ShardLoop {
    pub shard: RefCell<Shard>,
    pub(in crate::serve) actions: RefCell<Actions>,
    /// Segments asked for that are not ready.
    pub(super) preparing: Cell<usize>,
    /// The shard's part in a pair; none on a standalone node.
    pub(super) pair: Option<Member>,
    /// Shard 0 of a pair: the lease machine's driver.
    pub(super) control: RefCell<Option<Rc<Control>>>,
    pub requests: RefCell<Slab<Asked>>,
    pub(super) blocks: RefCell<Blocks>,
    pub connections: RefCell<Slab<Rc<Connection>>>,
    pub(super) dirty: RefCell<Vec<Rc<Connection>>>,
    pub committer: Notify,
    /// Connections to sweep; see [`super::sweep`].
    pub(super) hot: RefCell<Vec<Rc<Connection>>>,
    /// Every hot connection, and some that are no longer.
    pub(super) warm: RefCell<Vec<Rc<Connection>>>,
    /// A sweep is under way or about to begin.
    pub(super) sweeping: Cell<bool>,
    /// Connections that the last commit answered.
    pub(super) answered: Cell<usize>,
    /// How long to linger over them; see [`super::sweep`].
    pub(super) spin_us: u64,
    /// Segments open for writing: the active one and those prepared ahead.
    writers: RefCell<Vec<(Generation, Rc<LogFile>)>>,
    pub files: LogFiles,
    pub indexes: IndexFiles,
    pub log_map: RefCell<LogMap>,
    pub dir: ShardDir,
    pub read_buffer: RefCell<Vec<u8>>,
    pub event_max_bytes: usize,
    session_settings: Settings,
    pub inboxes: Arc<[Arc<Inbox>]>,
    file_jobs: Sender<FileJob>,
    index_jobs: Sender<IndexJob>,
    clock: Clock,
    /// The node's event log.
    pub(in crate::serve) journal: Journal,
    /// Answers `duolog doctor`.
    pub(in crate::serve) visits: Visits,
    now: Cell<Now>,
    pub drained: Cell<bool>,
    pub stopping: Cell<bool>,
    pub stopped: Notify,
    pub reads: super::fetch::ReadPermits,
    pub(super) hub: RefCell<Hub>,
    /// `limits.subscriber_stall_ms`, microseconds.
    pub(super) subscriber_stall_us: u64,
    pub(super) stamps: Arc<NewestStamp>,
    /// Answers that found another shard's inbox full.
    pub(super) undelivered: RefCell<VecDeque<(ShardId, Message)>>,
}

/// What a shard loop is made of.
#[derive(Debug)]
pub struct Parts {
    pub shard: Shard,
    pub dir: ShardDir,
    pub log_map: LogMap,
    pub indexes: SavedIndexes,
    pub event_max_bytes: usize,
    pub session_settings: Settings,
    pub inboxes: Arc<[Arc<Inbox>]>,
    pub file_jobs: Sender<FileJob>,
    pub index_jobs: Sender<IndexJob>,
    pub clock: Clock,
    /// `shards.spin_us`.
    pub spin_us: u64,
    /// The node's event log.
    pub journal: Journal,
    /// Answers `duolog doctor`.
    pub visits: Visits,
    pub pair: Option<Arc<PairSettings>>,
    /// `limits.subscriber_stall_ms`, microseconds.
    pub subscriber_stall_us: u64,
    pub stamps: Arc<NewestStamp>,
}

/// Bytes read from a socket in one go, for all connections of the shard in turn.
const READ_BYTES: usize = 64 << 10;

/// Shows other threads how far the shard is.
fn publish(gauge: &ShardGauge, shard: &Shard) {
    gauge.log(shard.end().lsn, shard.durable().lsn, shard.committed().lsn);
}

impl ShardLoop {
    pub(super) fn new(parts: Parts) -> Rc<Self> {
        let inbox = &parts.inboxes[parts.session_settings.shard.0 as usize];
        publish(&inbox.gauge, &parts.shard);
        let align_bytes = parts.shard.config().layout.align_bytes;
        let inbox = Arc::clone(&parts.inboxes[parts.session_settings.shard.0 as usize]);
        let pair = parts.pair.map(|settings| {
            let calls = Rc::new(Calls::new(settings.store.clone(), inbox));
            Member::new(settings, calls)
        });
        Rc::new(Self {
            actions: RefCell::default(),
            preparing: Cell::new(0),
            pair,
            control: RefCell::default(),
            requests: RefCell::new(Slab::with_capacity(1024)),
            blocks: RefCell::default(),
            connections: RefCell::default(),
            dirty: RefCell::default(),
            committer: Notify::default(),
            hot: RefCell::default(),
            warm: RefCell::default(),
            sweeping: Cell::new(false),
            answered: Cell::new(0),
            spin_us: parts.spin_us,
            writers: RefCell::default(),
            files: LogFiles::new(parts.dir.clone(), align_bytes),
            indexes: IndexFiles::new(align_bytes, parts.indexes),
            log_map: RefCell::new(parts.log_map),
            dir: parts.dir,
            read_buffer: RefCell::new(vec![0; READ_BYTES]),
            event_max_bytes: parts.event_max_bytes,
            session_settings: parts.session_settings,
            inboxes: parts.inboxes,
            file_jobs: parts.file_jobs,
            index_jobs: parts.index_jobs,
            clock: parts.clock,
            journal: parts.journal,
            visits: parts.visits,
            now: Cell::new(parts.clock.now()),
            drained: Cell::new(false),
            stopping: Cell::new(false),
            stopped: Notify::default(),
            reads: super::fetch::ReadPermits::default(),
            hub: RefCell::default(),
            subscriber_stall_us: parts.subscriber_stall_us,
            stamps: parts.stamps,
            undelivered: RefCell::default(),
            shard: RefCell::new(parts.shard),
        })
    }

    pub(super) fn id(&self) -> ShardId {
        self.session_settings.shard
    }

    pub(super) const fn session_settings(&self) -> Settings {
        self.session_settings
    }

    /// The clocks as last looked at.
    pub(super) fn now(&self) -> Now {
        self.now.get()
    }

    /// The time as last looked at.
    pub(super) fn now_us(&self) -> MonoUs {
        self.now.get().mono
    }

    pub(super) fn inbox(&self) -> &Inbox {
        &self.inboxes[self.id().0 as usize]
    }

    pub(super) fn metrics(&self) -> &ShardMetrics {
        &self.inbox().metrics
    }

    /// Hands one event to the machine and does what it asks for.
    pub(super) fn step(self: &Rc<Self>, event: Event<'_>) {
        self.look_at_the_clock();
        self.step_now(event);
    }

    /// [`ShardLoop::step`] for whoever has just looked at the clock.
    fn step_now(self: &Rc<Self>, event: Event<'_>) {
        let mut actions = self.actions.take();
        self.step_into(event, &mut actions);
        self.perform(actions);
    }

    /// Reads the clocks for what follows until the next wait: a sweep is one moment.
    pub(super) fn look_at_the_clock(&self) {
        self.now.set(self.clock.now());
    }

    /// Hands one event to the machine; the caller performs the actions later.
    pub(super) fn step_into(&self, event: Event<'_>, actions: &mut Actions) {
        self.shard.borrow_mut().step(self.now.get(), event, actions);
    }

    /// Does what the machine asked for, and keeps the buffer for the next step.
    pub(super) fn perform(self: &Rc<Self>, mut actions: Actions) {
        self.tell_commit();
        let mut list = std::mem::take(&mut actions.list);
        for action in list.drain(..) {
            match action {
                Action::Write { first_lsn, blocks, place, header } => {
                    self.write(first_lsn, blocks, place, header);
                }
                Action::Reply { to, outcome } => self.reply(to, &outcome, &actions),
                Action::PrepareSegment { generation } => {
                    self.preparing.set(self.preparing.get() + 1);
                    self.send_file_job(FileJob::Prepare(self.id(), generation));
                }
                Action::LoadHead { stream } => {
                    let shard = Rc::clone(self);
                    glommio::spawn_local(super::fetch::load_head(shard, stream)).detach();
                }
                Action::LoadReplay { to, place } => {
                    let shard = Rc::clone(self);
                    glommio::spawn_local(super::fetch::load_replay(shard, to, place)).detach();
                }
                Action::SaveIndex { generation } => self.save_index(generation),
                Action::WriteMark { end } => self.send_file_job(FileJob::Mark(self.id(), end)),
                Action::Committed { .. } => {}
                Action::Durable { epoch, lsn } => self.ack(epoch, lsn),
                Action::BlockRefused { reason } => self.refuse_block(&reason),
                Action::Poisoned => self.die(),
                Action::Drained => {
                    self.drained.set(true);
                    self.inbox().drained.store(true, Ordering::Release);
                    self.tell_drained();
                }
            }
        }
        actions.list = list;
        actions.clear();
        self.actions.replace(actions);
        self.count_step();
        self.send_dirty();
        publish(&self.inbox().gauge, &self.shard.borrow());
        self.after_step();
        self.flush_soon();
    }

    /// Tells the watchdog that this thread runs.
    pub(super) fn tick(&self) {
        self.inbox().ticks.fetch_add(1, Ordering::Relaxed);
    }

    fn write(
        self: &Rc<Self>,
        first_lsn: duolog_engine::ids::Lsn,
        blocks: u32,
        place: duolog_engine::ids::Place,
        header: Option<duolog_engine::segment::SegmentHeader>,
    ) {
        if let Some(header) = &header {
            self.log_map.borrow_mut().segment(header.generation, &header.base);
        }
        self.log_map.borrow_mut().block(first_lsn, place);
        let file = self.writer(place.generation);
        let shard = self.shard.borrow();
        self.send_to_peer(&shard, first_lsn);
        let sent = self.block_sent(&shard, first_lsn);
        let buffer = file.buffer(header.as_ref(), shard.write_parts(first_lsn, blocks));
        drop(shard);
        let shard = Rc::clone(self);
        let size_bytes = buffer.size_bytes();
        glommio::spawn_local(async move {
            match file.write_block(place, header, buffer).await {
                Ok(()) => {
                    shard.inbox().gauge.wrote(size_bytes);
                    shard.written(first_lsn, sent);
                }
                Err(error) => {
                    tracing::error!(
                        event = "write_failed",
                        shard = shard.id().0,
                        lsn = first_lsn.0,
                        %error,
                        "a block could not be written; the node stops and never retries the sync"
                    );
                    shard.step(Event::WriteFailed);
                }
            }
        })
        .detach();
    }

    /// A block is durable: answers leave, and what has come meanwhile goes into the next block.
    fn written(self: &Rc<Self>, first_lsn: duolog_engine::ids::Lsn, sent: MonoUs) {
        self.answered.set(0);
        self.sweeping.set(true);
        self.look_at_the_clock();
        self.metrics().stages.write.record(sent, self.now_us(), 1);
        self.step_now(Event::BlockWritten { first_lsn });
        self.sweep();
        self.linger();
        self.cool_if_idle();
    }

    /// Gives the sockets back to their readers when no block is under way.
    pub(super) fn cool_if_idle(&self) {
        if self.is_idle() {
            self.cool_all();
        }
    }

    /// Whether everything is committed and nothing waits to be written.
    pub(super) fn is_idle(&self) -> bool {
        let shard = self.shard.borrow();
        let committed = shard.end().lsn == shard.committed().lsn;
        committed && !shard.is_writing() && !shard.wants_flush()
    }

    /// The file of a segment that is being written. Earlier ones are let go.
    fn writer(&self, generation: Generation) -> Rc<LogFile> {
        let mut writers = self.writers.borrow_mut();
        writers.retain(|(known, _)| known.next() >= generation);
        let found = writers.iter().find(|(known, _)| *known == generation);
        let (_, file) =
            found.expect("a segment is opened before the machine hears that it is ready");
        Rc::clone(file)
    }

    /// Makes a segment known as ready for writing.
    pub(super) fn add_writer(&self, generation: Generation, file: LogFile) {
        self.writers.borrow_mut().push((generation, Rc::new(file)));
    }

    /// Lets go of all of them: the log has been cut.
    pub(super) fn drop_writers(&self) {
        self.writers.borrow_mut().clear();
    }

    /// Keeps a message for an inbox that is full.
    pub(super) fn send_late(&self, to: ShardId, message: Message) {
        self.undelivered.borrow_mut().push_back((to, message));
    }

    pub(super) fn send_file_job(&self, job: FileJob) {
        // The queue has room for everything that shards can have outstanding; it is full or closed
        // only when the thread has died, and then the process is about to end.
        if self.file_jobs.try_send(job).is_err() {
            tracing::error!(event = "background_lost", "the file thread takes no more jobs");
        }
    }

    fn save_index(&self, generation: Generation) {
        let Some(sealed) = self.shard.borrow().sealed(generation) else { return };
        self.send_index_job(IndexJob::Save(self.id(), sealed));
    }

    pub(super) fn send_index_job(&self, job: IndexJob) {
        if self.index_jobs.try_send(job).is_err() {
            tracing::error!(event = "background_lost", "the index thread takes no more jobs");
        }
    }

    /// A write failed: what is known has been answered; send it and end the process.
    fn die(&self) -> ! {
        self.send_dirty_raw();
        let exit = crate::exit::Exit::WriteFailed;
        self.journal.stop(exit, "a write into the log failed");
        std::process::exit(i32::from(exit.code()));
    }

    fn send_dirty_raw(&self) {
        for connection in self.dirty.borrow_mut().drain(..) {
            connection.send_last();
        }
    }

    pub(super) fn touch(&self, connection: &Rc<Connection>) {
        if !connection.dirty.replace(true) {
            self.dirty.borrow_mut().push(Rc::clone(connection));
        }
    }

    /// One send per connection that has something to be sent.
    fn send_dirty(self: &Rc<Self>) {
        let mut dirty = self.dirty.take();
        self.answered.set(self.answered.get() + dirty.len());
        for connection in dirty.drain(..) {
            connection.dirty.set(false);
            connection.send(self);
            self.list(&connection);
        }
        // Nothing was added meanwhile: sending answers nobody.
        self.dirty.replace(dirty);
    }

    /// Tries again what found an inbox full.
    pub(super) fn deliver_late(&self) {
        let count = self.undelivered.borrow().len();
        for _ in 0..count {
            let Some((to, message)) = self.undelivered.borrow_mut().pop_front() else { return };
            if let Err(message) = self.inboxes[to.0 as usize].send(message) {
                self.undelivered.borrow_mut().push_back((to, message));
            }
        }
    }

    /// Gives a connection to another shard's thread; gives the session back when it is full.
    pub(super) fn give_away(
        &self,
        target: ShardId,
        socket: std::os::fd::OwnedFd,
        session: Box<Session>,
    ) -> Result<(), Box<Session>> {
        let message = Message::Connection { socket, session };
        match self.inboxes[target.0 as usize].send(message) {
            Err(Message::Connection { session, .. }) => Err(session),
            _ => Ok(()),
        }
    }

    /// Whether a client has not taken all its answers.
    pub(super) fn has_unsent(&self) -> bool {
        self.connections.borrow().iter().any(|(_, connection)| connection.has_unsent())
    }

    /// Goes on with bytes that a session kept.
    pub(super) fn resume(self: &Rc<Self>, connection: &Rc<Connection>) -> Flow {
        self.look_at_the_clock();
        self.receive(connection, &[])
    }

    /// Hands received bytes to the session, and its requests on.
    pub(super) fn receive(self: &Rc<Self>, connection: &Rc<Connection>, bytes: &[u8]) -> Flow {
        self.hear_stamps();
        let mut actions = self.actions.take();
        let mut session = connection.session.borrow_mut();
        let flow = session.receive(bytes, &mut |ticket, request, answers| {
            self.request(connection, ticket, request, answers, &mut actions);
        });
        let unsent = !session.answers().unsent().is_empty();
        drop(session);
        connection.tell_feeds();
        if unsent {
            self.touch(connection);
        }
        if unsent || !actions.list.is_empty() {
            self.perform(actions);
        } else {
            // The ordinary append: the flush that follows, or the end of the write that it waits
            // for, performs for all that were taken.
            self.actions.replace(actions);
            self.flush_soon();
        }
        self.heat(connection, flow);
        flow
    }

    /// Wakes the committer when there is something for a block, and tells the watchdog.
    fn flush_soon(&self) {
        if self.shard.borrow().wants_flush() {
            self.committer.ring();
        }
        let work = self.count_requests() + u64::from(self.works_for_the_pair());
        self.inbox().work.store(work, Ordering::Relaxed);
        self.tick();
    }
}
