//! Running appends that waited, when what they waited for has come.

use super::admission::{NO_HEAD, Verdict};
use super::parked::ParkedAppend;
use super::{Action, Actions, LoadFailed, Refusal, RequestId, Shard, State, StoredHead};
use crate::append::AppendView;
use crate::ids::{Now, Revision, StreamId};
use crate::index::heads::Head;

/// Why an append has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// For heads, or behind another append.
    Turn,
    /// For a segment.
    Room,
}

impl Shard {
    /// Keeps an append whose streams are in the scratch list.
    pub(super) fn park(
        &mut self,
        to: RequestId,
        view: &AppendView<'_>,
        wait: Wait,
        out: &mut Actions,
    ) {
        let streams: Vec<StreamId> = self.scratch_streams().collect();
        self.load_heads(&streams, out);
        let id = self.parked.park(ParkedAppend { to, bytes: view.bytes().to_vec(), streams });
        if wait == Wait::Room {
            self.parked.stall(id);
        }
    }

    fn load_heads(&mut self, streams: &[StreamId], out: &mut Actions) {
        for stream in streams {
            if self.head(*stream).is_none() && self.parked.start_loading(*stream) {
                out.list.push(Action::LoadHead { stream: *stream });
            }
        }
    }

    /// Lets a waiting append run; whether it did. If not it keeps its place.
    fn run(&mut self, now: Now, id: u64, out: &mut Actions) -> Option<Vec<StreamId>> {
        let append = self.parked.lend(id);
        // L8: leave to append may have run out while it waited.
        if matches!(self.closed_to_appends(now), Some(Refusal::NotLeader)) {
            self.release(append.bytes.len());
            out.refuse(append.to, Refusal::NotLeader);
            self.parked.leave(id, &append.streams);
            return Some(append.streams);
        }
        let view = AppendView::parse(&append.bytes, usize::MAX / 2);
        let view = view.expect("it was parsed when it came");
        self.identify(&view);
        match self.judge(now, append.to, &view, out) {
            Verdict::Park => {
                self.load_heads(&append.streams, out);
                self.parked.give_back(id, append);
                None
            }
            Verdict::Stall => {
                self.parked.stall(id);
                self.parked.give_back(id, append);
                None
            }
            Verdict::Done(done) => {
                self.conclude(append.to, &view, done, out);
                self.parked.leave(id, &append.streams);
                Some(append.streams)
            }
        }
    }

    /// Lets whatever is first in the queues of these streams run, and what is behind it.
    fn run_first(&mut self, now: Now, streams: Vec<StreamId>, out: &mut Actions) {
        let mut runnable = streams;
        while let Some(stream) = runnable.pop() {
            let Some(id) = self.parked.candidate(stream) else { continue };
            runnable.extend(self.run(now, id, out).unwrap_or_default());
        }
    }

    /// There is a segment, or none to be had: appends that waited for one run in the order in
    /// which they came, until one has to wait again.
    pub(super) fn run_stalled(&mut self, now: Now, out: &mut Actions) {
        for id in self.parked.stalled() {
            if !self.parked.unstall(id) || !self.parked.is_first(id) {
                // It has run behind another one, or will when it is first.
                continue;
            }
            match self.run(now, id, out) {
                Some(streams) => self.run_first(now, streams, out),
                None if self.parked.is_stalled_itself(id) => break,
                None => {}
            }
        }
    }

    pub(super) fn head_loaded(
        &mut self,
        now: Now,
        stream: StreamId,
        head: Result<Option<StoredHead>, LoadFailed>,
        out: &mut Actions,
    ) {
        if self.state == State::Poisoned {
            return;
        }
        if !self.parked.finish_loading(stream) {
            return;
        }
        if self.settle(stream, head, out) && head.is_ok() {
            return self.run_first(now, vec![stream], out);
        }
        let Ok(head) = head else {
            let mut behind = Vec::new();
            for append in self.parked.drain_stream(stream) {
                self.release(append.bytes.len());
                out.refuse(append.to, Refusal::Damaged);
                behind.extend(append.streams);
            }
            return self.run_first(now, behind, out);
        };
        // Not in any sealed segment: the filter erred. A head at 0 says so.
        let head = head.unwrap_or(StoredHead { next: Revision(0), fencing_token: 0 });
        if self.heads.get(stream).is_none() {
            self.parked.keep(stream, head);
            self.heads.put(stream, Head::from(head));
        }
        self.run_first(now, vec![stream], out);
    }

    /// The end of `stream` as ordered; `None` if the sealed segments have to be asked.
    pub(super) fn head(&mut self, stream: StreamId) -> Option<Head> {
        if self.unsettled.holds(stream) {
            return None;
        }
        if let Some(head) = self.heads.get(stream) {
            return Some(head);
        }
        if let Some(head) = self.parked.head(stream) {
            return Some(Head::from(head));
        }
        let sealed = self.runs.iter().any(|run| run.may_contain(stream));
        (!sealed).then_some(NO_HEAD)
    }
}

impl From<StoredHead> for Head {
    fn from(head: StoredHead) -> Self {
        let StoredHead { next: next_revision, fencing_token } = head;
        Self { next_revision, fencing_token, ..NO_HEAD }
    }
}
