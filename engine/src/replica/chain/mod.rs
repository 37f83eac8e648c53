//! The chain in the bucket: per shard and epoch a sequence of create-only objects. `Open` at its
//! start, `Batch`es behind it, a `Seal` where it ends for everybody (rules C and P).
//!
//! This module names the objects; [`header`] and [`object`] are their content (FORMAT.md, "Chain
//! object").

pub mod header;
pub mod object;

use std::fmt;

use crate::ids::{ClusterId, LeaseEpoch, ShardId};

/// Number of an object in its chain, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Where the `Open` is.
    pub const OPEN: Self = Self(0);

    /// The next number. Panics on overflow: a chain of 2^32 objects cannot be written in a reign.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a chain has fewer than 2^32 objects"))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One place in one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectPlace {
    /// The shard.
    pub shard: ShardId,
    /// The reign whose chain it is.
    pub epoch: LeaseEpoch,
    /// Number in the chain.
    pub seq: Seq,
}

/// A place together with the cluster it belongs to: what an object there has to say of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectId {
    /// The cluster.
    pub cluster: ClusterId,
    /// The place.
    pub place: ObjectPlace,
}

const SHARD_DIGITS: usize = 5;
const EPOCH_DIGITS: usize = 20;
const SEQ_DIGITS: usize = 10;

/// What the keys of all chain objects of `shard` begin with, below the cluster's own folder.
#[must_use]
pub fn shard_prefix(shard: ShardId) -> String {
    format!("chain/{:0SHARD_DIGITS$}/", shard.0)
}

impl ObjectPlace {
    /// The object's key below the cluster's own folder: `chain/<shard>/<epoch>/<seq>` with 5, 20
    /// and 10 digits, so that listings come in the order of the numbers.
    #[must_use]
    pub fn key(&self) -> String {
        let (epoch, seq) = (self.epoch.0, self.seq.0);
        format!("{}{epoch:0EPOCH_DIGITS$}/{seq:0SEQ_DIGITS$}", shard_prefix(self.shard))
    }

    /// The place that a key names; `None` for every text that [`ObjectPlace::key`] does not make.
    #[must_use]
    pub fn parse(key: &str) -> Option<Self> {
        let mut parts = key.split('/');
        let (folder, shard) = (parts.next()?, number(parts.next()?, SHARD_DIGITS)?);
        let epoch = LeaseEpoch(number(parts.next()?, EPOCH_DIGITS)?);
        let seq = Seq(u32::try_from(number(parts.next()?, SEQ_DIGITS)?).ok()?);
        if folder != "chain" || parts.next().is_some() {
            return None;
        }
        Some(Self { shard: ShardId(u32::try_from(shard).ok()?), epoch, seq })
    }
}

/// A number of exactly so many digits.
fn number(text: &str, digits: usize) -> Option<u64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

impl fmt::Display for ObjectPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(shard: u32, epoch: u64, seq: u32) -> ObjectPlace {
        ObjectPlace { shard: ShardId(shard), epoch: LeaseEpoch(epoch), seq: Seq(seq) }
    }

    #[test]
    fn keys_order_like_their_numbers_and_read_back() {
        let places = [
            place(0, 1, 0),
            place(0, 1, 9),
            place(0, 1, 10),
            place(0, 2, 0),
            place(0, u64::MAX, u32::MAX),
            place(1, 0, 0),
            place(99_999, 0, 0),
        ];
        let keys: Vec<String> = places.iter().map(ObjectPlace::key).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for (place, key) in places.iter().zip(&keys) {
            assert_eq!(ObjectPlace::parse(key), Some(*place));
            assert!(key.starts_with(&shard_prefix(place.shard)));
        }
        assert_eq!(keys[3], "chain/00000/00000000000000000002/0000000000");
    }

    #[test]
    fn what_is_no_key_of_a_chain_is_refused() {
        let good = place(3, 7, 12).key();
        assert!(ObjectPlace::parse(&good).is_some());
        for bad in [
            "",
            "lease.json",
            "chain/00003/00000000000000000007",
            "chain/00003/00000000000000000007/+000000012",
            "chain/3/00000000000000000007/0000000012",
            "chain/00003/99999999999999999999/0000000012",
            "chain/00003/00000000000000000007/9999999999",
            &format!("{good}/"),
            &format!("x{good}"),
        ] {
            assert_eq!(ObjectPlace::parse(bad), None, "{bad}");
        }
    }
}
