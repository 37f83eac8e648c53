//! A8: no queue grows beyond its bound: a shard's appends, what is sent to the follower and not
//! acked, objects of the chain under way, blocks that wait for one, bytes in a connection.

use duolog_engine::replica::link::WINDOW_MAX_BYTES;

use crate::simulator::network::{ConnId, Side};
use crate::simulator::node::{IN_FLIGHT_MAX, IN_FLIGHT_MAX_BYTES, LAYOUT};
use crate::simulator::uploading::UPLOADS_MAX;
use crate::simulator::world::World;

/// Bytes of a connection under way, at most: the window, the block that was begun within it,
/// messages without blocks, and the heads of the blocks' frames, which the window does not count.
const WIRE_MAX_BYTES: usize =
    WINDOW_MAX_BYTES + WINDOW_MAX_BYTES / 8 + 2 * LAYOUT.segment_size_bytes as usize;

impl World {
    /// The queues of a node.
    pub(super) fn check_bounds(&mut self, node: usize) {
        let process = self.process(node);
        let (count, bytes) = (process.shard.in_flight(), process.shard.in_flight_bytes());
        let fits = count <= IN_FLIGHT_MAX && bytes <= IN_FLIGHT_MAX_BYTES;
        assert!(fits, "A8: {count} requests of {bytes} bytes are in flight");
        let unacked = process.outbound.as_ref().map_or(0, |link| link.unacked_bytes());
        let window = WINDOW_MAX_BYTES + LAYOUT.segment_size_bytes as usize;
        assert!(unacked <= window, "A8: {unacked} bytes are sent and not acked");
        let Some((kept, waiting, bytes)) = process.uploading.as_ref().map(|it| it.queued()) else {
            return;
        };
        assert!(kept <= UPLOADS_MAX, "A8: {kept} objects are under way");
        // Each has an append that is not answered, and is filled up to whole sectors.
        let room = (IN_FLIGHT_MAX_BYTES + IN_FLIGHT_MAX * 2 * LAYOUT.align_bytes as usize) as u64;
        let fits = waiting <= IN_FLIGHT_MAX && bytes <= room;
        assert!(fits, "A8: {waiting} blocks of {bytes} bytes wait to be uploaded");
    }

    /// What is under way from one end of a connection.
    pub fn check_wire(&self, conn: ConnId, side: Side) {
        let bytes = self.network.conns.get(&conn).map_or(0, |conn| conn.under_way_bytes(side));
        assert!(bytes <= WIRE_MAX_BYTES, "A8: {bytes} bytes wait in a connection");
    }
}
