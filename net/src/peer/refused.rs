//! Why a node does not follow, and what the leader can do about it.

use std::fmt;

use duolog_engine::bytes::{Cursor, TooShort};
use duolog_engine::ids::{LeaseEpoch, NodeId};
use duolog_lease::event::Refusal;

use super::frame::{PeerKind, encode};
use crate::wire::BodyError;
use crate::wire::body::{ends, put_text, short, take_text, text};

const MESSAGE: &str = "refusal";

/// Why. The numbers are the wire's; WIRE.md tells what `a` and `b` mean for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum PeerReason {
    /// It has promised an epoch that is higher, or belongs to another leader.
    Promised = 1,
    /// It challenges (L3).
    Challenging = 2,
    /// The clocks are too far apart (L6).
    ClockDrift = 3,
    /// The message came from another cluster, or from itself.
    Foreign = 4,
    /// Another version of this protocol.
    Version = 5,
    /// Segment size or alignment differ.
    Layout = 6,
    /// The number of shards differs.
    ShardCount = 7,
    /// Bytes that are no message, or a message out of place.
    BadMessage = 8,
    /// It is not ready for this reign yet: dial again.
    NotReady = 9,
    /// It would have to cut what it has acknowledged itself (R4).
    CutRefused = 10,
    /// The fork lies before the hello's oldest epoch mark: say hello with older ones.
    MarksTooNew = 11,
    /// The block does not continue its log: dial again.
    Discontinuous = 12,
    /// Its log is damaged.
    Damaged = 13,
    /// It is stopping.
    ShuttingDown = 14,
}

impl PeerReason {
    /// Every reason, in the order of the numbers.
    pub const ALL: [Self; 14] = [
        Self::Promised,
        Self::Challenging,
        Self::ClockDrift,
        Self::Foreign,
        Self::Version,
        Self::Layout,
        Self::ShardCount,
        Self::BadMessage,
        Self::NotReady,
        Self::CutRefused,
        Self::MarksTooNew,
        Self::Discontinuous,
        Self::Damaged,
        Self::ShuttingDown,
    ];

    /// The reason with this number.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// A refusal of a hello, a heartbeat or a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRefused {
    /// The epoch of what is refused.
    pub epoch: LeaseEpoch,
    /// Who refuses.
    pub from: NodeId,
    /// Why; see [`PeerRefused::reason`].
    pub reason_number: u16,
    /// What it has promised.
    pub promised: LeaseEpoch,
    /// First number, per reason.
    pub a: u64,
    /// Second number, per reason.
    pub b: u64,
    /// What happened, with which values, what to do.
    pub text: String,
}

impl PeerRefused {
    /// A refusal without numbers, to be completed by struct update.
    #[must_use]
    pub fn new(epoch: LeaseEpoch, from: NodeId, reason: PeerReason, text: String) -> Self {
        let (reason_number, promised) = (reason as u16, LeaseEpoch::NONE);
        Self { epoch, from, reason_number, promised, a: 0, b: 0, text }
    }

    /// What the lease machine refuses, as it is sent.
    #[must_use]
    pub fn of_lease(epoch: LeaseEpoch, from: NodeId, promised: LeaseEpoch, why: Refusal) -> Self {
        let (reason, a, text) = match why {
            Refusal::Promised(higher) => {
                let text = format!("epoch {higher} is promised, or epoch {epoch} is another's");
                (PeerReason::Promised, higher.0, text)
            }
            Refusal::Challenging => {
                (PeerReason::Challenging, 0, "it challenges for the lease".to_owned())
            }
            Refusal::ClockDrift { difference_ms } => {
                let text = format!(
                    "the clocks lie {difference_ms} ms apart, more than --max-clock-drift-ms: \
                     synchronise them"
                );
                (PeerReason::ClockDrift, difference_ms, text)
            }
            Refusal::Foreign => {
                let text = "the message came from another cluster or from this node itself: see \
                            the replication addresses";
                (PeerReason::Foreign, 0, text.to_owned())
            }
        };
        Self { promised, a, ..Self::new(epoch, from, reason, text) }
    }

    /// What the leader's lease machine has to hear of it, if it concerns the lease.
    #[must_use]
    pub fn lease_refusal(&self) -> Option<Refusal> {
        match self.reason()? {
            PeerReason::Promised => Some(Refusal::Promised(LeaseEpoch(self.a))),
            PeerReason::Challenging => Some(Refusal::Challenging),
            PeerReason::ClockDrift => Some(Refusal::ClockDrift { difference_ms: self.a }),
            PeerReason::Foreign => Some(Refusal::Foreign),
            _ => None,
        }
    }

    /// The reason, if this version knows it.
    #[must_use]
    pub fn reason(&self) -> Option<PeerReason> {
        PeerReason::from_code(self.reason_number)
    }

    /// Appends the frame. The text is cut like an error's.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(out, PeerKind::Refused, self.epoch, |out| {
            out.extend_from_slice(&self.reason_number.to_le_bytes());
            out.extend_from_slice(&[0; 6]);
            out.extend_from_slice(&self.from.0.to_le_bytes());
            out.extend_from_slice(&self.promised.0.to_le_bytes());
            out.extend_from_slice(&self.a.to_le_bytes());
            out.extend_from_slice(&self.b.to_le_bytes());
            put_text(out, &self.text);
        });
    }

    pub(super) fn decode(epoch: LeaseEpoch, body: &[u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || -> Result<_, TooShort> {
            let (reason_number, reserved) = (cursor.u16()?, cursor.take(6)?);
            let (from, promised) = (NodeId(cursor.u128()?), LeaseEpoch(cursor.u64()?));
            let (a, b, said) = (cursor.u64()?, cursor.u64()?, take_text(&mut cursor)?);
            let text = String::new();
            Ok((Self { epoch, from, reason_number, promised, a, b, text }, reserved, said))
        };
        let (mut refused, reserved, said) = read().map_err(short(MESSAGE))?;
        if reserved != [0; 6] {
            return Err(BodyError::Reserved(MESSAGE));
        }
        ends(MESSAGE, cursor.rest())?;
        text("text of the refusal", said)?.clone_into(&mut refused.text);
        Ok(refused)
    }
}

impl fmt::Display for PeerRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Some(reason) => write!(f, "{} refuses ({reason:?}): {}", self.from, self.text),
            None => write!(f, "{} refuses ({}): {}", self.from, self.reason_number, self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_numbers_go_both_ways() {
        for (number, reason) in (1..).zip(PeerReason::ALL) {
            assert_eq!(reason as u16, number);
            assert_eq!(PeerReason::from_code(number), Some(reason));
        }
        assert_eq!((PeerReason::from_code(0), PeerReason::from_code(15)), (None, None));
    }

    #[test]
    fn what_the_lease_machine_refuses_arrives_as_it_was() {
        for why in [
            Refusal::Promised(LeaseEpoch(9)),
            Refusal::Challenging,
            Refusal::ClockDrift { difference_ms: 700 },
            Refusal::Foreign,
        ] {
            let refused = PeerRefused::of_lease(LeaseEpoch(3), NodeId(1), LeaseEpoch(9), why);
            assert_eq!(refused.lease_refusal(), Some(why));
        }
        let link = PeerRefused::new(LeaseEpoch(3), NodeId(1), PeerReason::Layout, String::new());
        assert_eq!(link.lease_refusal(), None);
    }

    #[test]
    fn a_reason_of_a_later_version_still_has_its_text() {
        let text = "the moon is in the wrong place".to_owned();
        let refused = PeerRefused::new(LeaseEpoch(3), NodeId(1), PeerReason::Foreign, text);
        let refused = PeerRefused { reason_number: 99, a: 1, b: 2, ..refused };
        let mut out = Vec::new();
        refused.encode(&mut out);
        let again = PeerRefused::decode(LeaseEpoch(3), &out[24..]).unwrap();
        assert_eq!((again.reason(), &again), (None, &refused));
        assert!(again.to_string().ends_with("refuses (99): the moon is in the wrong place"));
    }
}
