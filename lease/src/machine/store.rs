//! One call to the store at a time, one undecided write at a time (L4).

use alloc::boxed::Box;

use super::Machine;
use super::state::{Call, CallKind, Next, Phase, Retry, Write};
use crate::action::{Action, Actions};
use crate::document::{Document, RecentTokens};
use crate::event::{Condition, ReadResult, Version, WriteOutcome};
use crate::ids::{CallId, LeaseEpoch, Now, Token};
use crate::in_sync::InSync;
use crate::rules::{Mistake, Rules};

impl<R: Rules> Machine<R> {
    fn begin_call(&mut self, kind: CallKind) -> CallId {
        self.calls_count += 1;
        let id = CallId(self.calls_count);
        self.call = Some(Call { id, kind, promised: self.promise.asked });
        id
    }

    pub(super) fn read_lease(&mut self, out: &mut Actions) {
        let call = self.begin_call(CallKind::Read);
        out.push(Action::ReadLease { call });
    }

    /// Sends a new write over the version known.
    pub(super) fn write_lease(
        &mut self,
        now: Now,
        epoch: LeaseEpoch,
        in_sync: InSync,
        out: &mut Actions,
    ) {
        let condition = match &self.version {
            None => Condition::Absent,
            Some(version) => Condition::Matches(version.etag.clone()),
        };
        let document = self.document(now, epoch, in_sync);
        self.write =
            Some(Write { condition, document, first_sent: now.mono, next: Next::ReadBack });
        self.send_write(out);
    }

    fn document(&mut self, now: Now, epoch: LeaseEpoch, in_sync: InSync) -> Document {
        self.writes_count += 1;
        let base = self.version.as_ref().map(|version| &version.document);
        Document {
            cluster: self.identity.cluster,
            leader: self.identity.node,
            epoch,
            in_sync,
            acquired: now.wall,
            expires: now.wall.plus(self.timings.s3_lease_ms()),
            token: Token::new(self.identity.run, self.writes_count),
            recent: base.map_or_else(RecentTokens::default, |base| base.recent.after(base.token)),
            unknown: base.map(|base| base.unknown.clone()).unwrap_or_default(),
        }
    }

    fn send_write(&mut self, out: &mut Actions) {
        let call = self.begin_call(CallKind::Write);
        if let Some(write) = &mut self.write {
            write.next = Next::ReadBack;
            out.push(Action::WriteLease {
                call,
                write: write.document.token,
                condition: write.condition.clone(),
                document: Box::new(write.document.clone()),
            });
        }
    }

    /// Goes on with the undecided write: reads back, or repeats the identical request.
    pub(super) fn resume_write(&mut self, out: &mut Actions) {
        match self.write.as_ref().map(|write| write.next) {
            Some(Next::ReadBack) => self.read_lease(out),
            Some(Next::Repeat) => self.send_write(out),
            None => {}
        }
    }

    /// Answers of calls before this are ignored; a write may still land (L4).
    pub(super) fn forget_store(&mut self) {
        self.call = None;
        self.write = None;
    }

    /// No further call for a while.
    pub(super) fn pause(&mut self, now: Now, jitter: u16) {
        let half = self.retry.ms / 2;
        let spread = (self.retry.ms - half) * u64::from(jitter) / u64::from(u16::MAX);
        self.retry.at = now.mono.plus((half + spread).max(1));
        self.retry.ms = self.timings.retry_ms_after(self.retry.ms);
    }

    /// The store has settled something: no pause.
    pub(super) fn settle(&mut self, now: Now) {
        self.retry = Retry { at: now.mono, ms: self.timings.retry_ms_min() };
    }

    fn end_call(&mut self, id: CallId, kind: CallKind) -> Option<Call> {
        self.call.take_if(|call| call.id == id && call.kind == kind)
    }

    pub(super) fn lease_read(
        &mut self,
        now: Now,
        call: CallId,
        result: ReadResult,
        jitter: u16,
        out: &mut Actions,
    ) {
        let Some(call) = self.end_call(call, CallKind::Read) else {
            return;
        };
        match self.phase {
            Phase::Fresh => {}
            Phase::Watching => self.watch_read(now, call.promised, result, jitter, out),
            Phase::Challenging(_) => self.challenge_read_back(now, call, result, jitter, out),
            Phase::Reign(_) => self.reign_read_back(now, result, jitter, out),
        }
    }

    pub(super) fn lease_written(
        &mut self,
        now: Now,
        call: CallId,
        outcome: WriteOutcome,
        jitter: u16,
        out: &mut Actions,
    ) {
        if self.end_call(call, CallKind::Write).is_none() {
            return;
        }
        let etag = match outcome {
            WriteOutcome::Stored { etag } => Some(etag),
            WriteOutcome::Unknown if self.rules.breaks(Mistake::UnknownMeansWon) => {
                self.version.as_ref().map(|version| version.etag.clone())
            }
            WriteOutcome::Conflict if self.rules.breaks(Mistake::ConflictMeansLost) => {
                return self.conflict_means_lost(now, jitter, out);
            }
            WriteOutcome::Conflict
                if matches!(self.phase, Phase::Reign(_))
                    && self.rules.breaks(Mistake::ConflictIgnored) =>
            {
                self.version.as_ref().map(|version| version.etag.clone())
            }
            WriteOutcome::Conflict | WriteOutcome::Unknown => None,
        };
        match etag {
            Some(etag) => self.write_stored(now, etag, out),
            // Look at once. Also a conflict may be that of a repetition whose first attempt landed
            // (L4). The next pause, if it comes to one, is longer than the last.
            None => self.retry.at = now.mono,
        }
    }

    fn write_stored(&mut self, now: Now, etag: crate::ids::ETag, out: &mut Actions) {
        let Some(write) = self.write.take() else {
            return;
        };
        self.write_won(now, write, etag, out);
    }

    /// The write is known to be stored: it has become the version under `etag`.
    pub(super) fn write_won(
        &mut self,
        now: Now,
        write: Write,
        etag: crate::ids::ETag,
        out: &mut Actions,
    ) {
        self.settle(now);
        let from_answer = self.rules.breaks(Mistake::LeaseFromAnswer);
        let confirmed = if from_answer { now.mono } else { write.first_sent };
        self.version = Some(Version { etag, document: write.document });
        match self.phase {
            Phase::Reign(_) => self.renewed(confirmed, out),
            Phase::Challenging(_) => self.reign_won(confirmed, out),
            // Only a machine that breaks a rule keeps a write that it gave up.
            Phase::Fresh | Phase::Watching => self.reign_won(confirmed, out),
        }
    }
}
