//! The shard's part in the order of all events (invariant O1): it makes known what it commits,
//! hears what the others have committed, and promises which stamps it will not use any more.

use duolog_engine::ids::Hlc;
use duolog_net::peer::PeerSettled;

use super::shard_loop::ShardLoop;

impl ShardLoop {
    /// Makes known what is committed, before anybody can hear of it by an answer.
    pub(super) fn tell_commit(&self) {
        let shard = self.shard.borrow();
        let committed = shard.committed();
        self.stamps.raise(committed.hlc);
        if self.hub.borrow().is_behind(committed.lsn) {
            self.hub.borrow_mut().committed(&shard);
        }
    }

    /// Lets the machine know what was committed in any shard before the request at hand came.
    // O1: after the request's bytes were received, before its append is admitted.
    pub(super) fn hear_stamps(&self) {
        self.shard.borrow_mut().note_newest(self.stamps.read());
    }

    /// No event of this shard that comes later has this stamp or a lower one.
    pub(super) fn settled(&self) -> Hlc {
        self.shard.borrow_mut().settle_stamps(self.stamps.read())
    }

    /// As follower: the leader promises that about later stamps.
    pub(super) fn hear_settled(&self, told: &PeerSettled) {
        self.shard.borrow_mut().hear_settled(told.epoch, told.lsn, told.settled);
        self.hub.borrow_mut().look_again();
    }
}
