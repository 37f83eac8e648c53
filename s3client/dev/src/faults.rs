//! What is to go wrong: rules for single requests, lies of the store about conditions, outages, a
//! clock that is off. A test orders them through [`Faults`], also while requests are under way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// What happens to a request that a [`Rule`] picks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is applied only after a while.
    Delay(Duration),
    /// It is applied at once, its reply comes after a while.
    DelayReply(Duration),
    /// It is applied, and the connection is cut instead of a reply.
    DropReply,
    /// The connection is cut and it is never applied.
    DropRequest,
    /// The connection is cut at once, and it is applied after a while.
    ApplyLate(Duration),
    /// It is not applied; this is the answer.
    Answer(Answer),
    /// It is applied; this is the answer all the same.
    ApplyAndAnswer(Answer),
    /// It is applied; the reply's body is cut in the middle (a reply without a body is dropped).
    CutBody,
    /// It is applied; the reply's ETag is rewritten.
    RewriteETag(ETagRewrite),
}

/// A made-up answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Code of an error document; no document if it is empty.
    pub code: &'static str,
    /// More headers.
    pub headers: Vec<(&'static str, String)>,
    /// The whole body, instead of an error document.
    pub body: Option<&'static str>,
}

impl Answer {
    /// A status with an error document of this code.
    #[must_use]
    pub fn error(status: u16, code: &'static str) -> Self {
        Self { status, code, ..Self::default() }
    }

    /// The same with a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// What a proxy makes of ETags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ETagRewrite {
    /// `"x"` becomes `W/"x"`.
    Weak,
    /// `"x"` becomes `x`.
    Unquoted,
    /// It is taken away.
    Missing,
}

/// Which requests a fault strikes.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Only this method.
    pub method: Option<&'static str>,
    /// Only if the path and query have this in them.
    pub path_has: String,
    /// So many requests that fit are left alone first.
    pub skip: u32,
    /// So many are struck then.
    pub times: u32,
    /// What happens to them.
    pub fault: Fault,
}

impl Rule {
    /// The next request of this method is struck once.
    #[must_use]
    pub fn once(method: &'static str, fault: Fault) -> Self {
        Self { method: Some(method), path_has: String::new(), skip: 0, times: 1, fault }
    }

    /// All requests are struck.
    #[must_use]
    pub fn always(fault: Fault) -> Self {
        Self { method: None, path_has: String::new(), skip: 0, times: u32::MAX, fault }
    }

    /// So many are struck.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    /// So many are left alone first.
    #[must_use]
    pub fn after(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// Only where the path and query have this in them.
    #[must_use]
    pub fn on(self, path_has: &str) -> Self {
        Self { path_has: path_has.to_owned(), ..self }
    }
}

/// How the store's conditional writes deceive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    /// Not at all.
    #[default]
    None,
    /// Both headers are ignored.
    IgnoreConditions,
    /// If-Match is ignored.
    IgnoreIfMatch,
    /// If-None-Match is ignored.
    IgnoreIfNoneMatch,
    /// If-None-Match is judged the wrong way round.
    InvertIfNoneMatch,
    /// If-Match on a missing key creates the object.
    CreateOnIfMatch,
    /// If-Match never holds when it is quoted.
    QuotedNeverMatches,
    /// If-Match never holds when it is not quoted.
    UnquotedNeverMatches,
    /// Conditions are judged before the body is read.
    JudgeBeforeBody,
    /// So many milliseconds lie between judging and writing.
    GapMs(u64),
    /// The headers are refused with 501.
    NotImplemented,
    /// New objects are missing from listings for so many milliseconds.
    ListLateMs(u64),
    /// A page of a listing is called the last although there are more.
    ListCut,
    /// Deleted objects stay.
    KeepDeleted,
}

/// A request that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its method.
    pub method: String,
    /// Its path and query as sent.
    pub target: String,
    /// Its headers, names in small letters.
    pub headers: Vec<(String, String)>,
}

impl Seen {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    lie: Lie,
    clock_shift_ms: i64,
    region: Option<String>,
    seen: Vec<Seen>,
}

/// The faults of one server. Clones order for the same server.
#[derive(Clone, Debug)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    /// `true` while nobody listens.
    outage: watch::Sender<bool>,
    /// Counts orders to cut all connections.
    cuts: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            outage: watch::Sender::new(false),
            cuts: watch::Sender::new(0),
        }
    }
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule. The first rule that fits a request strikes it.
    pub fn order(&self, rule: Rule) {
        self.state().rules.push(rule);
    }

    /// From now on the store lies so.
    pub fn lie(&self, lie: Lie) {
        self.state().lie = lie;
    }

    /// Shifts the server's clock, which its `Date` and its judgement of requests follow.
    pub fn shift_clock(&self, shift_ms: i64) {
        self.state().clock_shift_ms = shift_ms;
    }

    /// Accepts only requests that are signed for this region.
    pub fn require_region(&self, region: &str) {
        self.state().region = Some(region.to_owned());
    }

    /// Closes the port and all connections, or opens the port again.
    pub fn outage(&self, out: bool) {
        self.outage.send_replace(out);
    }

    /// Closes all connections, idle ones too.
    pub fn cut_connections(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }

    /// No rules, no lie, right clock, any region; what was seen stays.
    pub fn clear(&self) {
        let mut state = self.state();
        let seen = std::mem::take(&mut state.seen);
        *state = State { seen, ..State::default() };
        drop(state);
        self.outage.send_replace(false);
    }

    /// Every request that arrived since the start or the last call, with its head whole.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state().seen)
    }

    /// How many requests that have arrived have this in their path and query.
    #[must_use]
    pub fn seen_count(&self, path_has: &str) -> usize {
        self.state().seen.iter().filter(|seen| seen.target.contains(path_has)).count()
    }

    pub(crate) fn watch_outage(&self) -> watch::Receiver<bool> {
        self.outage.subscribe()
    }

    pub(crate) fn watch_cuts(&self) -> watch::Receiver<u64> {
        self.cuts.subscribe()
    }

    pub(crate) fn current_lie(&self) -> Lie {
        self.state().lie
    }

    pub(crate) fn clock_shift_ms(&self) -> i64 {
        self.state().clock_shift_ms
    }

    pub(crate) fn region(&self) -> Option<String> {
        self.state().region.clone()
    }

    /// Notes a request and says what happens to it.
    pub(crate) fn strike(&self, seen: Seen) -> Option<Fault> {
        let mut state = self.state();
        let mut struck = None;
        for rule in &mut state.rules {
            let fits = rule.method.is_none_or(|method| method == seen.method)
                && seen.target.contains(&rule.path_has)
                && rule.times > 0;
            if !fits {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if rule.times != u32::MAX {
                rule.times -= 1;
            }
            struck = Some(rule.fault.clone());
            break;
        }
        state.seen.push(seen);
        // A server that runs for days must not fill the memory with what nobody asks for.
        const SEEN_MAX: usize = 10_000;
        if state.seen.len() > SEEN_MAX {
            state.seen.drain(..SEEN_MAX / 2);
        }
        struck
    }
}
