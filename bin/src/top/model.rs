//! What `duolog top` shows: two looks at every node, and what lies between them.

use std::collections::VecDeque;

use duolog_engine::ids::MonoUs;
use serde_json::{Value as Json, json};

/// Rates remembered for the little chart.
const HISTORY_MAX: usize = 120;

/// One look at all nodes.
#[derive(Clone, Debug)]
pub struct Look {
    /// When.
    pub at: MonoUs,
    /// For people, ms since 1970.
    pub wall_ms: u64,
    /// What each address said, in the order given: its status, or why there is none.
    pub nodes: Vec<Result<Json, String>>,
}

/// How many per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Events committed.
    pub events: f64,
    /// Durable writes into the log.
    pub writes: f64,
}

/// See the module.
#[derive(Debug)]
pub struct Model {
    /// The addresses.
    pub addresses: Vec<String>,
    /// Between two looks, ms.
    pub interval_ms: u64,
    /// The node whose shards are shown.
    pub selected: usize,
    /// New looks are not taken over.
    pub paused: bool,
    /// Events per second of the node that leads, the newest last.
    pub history: VecDeque<u64>,
    before: Option<Look>,
    now: Option<Look>,
}

impl Model {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(addresses: Vec<String>, interval_ms: u64) -> Self {
        let history = VecDeque::new();
        Self {
            addresses,
            interval_ms,
            selected: 0,
            paused: false,
            history,
            before: None,
            now: None,
        }
    }

    /// Takes a look over, unless it is paused.
    pub fn take(&mut self, look: Look) {
        if self.paused {
            return;
        }
        self.before = self.now.replace(look);
        if let Some(leader) = self.leader() {
            let rate = self.rate(leader).map_or(0, |rate| rate.events.round() as u64);
            self.history.push_back(rate);
            if self.history.len() > HISTORY_MAX {
                self.history.pop_front();
            }
        }
    }

    /// Selects the node so many places on, around the corner.
    pub fn select(&mut self, places: usize) {
        self.selected = (self.selected + places) % self.addresses.len().max(1);
    }

    /// When it was looked last, ms since 1970.
    #[must_use]
    pub fn wall_ms(&self) -> Option<u64> {
        self.now.as_ref().map(|look| look.wall_ms)
    }

    /// What a node said last: its status, why there is none, or nothing yet.
    #[must_use]
    pub fn said(&self, node: usize) -> Option<&Result<Json, String>> {
        self.now.as_ref()?.nodes.get(node)
    }

    /// A node's status.
    #[must_use]
    pub fn status(&self, node: usize) -> Option<&Json> {
        self.said(node)?.as_ref().ok()
    }

    /// The node that takes appends.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        (0..self.addresses.len()).find(|node| {
            let role = self.status(*node).and_then(|status| status["role"].as_str());
            matches!(role, Some("leader" | "standalone"))
        })
    }

    /// What a node does per second, all shards together; none before the second look, or when it
    /// was restarted between them.
    #[must_use]
    pub fn rate(&self, node: usize) -> Option<Rate> {
        let count = self.status(node)?["shards"].as_array()?.len();
        let mut sum = Rate::default();
        for shard in 0..count {
            let rate = self.shard_rate(node, shard)?;
            sum.events += rate.events;
            sum.writes += rate.writes;
        }
        Some(sum)
    }

    /// The same of one shard.
    #[must_use]
    pub fn shard_rate(&self, node: usize, shard: usize) -> Option<Rate> {
        let (before, now) = (self.before.as_ref()?, self.now.as_ref()?);
        let of = |look: &'_ Look, name: &str| {
            look.nodes.get(node)?.as_ref().ok()?["shards"][shard][name].as_u64()
        };
        let seconds = now.at.0.saturating_sub(before.at.0) as f64 / 1e6;
        let per_second = |name: &str| {
            let more = of(now, name)?.checked_sub(of(before, name)?)?;
            (seconds > 0.0).then(|| more as f64 / seconds)
        };
        Some(Rate { events: per_second("committed")?, writes: per_second("writes")? })
    }

    /// Share of one core that a node's process used, percent.
    #[must_use]
    pub fn cpu_percent(&self, node: usize) -> Option<f64> {
        let (before, now) = (self.before.as_ref()?, self.now.as_ref()?);
        let used = |look: &Look| look.nodes.get(node)?.as_ref().ok()?["cpu_us"].as_u64();
        let more = used(now)?.checked_sub(used(before)?)?;
        let elapsed = now.at.0.saturating_sub(before.at.0);
        (elapsed > 0).then(|| more as f64 * 100.0 / elapsed as f64)
    }

    /// One document for machines.
    #[must_use]
    pub fn json(&self) -> Json {
        let nodes = self.addresses.iter().enumerate().map(|(node, address)| {
            let shards = self.status(node).and_then(|status| status["shards"].as_array());
            let rates = (0..shards.map_or(0, Vec::len)).map(|shard| {
                let rate = self.shard_rate(node, shard);
                json!({
                    "shard": shard,
                    "events_per_s": rate.map(|rate| rate.events),
                    "writes_per_s": rate.map(|rate| rate.writes),
                })
            });
            let rate = self.rate(node);
            json!({
                "address": address,
                "reachable": self.status(node).is_some(),
                "error": self.said(node).and_then(|said| said.as_ref().err()),
                "events_per_s": rate.map(|rate| rate.events),
                "writes_per_s": rate.map(|rate| rate.writes),
                "cpu_percent": self.cpu_percent(node),
                "shards": rates.collect::<Vec<_>>(),
                "status": self.status(node),
            })
        });
        json!({ "at_ms": self.wall_ms(), "nodes": nodes.collect::<Vec<_>>() })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A leader and a follower after so many seconds.
    pub fn look(second: u64, follower: Result<Json, String>) -> Look {
        let shard = |index: u64| {
            json!({
                "shard": index, "lsn": 1000 * second + index, "committed": 1000 * second,
                "lag": index, "writes": 10 * second, "durable": 1000 * second,
            })
        };
        let leader = json!({
            "node": "aaaa", "role": "leader", "epoch": 7, "lease_remaining_ms": 1200,
            "acks_go_to": "peer", "cpu_us": 250_000 * second, "resident_bytes": 64 << 20,
            "skew_ms": {"peer": 3, "s3": null},
            "shards": [shard(0), shard(1)],
            "failovers": [
                {"at_ms": 1_000_000_000_000_u64, "epoch": 7, "event": "leads",
                 "reason": "promotion is finished", "pause_ms": 1620},
            ],
        });
        let at = MonoUs(second * 1_000_000);
        Look { at, wall_ms: second * 1000, nodes: vec![Ok(leader), follower] }
    }

    /// The follower of that leader.
    pub fn follower() -> Json {
        json!({"node": "bbbb", "role": "follower", "epoch": 7, "shards": [], "failovers": []})
    }

    #[test]
    fn rates_are_what_lies_between_two_looks() {
        let mut model = Model::new(vec!["a".to_owned(), "b".to_owned()], 1000);
        assert_eq!(model.rate(0), None);
        model.take(look(1, Ok(follower())));
        assert_eq!(model.rate(0), None, "one look is no rate");
        model.take(look(3, Err("gone".to_owned())));
        assert_eq!(model.rate(0), Some(Rate { events: 2000.0, writes: 20.0 }));
        assert_eq!(model.shard_rate(0, 1), Some(Rate { events: 1000.0, writes: 10.0 }));
        assert_eq!(model.cpu_percent(0), Some(25.0));
        assert_eq!((model.leader(), model.rate(1)), (Some(0), None));
        let json = model.json();
        assert_eq!(json["nodes"][0]["events_per_s"], 2000.0);
        assert_eq!(json["nodes"][1]["error"], "gone");
        let restarted = Look { at: MonoUs(4_000_000), ..look(2, Ok(follower())) };
        model.take(restarted);
        assert_eq!(model.rate(0), None, "a counter that goes back is another process's");
    }

    #[test]
    fn a_pause_keeps_what_is_shown_and_selecting_goes_around() {
        let mut model = Model::new(vec!["a".to_owned(), "b".to_owned()], 1000);
        model.take(look(1, Ok(follower())));
        model.paused = true;
        model.take(look(2, Ok(follower())));
        assert_eq!(model.wall_ms(), Some(1000));
        model.select(1);
        assert_eq!(model.selected, 1);
        model.select(1);
        assert_eq!(model.selected, 0);
    }
}
