//! Rebuilding a saved run whose file is damaged, from the segments that it stands for.
//!
//! A run's pages are checked when they are read, which may be long after the start. The log has
//! everything that the run says; only the fencing tokens come from older runs, so that one of those
//! may have to be rebuilt first.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use super::{IndexFiles, head_in, open_run, write_durably};
use crate::disk::shard_dir::DirSource;
use crate::disk::uring::mapped;
use crate::ids::{Generation, StreamId};
use crate::index::keys::KeyWindow;
use crate::index::lookup::Run;
use crate::index::merge::merge;
use crate::index::run::RunScope;
use crate::index::run_view::RunView;
use crate::index::run_writer::write_tail;
use crate::recovery::{Checkpoint, IndexStore, LogSource, recover};
use crate::segment::SegmentHeader;
use crate::shard::{Sealed, ShardConfig, StoredHead};

/// A saved run that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the saved index of segments {first} to {last} is damaged: {reason}")]
pub struct DamagedRun {
    /// First segment indexed.
    pub first: Generation,
    /// Last segment indexed.
    pub last: Generation,
    /// What is wrong with it.
    pub reason: String,
}

impl DamagedRun {
    /// The damaged run that `error` tells of, if it does.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    pub(super) fn error(run: &Run, reason: &dyn std::fmt::Display) -> io::Error {
        let scope = run.header().scope;
        let (first, last, reason) = (scope.first, scope.last, reason.to_string());
        io::Error::other(Self { first, last, reason })
    }
}

impl IndexFiles {
    /// Rebuilds the run of exactly these segments, and before it older ones that turn out to be
    /// damaged too. Nothing is done when there is no such run any more. An error leaves the runs
    /// as they are: the log may be damaged itself.
    pub fn repair(
        &mut self,
        first: Generation,
        last: Generation,
        config: &ShardConfig,
    ) -> io::Result<()> {
        let mut wanted = vec![(first, last)];
        // Each step either rebuilds a run or finds an older one to be rebuilt before it.
        for _ in 0..2 * self.runs.len() {
            let Some((first, last)) = wanted.last().copied() else { return Ok(()) };
            match self.rebuild(first, last, config) {
                Ok(()) => wanted.truncate(wanted.len() - 1),
                Err(error) => match DamagedRun::of(&error) {
                    Some(older) if older.last < first => wanted.push((older.first, older.last)),
                    _ => return Err(error),
                },
            }
        }
        match wanted.is_empty() {
            true => Ok(()),
            false => Err(io::Error::other("the index is damaged again and again")),
        }
    }

    fn rebuild(
        &mut self,
        first: Generation,
        last: Generation,
        config: &ShardConfig,
    ) -> io::Result<()> {
        let same = |scope: &RunScope| (scope.first, scope.last) == (first, last);
        let at = self.runs.iter().position(|(run, _)| same(&run.header().scope));
        let Some(at) = at else { return Ok(()) };
        let expected = self.runs[at].0.header().scope.state;
        let mut source = Part { whole: DirSource::new(self.dir.clone()), last };
        let mut page = [0; 512];
        let read = source.read(first, 0, &mut page)?;
        let header = SegmentHeader::decode(&page[..read]).map_err(io::Error::other)?;
        let (flushed, keys) = (Generation(first.0 - 1), KeyWindow::new(0, 0));
        let checkpoint = Checkpoint { flushed, end: header.base, mark: None, keys };
        let mut pieces = Pieces { files: self, older: at, made: Vec::new() };
        let built = pieces.build(config, &mut source, checkpoint, last);
        let merged = built.and_then(|end| match end == expected {
            true => pieces.merge(first, last),
            false => Err(io::Error::other("the segments do not have all that was indexed")),
        });
        let made: Vec<PathBuf> = pieces.made.into_iter().map(|piece| piece.path).collect();
        for path in made {
            fs::remove_file(path)?;
        }
        self.runs[at] = merged?;
        self.dir.sync()
    }
}

/// A log that ends with the segment `last`.
struct Part {
    whole: DirSource,
    last: Generation,
}

impl LogSource for Part {
    fn segments(&mut self) -> io::Result<Vec<(Generation, u64)>> {
        let mut segments = self.whole.segments()?;
        segments.retain(|(generation, _)| *generation <= self.last);
        Ok(segments)
    }

    /// Nothing: the shard's own recovery has waited, or waits before it believes anything.
    fn settle(&mut self, _first: Generation) -> io::Result<()> {
        Ok(())
    }

    fn read(
        &mut self,
        generation: Generation,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        match generation <= self.last {
            true => self.whole.read(generation, offset, buffer),
            false => Ok(0),
        }
    }
}

struct Piece {
    path: PathBuf,
    run: (Arc<Run>, File),
}

/// Runs of single segments, to be merged into the one that is rebuilt.
struct Pieces<'a> {
    files: &'a IndexFiles,
    /// So many runs of `files` come before it.
    older: usize,
    made: Vec<Piece>,
}

impl Pieces<'_> {
    fn build(
        &mut self,
        config: &ShardConfig,
        source: &mut Part,
        checkpoint: Checkpoint,
        last: Generation,
    ) -> io::Result<crate::segment::LogEnd> {
        let recovered = match recover(config, source, checkpoint, self) {
            Ok(recovered) => recovered,
            Err(crate::recovery::RecoverError::Io(error)) => return Err(error),
            Err(other) => return Err(io::Error::other(other)),
        };
        if let Some(error) = recovered.save_error {
            return Err(error);
        }
        let start = recovered.start;
        let (tail, keys, end) = (start.tail, start.tail_keys, start.end);
        self.save(&Sealed { generation: last, tail, keys, end })?;
        Ok(end)
    }

    fn merge(&self, first: Generation, last: Generation) -> io::Result<(Arc<Run>, File)> {
        let maps: io::Result<Vec<_>> =
            self.made.iter().map(|piece| mapped::map(&piece.path)).collect();
        let maps = maps?;
        let views: Result<Vec<_>, _> = maps.iter().map(|map| RunView::new(map)).collect();
        let views = views.map_err(io::Error::other)?;
        let (stream_count, posting_count) = (0, 0);
        let file = crate::index::catalog::RunFile { first, last, stream_count, posting_count };
        let path = self.files.path(&file.name());
        write_durably(&path, |out| merge(&views, out).map_err(io::Error::other))?;
        open_run(&path)
    }
}

impl IndexStore for Pieces<'_> {
    fn save(&mut self, sealed: &Sealed) -> io::Result<()> {
        let (cluster, shard) = (self.files.cluster, self.files.shard);
        let (first, last, state) = (sealed.generation, sealed.generation, sealed.end);
        let scope = RunScope { cluster, shard, first, last, state };
        // Needed for a moment only: not synced, and removed by the next start if this one dies.
        let path = self.files.path(&format!("rebuilt-{:010}.idx.tmp", first.0));
        let out = io::BufWriter::with_capacity(1 << 18, File::create(&path)?);
        let (_, mut out) = write_tail(&sealed.tail, scope, out)?;
        out.flush()?;
        self.made.push(Piece { run: open_run(&path)?, path });
        Ok(())
    }

    fn head(&mut self, stream: StreamId) -> io::Result<Option<StoredHead>> {
        let made = self.made.iter().rev().map(|piece| &piece.run);
        let older = self.files.runs[..self.older].iter().rev();
        head_in(made.chain(older), stream)
    }
}
