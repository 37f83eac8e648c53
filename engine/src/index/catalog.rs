//! Which index files a shard has, and which to merge next.
//!
//! Owns the list of runs (gapless from segment 1, oldest first) and of key files (gapless up to
//! the same segment, as far back as the window needs) and the decision what to merge; its form
//! on disk is in `manifest`. Promise: with merges keeping up, a shard of G segments has at most
//! 7 x (1 + log8 G) runs, and each event's posting is rewritten log8 G times.
//!
//! A file is deleted only after a manifest without it is durable, and only because a catalog
//! returned it as replaced.

use std::ops::Range;

use crate::ids::{ClusterId, Generation, ShardId};

/// Files of one size class that are merged into one of the next.
pub const MERGE_FAN_IN: u32 = 8;

/// A run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFile {
    /// First segment indexed.
    pub first: Generation,
    /// Last segment indexed.
    pub last: Generation,
    /// Different streams.
    pub stream_count: u64,
    /// Events.
    pub posting_count: u64,
}

/// A file of idempotency keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// First segment.
    pub first: Generation,
    /// Last segment.
    pub last: Generation,
    /// Number of keys.
    pub key_count: u64,
}

/// A file that stands for a range of segments.
trait Covers: Copy {
    fn first(&self) -> Generation;
    fn last(&self) -> Generation;

    fn segment_count(&self) -> u32 {
        self.last().0 - self.first().0 + 1
    }
}

impl Covers for RunFile {
    fn first(&self) -> Generation {
        self.first
    }

    fn last(&self) -> Generation {
        self.last
    }
}

impl Covers for KeyFile {
    fn first(&self) -> Generation {
        self.first
    }

    fn last(&self) -> Generation {
        self.last
    }
}

impl RunFile {
    /// Its name in the shard's directory. A merged run never has the name of an input.
    #[must_use]
    pub fn name(&self) -> String {
        format!("run-{:010}-{:010}.idx", self.first.0, self.last.0)
    }
}

impl KeyFile {
    /// Its name in the shard's directory. A joined file never has the name of an input.
    #[must_use]
    pub fn name(&self) -> String {
        format!("keys-{:010}-{:010}.idx", self.first.0, self.last.0)
    }
}

/// Why a change does not fit the catalog. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// A new file does not begin where the catalog ends.
    #[error("index file of segments {first} to {last} given where segment {expected} is next")]
    NotNext {
        /// The new file's first segment.
        first: Generation,
        /// Its last.
        last: Generation,
        /// The catalog's next segment.
        expected: Generation,
    },
    /// Files to be replaced are not (or no longer) there: drop the new ones.
    #[error("no index files of exactly the segments {first} to {last} to replace")]
    NothingToReplace {
        /// First segment.
        first: Generation,
        /// Last segment.
        last: Generation,
    },
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    pub(super) cluster: ClusterId,
    pub(super) shard: ShardId,
    pub(super) runs: Vec<RunFile>,
    pub(super) keys: Vec<KeyFile>,
}

impl Catalog {
    /// An empty catalog.
    #[must_use]
    pub const fn new(cluster: ClusterId, shard: ShardId) -> Self {
        Self { cluster, shard, runs: Vec::new(), keys: Vec::new() }
    }

    /// The last segment whose index is on disk; 0 if none is.
    #[must_use]
    pub fn flushed(&self) -> Generation {
        self.runs.last().map_or(Generation(0), |run| run.last)
    }

    /// The runs, oldest first.
    #[must_use]
    pub fn runs(&self) -> &[RunFile] {
        &self.runs
    }

    /// The key files, oldest first.
    #[must_use]
    pub fn key_files(&self) -> &[KeyFile] {
        &self.keys
    }

    /// Adds the files of the next segment, which are durable.
    pub fn add(&mut self, run: RunFile, keys: KeyFile) -> Result<(), CatalogError> {
        let expected = self.flushed().next();
        for (first, last) in [(run.first, run.last), (keys.first, keys.last)] {
            if first != expected || last != run.last || last < first {
                return Err(CatalogError::NotNext { first, last, expected });
            }
        }
        self.runs.push(run);
        self.keys.push(keys);
        Ok(())
    }

    /// The runs to merge next, adjacent and oldest first; `None` when there is nothing to gain.
    #[must_use]
    pub fn next_run_merge(&self) -> Option<&[RunFile]> {
        pick(&self.runs).map(|range| &self.runs[range])
    }

    /// The key files to join next, adjacent and oldest first.
    #[must_use]
    pub fn next_key_join(&self) -> Option<&[KeyFile]> {
        pick(&self.keys).map(|range| &self.keys[range])
    }

    /// Puts `new` (a merged run, or rebuilt ones; durable) in the place of the runs of exactly the
    /// same segments, which are returned.
    pub fn replace_runs(&mut self, new: &[RunFile]) -> Result<Vec<RunFile>, CatalogError> {
        replace(&mut self.runs, new)
    }

    /// Puts `new` (durable) in the place of the key files of exactly the same segments, which are
    /// returned. An error also when they were retired meanwhile.
    pub fn replace_keys(&mut self, new: &[KeyFile]) -> Result<Vec<KeyFile>, CatalogError> {
        replace(&mut self.keys, new)
    }

    /// Takes out the oldest key files that a window of `capacity` appends does not need.
    pub fn retire_keys(&mut self, capacity: u64) -> Vec<KeyFile> {
        let mut newer = 0_u64;
        let mut needed = 0;
        for file in self.keys.iter().rev() {
            // The newest file stays whatever it holds: the list ends where the runs end.
            if needed > 0 && newer >= capacity {
                break;
            }
            newer = newer.saturating_add(file.key_count);
            needed += 1;
        }
        self.keys.drain(..self.keys.len() - needed).collect()
    }

    /// Whether the files follow each other as promised; the error names the list that does not.
    pub fn check(&self) -> Result<(), &'static str> {
        let runs_begin = self.runs.first().is_none_or(|run| run.first.0 == 1);
        if !runs_begin || !is_gapless(&self.runs) {
            return Err("runs");
        }
        let keys_end = self.keys.last().map_or(Generation(0), |file| file.last);
        if keys_end != self.flushed() || !is_gapless(&self.keys) {
            return Err("key files");
        }
        Ok(())
    }
}

fn is_gapless<T: Covers>(files: &[T]) -> bool {
    files.iter().all(|file| file.first() <= file.last() && file.first().0 > 0)
        && files.windows(2).all(|pair| pair[0].last().0.checked_add(1) == Some(pair[1].first().0))
}

fn replace<T: Covers>(files: &mut Vec<T>, new: &[T]) -> Result<Vec<T>, CatalogError> {
    let (first, last) = match new {
        [] => (Generation(0), Generation(0)),
        [first, ..] => (first.first(), new[new.len() - 1].last()),
    };
    let start = files.iter().position(|file| file.first() == first);
    let end = files.iter().position(|file| file.last() == last);
    match (start, end) {
        (Some(start), Some(end)) if start <= end && is_gapless(new) => {
            Ok(files.splice(start..=end, new.iter().copied()).collect())
        }
        _ => Err(CatalogError::NothingToReplace { first, last }),
    }
}

/// The first [`MERGE_FAN_IN`] files of the lowest size class that has as many next to each other.
/// The class is the number of times a file's segments were merged already: the logarithm of their
/// number. A smaller file between them (after a rebuild) is taken along.
fn pick<T: Covers>(files: &[T]) -> Option<Range<usize>> {
    let class = |file: &T| file.segment_count().ilog(MERGE_FAN_IN);
    let highest = files.iter().map(class).max()?;
    (0..=highest).find_map(|wanted| {
        let mut start = 0;
        let mut count = 0;
        for (index, class) in files.iter().map(class).enumerate() {
            if class > wanted {
                (start, count) = (index + 1, 0);
            } else if class == wanted {
                count += 1;
            }
            if count == MERGE_FAN_IN {
                return Some(start..index + 1);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLUSTER: ClusterId = ClusterId(3);
    const SHARD: ShardId = ShardId(1);

    fn run(first: u32, last: u32) -> RunFile {
        let (first, last) = (Generation(first), Generation(last));
        RunFile { first, last, stream_count: 5, posting_count: u64::from(last.0 - first.0) }
    }

    fn keys(first: u32, last: u32) -> KeyFile {
        KeyFile { first: Generation(first), last: Generation(last), key_count: 10 }
    }

    fn filled(segments: u32) -> Catalog {
        let mut catalog = Catalog::new(CLUSTER, SHARD);
        for segment in 1..=segments {
            catalog.add(run(segment, segment), keys(segment, segment)).unwrap();
        }
        catalog
    }

    fn merge_once(catalog: &mut Catalog) -> bool {
        let Some(inputs) = catalog.next_run_merge() else { return false };
        let merged = run(inputs[0].first.0, inputs[inputs.len() - 1].last.0);
        let inputs = inputs.to_vec();
        assert_eq!(catalog.replace_runs(&[merged]), Ok(inputs));
        catalog.check().unwrap();
        true
    }

    #[test]
    fn the_number_of_runs_stays_logarithmic() {
        let mut catalog = Catalog::new(CLUSTER, SHARD);
        let mut rewritten = 0;
        for segment in 1..=5000_u32 {
            catalog.add(run(segment, segment), keys(segment, segment)).unwrap();
            while let Some(inputs) = catalog.next_run_merge() {
                rewritten += inputs.iter().map(Covers::segment_count).sum::<u32>();
                merge_once(&mut catalog);
            }
            let bound = 7 * (1 + segment.ilog(8));
            assert!(catalog.runs().len() as u32 <= bound, "{} runs", catalog.runs().len());
            assert!(rewritten <= segment * segment.ilog(8), "{rewritten} segments rewritten");
        }
    }

    proptest! {
        #[test]
        fn merges_that_lag_behind_catch_up(
            steps in proptest::collection::vec(0_u32..40, 1..60),
        ) {
            let mut catalog = Catalog::new(CLUSTER, SHARD);
            for step in steps {
                for _ in 0..step {
                    let next = catalog.flushed().next().0;
                    catalog.add(run(next, next), keys(next, next)).unwrap();
                }
                merge_once(&mut catalog);
            }
            while merge_once(&mut catalog) {}
            let segments = catalog.flushed().0.max(1);
            prop_assert!(catalog.runs().len() as u32 <= 7 * (1 + segments.ilog(8)));
        }
    }

    #[test]
    fn files_that_do_not_continue_are_refused() {
        let mut catalog = filled(3);
        let before = catalog.clone();
        for (first, last) in [(3, 3), (5, 5), (1, 4), (4, 3)] {
            assert!(
                catalog
                    .add(
                        RunFile {
                            first: Generation(first),
                            last: Generation(last),
                            stream_count: 0,
                            posting_count: 0
                        },
                        keys(first, last)
                    )
                    .is_err()
            );
        }
        assert!(catalog.add(run(4, 4), keys(5, 5)).is_err());
        assert!(catalog.replace_runs(&[run(2, 4)]).is_err());
        assert!(catalog.replace_runs(&[run(1, 1), run(3, 3)]).is_err());
        assert!(catalog.replace_runs(&[]).is_err());
        assert_eq!(catalog, before);
    }

    #[test]
    fn a_damaged_merged_run_is_replaced_by_rebuilt_ones() {
        let mut catalog = filled(9);
        assert!(merge_once(&mut catalog));
        let rebuilt: Vec<RunFile> = (1..9).map(|segment| run(segment, segment)).collect();
        assert_eq!(catalog.replace_runs(&rebuilt), Ok(vec![run(1, 8)]));
        assert_eq!(catalog, filled(9));
    }

    #[test]
    fn a_small_run_between_larger_ones_is_taken_along() {
        let mut catalog = Catalog::new(CLUSTER, SHARD);
        catalog.runs.push(run(1, 64));
        catalog.runs.push(run(65, 65));
        let mut last = 65;
        for _ in 0..8 {
            catalog.runs.push(run(last + 1, last + 8));
            last += 8;
        }
        let inputs = catalog.next_run_merge().unwrap();
        assert_eq!((inputs[0], inputs.len()), (run(65, 65), 9));
    }

    #[test]
    fn key_files_stay_as_far_back_as_the_window_reaches() {
        let mut catalog = filled(9);
        assert_eq!(catalog.retire_keys(25).len(), 6);
        assert_eq!(catalog.key_files(), [keys(7, 7), keys(8, 8), keys(9, 9)]);
        assert_eq!(catalog.replace_keys(&[keys(6, 7)]).ok(), None);
        assert_eq!(catalog.retire_keys(0).len(), 2);
        assert_eq!(catalog.key_files(), [keys(9, 9)]);
    }
}
