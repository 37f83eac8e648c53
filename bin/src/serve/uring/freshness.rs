//! How fresh a read's answer has to be, and what proves that it is (docs/PROTOCOL.md, "Reads").

use std::rc::Rc;

use duolog_net::wire::{Consistency, ErrorCode, ErrorFrame};

use super::pair::confirm;
use super::shard_loop::ShardLoop;

/// What a read was promised when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Nothing, or the proof was given and does not age.
    Given,
    /// This node leads as long as its grant holds, by the clock.
    Granted,
    /// There is no proof.
    Missing(Consistency),
}

impl Freshness {
    /// Looks for the proof; before anything is read.
    pub(super) async fn of(shard: &Rc<ShardLoop>, consistency: Consistency) -> Self {
        if shard.pair.is_none() {
            return Self::Given;
        }
        match consistency {
            Consistency::Any => Self::Given,
            Consistency::Linearizable if shard.leads_now() => Self::Granted,
            Consistency::Confirmed if confirm::leads(shard).await => Self::Given,
            Consistency::Linearizable | Consistency::Confirmed => Self::Missing(consistency),
        }
    }

    /// Puts out the refusal if what was read is not proven to be fresh; whether it did. To be asked
    /// when everything was read: it lies then between two moments at which this node led.
    pub(super) fn refuse(self, shard: &ShardLoop, out: &mut Vec<u8>, correlation: u64) -> bool {
        let missing = match self {
            Self::Given => return false,
            Self::Granted if shard.leads_now() => return false,
            Self::Granted => Consistency::Linearizable,
            Self::Missing(consistency) => consistency,
        };
        out.clear();
        if missing == Consistency::Confirmed && shard.leading().is_some() {
            let text = "neither the follower nor the bucket confirms that this node leads: try \
                        again, or read with another consistency";
            ErrorFrame::new(ErrorCode::Busy).encode(out, correlation, text);
        } else {
            let text = "the node does not lead: ask the leader, or read with consistency any";
            shard.refuse_as_follower(out, correlation, text);
        }
        true
    }
}
