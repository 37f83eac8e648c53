//! Objects of this shard's chains: their names, their making from the own log, their creation.

use std::rc::Rc;

use bytes::Bytes;
use duolog_engine::ids::{LeaseEpoch, Lsn};
use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::header::{ChainError, ObjectKind, Packing};
use duolog_engine::replica::chain::object::{LsnRange, ObjectParts, encode};
use duolog_engine::replica::chain::{ObjectId, ObjectPlace, Seq};
use duolog_engine::replica::promotion::PutOutcome;
use duolog_s3client::key::ObjectKey;

use super::blocks::BlockWalk;
use crate::serve::cluster::store::{Ask, Lane, Told};
use crate::serve::uring::fetch::FetchError;
use crate::serve::uring::shard_loop::ShardLoop;

/// Why an object was not made. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotMade {
    #[error("the log cannot be read at LSN {lsn}: {error}")]
    Unreadable { lsn: Lsn, error: FetchError },
    #[error("the blocks make no object: {0}")]
    Refused(ChainError),
}

/// What the object at this place has to say of itself.
pub(super) fn id(shard: &ShardLoop, epoch: LeaseEpoch, seq: Seq) -> ObjectId {
    let cluster = shard.member().settings.identity.cluster;
    ObjectId { cluster, place: ObjectPlace { shard: shard.id(), epoch, seq } }
}

/// Its key in the bucket.
pub(super) fn key(shard: &ShardLoop, epoch: LeaseEpoch, seq: Seq) -> ObjectKey {
    shard.member().settings.keys.key(&id(shard, epoch, seq).place.key())
}

/// Makes an object of the blocks of `range`, which may be empty. `base`: the block end before it;
/// without one the first block names it.
pub(super) async fn make(
    shard: &Rc<ShardLoop>,
    id: ObjectId,
    kind: ObjectKind,
    base: Option<BlockEnd>,
    range: LsnRange,
) -> Result<Bytes, NotMade> {
    let mut walk = BlockWalk::default();
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let (mut next, mut base) = (range.first, base);
    while next <= range.last {
        let block = walk.block(shard, next).await;
        let (header, block) = block.map_err(|error| NotMade::Unreadable { lsn: next, error })?;
        base.get_or_insert(BlockEnd { lsn: Lsn(next.0 - 1), hash: header.previous_hash });
        next = header.last_lsn().next();
        blocks.push(block.to_vec());
    }
    let base = base.ok_or(NotMade::Refused(ChainError::Malformed("block count")))?;
    let parts = ObjectParts { id, kind, node: shard.member().settings.identity.node, base };
    let mut body = Vec::new();
    let made = encode(&parts, blocks.iter().map(Vec::as_slice), Packing::Lz4, &mut body);
    made.map(|_| body.into()).map_err(NotMade::Refused)
}

/// Creates an object; one attempt.
pub(super) async fn create(
    shard: &ShardLoop,
    lane: Lane,
    key: ObjectKey,
    body: Bytes,
) -> PutOutcome {
    match shard.member().calls.ask(lane, Ask::Create(key, body)).await {
        Told::Stored(_) => PutOutcome::Stored,
        Told::Conflict => PutOutcome::Exists,
        told => {
            tracing::warn!(event = "upload_failed", shard = shard.id().0, outcome = ?told);
            PutOutcome::Unknown
        }
    }
}
