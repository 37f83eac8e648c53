//! A2: the revisions of a stream have no gap.

use super::Kept;
use crate::simulator::clients::{STREAMS, stream_name};
use crate::simulator::world::World;

impl World {
    /// The revision behind each stream's last event.
    pub(super) fn check_revisions(&self, events: &[Kept]) -> [u64; STREAMS] {
        let mut next = [0; STREAMS];
        let names = [0, 1, 2, 3, 4, 5].map(stream_name);
        for event in events {
            let stream = names.iter().position(|name| *name == event.stream);
            let stream = stream.expect("A5: nobody invents a stream");
            assert_eq!(event.revision, next[stream], "A2: revisions have no gap");
            next[stream] += 1;
        }
        next
    }
}
