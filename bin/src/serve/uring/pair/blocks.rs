//! Whole blocks of the own log in order, from memory as long as they are there, else from disk in
//! large pieces. For a follower that lacks them, and for the chain.

use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockHeader};
use duolog_engine::bytes::align_up;
use duolog_engine::disk::uring::ReadAhead;
use duolog_engine::ids::{Lsn, Place};
use duolog_engine::replica::BlockEnd;
use duolog_engine::shard::Shard;

use crate::serve::uring::fetch::FetchError;
use crate::serve::uring::shard_loop::ShardLoop;

/// A position in the log.
#[derive(Debug, Default)]
pub(super) struct BlockWalk {
    /// Where the next block is, if the last one came from disk.
    at: Option<(Lsn, Place)>,
    ahead: ReadAhead,
    /// A block that was in memory.
    copy: Vec<u8>,
}

impl BlockWalk {
    /// The block that begins at `first`. It must be durable or in memory.
    pub async fn block(
        &mut self,
        shard: &ShardLoop,
        first: Lsn,
    ) -> Result<(BlockHeader, &[u8]), FetchError> {
        self.copy.clear();
        if let Some(bytes) = shard.shard.borrow().in_memory_block(first) {
            self.copy.extend_from_slice(bytes);
        }
        if !self.copy.is_empty() {
            // Memory is where the log grows: what was read ahead there is old.
            if self.at.take().is_some() {
                self.ahead = ReadAhead::default();
            }
            let nowhere = Place::default();
            let header = BlockHeader::decode(&self.copy);
            let header = header.map_err(|_| FetchError::Misplaced(nowhere))?;
            return Ok((header, &self.copy));
        }
        let mut place = match self.at {
            Some((lsn, place)) if lsn == first => place,
            _ => {
                self.ahead = ReadAhead::default();
                self.find(shard, first).await?
            }
        };
        place = not_behind_segment(shard, place, first)?;
        let header = match self.whole(shard, place, first).await {
            // What was read ahead may be older than the block.
            Err(FetchError::Misplaced(_)) => {
                self.ahead = ReadAhead::default();
                self.whole(shard, place, first).await?
            }
            header => header?,
        };
        let align_bytes = shard.shard.borrow().config().layout.align_bytes;
        self.at = Some((header.last_lsn().next(), behind(place, &header, align_bytes)?));
        let block = self.ahead.bytes(&shard.files, place, header.length()).await?;
        Ok((header, block))
    }

    /// The header of the block that begins at `first`, all of which is there.
    async fn whole(
        &mut self,
        shard: &ShardLoop,
        place: Place,
        first: Lsn,
    ) -> Result<BlockHeader, FetchError> {
        let header = self.header(shard, place, first).await?;
        let block = self.ahead.bytes(&shard.files, place, header.length()).await?;
        let body = block.get(BLOCK_HEADER_BYTES..header.length());
        let whole = body.is_some_and(|body| crc32c::crc32c(body) == header.body_checksum);
        whole.then_some(header).ok_or(FetchError::Misplaced(place))
    }

    /// Walks to the block that begins at `first`.
    async fn find(&mut self, shard: &ShardLoop, first: Lsn) -> Result<Place, FetchError> {
        let align_bytes = shard.shard.borrow().config().layout.align_bytes;
        let start = shard.log_map.borrow().start(first, align_bytes);
        let Some((mut place, mut lsn)) = start else {
            return Err(FetchError::Io(std::io::Error::other("no segment has this LSN")));
        };
        while lsn < first {
            let header = self.header(shard, place, lsn).await?;
            lsn = header.last_lsn().next();
            place = behind(place, &header, align_bytes)?;
        }
        Ok(place)
    }

    async fn header(
        &mut self,
        shard: &ShardLoop,
        place: Place,
        lsn: Lsn,
    ) -> Result<BlockHeader, FetchError> {
        let bytes = self.ahead.bytes(&shard.files, place, BLOCK_HEADER_BYTES).await?;
        match BlockHeader::decode(bytes) {
            Ok(header) if header.first_lsn == lsn => Ok(header),
            Ok(_) | Err(_) => Err(FetchError::Misplaced(place)),
        }
    }
}

/// Where the block that begins at `first` is: at `place`, or at the beginning of the next segment
/// when that begins with it.
fn not_behind_segment(shard: &ShardLoop, place: Place, first: Lsn) -> Result<Place, FetchError> {
    let following = shard.log_map.borrow().next_segment(place.generation);
    let Some((generation, base)) = following.filter(|(_, base)| *base < first) else {
        return Ok(place);
    };
    if base.next() != first {
        return Err(FetchError::Misplaced(place));
    }
    let offset = shard.shard.borrow().config().layout.align_bytes;
    Ok(Place { generation, offset })
}

fn behind(place: Place, header: &BlockHeader, align_bytes: u32) -> Result<Place, FetchError> {
    let end = u64::from(place.offset) + header.length() as u64;
    let end = align_up(end, u64::from(align_bytes)).and_then(|end| u32::try_from(end).ok());
    Ok(Place { offset: end.ok_or(FetchError::Misplaced(place))?, ..place })
}

/// The end of the block that has the event `lsn`, as far as memory tells: a walk from the beginning
/// of the segment takes long, and clients wait for a promotion. Reigns mostly begin where the one
/// before ended, or just before that.
fn known_end(machine: &Shard, lsn: Lsn) -> Option<BlockEnd> {
    if let Some(mark) = machine.epoch_marks().iter().rev().find(|mark| mark.lsn == lsn) {
        return Some(BlockEnd { lsn, hash: mark.hash });
    }
    let header = BlockHeader::decode(machine.in_memory_block_up_to(lsn)?).ok()?;
    let holds = header.first_lsn <= lsn && lsn <= header.last_lsn();
    holds.then(|| BlockEnd { lsn: header.last_lsn(), hash: header.hash })
}

/// The block of the own log, all of it durable, that ends exactly at `lsn`.
pub(super) async fn end_at(shard: &ShardLoop, lsn: Lsn) -> Result<Option<BlockEnd>, FetchError> {
    let (end, align_bytes) = {
        let machine = shard.shard.borrow();
        (machine.durable(), machine.config().layout.align_bytes)
    };
    if lsn == end.lsn {
        return Ok(Some(BlockEnd::of(&end)));
    }
    if let Some(found) = known_end(&shard.shard.borrow(), lsn).filter(|_| lsn < end.lsn) {
        return Ok((found.lsn == lsn).then_some(found));
    }
    let start = shard.log_map.borrow().start(lsn, align_bytes);
    let Some((mut place, mut next)) = start.filter(|_| lsn < end.lsn) else { return Ok(None) };
    let mut walk = BlockWalk::default();
    loop {
        place = not_behind_segment(shard, place, next)?;
        let header = walk.header(shard, place, next).await?;
        next = header.last_lsn().next();
        if header.last_lsn() >= lsn {
            let found = BlockEnd { lsn: header.last_lsn(), hash: header.hash };
            return Ok((found.lsn == lsn).then_some(found));
        }
        place = behind(place, &header, align_bytes)?;
    }
}
