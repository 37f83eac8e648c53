//! Saving and merging when a file cannot be made.

use super::*;
use crate::ids::{Hlc, IdempotencyKey, LeaseEpoch, Lsn, Revision};
use crate::index::catalog::MERGE_FAN_IN;
use crate::index::key_file::SegmentKeys;
use crate::index::tail::{Tail, TailCapacity};

const STREAM: StreamId = StreamId(7);

fn open(path: &Path) -> OpenedIndex {
    let dir = ShardDir::new(path, ShardId(0));
    dir.create().unwrap();
    IndexFiles::open(dir, ClusterId(1), ShardId(0), 2, 9)
}

/// A segment with one event and one key.
fn sealed(number: u32) -> Sealed {
    let generation = Generation(number);
    let mut tail = Tail::with_capacity(generation, TailCapacity { streams: 1, events: 1 });
    tail.push(STREAM, Revision(u64::from(number) - 1), 4096, None);
    let mut keys = SegmentKeys::for_segment(generation, 64 << 10);
    keys.push(IdempotencyKey(u128::from(number)), 4096);
    let lsn = Lsn(u64::from(number));
    let end = LogEnd { lsn, hash: [0; 32], hlc: Hlc(1), epoch: LeaseEpoch(0) };
    Sealed { generation, tail, keys, end }
}

/// In the way of a file that is about to be made: opening it fails like on a full disk.
struct Obstacle(PathBuf);

impl Obstacle {
    fn new(files: &IndexFiles, name: &str) -> Self {
        let path = files.path(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Obstacle {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).unwrap();
    }
}

/// Promise: an index whose manifest could not be written is saved by a later try. Provoked at
/// every save, also those that retire old key files. A catalog that had taken the segment in
/// before the failure refused it for ever after: nothing was indexed until the next start.
#[test]
fn a_save_that_failed_at_the_manifest_can_be_tried_again() {
    let scratch = tempfile::tempdir().unwrap();
    let mut files = open(scratch.path()).files;
    for number in 1..MERGE_FAN_IN {
        let before = files.runs();
        {
            let _full = Obstacle::new(&files, "manifest.tmp");
            assert!(files.add(&sealed(number)).is_err());
        }
        assert_eq!(files.runs().len(), before.len(), "what is not saved is not announced");
        files.add(&sealed(number)).unwrap();
    }
    let mut again = open(scratch.path());
    assert_eq!(again.rebuild, None);
    assert_eq!(again.flushed, Generation(MERGE_FAN_IN - 1));
    assert_eq!(again.keys.len(), 2);
    let head = again.files.head(STREAM).unwrap().unwrap();
    assert_eq!(head.next, Revision(u64::from(MERGE_FAN_IN) - 1));
}

/// Promise: a segment counts as saved although merging it with others fails. Recovery would
/// else have it saved again, and the catalog has it already.
#[test]
fn a_merge_that_fails_does_not_make_a_save_fail() {
    let scratch = tempfile::tempdir().unwrap();
    let mut files = open(scratch.path()).files;
    {
        let merged = format!("run-{:010}-{MERGE_FAN_IN:010}.idx.tmp", 1);
        let _full = Obstacle::new(&files, &merged);
        for number in 1..=MERGE_FAN_IN + 1 {
            files.save(&sealed(number)).unwrap();
        }
        assert!(files.maintain().is_err(), "the obstacle is in the way of the merge");
    }
    files.save(&sealed(MERGE_FAN_IN + 2)).unwrap();
    assert_eq!(files.runs().len(), 3, "the merge was made up for");
}

/// Promise: a merge whose manifest could not be written leaves everything readable and is made
/// up for later.
#[test]
fn a_merge_that_failed_at_the_manifest_is_made_up_for() {
    let scratch = tempfile::tempdir().unwrap();
    let mut files = open(scratch.path()).files;
    for number in 1..=MERGE_FAN_IN {
        files.add(&sealed(number)).unwrap();
    }
    {
        let _full = Obstacle::new(&files, "manifest.tmp");
        assert!(files.maintain().is_err());
    }
    assert_eq!(files.runs().len(), MERGE_FAN_IN as usize);
    let next = Revision(u64::from(MERGE_FAN_IN));
    assert_eq!(files.head(STREAM).unwrap().unwrap().next, next);
    while files.maintain().unwrap() {}
    assert_eq!(files.runs().len(), 1);
    let mut again = open(scratch.path());
    assert_eq!(again.rebuild, None);
    assert_eq!(again.files.head(STREAM).unwrap().unwrap().next, next);
    let index = fs::read_dir(files.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    let runs = index.filter(|name| name.to_str().unwrap().starts_with("run-")).count();
    assert_eq!(runs, 1, "merged files are gone");
}
