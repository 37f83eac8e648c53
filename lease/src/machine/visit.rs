//! Access for the exhaustive check: it counts time from "now" and renames tokens, so that states
//! which differ in nothing else are one state.

use super::Machine;
use super::state::{Phase, Stage, Write};
use crate::document::Document;
use crate::event::{Condition, Version};
use crate::ids::{CallId, ETag, MonoMs, Token, WallMs};
use crate::rules::Rules;

/// Sees, and may change, every time and name that a machine remembers.
#[doc(hidden)]
pub trait Visitor {
    /// The newest reading of the clock.
    fn latest(&mut self, at: &mut MonoMs);
    /// A time that is only ever compared with "now".
    fn deadline(&mut self, at: &mut MonoMs);
    /// A time that durations are added to.
    fn moment(&mut self, at: &mut MonoMs);
    /// The newest acked heartbeat and the newest sent one; compared with one another too.
    fn beats(&mut self, heard: &mut Option<MonoMs>, last_sent: &mut Option<MonoMs>);
    /// The times in a lease document.
    fn span(&mut self, acquired: &mut WallMs, expires: &mut WallMs);
    /// The version of the lease that a machine knows; it looks at its times only when it reads it.
    fn known(&mut self, version: &mut Version);
    /// The version of the lease seen last, and since when; looked at only by a doubtful clock.
    fn seen(&mut self, token: &mut Token, since: &mut MonoMs);
    /// A token.
    fn token(&mut self, token: &mut Token);
    /// An entity tag.
    fn etag(&mut self, etag: &mut ETag);
    /// The call that is waited for.
    fn call(&mut self, call: &mut CallId);
}

#[doc(hidden)]
impl Document {
    /// Shows all times and tokens.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.span(&mut self.acquired, &mut self.expires);
        visitor.token(&mut self.token);
        for token in self.recent.as_mut_slice() {
            visitor.token(token);
        }
    }
}

#[doc(hidden)]
impl<R: Rules> Machine<R> {
    /// Shows all times and names but the counters.
    pub fn visit(&mut self, visitor: &mut impl Visitor) {
        visitor.latest(&mut self.latest);
        visitor.deadline(&mut self.retry.at);
        for at in self.timer.iter_mut() {
            visitor.deadline(at);
        }
        for grant in self.published.iter_mut() {
            visitor.deadline(&mut grant.serve_until);
            visitor.deadline(&mut grant.renewal_from);
            visitor.deadline(&mut grant.upload_until);
        }
        for call in self.call.iter_mut() {
            visitor.call(&mut call.id);
        }
        for version in self.version.iter_mut() {
            visitor.known(version);
        }
        if let Some(Write { condition, document, first_sent, .. }) = &mut self.write {
            if let Condition::Matches(etag) = condition {
                visitor.etag(etag);
            }
            document.visit(visitor);
            visitor.moment(first_sent);
        }
        self.visit_watch(visitor);
        self.visit_phase(visitor);
    }

    fn visit_watch(&mut self, visitor: &mut impl Visitor) {
        let watch = &mut self.watch;
        for at in watch.heard_until.iter_mut() {
            visitor.deadline(at);
        }
        visitor.deadline(&mut watch.patience_until);
        visitor.deadline(&mut watch.ask_at);
        for seen in watch.seen.iter_mut() {
            visitor.seen(&mut seen.token, &mut seen.since);
        }
        for sent in watch.pending.iter_mut().filter_map(|pending| pending.sent.as_mut()) {
            visitor.moment(sent);
        }
    }

    fn visit_phase(&mut self, visitor: &mut impl Visitor) {
        let Phase::Reign(reign) = &mut self.phase else {
            return;
        };
        visitor.moment(&mut reign.confirmed);
        visitor.beats(&mut reign.heard, &mut reign.last_sent);
        visitor.deadline(&mut reign.next_heartbeat);
        visitor.deadline(&mut reign.renew_at);
        if let Stage::Draining { until, .. } | Stage::Resigned { until } = &mut reign.stage {
            visitor.deadline(until);
        }
    }

    /// The counters of calls and of writes.
    pub fn counters(&mut self) -> (&mut u64, &mut u32) {
        (&mut self.calls_count, &mut self.writes_count)
    }

    /// The write whose outcome is not known.
    pub fn awaited_write(&self) -> Option<Token> {
        self.write.as_ref().map(|write| write.document.token)
    }

    /// The call whose answer counts.
    pub fn awaited_call(&self) -> Option<CallId> {
        self.call.map(|call| call.id)
    }
}
