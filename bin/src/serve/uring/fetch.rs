//! Reading what is not in memory: index pages, log records. Never blocks the shard's thread.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use duolog_engine::block::BLOCK_HEADER_BYTES;
use duolog_engine::disk::uring::LogFile;
use duolog_engine::ids::{Generation, Place, Revision, StreamId};
use duolog_engine::index::lookup::{Need, PostingLookup, Run};
use duolog_engine::index::page::{PAGE_BYTES, page_offset};
use duolog_engine::index::run::Entry;
use duolog_engine::index::span::Direction;
use duolog_engine::limits::BLOCK_BODY_MAX_BYTES;
use duolog_engine::record::Record;
use duolog_engine::shard::{Event, LoadFailed, RequestId, StoredHead};

use super::notify::Notify;
use super::shard_loop::ShardLoop;
use crate::serve::index::{IndexJob, SavedIndexes};

/// Reads of streams and logs under way in one shard; later ones wait. Each may hold a page and a
/// window: 64 x (4 + 0.25) MiB at the very most.
const READS_MAX: usize = 64;
/// Largest piece read at once for neighbouring records, bytes.
const WINDOW_MAX_BYTES: u32 = 128 << 10;
/// Read for a single record whose length is not known yet, bytes.
const WINDOW_MIN_BYTES: u32 = 4096;

/// Why something could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("reading: {0}")]
    Io(#[from] io::Error),
    #[error("index: {error}")]
    Index { run: Arc<Run>, error: duolog_engine::index::page::PageError },
    #[error("record at segment {} offset {}: {error}", place.generation, place.offset)]
    Record { place: Place, error: duolog_engine::record::RecordError },
    #[error("the record at segment {} offset {} is another one than the index says",
        .0.generation, .0.offset)]
    Misplaced(Place),
}

/// Bounds the reads under way.
#[derive(Debug, Default)]
pub(super) struct ReadPermits {
    taken: Cell<usize>,
    waiting: RefCell<std::collections::VecDeque<Rc<Notify>>>,
}

impl ReadPermits {
    /// Waits for a permit; it is given back by [`ReadPermits::release`].
    pub(super) async fn take(&self) {
        if self.taken.get() < READS_MAX {
            self.taken.set(self.taken.get() + 1);
            return;
        }
        let turn = Rc::new(Notify::default());
        self.waiting.borrow_mut().push_back(Rc::clone(&turn));
        turn.wait().await;
    }

    /// Gives a permit to the next in line.
    pub(super) fn release(&self) {
        match self.waiting.borrow_mut().pop_front() {
            Some(next) => next.ring(),
            None => self.taken.set(self.taken.get() - 1),
        }
    }
}

/// The saved indexes' files, opened when first read.
#[derive(Debug)]
pub(super) struct IndexFiles {
    align_bytes: u32,
    saved: RefCell<SavedIndexes>,
    open: RefCell<Vec<(Arc<Run>, Rc<LogFile>)>>,
    /// Damaged ones that the index thread was asked to rebuild.
    asked: RefCell<Vec<Arc<Run>>>,
}

impl IndexFiles {
    pub(super) fn new(align_bytes: u32, saved: SavedIndexes) -> Self {
        let (saved, open, asked) = (RefCell::new(saved), RefCell::default(), RefCell::default());
        Self { align_bytes, saved, open, asked }
    }

    /// Takes a new list of saved indexes; files of merged and rebuilt ones are closed when unused.
    pub(super) fn replace(&self, saved: SavedIndexes) {
        let kept = |run: &Arc<Run>| saved.runs.iter().any(|kept| Arc::ptr_eq(kept, run));
        self.open.borrow_mut().retain(|(run, _)| kept(run));
        self.asked.borrow_mut().retain(kept);
        self.saved.replace(saved);
    }

    /// Notes that `run` is to be rebuilt; whether that was noted before.
    fn ask(&self, run: &Arc<Run>) -> bool {
        let mut asked = self.asked.borrow_mut();
        let known = asked.iter().any(|known| Arc::ptr_eq(known, run));
        if !known {
            asked.push(Arc::clone(run));
        }
        known
    }

    /// Forgets that, so that the next one to need `run` asks again.
    fn ask_again(&self, run: &Arc<Run>) {
        self.asked.borrow_mut().retain(|known| !Arc::ptr_eq(known, run));
    }

    async fn file(&self, run: &Arc<Run>) -> Result<Rc<LogFile>, FetchError> {
        let known = {
            let open = self.open.borrow();
            let found = open.iter().find(|(known, _)| Arc::ptr_eq(known, run));
            found.map(|(_, file)| Rc::clone(file))
        };
        if let Some(file) = known {
            return Ok(file);
        }
        let path = self.saved.borrow().path(run);
        let file = Rc::new(LogFile::open_for_reading(&path, self.align_bytes).await?);
        self.open.borrow_mut().push((Arc::clone(run), Rc::clone(&file)));
        Ok(file)
    }
}

async fn entry(
    shard: &ShardLoop,
    run: &Arc<Run>,
    stream: StreamId,
) -> Result<Option<Entry>, FetchError> {
    let mut lookup = run.look_up(stream);
    loop {
        match lookup.need() {
            Need::Done(entry) => return Ok(entry),
            Need::Page(number) => {
                let file = shard.indexes.file(run).await?;
                let (_, page) = file.read(page_offset(number), PAGE_BYTES).await?;
                lookup.feed(&page).map_err(|error| FetchError::damaged(run, error))?;
            }
        }
    }
}

impl FetchError {
    fn damaged(run: &Arc<Run>, error: duolog_engine::index::page::PageError) -> Self {
        Self::Index { run: Arc::clone(run), error }
    }

    /// What stands behind the error passes: waits for that. Gives other errors back.
    async fn pass(self, shard: &ShardLoop) -> Result<(), Self> {
        match self {
            // The file was merged into another one while it was about to be opened; the message
            // about that is on its way.
            Self::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                glommio::timer::sleep(MERGE_LOOK).await;
                Ok(())
            }
            Self::Index { run, error } => match shard.repaired(&run).await {
                true => Ok(()),
                false => Err(Self::Index { run, error }),
            },
            other => Err(other),
        }
    }
}

/// How long to wait before merged indexes are asked again.
const MERGE_LOOK: std::time::Duration = std::time::Duration::from_millis(1);
/// How often a request that needs an index that is being rebuilt looks for it.
const REPAIR_LOOK: std::time::Duration = std::time::Duration::from_millis(10);
/// How many times: 4 s, so that the answer comes within an ordinary deadline.
const REPAIR_LOOKS_MAX: usize = 400;

impl ShardLoop {
    /// Has the damaged index `run` rebuilt; whether that was done within some seconds.
    async fn repaired(&self, run: &Arc<Run>) -> bool {
        let current = || self.shard.borrow().runs().iter().any(|known| Arc::ptr_eq(known, run));
        if current() && !self.indexes.ask(run) {
            let scope = &run.header().scope;
            self.send_index_job(IndexJob::Repair(self.id(), scope.first, scope.last));
        }
        for _ in 0..REPAIR_LOOKS_MAX {
            if !current() {
                return true;
            }
            glommio::timer::sleep(REPAIR_LOOK).await;
        }
        self.indexes.ask_again(run);
        false
    }
}

/// How often a lookup begins anew because its runs were merged, at most; once is rare.
const LOOKUPS_MAX: usize = 100;

/// What the sealed segments know of a stream; begins anew when a run was merged meanwhile.
pub(super) async fn stored_head(
    shard: &ShardLoop,
    stream: StreamId,
) -> Result<Option<StoredHead>, FetchError> {
    for _ in 1..LOOKUPS_MAX {
        match stored_head_once(shard, stream).await {
            Err(error) => error.pass(shard).await?,
            found => return found,
        }
    }
    stored_head_once(shard, stream).await
}

/// What the sealed segments know of a stream: its end from the newest run that has it, its fencing
/// token from the newest run where one was given.
async fn stored_head_once(
    shard: &ShardLoop,
    stream: StreamId,
) -> Result<Option<StoredHead>, FetchError> {
    let runs: Vec<Arc<Run>> = shard.shard.borrow().runs().to_vec();
    let mut head: Option<StoredHead> = None;
    for run in runs.iter().rev().filter(|run| run.may_contain(stream)) {
        let Some(entry) = entry(shard, run, stream).await? else { continue };
        let known = head.get_or_insert(StoredHead { next: entry.span.next(), fencing_token: 0 });
        known.fencing_token = entry.span.fencing_token;
        if known.fencing_token != 0 {
            break;
        }
    }
    Ok(head)
}

/// Answers the machine's question for a cold stream.
pub(super) async fn load_head(shard: Rc<ShardLoop>, stream: StreamId) {
    // A spawned task runs at once, here inside a step: wait a turn.
    futures_lite::future::yield_now().await;
    let head = stored_head(&shard, stream).await.map_err(|error| {
        tracing::error!(shard = shard.id().0, %error, event = "index_unreadable");
        LoadFailed
    });
    shard.step(Event::HeadLoaded { stream, head });
}

/// Puts out at most `max` places of a stream's events in sealed segments, from `from` on, all of
/// one run; begins anew when that was merged meanwhile.
pub(super) async fn sealed_places(
    shard: &ShardLoop,
    stream: StreamId,
    from: Revision,
    direction: Direction,
    max: usize,
    out: &mut Vec<Place>,
) -> Result<(), FetchError> {
    for _ in 1..LOOKUPS_MAX {
        out.clear();
        match sealed_places_once(shard, stream, from, direction, max, out).await {
            Err(error) => error.pass(shard).await?,
            found => return found,
        }
    }
    sealed_places_once(shard, stream, from, direction, max, out).await
}

async fn sealed_places_once(
    shard: &ShardLoop,
    stream: StreamId,
    from: Revision,
    direction: Direction,
    max: usize,
    out: &mut Vec<Place>,
) -> Result<(), FetchError> {
    let runs: Vec<Arc<Run>> = shard.shard.borrow().runs().to_vec();
    for run in runs.iter().rev().filter(|run| run.may_contain(stream)) {
        let Some(entry) = entry(shard, run, stream).await? else { continue };
        if from < entry.span.first {
            continue;
        }
        let mut lookup = PostingLookup::new(run.header(), &entry, from, direction, max);
        while let Need::Page(number) = lookup.need() {
            let file = shard.indexes.file(run).await?;
            let (_, page) = file.read(page_offset(number), PAGE_BYTES).await?;
            lookup.feed(&page, out).map_err(|error| FetchError::damaged(run, error))?;
        }
        return Ok(());
    }
    Ok(())
}

/// Fetches records, reading neighbouring ones in one piece.
#[derive(Debug, Default)]
pub(super) struct RecordFetch {
    window: Vec<u8>,
    generation: Generation,
    start: u64,
}

impl RecordFetch {
    /// Copies the record at `places[0]` into `out` (cleared first); the places behind it are read
    /// along when they are near.
    pub(super) async fn record(
        &mut self,
        shard: &ShardLoop,
        places: &[Place],
        out: &mut Vec<u8>,
    ) -> Result<(), FetchError> {
        out.clear();
        let Some(place) = places.first().copied() else { return Ok(()) };
        if let Some(bytes) = shard.shard.borrow().recent(place) {
            let length = Record::length(bytes).unwrap_or(0).min(bytes.len());
            out.extend_from_slice(&bytes[..length]);
            return Ok(());
        }
        if self.inside(place, WINDOW_MIN_BYTES as usize / 64).is_none() {
            self.load(shard, places).await?;
        }
        let length = self.inside(place, 8).and_then(Record::length).unwrap_or(0);
        if self.inside(place, length).is_none() {
            self.read(shard, place.generation, u64::from(place.offset), length).await?;
        }
        let Some(bytes) = self.inside(place, length) else {
            let error = duolog_engine::record::RecordError::TooShort;
            return Err(FetchError::Record { place, error });
        };
        out.extend_from_slice(&bytes[..length]);
        Ok(())
    }

    /// The window's bytes from `place` on, if it has at least `length` of them.
    fn inside(&self, place: Place, length: usize) -> Option<&[u8]> {
        if place.generation != self.generation {
            return None;
        }
        let at = usize::try_from(u64::from(place.offset).checked_sub(self.start)?).ok()?;
        self.window.get(at..).filter(|rest| rest.len() >= length && !rest.is_empty())
    }

    async fn load(&mut self, shard: &ShardLoop, places: &[Place]) -> Result<(), FetchError> {
        let (mut low, mut high) = (places[0].offset, places[0].offset);
        for place in places {
            let (lower, higher) = (low.min(place.offset), high.max(place.offset));
            if place.generation != places[0].generation || higher - lower > WINDOW_MAX_BYTES {
                break;
            }
            (low, high) = (lower, higher);
        }
        let length = high - low + WINDOW_MIN_BYTES;
        self.read(shard, places[0].generation, u64::from(low), length as usize).await
    }

    async fn read(
        &mut self,
        shard: &ShardLoop,
        generation: Generation,
        offset: u64,
        length: usize,
    ) -> Result<(), FetchError> {
        // A damaged length must not make a giant read: no record is longer than a block.
        let length = length.min(BLOCK_HEADER_BYTES + BLOCK_BODY_MAX_BYTES);
        let file = shard.files.segment(generation).await?;
        let (start, read) = file.read(offset, length).await?;
        self.window.clear();
        self.window.extend_from_slice(&read);
        (self.generation, self.start) = (generation, start);
        Ok(())
    }

    /// Bytes from `place` on, at least `length` of them unless the file ends; for walking blocks.
    pub(super) async fn bytes(
        &mut self,
        shard: &ShardLoop,
        place: Place,
        length: usize,
        ahead: usize,
    ) -> Result<&[u8], FetchError> {
        if self.inside(place, length).is_none() {
            let offset = u64::from(place.offset);
            self.read(shard, place.generation, offset, length.max(ahead)).await?;
        }
        Ok(self.inside(place, 1).unwrap_or_default())
    }
}

/// Answers the machine's question for a retry whose first answer is not in memory.
pub(super) async fn load_replay(shard: Rc<ShardLoop>, to: RequestId, place: Place) {
    // A spawned task runs at once, here inside a step: wait a turn.
    futures_lite::future::yield_now().await;
    let mut record = Vec::new();
    let mut fetch = RecordFetch::default();
    let fetched = fetch.record(&shard, &[place], &mut record).await;
    if let Err(error) = &fetched {
        tracing::error!(shard = shard.id().0, %error, event = "log_unreadable");
    }
    let record = fetched.map(|()| &record[..]).map_err(|_| LoadFailed);
    shard.step(Event::ReplayLoaded { to, record });
}
