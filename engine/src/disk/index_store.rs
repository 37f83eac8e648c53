//! The saved indexes of one shard on disk: opened at boot, added to and merged by the index
//! thread. Blocking.
//!
//! Everything here is derived from the log: whatever cannot be read is reported and rebuilt, never
//! trusted and never a reason not to start. A file counts once the manifest that names it is
//! durable; a file is deleted only once a durable manifest no longer names it.

mod repair;
#[cfg(test)]
mod tests;

pub use repair::DamagedRun;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::shard_dir::ShardDir;
use super::uring::mapped;
use crate::ids::{ClusterId, Generation, ShardId, StreamId};
use crate::index::catalog::{Catalog, KeyFile, RunFile};
use crate::index::key_file::{KeyFileHeader, join_key_files, write_keys};
use crate::index::keys::KeyWindow;
use crate::index::lookup::{Need, Run};
use crate::index::merge::{MergeError, merge};
use crate::index::page::{PAGE_BYTES, page_offset};
use crate::index::run::{RunHeader, RunScope};
use crate::index::run_view::RunView;
use crate::index::run_writer::write_tail;
use crate::recovery::IndexStore;
use crate::segment::LogEnd;
use crate::shard::{Sealed, StoredHead};

const MANIFEST: &str = "manifest";

/// The indexes of one shard.
#[derive(Debug)]
pub struct IndexFiles {
    dir: ShardDir,
    cluster: ClusterId,
    shard: ShardId,
    window: usize,
    catalog: Catalog,
    runs: Vec<(Arc<Run>, File)>,
}

/// What was found at boot.
#[derive(Debug)]
pub struct OpenedIndex {
    /// The files.
    pub files: IndexFiles,
    /// The idempotency window up to the last saved segment.
    pub keys: KeyWindow,
    /// Newest segment whose index is saved, 0 if none.
    pub flushed: Generation,
    /// The end of the log behind it; `None` if none is saved.
    pub end: Option<LogEnd>,
    /// Why everything will be rebuilt from the log, if so.
    pub rebuild: Option<String>,
}

impl IndexFiles {
    /// Opens what is there. `window` is the number of keys to remember, `seed` spreads them.
    #[must_use]
    pub fn open(
        dir: ShardDir,
        cluster: ClusterId,
        shard: ShardId,
        window: usize,
        seed: u64,
    ) -> OpenedIndex {
        let catalog = Catalog::new(cluster, shard);
        let mut files = Self { dir, cluster, shard, window, catalog, runs: Vec::new() };
        let mut keys = KeyWindow::new(window, seed);
        let rebuild = files.load(&mut keys).err();
        if rebuild.is_some() {
            files.catalog = Catalog::new(cluster, shard);
            files.runs.clear();
            keys = KeyWindow::new(window, seed);
        }
        let flushed = files.catalog.flushed();
        let end = files.runs.last().map(|(run, _)| run.header().scope.state);
        let rebuild = rebuild.map(|error| error.to_string());
        OpenedIndex { files, keys, flushed, end, rebuild }
    }

    fn load(&mut self, keys: &mut KeyWindow) -> io::Result<()> {
        let bytes = match fs::read(self.dir.path().join(MANIFEST)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let decoded = Catalog::decode(&bytes, self.cluster, self.shard);
        self.catalog = decoded.map_err(io::Error::other)?;
        for file in self.catalog.runs() {
            let opened = open_run(&self.path(&file.name()))?;
            let scope = opened.0.header().scope;
            let same = (scope.first, scope.last) == (file.first, file.last);
            if !same || scope.cluster != self.cluster || scope.shard != self.shard {
                return Err(io::Error::other(format!("{} is another run", file.name())));
            }
            self.runs.push(opened);
        }
        for file in self.catalog.key_files() {
            let bytes = fs::read(self.path(&file.name()))?;
            read_keys(&bytes, keys)?;
        }
        self.remove_strays()
    }

    /// Files of an earlier life that no manifest names: a crash came before theirs was durable.
    fn remove_strays(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.dir.path())? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let index = name.ends_with(".idx") || name.ends_with(".idx.tmp");
            let named = self.catalog.runs().iter().any(|file| file.name() == name)
                || self.catalog.key_files().iter().any(|file| file.name() == name);
            if index && !named {
                fs::remove_file(self.path(name))?;
            }
        }
        Ok(())
    }

    /// The saved indexes, oldest first.
    #[must_use]
    pub fn runs(&self) -> Vec<Arc<Run>> {
        self.runs.iter().map(|(run, _)| Arc::clone(run)).collect()
    }

    /// The directory that the files are in.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The shard's directory.
    #[must_use]
    pub const fn shard_dir(&self) -> &ShardDir {
        &self.dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Saves the index and keys of the segment that follows the last saved one.
    pub fn add(&mut self, sealed: &Sealed) -> io::Result<()> {
        let generation = sealed.generation;
        let (first, last, state) = (generation, generation, sealed.end);
        let scope = RunScope { cluster: self.cluster, shard: self.shard, first, last, state };
        let (stream_count, posting_count) =
            (sealed.tail.stream_count() as u64, sealed.tail.event_count());
        let run_file = RunFile { first, last, stream_count, posting_count };
        let run_path = self.path(&run_file.name());
        let run = write_durably(&run_path, |out| write_tail(&sealed.tail, scope, out))?;
        let key_file = KeyFile { first, last, key_count: sealed.keys.len() as u64 };
        write_durably(&self.path(&key_file.name()), |out| {
            write_keys(&sealed.keys, self.cluster, self.shard, out).map(|out| ((), out))
        })?;
        let mut catalog = self.catalog.clone();
        catalog.add(run_file, key_file).map_err(io::Error::other)?;
        let retired = catalog.retire_keys(self.window as u64);
        let opened = (Arc::new(run), File::open(run_path)?);
        self.commit(catalog)?;
        self.runs.push(opened);
        self.forget(retired.iter().map(KeyFile::name));
        Ok(())
    }

    /// Makes `catalog` durable, then believes in it: after an error everything is as before, and
    /// the same can be tried again.
    fn commit(&mut self, catalog: Catalog) -> io::Result<()> {
        let mut bytes = Vec::new();
        catalog.encode(&mut bytes);
        write_durably(&self.path(MANIFEST), |mut out| {
            out.write_all(&bytes)?;
            Ok(((), out))
        })?;
        self.dir.sync()?;
        self.catalog = catalog;
        Ok(())
    }

    /// Removes files that the durable manifest does not name. One that stays takes space until the
    /// next start removes it.
    fn forget(&self, names: impl Iterator<Item = String>) {
        for name in names {
            let _ = fs::remove_file(self.path(&name));
        }
    }

    /// Merges one group of files if there is anything to gain; whether it did.
    pub fn maintain(&mut self) -> io::Result<bool> {
        let runs = self.catalog.next_run_merge().map(<[RunFile]>::to_vec);
        if let Some(inputs) = runs {
            self.merge_runs(&inputs)?;
            return Ok(true);
        }
        let keys = self.catalog.next_key_join().map(<[KeyFile]>::to_vec);
        if let Some(inputs) = keys {
            self.join_keys(&inputs)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn merge_runs(&mut self, inputs: &[RunFile]) -> io::Result<()> {
        let (Some(oldest), Some(newest)) = (inputs.first(), inputs.last()) else { return Ok(()) };
        let mut maps = Vec::new();
        for input in inputs {
            maps.push(mapped::map(&self.path(&input.name()))?);
        }
        let views: Result<Vec<_>, _> = maps.iter().map(|map| RunView::new(map)).collect();
        let views = views.map_err(io::Error::other)?;
        let (first, last) = (oldest.first, newest.last);
        let mut merged = RunFile { first, last, stream_count: 0, posting_count: 0 };
        let path = self.path(&merged.name());
        let at = self.runs.iter().position(|(run, _)| run.header().scope.first == first);
        let at = at.ok_or_else(|| io::Error::other("the catalog names a run that is not open"))?;
        let run = write_durably(&path, |out| {
            merge(&views, out).map_err(|error| match error {
                MergeError::Input { index, error } => {
                    DamagedRun::error(&self.runs[at + index].0, &error)
                }
                MergeError::Write(error) => error,
                other => io::Error::other(other),
            })
        })?;
        merged.stream_count = run.header().counts.streams;
        merged.posting_count = run.header().counts.postings;
        let mut catalog = self.catalog.clone();
        let replaced = catalog.replace_runs(&[merged]).map_err(io::Error::other)?;
        let opened = (Arc::new(run), File::open(path)?);
        self.commit(catalog)?;
        self.runs.splice(at..at + replaced.len(), [opened]);
        self.forget(replaced.iter().map(RunFile::name));
        Ok(())
    }

    fn join_keys(&mut self, inputs: &[KeyFile]) -> io::Result<()> {
        let (Some(oldest), Some(newest)) = (inputs.first(), inputs.last()) else { return Ok(()) };
        let mut contents = Vec::new();
        for input in inputs {
            contents.push(fs::read(self.path(&input.name()))?);
        }
        let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let key_count = inputs.iter().map(|file| file.key_count).sum();
        let joined = KeyFile { first: oldest.first, last: newest.last, key_count };
        write_durably(&self.path(&joined.name()), |out| {
            let joined = join_key_files(&contents, out).map_err(io::Error::other);
            joined.map(|out| ((), out))
        })?;
        let mut catalog = self.catalog.clone();
        let replaced = catalog.replace_keys(&[joined]).map_err(io::Error::other)?;
        self.commit(catalog)?;
        self.forget(replaced.iter().map(KeyFile::name));
        Ok(())
    }
}

/// Writes a file under another name, syncs it, and gives it its name. The directory is synced with
/// the manifest that names the file.
fn write_durably<T>(
    path: &Path,
    write: impl FnOnce(BufWriter<File>) -> io::Result<(T, BufWriter<File>)>,
) -> io::Result<T> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".tmp");
    let out = BufWriter::with_capacity(1 << 18, File::create(&unfinished)?);
    let (result, out) = write(out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    fs::rename(unfinished, path)?;
    Ok(result)
}

fn open_run(path: &Path) -> io::Result<(Arc<Run>, File)> {
    let file = File::open(path)?;
    let mut page = [0; PAGE_BYTES];
    file.read_exact_at(&mut page, 0)?;
    let size_bytes = file.metadata()?.len();
    let header = RunHeader::decode(&page, size_bytes).map_err(io::Error::other)?;
    let start = header.resident_offset();
    let length = usize::try_from(size_bytes - start).map_err(io::Error::other)?;
    let mut resident = vec![0; length];
    file.read_exact_at(&mut resident, start)?;
    let run = Run::open(header, &resident).map_err(io::Error::other)?;
    Ok((Arc::new(run), file))
}

fn read_keys(bytes: &[u8], window: &mut KeyWindow) -> io::Result<()> {
    let first = bytes.get(..PAGE_BYTES).unwrap_or(bytes);
    let header = KeyFileHeader::decode(first, bytes.len() as u64).map_err(io::Error::other)?;
    for number in 1..=header.last_page() {
        let start = page_offset(number) as usize;
        let page = bytes.get(start..start + PAGE_BYTES).unwrap_or_default();
        for (key, place) in header.keys(number, page).map_err(io::Error::other)? {
            window.restore(key, place);
        }
    }
    Ok(())
}

impl IndexStore for IndexFiles {
    fn save(&mut self, sealed: &Sealed) -> io::Result<()> {
        self.add(sealed)?;
        // Merges only make reads cheaper; one that fails is tried again by the index thread.
        while self.maintain().unwrap_or(false) {}
        Ok(())
    }

    fn head(&mut self, stream: StreamId) -> io::Result<Option<StoredHead>> {
        head_in(self.runs.iter().rev(), stream)
    }
}

/// What `runs`, newest first, know of `stream`.
fn head_in<'a>(
    runs: impl Iterator<Item = &'a (Arc<Run>, File)>,
    stream: StreamId,
) -> io::Result<Option<StoredHead>> {
    let mut head: Option<StoredHead> = None;
    for (run, file) in runs.filter(|(run, _)| run.may_contain(stream)) {
        let mut lookup = run.look_up(stream);
        let entry = loop {
            match lookup.need() {
                Need::Done(entry) => break entry,
                Need::Page(number) => {
                    let mut page = [0; PAGE_BYTES];
                    match file.read_exact_at(&mut page, page_offset(number)) {
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                            return Err(DamagedRun::error(run, &error));
                        }
                        other => other?,
                    }
                    lookup.feed(&page).map_err(|error| DamagedRun::error(run, &error))?;
                }
            }
        };
        let Some(entry) = entry else { continue };
        let next = entry.span.next();
        let known = head.get_or_insert(StoredHead { next, fencing_token: 0 });
        known.fencing_token = entry.span.fencing_token;
        if known.fencing_token != 0 {
            break;
        }
    }
    Ok(head)
}
