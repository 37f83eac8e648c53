//! Q5: a linearizable read sees whatever was acknowledged before, as long as clocks are bounded.

use duolog_engine::ids::StreamId;
use duolog_engine::shard::StreamEnd;

use crate::simulator::clients::stream_name;
use crate::simulator::world::World;

impl World {
    /// An append was acknowledged: its streams end there at least.
    pub(super) fn note_stream_ends(&mut self, node: usize, operation: u64) {
        let parts = self.clients.operations[&operation].parts.clone();
        for (stream, _) in parts {
            let id = StreamId::of(stream_name(stream).as_bytes());
            if let StreamEnd::Known(end) = self.process(node).shard.stream_end(id) {
                let known = self.ledger.ends.entry(stream).or_default();
                *known = (*known).max(end.0);
            }
        }
    }

    /// A node answers a linearizable read of a stream's end.
    pub fn check_read(&mut self, node: usize, stream: usize, end: u64) {
        let who = node + 1;
        assert!(!self.serves(1 - node), "Q5: node {who} reads while the other one serves");
        let known = self.ledger.ends.get(&stream).copied().unwrap_or_default();
        assert!(end >= known, "Q5: node {who} reads {end} of stream {stream}, {known} are acked");
    }
}
