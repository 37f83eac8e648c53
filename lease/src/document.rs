//! The lease: one JSON object in the bucket, replaced by compare-and-swap only. A version of the
//! program keeps the fields that it does not know, byte for byte. What cannot be read is never
//! taken for "no lease".

mod codec;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use crate::ids::{ClusterId, LeaseEpoch, NodeId, Token, WallMs};
use crate::in_sync::InSync;
use crate::limits::{DOCUMENT_BYTES_MAX, RECENT_TOKENS_MAX};

/// The version of the format that this program writes. It reads no other: a higher one may mean
/// another thing by the same names.
pub const FORMAT: u64 = 1;

/// The lease as one write made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Document {
    /// Whose lease it is.
    pub cluster: ClusterId,
    /// Who leads, or tries to.
    pub leader: NodeId,
    /// Number of the reign; at least 1.
    pub epoch: LeaseEpoch,
    /// The nodes that have everything that was acknowledged; the leader is one of them.
    pub in_sync: InSync,
    /// The leader's wall clock before it sent this write.
    pub acquired: WallMs,
    /// `acquired` plus the leader's S3 lease duration.
    pub expires: WallMs,
    /// Names this write (L4).
    pub token: Token,
    /// Names the writes before it.
    pub recent: RecentTokens,
    /// Fields of later versions: name to JSON text.
    pub unknown: BTreeMap<String, String>,
}

/// The tokens of the last few writes, newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecentTokens {
    tokens: [Token; RECENT_TOKENS_MAX],
    count: u8,
}

impl RecentTokens {
    /// The newest of `tokens`, which come newest first.
    #[must_use]
    pub fn new(tokens: &[Token]) -> Self {
        let mut recent = Self::default();
        for token in tokens.iter().rev() {
            recent = recent.after(*token);
        }
        recent
    }

    /// With the token of the write that followed them; the oldest goes.
    #[must_use]
    pub fn after(mut self, token: Token) -> Self {
        self.tokens.rotate_right(1);
        self.tokens[0] = token;
        let count = usize::from(self.count) + 1;
        self.count = if count < RECENT_TOKENS_MAX { self.count + 1 } else { RECENT_TOKENS_MAX_U8 };
        self
    }

    /// The tokens.
    #[must_use]
    pub fn as_slice(&self) -> &[Token] {
        &self.tokens[..usize::from(self.count)]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [Token] {
        &mut self.tokens[..usize::from(self.count)]
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the assertion below")]
const RECENT_TOKENS_MAX_U8: u8 = RECENT_TOKENS_MAX as u8;
const _: () = assert!(RECENT_TOKENS_MAX_U8 as usize == RECENT_TOKENS_MAX);

impl Document {
    /// How long this write carries the lease on any clock, ms.
    #[must_use]
    pub const fn duration_ms(&self) -> u64 {
        self.expires.since(self.acquired)
    }

    /// The body to store. Equal documents give equal bytes, so that a repeated write is identical.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Reads the body of the object, which must belong to `cluster`.
    ///
    /// # Errors
    /// Whatever makes it unusable. None of the errors means "no lease".
    pub fn decode(bytes: &[u8], cluster: ClusterId) -> Result<Self, DocumentError> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(DocumentError::TooLong { size_bytes: bytes.len() });
        }
        codec::decode(bytes, cluster)
    }
}

/// Why a lease object cannot be used. It exists: nobody may create another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum DocumentError {
    /// Larger than any lease.
    #[error(
        "the lease object has {size_bytes} bytes, at most {DOCUMENT_BYTES_MAX} are expected: some \
         other program wrote it; restore it or point --s3-subfolder elsewhere"
    )]
    TooLong {
        /// Its size.
        size_bytes: usize,
    },
    /// No JSON object, or one without the fields of its format.
    #[error("the lease object cannot be read ({why}): restore it by hand; it is not overwritten")]
    Unreadable {
        /// What the reader met.
        why: String,
    },
    /// Written by a later version of the program.
    #[error(
        "the lease object has format {found}, this program knows {FORMAT}: update the program on \
         this node"
    )]
    Newer {
        /// Its format.
        found: u64,
    },
    /// Written by another cluster.
    #[error(
        "the lease object belongs to cluster {found}, this node to {expected}: give each cluster \
         its own --s3-subfolder"
    )]
    Foreign {
        /// The cluster in the object.
        found: ClusterId,
        /// The cluster of this node.
        expected: ClusterId,
    },
}

#[cfg(test)]
mod tests;
