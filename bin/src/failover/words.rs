//! The story for people and for machines.

use serde_json::{Value as Json, json};

use super::evidence::Evidence;
use super::merge::Line;
use super::story::{Change, Interruption, Phase, Story};
use crate::timestamp::rfc3339;

/// The story as text: the newest `last` changes of the lead.
#[must_use]
pub fn text(story: &Story<'_>, evidence: &Evidence, last: usize) -> String {
    let mut out = String::new();
    let left_out = story.changes.len().saturating_sub(last);
    for change in &story.changes[left_out..] {
        out.push_str(&change_text(change, evidence));
    }
    if story.changes.is_empty() {
        out.push_str("No change of the lead in the event logs.\n\n");
    }
    for interruption in story.interruptions.iter().rev().take(last).rev() {
        out.push_str(&interruption_text(interruption, evidence));
    }
    out.push_str(&grounds_text(story, evidence));
    if left_out > 0 {
        let more = story.changes.len();
        out.push_str(&format!("{left_out} earlier changes are not shown: --last {more}\n"));
    }
    out
}

fn change_text(change: &Change<'_>, evidence: &Evidence) -> String {
    let to = evidence.name(&change.to);
    let from = change.from.as_deref().map(|from| evidence.name(from));
    let moved = match from {
        Some(from) if from != to => format!("the lead moved from {from} to {to}"),
        Some(_) => format!("{to} took a new reign"),
        None => format!("{to} took the lead"),
    };
    let epochs = change
        .before
        .map_or(format!("{}", change.epoch), |before| format!("{before} -> {}", change.epoch));
    let mut out = format!("{}  {moved}, epoch {epochs}\n", rfc3339(change.at_ms));
    out.push_str(&format!("  why     {}\n", change.why));
    let until = match (change.appended, change.from.is_some()) {
        (true, _) => "to the first append",
        (false, _) => "until appends were admitted; none has come since",
    };
    out.push_str(&format!("  paused  {} {until}\n", duration(change.paused_us)));
    for phase in &change.phases {
        let (time, text) = (duration(phase.us), phase_words(phase));
        out.push_str(&format!("          {time:>10}  {text}\n"));
    }
    let width = evidence.logs.iter().map(|log| log.name.len()).max().unwrap_or(0);
    for line in &change.lines {
        out.push_str(&format!("  {}\n", line_text(line, evidence, width)));
    }
    out.push('\n');
    out
}

fn line_text(line: &Line<'_>, evidence: &Evidence, width: usize) -> String {
    let name = &evidence.logs[line.log].name;
    let time = &rfc3339(line.at_ms)[11..23];
    // By what must have come first, not by the clocks.
    let mark = if line.by_cause { '*' } else { ' ' };
    let epoch = line.entry.epoch.map_or(String::new(), |epoch| format!(" [{epoch}]"));
    let reason = line.entry.reason.as_deref().map_or(String::new(), |text| format!(": {text}"));
    let facts =
        line.entry.facts.iter().filter(|(name, _)| !TOLD_ELSEWHERE.contains(&name.as_str()));
    let facts: String = facts.map(|(name, value)| fact(name, value)).collect();
    let text = format!("{}{epoch}{reason}{facts}", line.entry.event);
    // People know nodes by their addresses.
    let known = evidence.logs.iter().filter(|log| !log.node.is_empty());
    let text = known.fold(text, |text, log| text.replace(&log.node, &log.name));
    format!("{time}{mark} {name:<width$}  {text}")
}

/// Facts that the phases or the sentence tell already.
const TOLD_ELSEWHERE: [&str; 13] = [
    "phases",
    "skew_ms",
    "pid",
    "commit",
    "clean",
    "same_boot",
    "in_sync",
    "cause",
    "heard_ms",
    "before_ms",
    "from",
    "why",
    "seen",
];

fn fact(name: &str, value: &Json) -> String {
    match (name.strip_suffix("_us"), value.as_u64(), value.as_str()) {
        (Some(name), Some(us), _) if name != "since" => format!(", {name} {}", duration(us)),
        (Some(_), ..) => String::new(),
        (None, _, Some(text)) => format!(", {name} {text}"),
        _ => format!(", {name} {value}"),
    }
}

fn interruption_text(interruption: &Interruption, evidence: &Evidence) -> String {
    let Interruption { node, epoch, at_ms, paused_us, reason } = interruption;
    let (at, name) = (rfc3339(*at_ms), evidence.name(node));
    let paused = duration(*paused_us);
    let reason = reason.as_deref().unwrap_or("not told");
    format!("{at}  {name} kept the lead, epoch {epoch}; appends paused {paused}: {reason}\n\n")
}

fn grounds_text(story: &Story<'_>, evidence: &Evidence) -> String {
    let mut out = String::from("From\n");
    for log in &evidence.logs {
        let more = if log.left_out { ", older ones left out" } else { "" };
        out.push_str(&format!(
            "  log      {} (node {}): {} entries{more}\n",
            log.name,
            if log.node.is_empty() { "?" } else { &log.node },
            log.entries.len()
        ));
    }
    for missing in &evidence.missing {
        out.push_str(&format!("  MISSING  {}: {}\n", missing.what, missing.reason));
    }
    out.push_str(&match &evidence.lease {
        Some(Ok(lease)) => format!(
            "  lease    epoch {}, {} leads, written {}, expires {}\n",
            lease.epoch,
            evidence.name(&lease.leader),
            rfc3339(lease.acquired_ms),
            rfc3339(lease.expires_ms)
        ),
        Some(Err(reason)) => format!("  lease    not included: {reason}\n"),
        None => "  lease    not included: no settings for the bucket were given\n".to_owned(),
    });
    if let Some(untold) = untold(story, evidence) {
        out.push_str(&format!("  {untold}\n"));
    }
    if let [one, other] = evidence.logs.as_slice() {
        out.push_str(&match evidence.skew_ms() {
            Some(skew) => format!(
                "  skew_ms  {skew}: the clock of {} less that of {}; times are the latter's, \
                 the order across nodes by epochs (* marks where clocks say otherwise)\n",
                other.name, one.name
            ),
            None => "  skew_ms  not known: the nodes have not measured it; the order across nodes \
                     is by epochs, else by clocks as they are\n"
                .to_owned(),
        });
    }
    out
}

/// The lease names a reign that no log tells.
fn untold(story: &Story<'_>, evidence: &Evidence) -> Option<String> {
    let lease = evidence.lease.as_ref()?.as_ref().ok()?;
    let newest = story.changes.iter().map(|change| change.epoch).max().unwrap_or(0);
    (lease.epoch > newest).then(|| {
        format!(
            "the lease is of epoch {}, newer than any lead in these logs ({newest}): its reign \
             never opened, or the log that tells of it is missing",
            lease.epoch
        )
    })
}

fn phase_words(phase: &Phase) -> &str {
    match phase.name.as_str() {
        "drain" => "draining: what was in flight at the old leader",
        "message" => "message from the old leader to the new one (by their clocks)",
        "look" => "from the resignation to the look at the lease",
        "detect" => "detection: last sign of the leader to the look at the lease",
        "wait" => "reading the lease and waiting for it to run out",
        "stop" => "all shards stop following",
        "write" => "conditional write of the lease",
        "promise" => "promise on disk",
        "read" => "reading the chain, cutting and applying",
        "seal" => "sealing the old chain",
        "open" => "storing the own Open",
        "first_append" => "until the first append came",
        other => other,
    }
}

/// A length of time in the unit that people would use.
fn duration(us: u64) -> String {
    match us {
        0..10_000 => format!("{:.2} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.3} s", us as f64 / 1e6),
    }
}

/// The story as JSON.
#[must_use]
pub fn json(story: &Story<'_>, evidence: &Evidence, last: usize) -> Json {
    let left_out = story.changes.len().saturating_sub(last);
    let changes = story.changes[left_out..].iter().map(|change| change_json(change, evidence));
    let nodes = evidence.logs.iter().map(|log| {
        json!({
            "name": log.name,
            "node": log.node,
            "answers": log.answers,
            "entries": log.entries.len(),
            "left_out": log.left_out,
        })
    });
    let missing = evidence.missing.iter();
    let missing = missing.map(|missing| json!({ "what": missing.what, "reason": missing.reason }));
    let interruptions = story.interruptions.iter().map(|interruption| {
        json!({
            "node": interruption.node,
            "epoch": interruption.epoch,
            "at_ms": interruption.at_ms,
            "paused_us": interruption.paused_us,
            "reason": interruption.reason,
        })
    });
    json!({
        "failovers": changes.collect::<Vec<_>>(),
        "earlier": left_out,
        "interruptions": interruptions.collect::<Vec<_>>(),
        "nodes": nodes.collect::<Vec<_>>(),
        "missing": missing.collect::<Vec<_>>(),
        "lease": evidence.lease.as_ref().and_then(|lease| lease.as_ref().ok()).map(|lease| json!({
            "leader": lease.leader,
            "epoch": lease.epoch,
            "acquired_unix_ms": lease.acquired_ms,
            "expires_unix_ms": lease.expires_ms,
        })),
        "lease_error": evidence.lease.as_ref().and_then(|lease| lease.as_ref().err()),
        "untold": untold(story, evidence),
        "skew_ms": evidence.skew_ms(),
    })
}

fn change_json(change: &Change<'_>, evidence: &Evidence) -> Json {
    let phases = change
        .phases
        .iter()
        .map(|phase| json!({ "phase": phase.name, "us": phase.us, "text": phase_words(phase) }));
    let lines = change.lines.iter().map(|line| {
        let mut entry = serde_json::to_value(line.entry).unwrap_or(Json::Null);
        entry["node"] = json!(evidence.logs[line.log].node);
        entry["in_order_at_ms"] = json!(line.at_ms);
        entry["by_cause"] = json!(line.by_cause);
        entry
    });
    json!({
        "epoch": change.epoch,
        "epoch_before": change.before,
        "from": change.from,
        "to": change.to,
        "at_ms": change.at_ms,
        "cause": change.cause.word(),
        "why": change.why,
        "paused_us": change.paused_us,
        "appended": change.appended,
        "phases": phases.collect::<Vec<_>>(),
        "timeline": lines.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_people_would_use() {
        let told = [850, 9_990, 43_210, 1_620_000].map(duration);
        assert_eq!(told, ["0.85 ms", "9.99 ms", "43.2 ms", "1.620 s"]);
    }
}
