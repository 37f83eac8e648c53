//! Merges the runs of adjacent segment ranges into one.
//!
//! Owns the k-way walk over the inputs. Promises: streaming (a page per input, and what
//! [`RunWriter`] holds), events of a stream stay in the order of the log, and a stream whose
//! revisions do not continue from one input to the next is an error, never a silent hole.
//! Runs on a background thread; a sink that fails ends it at once.

use std::io::{self, Write};

use crate::ids::{Generation, Revision, StreamId};
use crate::index::lookup::Run;
use crate::index::page::{IndexFileError, PageError};
use crate::index::run::{Entry, RunCounts, RunScope};
use crate::index::run_view::{EntryWalk, RunView};
use crate::index::run_writer::RunWriter;
use crate::index::span::Span;

/// Why runs were not merged. All but [`MergeError::Write`] end in rebuilding the inputs.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// Nothing to merge.
    #[error("no runs were given to merge")]
    NoInput,
    /// The inputs do not follow each other in one shard of one cluster.
    #[error("runs to merge do not continue at segment {0}")]
    NotAdjacent(Generation),
    /// Input `index` cannot be read.
    #[error("run {index} of the merge: {error}")]
    Input {
        /// Which input, 0 = oldest.
        index: usize,
        /// What is wrong with it.
        error: IndexFileError,
    },
    /// A stream has a hole between two inputs.
    #[error(
        "stream {stream:?} goes on at revision {found} instead of {expected} in the run that \
         begins with segment {generation}: the runs will be rebuilt from the segments"
    )]
    Gap {
        /// The stream.
        stream: StreamId,
        /// First segment of the run where it goes on.
        generation: Generation,
        /// Revision behind the earlier run's last event.
        expected: Revision,
        /// Revision of the later run's first event.
        found: Revision,
    },
    /// The sink failed.
    #[error("writing the merged run failed: {0}")]
    Write(#[from] io::Error),
}

/// Merges `inputs`, oldest first, into `out`, which is neither flushed nor synced.
pub fn merge<W: Write>(inputs: &[RunView<'_>], out: W) -> Result<(Run, W), MergeError> {
    let scope = scope_of(inputs)?;
    let mut counts = RunCounts::default();
    let mut walk = MergeWalk::new(inputs)?;
    while let Some(merged) = walk.next_stream()? {
        counts.streams += 1;
        counts.postings += merged.span.count;
    }
    let mut writer = RunWriter::begin(out, scope, counts)?;
    let mut walk = MergeWalk::new(inputs)?;
    while let Some(merged) = walk.next_stream()? {
        writer.entry(merged.stream, merged.span)?;
    }
    let mut walk = MergeWalk::new(inputs)?;
    let mut postings: Vec<_> = inputs.iter().map(RunView::postings).collect();
    while walk.next_stream()?.is_some() {
        for (index, entry) in &walk.parts {
            for _ in 0..entry.span.count {
                let place = postings[*index].next_place().map_err(input(*index))?;
                writer.posting(place)?;
            }
        }
    }
    Ok(writer.finish()?)
}

fn input(index: usize) -> impl FnOnce(PageError) -> MergeError {
    move |error| MergeError::Input { index, error: error.into() }
}

/// What the merged run is about; the state at its end is the newest input's.
fn scope_of(inputs: &[RunView<'_>]) -> Result<RunScope, MergeError> {
    let mut scopes = inputs.iter().map(|view| view.header().scope);
    let mut scope = scopes.next().ok_or(MergeError::NoInput)?;
    for next in scopes {
        let same = (next.cluster, next.shard) == (scope.cluster, scope.shard);
        if !same || scope.last.0.checked_add(1) != Some(next.first.0) {
            return Err(MergeError::NotAdjacent(next.first));
        }
        scope = RunScope { first: scope.first, ..next };
    }
    Ok(scope)
}

struct Merged {
    stream: StreamId,
    span: Span,
}

/// All inputs side by side; their number is small, so the lowest stream is found by looking at
/// each one's next entry.
struct MergeWalk<'a> {
    firsts: Vec<Generation>,
    walks: Vec<EntryWalk<'a>>,
    heads: Vec<Option<Entry>>,
    /// The entries that make up the stream returned last, oldest input first.
    parts: Vec<(usize, Entry)>,
}

impl<'a> MergeWalk<'a> {
    fn new(inputs: &[RunView<'a>]) -> Result<Self, MergeError> {
        let mut walks: Vec<EntryWalk<'a>> = inputs.iter().map(RunView::entries).collect();
        let mut heads = Vec::with_capacity(walks.len());
        for (index, walk) in walks.iter_mut().enumerate() {
            heads.push(walk.next_entry().map_err(input(index))?);
        }
        let firsts = inputs.iter().map(|view| view.header().scope.first).collect();
        Ok(Self { firsts, walks, heads, parts: Vec::new() })
    }

    fn next_stream(&mut self) -> Result<Option<Merged>, MergeError> {
        self.parts.clear();
        let lowest = self.heads.iter().flatten().map(|entry| entry.stream).min();
        let Some(stream) = lowest else { return Ok(None) };
        for (index, head) in self.heads.iter_mut().enumerate() {
            if let Some(entry) = head.filter(|entry| entry.stream == stream) {
                self.parts.push((index, entry));
                *head = self.walks[index].next_entry().map_err(input(index))?;
            }
        }
        let mut parts = self.parts.iter();
        let (_, first) = parts.next().expect("the lowest stream is some input's head");
        let mut span = first.span;
        for (index, entry) in parts {
            if entry.span.first != span.next() {
                return Err(MergeError::Gap {
                    stream,
                    generation: self.firsts[*index],
                    expected: span.next(),
                    found: entry.span.first,
                });
            }
            span.count += entry.span.count;
            span.fencing_token = span.fencing_token.max(entry.span.fencing_token);
        }
        Ok(Some(Merged { stream, span }))
    }
}
