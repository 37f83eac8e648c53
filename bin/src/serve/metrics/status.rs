//! What was counted, as a part of the node's status (docs/OPERATIONS.md, "Status"): for whoever
//! asks twice and takes the difference.

use std::sync::Arc;

use duolog_net::wire::ErrorCode;
use serde_json::{Map, Value, json};

use super::histogram::HistogramReading;
use super::shard::{COPIES, REQUEST_KINDS, STAGES, ShardCounts, error_name, stages};
use crate::serve::inbox::Inbox;

/// Puts into a node's status what its shards have counted, together.
pub fn tell(status: &mut Value, inboxes: &[Arc<Inbox>]) {
    let shards = inboxes.iter().map(|inbox| &inbox.metrics);
    let stages = STAGES.into_iter().zip(stages(shards.clone()));
    let latency = stages.map(|(name, reading)| (name.to_owned(), stage(&reading)));
    status["latency"] = latency.collect::<Map<_, _>>().into();
    let counts: Vec<ShardCounts> = shards.map(super::ShardMetrics::read).collect();
    let sum = |of: fn(&ShardCounts) -> u64| counts.iter().map(of).sum::<u64>();
    let list = |of: fn(&ShardCounts) -> &[u64], names: &[&str]| {
        let named = names.iter().enumerate().map(|(index, name)| {
            let sum = counts.iter().filter_map(|shard| of(shard).get(index)).sum::<u64>();
            ((*name).to_owned(), json!(sum))
        });
        Value::Object(named.collect())
    };
    status["counts"] = json!({
        "acks": list(|shard| &shard.acks, &COPIES),
        "events": sum(|shard| shard.events),
        "replays": sum(|shard| shard.replays),
        "requests": list(|shard| &shard.requests, &REQUEST_KINDS),
        "refusals": list(|shard| &shard.errors, &ErrorCode::ALL.map(error_name)),
        "in_flight": sum(|shard| shard.in_flight),
        "connections": sum(|shard| shard.connections),
        "subscribers": sum(|shard| shard.subscribers),
    });
}

/// A stage's count, sum and percentiles since the start, and the buckets that are not empty.
fn stage(reading: &HistogramReading) -> Value {
    let filled = reading.buckets().filter(|(_, count)| *count > 0);
    json!({
        "count": reading.count(),
        "sum_us": reading.sum_us,
        "p50_us": reading.quantile_us(500),
        "p99_us": reading.quantile_us(990),
        "p999_us": reading.quantile_us(999),
        "buckets": filled.map(|(bound_us, count)| json!([bound_us, count])).collect::<Value>(),
    })
}

#[cfg(test)]
mod tests {
    use duolog_engine::ids::MonoUs;
    use duolog_engine::shard::Copies;

    use super::*;

    fn told() -> Value {
        let inboxes = [(); 2].map(|()| Arc::new(Inbox::new().expect("a socket pair").0));
        let [first, second] = inboxes.each_ref().map(|inbox| &inbox.metrics);
        first.stages.total.record(MonoUs(0), MonoUs(100), 999);
        second.stages.total.record(MonoUs(0), MonoUs(20_000_000), 1);
        first.acked(Copies::Peer, 999, 1998);
        second.acked(Copies::Chain, 1, 5);
        first.refused(ErrorCode::Conflict, 2);
        second.refused(ErrorCode::Conflict, 1);
        second.connections.set(3);
        let mut status = json!({});
        tell(&mut status, &inboxes);
        status
    }

    #[test]
    fn stages_of_all_shards_are_told_together() {
        let latency = &told()["latency"];
        let total = json!({
            "count": 1000,
            "sum_us": 20_099_900,
            "p50_us": 90,
            "p99_us": 99,
            "p999_us": 100,
            "buckets": [[100, 999], [null, 1]],
        });
        assert_eq!(latency["total"], total);
        let queue = &latency["queue"];
        assert_eq!((&queue["count"], &queue["p50_us"]), (&json!(0), &Value::Null));
        assert_eq!(latency.as_object().map(Map::len), Some(STAGES.len()));
    }

    #[test]
    fn counts_of_all_shards_are_told_together() {
        let counts = &told()["counts"];
        assert_eq!(counts["acks"], json!({"disk": 0, "peer": 999, "s3": 1}));
        assert_eq!((&counts["events"], &counts["connections"]), (&json!(2003), &json!(3)));
        assert_eq!(counts["refusals"]["conflict"], 3);
        assert_eq!(counts["refusals"].as_object().map(Map::len), Some(ErrorCode::ALL.len()));
    }
}
