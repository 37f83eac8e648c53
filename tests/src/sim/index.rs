//! The saved indexes of one shard in memory, through the real codecs: run files, key files and the
//! manifest that names them. A file set counts as a whole, as it does on a disk once its manifest
//! is durable. Everything here may vanish or be damaged between two lives: it is derived.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use duolog_engine::ids::{ClusterId, Generation, Place, Revision, ShardId, StreamId};
use duolog_engine::index::catalog::{Catalog, KeyFile, RunFile};
use duolog_engine::index::key_file::{KeyFileHeader, join_key_files, write_keys};
use duolog_engine::index::keys::KeyWindow;
use duolog_engine::index::lookup::{Need, PostingLookup, Run};
use duolog_engine::index::merge::merge;
use duolog_engine::index::page::{PAGE_BYTES, page_offset};
use duolog_engine::index::run::{Entry, RunScope};
use duolog_engine::index::run_view::RunView;
use duolog_engine::index::run_writer::write_tail;
use duolog_engine::index::span::Direction;
use duolog_engine::recovery::IndexStore;
use duolog_engine::segment::LogEnd;
use duolog_engine::shard::{Sealed, StoredHead};

use super::chance::Chance;

type OpenRun = (Arc<Run>, Arc<Vec<u8>>);

/// See the module.
#[derive(Debug)]
pub struct SimIndex {
    cluster: ClusterId,
    shard: ShardId,
    window: usize,
    manifest: Vec<u8>,
    files: BTreeMap<String, Arc<Vec<u8>>>,
    catalog: Catalog,
    runs: Vec<OpenRun>,
    /// There is no space at the moment.
    pub full: bool,
}

/// What a start finds.
#[derive(Debug)]
pub struct Opened {
    /// The idempotency window up to the last saved segment.
    pub keys: KeyWindow,
    /// Newest segment whose index is saved, 0 if none.
    pub flushed: Generation,
    /// The end of the log behind it.
    pub end: Option<LogEnd>,
}

/// The runs at one moment; a lookup goes on with them whatever is merged meanwhile.
#[derive(Clone, Debug)]
pub struct Snapshot {
    runs: Vec<OpenRun>,
}

impl SimIndex {
    /// No index yet; keys are remembered for a window of this size.
    #[must_use]
    pub fn new(cluster: ClusterId, shard: ShardId, window: usize) -> Self {
        let catalog = Catalog::new(cluster, shard);
        let (manifest, files, runs) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { cluster, shard, window, manifest, files, catalog, runs, full: false }
    }

    /// Opens what is there; what cannot be read leaves nothing.
    pub fn open(&mut self) -> Opened {
        self.catalog = Catalog::new(self.cluster, self.shard);
        self.runs.clear();
        let mut keys = KeyWindow::new(self.window, 7);
        if self.load(&mut keys).is_err() {
            self.forget();
            keys = KeyWindow::new(self.window, 7);
        }
        let flushed = self.catalog.flushed();
        let end = self.runs.last().map(|(run, _)| run.header().scope.state);
        Opened { keys, flushed, end }
    }

    fn load(&mut self, keys: &mut KeyWindow) -> io::Result<()> {
        if self.manifest.is_empty() {
            return Ok(());
        }
        let catalog = Catalog::decode(&self.manifest, self.cluster, self.shard);
        self.catalog = catalog.map_err(io::Error::other)?;
        for file in self.catalog.runs() {
            let bytes = self.file(&file.name())?;
            let run = RunView::new(&bytes).and_then(|view| view.open());
            self.runs.push((Arc::new(run.map_err(io::Error::other)?), bytes));
        }
        for file in self.catalog.key_files() {
            read_keys(&self.file(&file.name())?, keys)?;
        }
        Ok(())
    }

    fn file(&self, name: &str) -> io::Result<Arc<Vec<u8>>> {
        self.files.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Loses everything.
    pub fn forget(&mut self) {
        self.manifest.clear();
        self.files.clear();
        self.catalog = Catalog::new(self.cluster, self.shard);
        self.runs.clear();
    }

    /// Loses or damages something at random between two lives.
    pub fn decay(&mut self, chance: &mut Chance) {
        if self.files.is_empty() || chance.percent(40) {
            return self.forget();
        }
        let index = chance.index(self.files.len());
        let name = self.files.keys().nth(index).expect("the index is below the number").clone();
        match chance.below(3) {
            0 => self.manifest.truncate(chance.index(self.manifest.len() + 1)),
            1 => drop(self.files.remove(&name)),
            _ => {
                // Headers, filters and fences are read at the start; a damaged page of entries
                // is met by a lookup instead, which the world lets fail in its own way.
                let file = self.files.get_mut(&name).expect("it was listed");
                let mut bytes = file.to_vec();
                let at = chance.index(PAGE_BYTES.min(bytes.len()));
                bytes[at] ^= 1 << chance.below(8);
                *file = Arc::new(bytes);
            }
        }
    }

    /// Saves the index and keys of the segment behind the last saved one.
    pub fn add(&mut self, sealed: &Sealed) -> io::Result<()> {
        let generation = sealed.generation;
        let (first, last, state) = (generation, generation, sealed.end);
        let scope = RunScope { cluster: self.cluster, shard: self.shard, first, last, state };
        let (run, bytes) = write_tail(&sealed.tail, scope, Vec::new())?;
        let counts = run.header().counts;
        let (stream_count, posting_count) = (counts.streams, counts.postings);
        let run_file = RunFile { first, last, stream_count, posting_count };
        let keys = write_keys(&sealed.keys, self.cluster, self.shard, Vec::new())?;
        let key_file = KeyFile { first, last, key_count: sealed.keys.len() as u64 };
        self.catalog.add(run_file, key_file).map_err(io::Error::other)?;
        let bytes = Arc::new(bytes);
        self.files.insert(run_file.name(), Arc::clone(&bytes));
        self.files.insert(key_file.name(), Arc::new(keys));
        self.runs.push((Arc::new(run), bytes));
        for retired in self.catalog.retire_keys(self.window as u64) {
            self.files.remove(&retired.name());
        }
        self.write_manifest();
        Ok(())
    }

    fn write_manifest(&mut self) {
        self.manifest.clear();
        self.catalog.encode(&mut self.manifest);
    }

    /// Merges one group of files if there is anything to gain; whether it did.
    pub fn maintain(&mut self) -> io::Result<bool> {
        if let Some(inputs) = self.catalog.next_run_merge().map(<[RunFile]>::to_vec) {
            self.merge_runs(&inputs)?;
            return Ok(true);
        }
        if let Some(inputs) = self.catalog.next_key_join().map(<[KeyFile]>::to_vec) {
            self.join_keys(&inputs)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn merge_runs(&mut self, inputs: &[RunFile]) -> io::Result<()> {
        let mut contents = Vec::new();
        for input in inputs {
            contents.push(self.file(&input.name())?);
        }
        let views: Result<Vec<_>, _> = contents.iter().map(|bytes| RunView::new(bytes)).collect();
        let merged = merge(&views.map_err(io::Error::other)?, Vec::new());
        let (run, bytes) = merged.map_err(io::Error::other)?;
        let (scope, counts) = (run.header().scope, run.header().counts);
        let (first, last) = (scope.first, scope.last);
        let (stream_count, posting_count) = (counts.streams, counts.postings);
        let file = RunFile { first, last, stream_count, posting_count };
        let replaced = self.catalog.replace_runs(&[file]).map_err(io::Error::other)?;
        let at = self.runs.iter().position(|(run, _)| run.header().scope.first == first);
        let at = at.ok_or(io::ErrorKind::NotFound)?;
        let bytes = Arc::new(bytes);
        self.runs.splice(at..at + replaced.len(), [(Arc::new(run), Arc::clone(&bytes))]);
        self.files.insert(file.name(), bytes);
        for gone in replaced {
            self.files.remove(&gone.name());
        }
        self.write_manifest();
        Ok(())
    }

    fn join_keys(&mut self, inputs: &[KeyFile]) -> io::Result<()> {
        let mut contents = Vec::new();
        for input in inputs {
            contents.push(self.file(&input.name())?);
        }
        let views: Vec<&[u8]> = contents.iter().map(|bytes| bytes.as_slice()).collect();
        let joined = join_key_files(&views, Vec::new()).map_err(io::Error::other)?;
        let (first, last) = (inputs[0].first, inputs[inputs.len() - 1].last);
        let key_count = inputs.iter().map(|file| file.key_count).sum();
        let file = KeyFile { first, last, key_count };
        let replaced = self.catalog.replace_keys(&[file]).map_err(io::Error::other)?;
        self.files.insert(file.name(), Arc::new(joined));
        for gone in replaced {
            self.files.remove(&gone.name());
        }
        self.write_manifest();
        Ok(())
    }

    /// The runs, oldest first, for the machine.
    #[must_use]
    pub fn runs(&self) -> Vec<Arc<Run>> {
        self.runs.iter().map(|(run, _)| Arc::clone(run)).collect()
    }

    /// The runs as they are now, for a lookup that takes its time.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { runs: self.runs.clone() }
    }
}

impl Snapshot {
    /// The same without the newest run.
    #[must_use]
    pub fn without_newest(mut self) -> Self {
        self.runs.pop();
        self
    }

    /// What the saved indexes know of `stream`.
    pub fn head(&self, stream: StreamId) -> io::Result<Option<StoredHead>> {
        for (run, bytes) in self.runs.iter().rev().filter(|(run, _)| run.may_contain(stream)) {
            if let Some(entry) = entry(run, bytes, stream)? {
                let (next, fencing_token) = (entry.span.next(), entry.span.fencing_token);
                return Ok(Some(StoredHead { next, fencing_token }));
            }
        }
        Ok(None)
    }

    /// Puts out at most `max` places of a stream's events, from `from` on.
    pub fn places(
        &self,
        stream: StreamId,
        from: Revision,
        direction: Direction,
        max: usize,
        out: &mut Vec<Place>,
    ) -> io::Result<()> {
        for (run, bytes) in self.runs.iter().rev().filter(|(run, _)| run.may_contain(stream)) {
            let Some(entry) = entry(run, bytes, stream)? else { continue };
            if from < entry.span.first {
                continue;
            }
            let mut lookup = PostingLookup::new(run.header(), &entry, from, direction, max);
            while let Need::Page(number) = lookup.need() {
                lookup.feed(page(bytes, number), out).map_err(io::Error::other)?;
            }
            return Ok(());
        }
        Ok(())
    }
}

fn entry(run: &Run, bytes: &[u8], stream: StreamId) -> io::Result<Option<Entry>> {
    let mut lookup = run.look_up(stream);
    loop {
        match lookup.need() {
            Need::Done(entry) => return Ok(entry),
            Need::Page(number) => lookup.feed(page(bytes, number)).map_err(io::Error::other)?,
        }
    }
}

fn page(bytes: &[u8], number: u32) -> &[u8] {
    let start = page_offset(number) as usize;
    bytes.get(start..start + PAGE_BYTES).unwrap_or_default()
}

fn read_keys(bytes: &[u8], window: &mut KeyWindow) -> io::Result<()> {
    let first = bytes.get(..PAGE_BYTES).unwrap_or(bytes);
    let header = KeyFileHeader::decode(first, bytes.len() as u64).map_err(io::Error::other)?;
    for number in 1..=header.last_page() {
        let keys = header.keys(number, page(bytes, number)).map_err(io::Error::other)?;
        for (key, place) in keys {
            window.restore(key, place);
        }
    }
    Ok(())
}

impl IndexStore for SimIndex {
    fn save(&mut self, sealed: &Sealed) -> io::Result<()> {
        if self.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.add(sealed)?;
        while self.maintain()? {}
        Ok(())
    }

    fn head(&mut self, stream: StreamId) -> io::Result<Option<StoredHead>> {
        self.snapshot().head(stream)
    }
}
