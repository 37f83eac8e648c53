//! Where a subscription is, as a short text that can be stored and gone on from.

use std::fmt;
use std::str::FromStr;

use duolog_engine::ids::{Hlc, Lsn, Revision, ShardId};

use crate::wire::Position;

/// The place of an event in what it was delivered by. Going on behind it neither leaves an event
/// out nor brings one again, on either node and after any failover.
///
/// As text: `r41`, `l1207`, or `p`, stamp, shard and LSN in decimal: `p115847238129385472-3-1207`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bookmark {
    /// In a stream.
    Revision(Revision),
    /// In a shard's log.
    Lsn(Lsn),
    /// In the order of all shards.
    Position(Position),
}

/// Why a text is no bookmark.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no position: they look like r41, l1207 or p115847238129385472-3-1207")]
pub struct NoBookmark(pub String);

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revision(revision) => write!(f, "r{revision}"),
            Self::Lsn(lsn) => write!(f, "l{lsn}"),
            Self::Position(Position { stamp, shard, lsn }) => {
                write!(f, "p{}-{shard}-{lsn}", stamp.0)
            }
        }
    }
}

impl FromStr for Bookmark {
    type Err = NoBookmark;

    fn from_str(text: &str) -> Result<Self, NoBookmark> {
        parse(text).ok_or_else(|| NoBookmark(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Bookmark> {
    let rest = text.get(1..)?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    match text.as_bytes()[0] {
        b'r' => number(rest).map(|revision| Bookmark::Revision(Revision(revision))),
        b'l' => number(rest).map(|lsn| Bookmark::Lsn(Lsn(lsn))),
        b'p' => {
            let mut parts = rest.split('-').map(number);
            let (stamp, shard, lsn) = (parts.next()??, parts.next()??, parts.next()??);
            let shard = ShardId(u32::try_from(shard).ok()?);
            let position = Position { stamp: Hlc(stamp), shard, lsn: Lsn(lsn) };
            parts.next().is_none().then_some(Bookmark::Position(position))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_go_both_ways() {
        let position = Position { stamp: Hlc(77), shard: ShardId(3), lsn: Lsn(5) };
        let all = [
            (Bookmark::Revision(Revision(41)), "r41"),
            (Bookmark::Lsn(Lsn(1207)), "l1207"),
            (Bookmark::Position(position), "p77-3-5"),
        ];
        for (bookmark, text) in all {
            assert_eq!(bookmark.to_string(), text);
            assert_eq!(text.parse(), Ok(bookmark));
        }
        for bad in ["", "r", "41", "r-1", "r+1", "l1x", "p1-2", "p1-2-3-4", "p1--3", "é1", "x1"] {
            assert_eq!(bad.parse::<Bookmark>(), Err(NoBookmark(bad.to_owned())));
        }
    }
}
