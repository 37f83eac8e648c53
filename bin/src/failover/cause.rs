//! Why the lead moved, as far as the logs tell.

use serde_json::Value as Json;

use super::merge::Line;
use super::story::View;
use crate::journal::Entry;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The first reign of the cluster.
    Founded,
    /// The leader gave it away.
    Handover,
    /// The leader's process ended without a word.
    Killed,
    /// The leader's machine was restarted.
    MachineRestarted,
    /// The leader's process ended and said why.
    Ended,
    /// The leader did not run for a while.
    Frozen,
    /// The leader ran and could not be heard, nor renew its lease.
    Partition,
    /// Clocks too far apart.
    ClockDrift,
    /// Both nodes were restarted.
    BothRestarted,
    /// The leader itself was restarted, and came back first.
    Restarted,
    /// Nobody took what was handed over.
    Unanswered,
    /// A new reign of the same leader, to let a long chain go.
    NewReign,
    /// The leader's log is not there.
    Unknown,
}

impl Cause {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Founded => "founded",
            Self::Handover => "handover",
            Self::Killed => "killed",
            Self::MachineRestarted => "machine_restarted",
            Self::Ended => "ended",
            Self::Frozen => "frozen",
            Self::Partition => "partition",
            Self::ClockDrift => "clock_drift",
            Self::BothRestarted => "both_restarted",
            Self::Restarted => "restarted",
            Self::Unanswered => "unanswered",
            Self::NewReign => "new_reign",
            Self::Unknown => "unknown",
        }
    }
}

/// Finds out, for the lead that the view is of; `from` is who led before.
pub(super) fn find(view: &View<'_>, from: Option<&str>) -> (Cause, String) {
    let View { evidence, lines, challenge, lead, .. } = *view;
    let word = lines[challenge].entry.facts.get("cause").and_then(Json::as_str);
    let own = lines[lead].log;
    let to = evidence.logs[own].name.as_str();
    let Some(from) = from else {
        let why = match word {
            Some("no_lease") => {
                format!("there was no lease: {to} founded the cluster's first reign")
            }
            _ => "the logs do not reach back to the reign before".to_owned(),
        };
        let founded = word == Some("no_lease");
        return (if founded { Cause::Founded } else { Cause::Unknown }, why);
    };
    let name = evidence.name(from);
    if from == evidence.logs[own].node {
        return same_leader(view, &name);
    }
    if word == Some("resigned") {
        return handover(view, &name);
    }
    let restarted = restarts_before(view, own);
    let Some(log) = view.from else {
        let why = format!(
            "{name} was not heard any more; whether it was killed, frozen or cut off only its own \
             event log tells, which is missing"
        );
        return (Cause::Unknown, why);
    };
    if restarted && ended_without_word(view, log) {
        let why = format!(
            "both nodes were restarted; {to} came back first, waited until the lease of {name} had \
             run out, and took it"
        );
        return (Cause::BothRestarted, why);
    }
    lost(view, log, &name)
}

/// Entries of a log between the lead before and this one's end, in order.
fn entries<'a>(view: &View<'a>, log: usize) -> impl Iterator<Item = &'a Entry> {
    let first = view.lead_before.map_or(0, |before| before + 1);
    let epoch = view.lines[view.lead].entry.epoch;
    let lines: &'a [Line<'a>] = view.lines;
    let of_log = lines[first..].iter().filter(move |line| line.log == log);
    // What it does after it has learnt of the new reign belongs to the next story.
    of_log.map(|line| line.entry).take_while(move |entry| {
        !(entry.event == "follows" && entry.epoch >= epoch || entry.event == "leads")
    })
}

fn has(view: &View<'_>, log: usize, event: &str) -> bool {
    entries(view, log).any(|entry| entry.event == event)
}

/// A node that had followed the reign before was started again. Its first start is none.
fn restarted(view: &View<'_>, log: usize) -> bool {
    let mut followed = entries(view, log).skip_while(|entry| entry.event != "follows");
    followed.any(|entry| entry.event == "process_start")
}

/// The new leader itself was started after it had followed last.
fn restarts_before(view: &View<'_>, log: usize) -> bool {
    let lines = view.lines[..view.challenge].iter().rev();
    let mut own = lines.filter(|line| line.log == log).map(|line| line.entry.event.as_str());
    own.find(|event| matches!(*event, "follows" | "process_start" | "leads"))
        == Some("process_start")
}

fn ended_without_word(view: &View<'_>, log: usize) -> bool {
    has(view, log, "process_start") || !view.evidence.logs[log].answers
}

fn same_leader(view: &View<'_>, name: &str) -> (Cause, String) {
    let own = view.lines[view.lead].log;
    if entries_of_own(view, own).any(|entry| entry.event == "handover_unanswered") {
        let why = format!("{name} handed over, nobody took the lead, and it took a new reign");
        return (Cause::Unanswered, why);
    }
    let new_reign = entries_of_own(view, own).any(|entry| {
        entry.event == "deposed" && entry.facts.get("why") == Some(&"new_reign".into())
    });
    if new_reign {
        let why = format!("{name} took a new reign of its own accord, to let a long chain go");
        return (Cause::NewReign, why);
    }
    let other = (0..view.evidence.logs.len()).find(|log| *log != own);
    if other.is_some_and(|other| restarted(view, other)) {
        let why = format!("both nodes were restarted; {name}, which had led, came back first");
        return (Cause::BothRestarted, why);
    }
    let why =
        format!("{name} was restarted and took its own lease again: nobody else had taken it");
    (Cause::Restarted, why)
}

/// Entries of the new leader since its last lead.
fn entries_of_own<'a>(view: &View<'a>, own: usize) -> impl Iterator<Item = &'a Entry> {
    let first = view.lead_before.map_or(0, |before| before + 1);
    let lines: &'a [Line<'a>] = view.lines;
    lines[first..view.lead].iter().filter(move |line| line.log == own).map(|line| line.entry)
}

fn handover(view: &View<'_>, name: &str) -> (Cause, String) {
    let Some(log) = view.from else {
        let why = format!("{name} handed over; its log, which would tell why, is missing");
        return (Cause::Handover, why);
    };
    let stopping = entries(view, log).find(|entry| entry.event == "process_stopping");
    let why = match stopping.map(|entry| entry.reason.as_deref().unwrap_or("a signal")) {
        Some(signal) => format!("{name} was asked to stop ({signal}) and handed over"),
        None if has(view, log, "cannot_lead") => {
            format!("{name} lacked acknowledged events and gave the lead away")
        }
        None => format!("{name} handed over as it was told (`duolog handoff`)"),
    };
    (Cause::Handover, why)
}

/// The leader was not heard any more: what its log says of that time.
fn lost(view: &View<'_>, log: usize, name: &str) -> (Cause, String) {
    let silent_us = view.lines[view.challenge].entry.facts.get("silent_us");
    let silent_us = silent_us.and_then(Json::as_u64).unwrap_or(0);
    let find = |event: &str| entries(view, log).find(|entry| entry.event == event);
    if let Some(stop) = find("process_stop") {
        let reason = stop.reason.as_deref().unwrap_or("without a reason");
        let exit = stop.facts.get("exit").map_or("?".to_owned(), ToString::to_string);
        let why = format!("the process of {name} ended with exit code {exit}: {reason}");
        return (Cause::Ended, why);
    }
    if let Some(start) = find("process_start") {
        if start.facts.get("same_boot") == Some(&false.into()) {
            let why = format!("the machine of {name} was restarted, or lost its power");
            return (Cause::MachineRestarted, why);
        }
        let why = format!("{name} was killed or crashed: its process ended without a word");
        return (Cause::Killed, why);
    }
    let stalled = entries(view, log).filter(|entry| entry.event == "stalled");
    let stalled = stalled.filter_map(|entry| entry.facts.get("for_us")?.as_u64()).max();
    if let Some(us) = stalled.filter(|us| us.saturating_mul(2) >= silent_us) {
        let s = us as f64 / 1e6;
        let why = format!(
            "{name} did not run for {s:.1} s (its process was stopped, or its machine) and was \
             deposed when it went on"
        );
        return (Cause::Frozen, why);
    }
    if find("clock_drift").is_some() || has(view, view.lines[view.lead].log, "clock_drift") {
        let why =
            format!("the clocks of the two nodes lay too far apart, and {name} was not followed");
        return (Cause::ClockDrift, why);
    }
    let cut_off = ["lease_ran_out", "store_unreachable", "follower_unreachable", "deposed"];
    if let Some(sign) = entries(view, log).find(|entry| cut_off.contains(&entry.event.as_str())) {
        let store = if find("store_unreachable").is_some() { " nor the bucket" } else { "" };
        let said = sign.reason.as_deref().unwrap_or(&sign.event);
        let why = format!(
            "{name} went on running, but did not reach the other node{store} (partition): {said}"
        );
        return (Cause::Partition, why);
    }
    let why = match view.evidence.logs[log].answers {
        true => format!("{name} was not heard any more, and its log says nothing about it"),
        false => {
            format!("the log of {name} ends without a word: it was killed, crashed, or is cut off")
        }
    };
    let cause = if view.evidence.logs[log].answers { Cause::Unknown } else { Cause::Killed };
    (cause, why)
}
