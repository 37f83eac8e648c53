//! Subscriptions: what a subscriber asks for, and what it says while events come. The events
//! themselves are [`Events`](super::Events).

use duolog_engine::bytes::Cursor;
use duolog_engine::ids::{Hlc, Lsn, ShardId};

use super::body::{BodyError, ends, short, text};
use super::frame::{Frame, FrameKind, OpenFrame};
use crate::limits::{
    CONNECTION_WINDOWS_MAX_BYTES, SUBSCRIPTION_WINDOW_BYTES_DEFAULT, SUBSCRIPTION_WINDOW_BYTES_MIN,
};

const SUBSCRIBE: &str = "subscription";
const ASK: &str = "word about a subscription";
/// Names that begin so belong to Duolog itself: cursors, marks of imports.
pub const SYSTEM_PREFIX: &str = "$duolog.";

/// Which events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Those of one stream, in the order of their revisions.
    Stream(&'a str),
    /// Those of one shard, in the order of its log.
    Log {
        /// Of streams whose names begin so; empty: of all streams.
        prefix: &'a str,
        /// Also those of streams that begin with [`SYSTEM_PREFIX`].
        system: bool,
    },
}

impl Scope<'_> {
    /// Whether events of a stream called `name` belong to it.
    #[must_use]
    pub fn takes(&self, name: &str) -> bool {
        match *self {
            Self::Stream(stream) => stream == name,
            Self::Log { prefix, system } => {
                let hidden = !system && name.starts_with(SYSTEM_PREFIX);
                name.starts_with(prefix) && !hidden
            }
        }
    }
}

/// A place in the order of all events of all shards: by stamp, then shard, then LSN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Stamp of the event.
    pub stamp: Hlc,
    /// Its shard.
    pub shard: ShardId,
    /// Its LSN there.
    pub lsn: Lsn,
}

impl Position {
    /// The lowest stamp that an event of `shard` behind this position can have.
    #[must_use]
    pub const fn first_stamp_behind(&self, shard: ShardId) -> Hlc {
        if shard.0 > self.shard.0 { self.stamp } else { Hlc(self.stamp.0.saturating_add(1)) }
    }
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// With this revision of the stream or LSN of the log.
    From(u64),
    /// Behind everything committed when the subscription begins.
    End,
    /// With the shard's first event behind this place in the order of all shards; for logs.
    Behind(Position),
}

/// A request for events, those that are there and those to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// The shard that has them: the connection's own.
    pub shard: ShardId,
    /// Which.
    pub scope: Scope<'a>,
    /// From where on.
    pub origin: Origin,
    /// Only events of this type, 1..=255 bytes.
    pub kind: Option<&'a str>,
    /// Bytes of records that may be sent ahead of what is taken; see [`Subscribe::window`].
    pub window_bytes: u32,
}

impl<'a> Subscribe<'a> {
    /// The window in force: 0 stands for the default; bounded from both sides.
    #[must_use]
    pub const fn window(&self) -> u32 {
        match self.window_bytes {
            0 => SUBSCRIPTION_WINDOW_BYTES_DEFAULT,
            bytes if bytes < SUBSCRIPTION_WINDOW_BYTES_MIN => SUBSCRIPTION_WINDOW_BYTES_MIN,
            bytes if bytes > CONNECTION_WINDOWS_MAX_BYTES => CONNECTION_WINDOWS_MAX_BYTES,
            bytes => bytes,
        }
    }

    /// Appends the frame. Names and types over 255 bytes are refused; nothing is written then.
    pub fn encode(&self, out: &mut Vec<u8>, correlation: u64) -> Result<(), BodyError> {
        let (scope, name, system) = match self.scope {
            Scope::Stream("") => return Err(BodyError::NameLength(0)),
            Scope::Stream(name) => (0, name, false),
            Scope::Log { prefix, system } => (1, prefix, system),
        };
        let name_length =
            u8::try_from(name.len()).map_err(|_| BodyError::NameLength(name.len()))?;
        let kind = self.kind.unwrap_or_default();
        let kind_length =
            u8::try_from(kind.len()).map_err(|_| BodyError::TypeLength(kind.len()))?;
        if self.kind.is_some() && kind.is_empty() {
            return Err(BodyError::TypeLength(0));
        }
        let (origin, from, position) = match self.origin {
            Origin::From(from) => (0, from, Position::default()),
            Origin::End => (1, 0, Position::default()),
            Origin::Behind(position) => (2, position.lsn.0, position),
        };
        let frame = OpenFrame::begin(out, FrameKind::Subscribe, correlation);
        out.extend_from_slice(&from.to_le_bytes());
        out.extend_from_slice(&position.stamp.0.to_le_bytes());
        out.extend_from_slice(&self.shard.0.to_le_bytes());
        out.extend_from_slice(&position.shard.0.to_le_bytes());
        out.extend_from_slice(&self.window_bytes.to_le_bytes());
        out.extend_from_slice(&[scope, origin, u8::from(system), name_length, kind_length]);
        out.extend_from_slice(&[0; 7]);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(kind.as_bytes());
        frame.finish(out);
        Ok(())
    }

    /// Decodes a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(body);
        let mut read = || {
            let places = (cursor.u64()?, Hlc(cursor.u64()?));
            let shards = (ShardId(cursor.u32()?), ShardId(cursor.u32()?));
            let window_bytes = cursor.u32()?;
            let codes = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
            let lengths = (usize::from(cursor.u8()?), usize::from(cursor.u8()?));
            Ok((places, shards, window_bytes, codes, lengths, cursor.take(7)?))
        };
        let ((from, stamp), (shard, other), window_bytes, codes, lengths, reserved) =
            read().map_err(short(SUBSCRIBE))?;
        let name = text("stream name", cursor.take(lengths.0).map_err(short(SUBSCRIBE))?)?;
        let kind = text("event type", cursor.take(lengths.1).map_err(short(SUBSCRIBE))?)?;
        ends(SUBSCRIBE, cursor.rest())?;
        let unknown = |field, value: u8| BodyError::UnknownValue { field, value: value.into() };
        let (scope, origin, system) = codes;
        if reserved != [0; 7] || system > 1 {
            return Err(BodyError::Reserved(SUBSCRIBE));
        }
        let scope = match (scope, system) {
            (0, 0) if !name.is_empty() => Scope::Stream(name),
            (0, 0) => return Err(BodyError::NameLength(0)),
            (1, system) => Scope::Log { prefix: name, system: system == 1 },
            (other, _) => return Err(unknown("scope", other)),
        };
        let behind = Position { stamp, shard: other, lsn: Lsn(from) };
        let origin = match (origin, scope) {
            (0, _) if stamp.0 == 0 && other.0 == 0 => Origin::From(from),
            (1, _) if behind == Position::default() => Origin::End,
            (2, Scope::Log { .. }) => Origin::Behind(behind),
            (other, _) => return Err(unknown("origin", other)),
        };
        let kind = (!kind.is_empty()).then_some(kind);
        Ok(Self { shard, scope, origin, kind, window_bytes })
    }
}

/// What a subscriber says about a subscription that it names by its correlation id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionAsk {
    /// It has taken so many more bytes of records.
    Taken(u32),
    /// It wants to hear when no event with this stamp or a lower one can come any more.
    Settle(Hlc),
    /// It wants no more.
    Unsubscribe,
}

impl SubscriptionAsk {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>, correlation: u64) {
        let kind = match self {
            Self::Taken(_) => FrameKind::Taken,
            Self::Settle(_) => FrameKind::Settle,
            Self::Unsubscribe => FrameKind::Unsubscribe,
        };
        let frame = OpenFrame::begin(out, kind, correlation);
        match self {
            Self::Taken(bytes) => out.extend_from_slice(&bytes.to_le_bytes()),
            Self::Settle(stamp) => out.extend_from_slice(&stamp.0.to_le_bytes()),
            Self::Unsubscribe => {}
        }
        frame.finish(out);
    }

    /// Decodes the body of a frame of one of the three kinds.
    pub fn decode(frame: &Frame<'_>) -> Result<Self, BodyError> {
        let mut cursor = Cursor::new(frame.body);
        let ask = match frame.kind {
            FrameKind::Taken => Self::Taken(cursor.u32().map_err(short(ASK))?),
            FrameKind::Settle => Self::Settle(Hlc(cursor.u64().map_err(short(ASK))?)),
            _ => Self::Unsubscribe,
        };
        ends(ASK, cursor.rest())?;
        Ok(ask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Subscribe<'static> {
        Subscribe {
            shard: ShardId(3),
            scope: Scope::Log { prefix: "order-", system: true },
            origin: Origin::Behind(Position { stamp: Hlc(7), shard: ShardId(2), lsn: Lsn(5) }),
            kind: Some("Paid"),
            window_bytes: 0,
        }
    }

    #[test]
    fn layout_is_that_of_the_table() {
        let mut out = Vec::new();
        sample().encode(&mut out, 9).unwrap();
        let body = &out[24..];
        assert_eq!(body[..8], [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(body[8..16], [7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(body[16..28], [3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(body[28..40], [1, 2, 1, 6, 4, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&body[40..], b"order-Paid");
        assert_eq!(Subscribe::decode(body), Ok(sample()));
    }

    #[test]
    fn what_no_client_means_is_refused() {
        let mut out = Vec::new();
        sample().encode(&mut out, 9).unwrap();
        let body = out.split_off(24);
        for (at, value) in [(28, 2), (29, 3), (30, 2), (33, 1), (39, 1)] {
            let mut bad = body.clone();
            bad[at] = value;
            assert!(Subscribe::decode(&bad).is_err(), "byte {at} = {value}");
        }
        // A stream has no place in the order of all shards.
        let mut bad = body;
        bad[28] = 0;
        bad[30] = 0;
        assert!(Subscribe::decode(&bad).is_err());
        let nameless = Subscribe { scope: Scope::Stream(""), ..sample() };
        assert_eq!(nameless.encode(&mut out, 1), Err(BodyError::NameLength(0)));
        assert!(out.len() == 24, "nothing is written");
    }

    #[test]
    fn a_position_lies_between_events_of_other_shards() {
        let position = Position { stamp: Hlc(7), shard: ShardId(2), lsn: Lsn(5) };
        assert_eq!(position.first_stamp_behind(ShardId(1)), Hlc(8), "those with 7 came before");
        assert_eq!(position.first_stamp_behind(ShardId(3)), Hlc(7), "those with 7 come after");
    }

    #[test]
    fn system_streams_are_hidden_unless_wanted() {
        let log = |prefix, system| Scope::Log { prefix, system };
        assert!(!log("", false).takes("$duolog.cursor.a"));
        assert!(log("", true).takes("$duolog.cursor.a"));
        assert!(!log("$duolog.", false).takes("$duolog.cursor.a"));
        assert!(log("ord", false).takes("order-1") && !log("ord", false).takes("Order-1"));
        assert!(Scope::Stream("$duolog.cursor.a").takes("$duolog.cursor.a"));
    }
}
