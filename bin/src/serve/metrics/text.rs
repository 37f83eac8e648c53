//! Which metrics there are, and what they are called. `names.txt` freezes it: a name that is gone
//! or means something else breaks somebody's alerts.

use std::fmt;

use duolog_net::wire::ErrorCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;

use super::node::{DEPOSITION_REASONS, ELECTION_REASONS, HANDOVER_OUTCOMES};
use super::page::{In, Labels, Page};
use super::reading::{PairReading, Reading, ShardPart};
use super::shard::{COPIES, REQUEST_KINDS, error_name};
use crate::version::{COMMIT, VERSION};

/// The type of what [`render`] gives.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Every word for a node's role.
const ROLES: [&str; 7] =
    ["standalone", "booting", "catching_up", "follower", "promoting", "leader", "fenced"];

/// The text of `/metrics`.
#[must_use]
pub fn render(reading: Reading) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(reading));
    let mut text = String::with_capacity(64 << 10);
    text::encode(&mut text, &registry).expect("a String takes everything");
    text
}

impl Collector for Reading {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.node(&mut page)?;
        if let Some(pair) = &self.pair {
            pair.lease(&mut page)?;
            pair.changes(&mut page)?;
            pair.s3(&mut page)?;
        }
        self.logs(&mut page)?;
        self.appends(&mut page)?;
        self.clients(&mut page)?;
        self.stages(&mut page)?;
        self.process(&mut page)
    }
}

fn label(name: &'static str, value: impl Into<String>) -> Labels<1> {
    [(name, value.into())]
}

fn by<'a>(
    label_name: &'static str,
    names: &'a [&'static str],
    counts: &'a [u64],
) -> impl Iterator<Item = (Labels<1>, u64)> + 'a {
    names.iter().zip(counts).map(move |(name, count)| (label(label_name, *name), *count))
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

impl PairReading {
    fn lease(&self, page: &mut Page<'_>) -> fmt::Result {
        let standing = &self.node.standing;
        let help = "Newest reign known";
        page.gauge(("duolog_lease_epoch", In::Count), help, standing.epoch)?;
        let help = "How much longer the leader may serve without a further ack; 0 if it does not";
        let remaining = self.lease_remaining_ms as f64 / 1000.0;
        page.gauge(("duolog_lease_remaining", In::Seconds), help, remaining)?;
        let help = "Nodes that have everything that was acknowledged, as far as known";
        page.gauge(("duolog_in_sync", In::Of("nodes")), help, standing.in_sync)?;
        let help = "1 if the connection to the other node is up";
        let connected = u64::from(standing.peer_connected);
        page.gauge(("duolog_peer_connected", In::Count), help, connected)?;
        let help = "The other clock less this node's";
        let skews = [("peer", standing.peer_skew_ms), ("s3", self.s3_skew_ms)];
        let known = skews.into_iter().filter_map(|(clock, skew_ms)| {
            skew_ms.map(|skew_ms| (label("clock", clock), seconds(skew_ms)))
        });
        page.gauges(("duolog_clock_skew", In::Seconds), help, known)
    }

    fn changes(&self, page: &mut Page<'_>) -> fmt::Result {
        let node = &self.node;
        let help = "Challenges for the lease by this node";
        let rows = by("reason", &ELECTION_REASONS, &node.elections);
        page.counters(("duolog_elections", In::Count), help, rows)?;
        let help = "Times that this node began to lead";
        page.counter(("duolog_reigns", In::Count), help, node.reigns)?;
        let help = "Reigns of this node that ended";
        let rows = by("reason", &DEPOSITION_REASONS, &node.depositions);
        page.counters(("duolog_depositions", In::Count), help, rows)?;
        let help = "Times that the lease ran out while this node led, so that appends waited";
        page.counter(("duolog_lease_lapses", In::Count), help, node.lapses)?;
        let help = "Handovers by this node";
        let rows = by("outcome", &HANDOVER_OUTCOMES, &node.handovers);
        page.counters(("duolog_handovers", In::Count), help, rows)?;
        let help = "Times that the follower of this node missed a heartbeat";
        page.counter(("duolog_follower_losses", In::Count), help, node.follower_losses)
    }

    fn s3(&self, page: &mut Page<'_>) -> fmt::Result {
        let help = "Requests to the bucket";
        let rows = self.s3.iter().map(|row| {
            let lane = ("lane", row.lane.label().to_owned());
            let operation = ("operation", row.operation.label().to_owned());
            ([lane, operation, ("outcome", row.outcome.label().to_owned())], row.count)
        });
        page.counters(("duolog_s3_requests", In::Count), help, rows)
    }
}

impl Reading {
    fn node(&self, page: &mut Page<'_>) -> fmt::Result {
        let help = "The program";
        let version = ("version", VERSION.to_owned());
        page.info("duolog_build", help, [version, ("commit", COMMIT.to_owned())])?;
        let help = "The node's and its cluster's ids";
        let cluster = ("cluster", self.cluster.clone());
        page.info("duolog_node", help, [cluster, ("node", self.node.clone())])?;
        let help = "1 for what the node is, 0 for what it is not";
        let roles = ROLES.map(|role| (label("role", role), u64::from(role == self.role)));
        page.gauges(("duolog_role", In::Count), help, roles)
    }

    /// A row per shard.
    fn rows<'a>(
        &'a self,
        of: impl Fn(&'a ShardPart) -> u64 + 'a,
    ) -> impl Iterator<Item = (Labels<1>, u64)> + 'a {
        let shards = self.shards.iter().enumerate();
        shards.map(move |(shard, part)| (label("shard", shard.to_string()), of(part)))
    }

    /// Rows per shard, by a further label.
    fn split<'a>(
        &'a self,
        name: &'static str,
        names: &'a [&'static str],
        of: impl Fn(&'a ShardPart) -> &'a [u64] + 'a,
    ) -> impl Iterator<Item = (Labels<2>, u64)> + 'a {
        let shards = self.shards.iter().enumerate();
        shards.flat_map(move |(shard, part)| {
            let shard = ("shard", shard.to_string());
            let counts = names.iter().zip(of(part));
            counts.map(move |(value, count)| ([shard.clone(), (name, (*value).to_owned())], *count))
        })
    }

    fn logs(&self, page: &mut Page<'_>) -> fmt::Result {
        let help = "Newest event in a closed block";
        page.gauges(("duolog_log_end", In::Of("lsn")), help, self.rows(|shard| shard.log.end.0))?;
        let help = "Newest event that is durable on this disk";
        let rows = self.rows(|shard| shard.log.durable.0);
        page.gauges(("duolog_log_durable", In::Of("lsn")), help, rows)?;
        let help = "Newest committed event";
        let rows = self.rows(|shard| shard.log.committed.0);
        page.gauges(("duolog_log_committed", In::Of("lsn")), help, rows)?;
        let help = "Events that the second copy lacks; on a follower: that it may not show yet";
        let leads = self.role == "leader";
        let rows = self.rows(|shard| shard.log.lag(leads));
        page.gauges(("duolog_log_lag", In::Of("events")), help, rows)?;
        let help = "Durable writes into the log";
        let rows = self.rows(|shard| shard.log.writes);
        page.counters(("duolog_log_writes", In::Count), help, rows)?;
        let help = "Bytes that they wrote, with padding";
        let rows = self.rows(|shard| shard.log.written_bytes);
        page.counters(("duolog_log_written", In::Bytes), help, rows)?;
        let help = "Segment files that were made ready for writing";
        let rows = self.rows(|shard| shard.counts.segments);
        page.counters(("duolog_segments_prepared", In::Count), help, rows)
    }

    fn appends(&self, page: &mut Page<'_>) -> fmt::Result {
        let help = "Appends acknowledged, by where the second copy was";
        let rows = self.split("copy", &COPIES, |shard| &shard.counts.acks);
        page.counters(("duolog_append_acks", In::Count), help, rows)?;
        let help = "Events of acknowledged appends";
        let rows = self.rows(|shard| shard.counts.events);
        page.counters(("duolog_appended", In::Of("events")), help, rows)?;
        let help = "Appends answered with what an earlier one with the same key was answered";
        let rows = self.rows(|shard| shard.counts.replays);
        page.counters(("duolog_append_replays", In::Count), help, rows)
    }

    fn clients(&self, page: &mut Page<'_>) -> fmt::Result {
        let help = "Requests received, by the shard that has the connection";
        let rows = self.split("kind", &REQUEST_KINDS, |shard| &shard.counts.requests);
        page.counters(("duolog_requests", In::Count), help, rows)?;
        let help = "Requests that are not answered";
        let rows = self.rows(|shard| shard.counts.in_flight);
        page.gauges(("duolog_requests_in_flight", In::Count), help, rows)?;
        let help = "Errors sent to clients";
        let rows = ErrorCode::ALL.into_iter().enumerate().map(|(index, code)| {
            let shards = self.shards.iter();
            let sum: u64 = shards.filter_map(|shard| shard.counts.errors.get(index)).sum();
            (label("reason", error_name(code)), sum)
        });
        page.counters(("duolog_refusals", In::Count), help, rows)?;
        let help = "Clients' connections";
        let rows = self.rows(|shard| shard.counts.connections);
        page.gauges(("duolog_connections", In::Count), help, rows)?;
        let help = "Subscriptions";
        let rows = self.rows(|shard| shard.counts.subscribers);
        page.gauges(("duolog_subscribers", In::Count), help, rows)?;
        let help = "Connections accepted";
        let rows = self.rows(|shard| shard.counts.accepted);
        page.counters(("duolog_connections_accepted", In::Count), help, rows)?;
        let help = "Times that the watchdog rang a shard";
        let rows = self.rows(|shard| shard.pokes);
        page.counters(("duolog_watchdog_pokes", In::Count), help, rows)?;
        let help = "Times that it rang a shard that had work and did not run";
        let rows = self.rows(|shard| shard.rescues);
        page.counters(("duolog_watchdog_rescues", In::Count), help, rows)
    }

    fn stages(&self, page: &mut Page<'_>) -> fmt::Result {
        let [queue, write, replicate, commit, total] = &self.stages;
        let help = "Per append: from its parsing until its block was on its way";
        page.durations("duolog_append_queue", help, queue)?;
        let help = "Per write of the log: until it was durable";
        page.durations("duolog_block_write", help, write)?;
        let help = "Per block of a leader: from its sending until it had its second copy";
        page.durations("duolog_block_replicate", help, replicate)?;
        let help = "Per block: from its sending until it was committed";
        page.durations("duolog_block_commit", help, commit)?;
        let help = "Per acknowledged append: from its parsing until its answer was released";
        page.durations("duolog_append", help, total)
    }

    fn process(&self, page: &mut Page<'_>) -> fmt::Result {
        let vitals = &self.vitals;
        let help = "Processor time of all threads";
        let cpu = vitals.cpu_us as f64 / 1e6;
        page.counter(("duolog_process_cpu", In::Seconds), help, cpu)?;
        if let Some(resident) = vitals.resident_bytes {
            let help = "Memory in use";
            page.gauge(("duolog_process_resident", In::Bytes), help, resident)?;
        }
        if let Some(files) = vitals.open_files {
            let help = "Open files, sockets included";
            page.gauge(("duolog_process_open", In::Of("files")), help, files)?;
        }
        let help = "When the process started, since 1970";
        let started = self.started_ms as f64 / 1000.0;
        page.gauge(("duolog_process_start_time", In::Seconds), help, started)?;
        if let Some(disk) = self.disk {
            let help = "Free space on the data directory's file system";
            page.gauge(("duolog_disk_free", In::Bytes), help, disk.free)?;
            let help = "Size of the data directory's file system";
            page.gauge(("duolog_disk_size", In::Bytes), help, disk.size)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
