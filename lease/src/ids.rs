//! Newtypes for everything that could be mixed up. No `Deref`; arithmetic through named methods.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number, for codecs and messages.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// Number of a leader's reign, 1-based; 0 means "none yet".
    LeaseEpoch(u64)
);
number!(
    /// Milliseconds on this node's clock that never runs backwards and goes on while the machine is
    /// suspended (`CLOCK_BOOTTIME`). Its zero means nothing; never compare two nodes' values.
    MonoMs(u64)
);
number!(
    /// Milliseconds since 1970 as a node's wall clock tells them. May jump.
    WallMs(u64)
);
number!(
    /// One call to the object store by one run of the machine; its answer repeats the number.
    CallId(u64)
);

impl LeaseEpoch {
    /// Before any reign.
    pub const NONE: Self = Self(0);
    /// The reign of a cluster's creator.
    pub const FIRST: Self = Self(1);

    /// The next reign. Panics on overflow: 2^64 elections do not happen.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("an epoch stays below 2^64"))
    }
}

impl MonoMs {
    /// `ms` later.
    #[must_use]
    pub const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// `ms` earlier; the clock's zero if that lies before it.
    #[must_use]
    pub const fn minus(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms))
    }

    /// Milliseconds since `earlier`; 0 if that lies in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl WallMs {
    /// `ms` later.
    #[must_use]
    pub const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`; 0 if that lies in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// How far apart two readings are, whichever is ahead.
    #[must_use]
    pub const fn distance(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }
}

/// What the driver's clocks said just before it handed over an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// For every local deadline.
    pub mono: MonoMs,
    /// For the lease document's times and the drift alarm only.
    pub wall: WallMs,
}

/// Identity of a cluster, a UUID made with its first data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

/// Identity of a node, a UUID made with its data directory: a lost disk is a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(self.0, f)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(self.0, f)
    }
}

fn write_uuid(id: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let group = |shift: u32, bits: u32| (id >> shift) & ((1 << bits) - 1);
    let (a, b, c, d, e) =
        (group(96, 32), group(80, 16), group(64, 16), group(48, 16), group(0, 48));
    write!(f, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}

/// Reads the text of a UUID as [`NodeId`] and [`ClusterId`] print it: 36 characters, hyphens at
/// their places, either case.
#[must_use]
pub fn parse_uuid(text: &str) -> Option<u128> {
    let at_its_place = |(index, char)| matches!(index, 8 | 13 | 18 | 23) == (char == '-');
    if text.len() != 36 || !text.char_indices().all(at_its_place) {
        return None;
    }
    let digits: String = text.chars().filter(|char| *char != '-').collect();
    parse_hex(&digits)
}

fn parse_hex(digits: &str) -> Option<u128> {
    let plain = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { u128::from_str_radix(digits, 16).ok() } else { None }
}

/// Sixteen bytes that tell one write of the lease from every other (L4): equal bodies would get
/// equal entity tags. The upper 96 bits name the run of the program, the lower 32 count its writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u128);

impl Token {
    /// Write number `count` of a run.
    #[must_use]
    pub const fn new(run: RunId, count: u32) -> Self {
        Self(run.0 | count as u128)
    }

    /// Whether the run `run` made it.
    #[must_use]
    pub const fn is_of(self, run: RunId) -> bool {
        self.0 >> 32 == run.0 >> 32
    }

    /// Reads 32 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// One run of the program: random, drawn by the driver at each start, never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunId(u128);

impl RunId {
    /// From 128 random bits, of which the upper 96 count.
    #[must_use]
    pub const fn new(random: u128) -> Self {
        Self(random >> 32 << 32)
    }
}

/// An entity tag exactly as the store gave it, quotes included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ETag(pub Arc<str>);

impl ETag {
    /// From the header's value.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_back_as_it_was_printed() {
        for id in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe] {
            assert_eq!(parse_uuid(&NodeId(id).to_string()), Some(id));
            assert_eq!(parse_uuid(&ClusterId(id).to_string().to_uppercase()), Some(id));
        }
        let text = "01234567-89ab-cdef-1032-547698badcfe";
        assert_eq!(
            NodeId(0x0123_4567_89ab_cdef_1032_5476_98ba_dcfe).to_string(),
            text,
            "the usual form"
        );
    }

    #[test]
    fn what_is_no_uuid_is_refused() {
        for text in [
            "",
            "0123456789abcdef1032547698badcfe",
            "01234567-89ab-cdef-1032-547698badcf",
            "01234567-89ab-cdef-1032-547698badcfg",
            "0123456-789ab-cdef-1032-547698badcfe",
            "+1234567-89ab-cdef-1032-547698badcfe",
        ] {
            assert_eq!(parse_uuid(text), None, "{text}");
        }
    }

    #[test]
    fn a_token_tells_its_run() {
        let run = RunId::new(0xffff_0000_0000_0000_0000_0001_1234_5678);
        let other = RunId::new(0xffff_0000_0000_0000_0000_0002_1234_5678);
        let token = Token::new(run, 7);
        assert!(token.is_of(run) && !token.is_of(other));
        assert_ne!(token, Token::new(run, 8));
        assert_eq!(Token::parse(&token.to_string()), Some(token));
        assert_eq!(Token::parse("+1"), None);
    }

    #[test]
    fn clocks_saturate_instead_of_wrapping() {
        assert_eq!(MonoMs(3).since(MonoMs(5)), 0);
        assert_eq!(MonoMs(3).minus(5), MonoMs(0));
        assert_eq!(MonoMs(u64::MAX).plus(5), MonoMs(u64::MAX));
        assert_eq!(WallMs(3).distance(WallMs(5)), 2);
        assert_eq!(WallMs(5).distance(WallMs(3)), 2);
    }
}
