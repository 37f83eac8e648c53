//! What `verify` says about logs that are whole, cut, damaged, and left over.

use std::fs;
use std::path::Path;

use duolog_engine::ids::{Lsn, ShardId};

use super::chain::{Damage, Verdict};
use super::sample::{SEGMENT_BYTES, Sample};
use super::shard::{self, ShardReport};
use super::verify::{self, VerifyArgs};
use crate::datadir;
use crate::exit::Exit;
use crate::output::Output;

fn report_with(sample: &Sample, mark: Option<u64>) -> ShardReport {
    let cluster = sample.identity.cluster();
    shard::verify(&sample.shard_dir(), cluster, ShardId(0), mark.map(Lsn)).unwrap()
}

fn verdict(sample: &Sample) -> Verdict {
    report_with(sample, None).verdict
}

fn lsns(damage: &[Damage]) -> Vec<(u64, u64)> {
    damage.iter().map(|damage| (damage.first.get(), damage.last.get())).collect()
}

/// Three segments, the middle one in a recycled file full of old blocks, and a prepared one.
fn whole_log() -> Sample {
    let mut sample = Sample::new();
    for mark in [0, 2, 4] {
        sample.block(2, mark);
    }
    let used = sample.read(1);
    sample.rotate(used);
    sample.block(3, 6);
    sample.rotate(vec![0; SEGMENT_BYTES]);
    sample.block(1, 9);
    fs::write(sample.file(4), vec![0; SEGMENT_BYTES]).unwrap();
    fs::write(sample.shard_dir().join("spare-00000009.log"), sample.read(1)).unwrap();
    sample
}

#[test]
fn a_whole_log_is_counted_to_its_end() {
    let sample = whole_log();
    let report = report_with(&sample, Some(10));
    assert_eq!((report.segments, report.prepared), (3, 2));
    let verdict = report.verdict;
    assert!(verdict.damage.is_empty() && !verdict.torn, "{verdict:?}");
    let tally = &verdict.tally;
    assert_eq!((tally.blocks, tally.events, tally.first_lsn), (5, 10, Lsn(1)));
    assert_eq!((verdict.end.lsn, verdict.end.hash), (Lsn(10), sample.end.hash));
}

#[test]
fn an_empty_log_is_whole() {
    let report = report_with(&Sample::new(), None);
    assert!(report.verdict.damage.is_empty() && !report.verdict.torn);
    assert_eq!(report.verdict.end.lsn, Lsn(0));
}

/// The last write was interrupted: half a block, nothing behind it.
#[test]
fn half_a_block_at_the_end_is_a_torn_tail() {
    let mut sample = Sample::new();
    sample.block(2, 0);
    let torn = sample.make(3, 2);
    sample.put(&torn[..torn.len() - 100]);
    let verdict = verdict(&sample);
    assert!(verdict.torn && verdict.damage.is_empty(), "{verdict:?}");
    assert_eq!((verdict.end.lsn, verdict.strays), (Lsn(2), 0));
}

/// Two blocks were in flight and only the later one arrived: nothing proves the earlier committed.
#[test]
fn a_whole_block_behind_a_hole_proves_nothing_by_itself() {
    let mut sample = Sample::new();
    sample.block(2, 0);
    let lost = sample.block(3, 2);
    sample.block(1, 2);
    sample.rot(1, lost + 200);
    let verdict = verdict(&sample);
    assert!(verdict.torn && verdict.damage.is_empty(), "{verdict:?}");
    assert_eq!((verdict.end.lsn, verdict.strays), (Lsn(2), 1));
}

/// The block after the next carries a commit mark beyond the hole: those events were acknowledged.
#[test]
fn a_later_commit_mark_proves_damage_and_checking_goes_on_behind_it() {
    let mut sample = Sample::new();
    sample.block(2, 0);
    let lost = sample.block(3, 2);
    sample.block(1, 2);
    sample.block(4, 5);
    let second = sample.block(2, 10);
    sample.block(1, 12);
    sample.block(1, 13);
    sample.rot(1, lost + 200);
    sample.rot(1, second + 170);
    let verdict = verdict(&sample);
    assert_eq!(lsns(&verdict.damage), [(3, 5), (11, 12)]);
    let first = &verdict.damage[0];
    assert_eq!(
        (first.spot.offset, first.spot.file.as_str()),
        (lost as u64, "shard-000/seg-00000001.log")
    );
    assert!(first.reason.contains("checksum"), "{first:?}");
    assert_eq!((verdict.end.lsn, verdict.torn), (Lsn(14), false));
    assert_eq!(verdict.tally.events, 2 + 1 + 4 + 1 + 1);
}

/// Zeros where blocks should be, at the very end: only the durable mark knows.
#[test]
fn the_durable_mark_proves_that_the_last_blocks_are_missing() {
    let mut sample = Sample::new();
    sample.block(2, 0);
    let lost = sample.block(3, 2);
    let mut bytes = sample.read(1);
    bytes[lost..].fill(0);
    fs::write(sample.file(1), bytes).unwrap();
    assert!(verdict(&sample).damage.is_empty());
    let marked = report_with(&sample, Some(5)).verdict;
    assert_eq!(lsns(&marked.damage), [(3, 5)]);
    assert!(marked.damage[0].reason.contains("durable mark"), "{marked:?}");
}

#[test]
fn a_missing_segment_is_damage() {
    let sample = whole_log();
    fs::remove_file(sample.file(2)).unwrap();
    let mut sample = sample;
    sample.block(1, 10);
    let verdict = verdict(&sample);
    assert_eq!(lsns(&verdict.damage), [(7, 9)]);
    assert!(verdict.damage[0].reason.contains("LSN 9"), "{verdict:?}");
}

#[test]
fn a_damaged_segment_header_is_damage_even_though_its_blocks_are_whole() {
    let sample = whole_log();
    sample.rot(2, 40);
    let verdict = verdict(&sample);
    assert_eq!(lsns(&verdict.damage), [(7, 7)]);
    assert!(verdict.damage[0].reason.contains("header"), "{verdict:?}");
    assert_eq!(verdict.end.lsn, Lsn(10));
}

/// After a torn tail was cut, new blocks overwrote it; an old whole block remains behind them.
#[test]
fn leftovers_of_a_cut_tail_are_no_damage() {
    let mut sample = Sample::new();
    sample.block(2, 0);
    let (end, offset) = (sample.end, sample.offset);
    let old: Vec<_> = (0..3).map(|_| sample.make(2, 2)).collect();
    sample.offset += 8192;
    sample.put(&old[2]);
    (sample.end, sample.offset) = (end, offset);
    sample.block(1, 2);
    let first = verdict(&sample);
    assert!(first.damage.is_empty(), "{first:?}");
    assert_eq!(first.end.lsn, Lsn(3));
    sample.rotate(vec![0; SEGMENT_BYTES]);
    sample.block(1, 3);
    let second = verdict(&sample);
    assert!(second.damage.is_empty() && !second.torn, "{second:?}");
    assert_eq!(second.end.lsn, Lsn(4));
}

#[test]
fn a_block_from_another_place_is_not_taken() {
    let mut sample = Sample::new();
    let first = sample.block(2, 0);
    let second = sample.block(2, 2);
    sample.block(1, 4);
    let mut bytes = sample.read(1);
    bytes.copy_within(first..first + 4096, second);
    fs::write(sample.file(1), bytes).unwrap();
    assert_eq!(lsns(&verdict(&sample).damage), [(3, 4)]);
}

/// Every single bit of the blocks' pages: whatever is hit, the log is never called whole with the
/// hit event in it, and the tool never panics.
#[test]
fn no_flipped_bit_inside_a_block_passes() {
    let mut sample = Sample::new();
    sample.block(2, 0);
    let place = sample.block(2, 2);
    sample.block(1, 4);
    sample.block(1, 5);
    let length = 160 + 2 * 80;
    let whole = sample.read(1);
    for at in place..place + length {
        sample.rot(1, at);
        let verdict = verdict(&sample);
        assert_eq!(lsns(&verdict.damage), [(3, 4)], "byte {at}");
        fs::write(sample.file(1), &whole).unwrap();
    }
}

fn exit_of(dir: &Path) -> Result<Exit, Exit> {
    let arguments = VerifyArgs { dir: dir.to_owned(), compare: None, json: true };
    verify::run(&arguments, Output::to(std::io::sink())).map_err(|failure| failure.exit)
}

#[test]
fn the_command_tells_by_its_exit_code() {
    let sample = whole_log();
    assert_eq!(exit_of(sample.path()), Ok(Exit::Ok));
    sample.rot(2, 4096 + 100);
    assert_eq!(exit_of(sample.path()), Ok(Exit::CheckFailed));
    let lock = datadir::lock(sample.path()).unwrap();
    assert_eq!(exit_of(sample.path()), Err(Exit::DataDirInUse));
    drop(lock);
    assert_eq!(exit_of(Path::new("/nowhere")), Err(Exit::Usage));
    fs::remove_dir_all(sample.shard_dir()).unwrap();
    assert_eq!(exit_of(sample.path()), Err(Exit::LocalIo));
}
