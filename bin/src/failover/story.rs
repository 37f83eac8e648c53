//! From the merged entries to what happened: each change of the lead with its cause, its pause and
//! what the parts of it took.

use serde_json::Value as Json;

use super::cause::{self, Cause};
use super::evidence::Evidence;
use super::merge::{Line, merge};
use crate::journal::Entry;

/// How long before the last sign of a leader a change's time line begins, ms.
const LEAD_IN_MS: u64 = 1000;

/// One change of the lead.
#[derive(Debug)]
pub struct Change<'a> {
    /// The reign that began.
    pub epoch: u64,
    /// The one before, as far as known.
    pub before: Option<u64>,
    /// Who led before, as far as known.
    pub from: Option<String>,
    /// Who leads.
    pub to: String,
    /// When it led, by the first node's clock, ms since 1970.
    pub at_ms: u64,
    /// Why.
    pub cause: Cause,
    /// The same in words.
    pub why: String,
    /// How long appends waited, us; up to the lead if no append has come since.
    pub paused_us: u64,
    /// An append has been admitted.
    pub appended: bool,
    /// The parts of the pause, one after the other; their sum is `paused_us`.
    pub phases: Vec<Phase>,
    /// What happened, in order.
    pub lines: Vec<Line<'a>>,
}

/// A part of a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The word for it.
    pub name: String,
    /// How long it took.
    pub us: u64,
}

impl Phase {
    fn new(name: impl Into<String>, us: u64) -> Self {
        Self { name: name.into(), us }
    }
}

/// Appends that waited although the lead did not move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interruption {
    /// Whose.
    pub node: String,
    /// Its reign.
    pub epoch: u64,
    /// When they went on, by the first node's clock.
    pub at_ms: u64,
    /// How long.
    pub paused_us: u64,
    /// Why they waited.
    pub reason: Option<String>,
}

/// All of it.
#[derive(Debug)]
pub struct Story<'a> {
    /// Changes of the lead, in order.
    pub changes: Vec<Change<'a>>,
    /// Pauses without a change.
    pub interruptions: Vec<Interruption>,
}

/// What an entry and its neighbours are looked up in.
pub(super) struct View<'a> {
    pub evidence: &'a Evidence,
    pub lines: &'a [Line<'a>],
    /// Where the new leader's challenge stands.
    pub challenge: usize,
    /// Where its lead stands.
    pub lead: usize,
    /// Where the lead before stands.
    pub lead_before: Option<usize>,
    /// The log of the node that led before.
    pub from: Option<usize>,
}

/// Tells what the evidence says.
#[must_use]
pub fn tell(evidence: &Evidence) -> Story<'_> {
    let lines = merge(evidence);
    let leads: Vec<usize> = positions(&lines, |entry| entry.event == "leads");
    let starts: Vec<usize> = leads
        .iter()
        .enumerate()
        .map(|(nth, lead)| start(&lines, nth.checked_sub(1).map(|before| leads[before]), *lead))
        .collect();
    let changes = leads.iter().enumerate().map(|(nth, lead)| {
        let lead_before = nth.checked_sub(1).map(|before| leads[before]);
        let end = starts.get(nth + 1).copied().unwrap_or(lines.len());
        change(evidence, &lines, (lead_before, *lead), starts[nth]..end.max(*lead + 1))
    });
    Story { changes: changes.collect(), interruptions: interruptions(evidence, &lines) }
}

fn positions(lines: &[Line<'_>], is: impl Fn(&Entry) -> bool) -> Vec<usize> {
    lines.iter().enumerate().filter(|(_, line)| is(line.entry)).map(|(place, _)| place).collect()
}

/// The challenge that led to this lead.
fn challenge(lines: &[Line<'_>], lead: usize) -> usize {
    let log = lines[lead].log;
    let own = (0..lead).rev().filter(|place| lines[*place].log == log);
    let mut own = own.take_while(|place| lines[*place].entry.event != "leads");
    own.find(|place| lines[*place].entry.event == "challenges").unwrap_or(lead)
}

/// Where the story of a change begins: with the handover, or shortly before the last sign of the
/// leader, but behind the lead before.
fn start(lines: &[Line<'_>], lead_before: Option<usize>, lead: usize) -> usize {
    let first = lead_before.map_or(0, |before| before + 1);
    let challenge = challenge(lines, lead).max(first);
    let asked = |line: &Line<'_>| {
        matches!(line.entry.event.as_str(), "handover_started" | "process_stopping")
    };
    if cause_word(lines[challenge].entry) == Some("resigned")
        && let Some(begun) = (first..challenge).find(|place| asked(&lines[*place]))
    {
        return begun;
    }
    let silent_ms = lines[challenge].entry.facts.get("silent_us").and_then(Json::as_u64);
    let Some(silent_ms) = silent_ms.map(|us| us / 1000) else {
        // A node that has just started: its story begins with that, or with the other's end.
        let starts = (first..challenge).find(|place| {
            matches!(lines[*place].entry.event.as_str(), "process_start" | "process_stopping")
        });
        return starts.unwrap_or(challenge);
    };
    let since = lines[challenge].at_ms.saturating_sub(silent_ms + LEAD_IN_MS);
    (first..challenge).find(|place| lines[*place].at_ms >= since).unwrap_or(challenge)
}

fn cause_word(entry: &Entry) -> Option<&str> {
    entry.facts.get("cause")?.as_str()
}

fn change<'a>(
    evidence: &'a Evidence,
    lines: &[Line<'a>],
    (lead_before, lead): (Option<usize>, usize),
    window: std::ops::Range<usize>,
) -> Change<'a> {
    let own = &lines[lead];
    let node = |log: usize| evidence.logs[log].node.clone();
    let before = leader_before(evidence, lines, lead_before, lead);
    let from_log = before
        .as_ref()
        .and_then(|(node, _)| evidence.logs.iter().position(|log| log.node == *node));
    let challenge = challenge(lines, lead);
    let view = View { evidence, lines, challenge, lead, lead_before, from: from_log };
    let (cause, why) = cause::find(&view, before.as_ref().map(|(node, _)| node.as_str()));
    let epoch = own.entry.epoch.unwrap_or(0);
    let appended = lines[lead..].iter().find(|line| {
        line.log == own.log && line.entry.event == "first_append" && line.entry.epoch == Some(epoch)
    });
    let phases = phases(&view, cause, appended.map(|line| line.entry));
    Change {
        epoch,
        before: before.as_ref().and_then(|(_, epoch)| *epoch),
        from: before.map(|(node, _)| node),
        to: node(own.log),
        at_ms: own.at_ms,
        cause,
        why,
        paused_us: phases.iter().map(|phase| phase.us).sum(),
        appended: appended.is_some(),
        phases,
        lines: settled(lines, window, epoch),
    }
}

/// Who led before, and by which reign: the newer of the last lead told and of whom the new leader
/// followed last.
fn leader_before(
    evidence: &Evidence,
    lines: &[Line<'_>],
    lead_before: Option<usize>,
    lead: usize,
) -> Option<(String, Option<u64>)> {
    let log = lines[lead].log;
    let followed = lines[..lead].iter().rev().find_map(|line| {
        let follows = line.log == log && line.entry.event == "follows";
        let peer = line.entry.facts.get("peer").filter(|_| follows)?.as_str()?;
        Some((peer.to_owned(), line.entry.epoch))
    });
    let led = lead_before.map(|place| {
        let line = &lines[place];
        (evidence.logs[line.log].node.clone(), line.entry.epoch)
    });
    match (led, followed) {
        (Some(led), Some(followed)) if followed.1 > led.1 => Some(followed),
        (led, followed) => led.or(followed),
    }
}

/// The lines of a change up to the one by which everything is settled: the first append, and the
/// other node's following.
fn settled<'a>(lines: &[Line<'a>], window: std::ops::Range<usize>, epoch: u64) -> Vec<Line<'a>> {
    let is_last = |line: &Line<'_>| {
        let word = line.entry.event.as_str();
        let of_it = line.entry.epoch == Some(epoch);
        of_it && matches!(word, "leads" | "first_append" | "follows" | "follower_reachable")
            || word == "deposed" && line.entry.facts.get("seen") == Some(&epoch.into())
    };
    let window = &lines[window];
    let last = window.iter().rposition(is_last).map_or(window.len(), |last| last + 1);
    window[..last].to_vec()
}

/// The parts of the pause. What lies on one node is measured by its own clock; only the message
/// between two nodes is told by both walls' clocks, and is never below zero.
fn phases(view: &View<'_>, cause: Cause, appended: Option<&Entry>) -> Vec<Phase> {
    let mut phases = Vec::new();
    if cause == Cause::Handover {
        phases.extend(handover_phases(view));
    }
    let told = view.lines[view.lead].entry.facts.get("phases").and_then(Json::as_array);
    for phase in told.into_iter().flatten() {
        let name = match phase["phase"].as_str().unwrap_or("?") {
            "detect" if cause == Cause::Handover => "look",
            name => name,
        };
        phases.push(Phase::new(name, phase["us"].as_u64().unwrap_or(0)));
    }
    let after = appended.and_then(|entry| entry.facts.get("after_us")?.as_u64());
    phases.extend(after.map(|us| Phase::new("first_append", us)));
    phases
}

/// Of the node that gives the lead away.
fn handover_phases(view: &View<'_>) -> Vec<Phase> {
    let View { lines, challenge, .. } = *view;
    let Some(from) = view.from else { return Vec::new() };
    let first = view.lead_before.unwrap_or(0);
    let find = |event: &str, log: usize| {
        lines[first..=challenge]
            .iter()
            .rev()
            .find(|line| line.log == log && line.entry.event == event)
    };
    let Some(started) = find("handover_started", from) else { return Vec::new() };
    let mut phases = Vec::new();
    let Some(resigned) = find("resigned", from) else { return phases };
    let drained = resigned.entry.mono_us.saturating_sub(started.entry.mono_us);
    phases.push(Phase::new("drain", drained));
    if let Some(received) = find("resign_received", lines[challenge].log) {
        let ms = received.at_ms.saturating_sub(resigned.at_ms);
        phases.push(Phase::new("message", ms * 1000));
    }
    phases
}

fn interruptions(evidence: &Evidence, lines: &[Line<'_>]) -> Vec<Interruption> {
    let resumed = |line: &&Line<'_>| line.entry.event == "appends_resumed";
    let told = lines.iter().filter(resumed).filter_map(|line| {
        let paused = evidence.logs[line.log]
            .entries
            .iter()
            .rev()
            .find(|entry| entry.event == "appends_paused" && entry.number < line.entry.number);
        // By another reign it is a change of the lead, and told there.
        let epoch = line.entry.epoch?;
        let paused = paused.filter(|paused| paused.epoch == Some(epoch))?;
        Some(Interruption {
            node: evidence.logs[line.log].node.clone(),
            epoch,
            at_ms: line.at_ms,
            paused_us: line.entry.facts.get("paused_us")?.as_u64()?,
            reason: paused.reason.clone(),
        })
    });
    told.collect()
}
