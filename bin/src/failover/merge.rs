//! One order for the entries of two nodes. Within a node the log's own order holds; across nodes
//! what must have come first does: nobody knows of a reign before somebody has won its lease.
//! Clocks, corrected by the skew that the nodes measured, decide the rest.

use super::evidence::{Evidence, NodeLog};
use crate::journal::Entry;

/// Clocks that contradict the order by less are only as exact as they are, ms.
const CLOCK_NOISE_MS: u64 = 10;

/// An entry in the common order.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Which log.
    pub log: usize,
    /// The entry.
    pub entry: &'a Entry,
    /// By the clock of the first log's node, ms since 1970.
    pub at_ms: u64,
    /// The clocks alone would have put it elsewhere.
    pub by_cause: bool,
}

/// Merges the logs.
#[must_use]
pub fn merge(evidence: &Evidence) -> Vec<Line<'_>> {
    let logs = &evidence.logs;
    let skew_ms = evidence.skew_ms().unwrap_or(0);
    let corrected = |log: usize, entry: &Entry| match log {
        0 => entry.at_ms,
        _ => entry.at_ms.saturating_add_signed(skew_ms.saturating_neg()),
    };
    let mut next = vec![0_usize; logs.len()];
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut latest_ms = 0;
    loop {
        let heads = logs.iter().enumerate().filter_map(|(log, kept)| {
            let entry = kept.entries.get(next[log])?;
            Some((log, entry, corrected(log, entry)))
        });
        let mut heads: Vec<_> = heads.collect();
        heads.sort_by_key(|(log, _, at_ms)| (*at_ms, *log));
        let free = heads.iter().position(|(log, entry, _)| !waits(logs, &next, *log, entry));
        // With a part of a log missing, each may seem to wait for the other.
        let chosen = free.unwrap_or(0);
        let Some((log, entry, at_ms)) = heads.get(chosen).copied() else { return lines };
        next[log] += 1;
        let first_ms = heads.first().map_or(at_ms, |(_, _, first_ms)| *first_ms);
        let early = first_ms + CLOCK_NOISE_MS < at_ms;
        let late = latest_ms > at_ms + CLOCK_NOISE_MS;
        latest_ms = latest_ms.max(at_ms);
        lines.push(Line { log, entry, at_ms, by_cause: early || late });
    }
}

/// Whether something that must have come before the entry lies ahead in another log.
fn waits(logs: &[NodeLog], next: &[usize], own: usize, entry: &Entry) -> bool {
    let others = logs.iter().zip(next).enumerate().filter(|(log, _)| *log != own);
    others.into_iter().any(|(_, (log, from))| {
        let ahead = &log.entries[*from..];
        let has = |event: &str, epoch: u64| {
            ahead.iter().any(|other| other.event == event && other.epoch == Some(epoch))
        };
        let Some(epoch) = entry.epoch else { return false };
        match entry.event.as_str() {
            "resign_received" if has("resigned", epoch) => true,
            "follower_reachable" if has("follows", epoch) => true,
            "handover_done" => has("challenges", epoch + 1),
            "challenges" => has("leads", epoch - epoch.min(1)),
            // A leader sends heartbeats when it leads.
            "follows" => has("leads", epoch),
            _ => {
                let known = entry.facts.get("seen").and_then(serde_json::Value::as_u64);
                let known = known.unwrap_or(epoch).max(epoch);
                // The store had the lease before anybody could read it there.
                has("reign_won", known)
            }
        }
    })
}
