//! Retries: the answer to an append whose key came before is made from the append record that the
//! first try left in the log, in memory or on disk (invariant A6).

use super::assembly::{Answer, Pending};
use super::{
    Action, Actions, Copies, LoadFailed, Outcome, Receipt, Refusal, Replay, RequestId, Shard,
};
use crate::append::AppendView;
use crate::ids::{IdempotencyKey, Lsn, Place};
use crate::record::{AppendRecord, Record, StreamRange};

impl Shard {
    pub(super) fn replay(
        &mut self,
        to: RequestId,
        view: &AppendView<'_>,
        place: Place,
        out: &mut Actions,
    ) {
        let size = view.bytes().len();
        let committed = place < self.committed_place;
        let mut ranges = std::mem::take(&mut self.scratch.ranges);
        let answer = self
            .record_in_memory(place)
            .map(|bytes| replay_answer(bytes, view.fingerprint(), view.key(), &mut ranges));
        let Some(answer) = answer else {
            self.scratch.ranges = ranges;
            assert!(committed, "blocks that are not committed are in memory");
            out.list.push(Action::LoadReplay { to, place });
            let (fingerprint, key) = (view.fingerprint(), view.key());
            self.replays.insert(to, Replay { request_bytes: size, fingerprint, key });
            return;
        };
        if committed {
            self.release(size);
            push_answer(to, self.placed(answer), &ranges, out);
        } else {
            self.defer_replay(Pending { to, request_bytes: size as u32, answer }, &ranges);
        }
        self.scratch.ranges = ranges;
    }

    fn defer_replay(&mut self, mut pending: Pending, ranges: &[StreamRange]) {
        let block = self.newest_block();
        if let Answer::Appended { receipt } = &mut pending.answer {
            receipt.ranges_at = block.ranges.len() as u32;
            block.ranges.extend_from_slice(ranges);
        }
        block.pending.push(pending);
    }

    fn record_in_memory(&self, place: Place) -> Option<&[u8]> {
        let open = self.open_started.then_some(&self.open);
        let behind = self.closed.partition_point(|block| block.place <= place);
        let closed = behind.checked_sub(1).and_then(|index| self.closed.get(index));
        for block in closed.into_iter().chain(open) {
            let same = block.place.generation == place.generation && block.place <= place;
            let at = place.offset.wrapping_sub(block.place.offset) as usize;
            if let Some(bytes) = block.bytes.get(at..).filter(|bytes| same && !bytes.is_empty()) {
                return Some(bytes);
            }
        }
        self.recent.bytes_at(place)
    }

    pub(super) fn replay_loaded(
        &mut self,
        to: RequestId,
        record: Result<&[u8], LoadFailed>,
        out: &mut Actions,
    ) {
        let Some(Replay { request_bytes: size, fingerprint, key }) = self.replays.remove(&to)
        else {
            return;
        };
        self.release(size);
        let mut ranges = std::mem::take(&mut self.scratch.ranges);
        let answer = match record {
            Ok(bytes) => replay_answer(bytes, fingerprint, key, &mut ranges),
            Err(LoadFailed) => Answer::Refuse(Refusal::Damaged),
        };
        push_answer(to, self.placed(answer), &ranges, out);
        self.scratch.ranges = ranges;
    }

    /// The answer of a committed append with the places of its copies.
    fn placed(&self, mut answer: Answer) -> Answer {
        if let Answer::Appended { receipt } = &mut answer {
            receipt.copies = self.coverage.copies(receipt.last_lsn);
        }
        answer
    }
}

fn push_answer(to: RequestId, answer: Answer, ranges: &[StreamRange], out: &mut Actions) {
    let outcome = match answer {
        Answer::Refuse(refusal) => Outcome::Refused(refusal),
        Answer::Appended { mut receipt } => {
            receipt.ranges_at = out.ranges.len() as u32;
            out.ranges.extend_from_slice(ranges);
            Outcome::Appended(receipt)
        }
    };
    out.list.push(Action::Reply { to, outcome });
}

/// What a retry is told, from the append record that the first try left.
fn replay_answer(
    bytes: &[u8],
    fingerprint: u64,
    key: Option<IdempotencyKey>,
    ranges: &mut Vec<StreamRange>,
) -> Answer {
    let Ok((Record::Append(record), _)) = Record::decode(bytes) else {
        return Answer::Refuse(Refusal::Damaged);
    };
    if record.key != key {
        return Answer::Refuse(Refusal::Damaged);
    }
    // A6: the same key with other events is no retry.
    if record.fingerprint != fingerprint {
        return Answer::Refuse(Refusal::KeyReused);
    }
    ranges.clear();
    ranges.extend(record.streams());
    Answer::Appended { receipt: replay_receipt(&record, ranges.len()) }
}

fn replay_receipt(record: &AppendRecord<'_>, ranges_count: usize) -> Receipt {
    Receipt {
        first_lsn: record.first_lsn,
        last_lsn: Lsn(record.first_lsn.0 + u64::from(record.event_count) - 1),
        hlc: record.hlc,
        epoch: record.epoch,
        copies: Copies::Disk,
        replayed: true,
        ranges_at: 0,
        ranges_count: ranges_count as u32,
    }
}
