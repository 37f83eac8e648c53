//! Reads the log of a stopped node from its files, by docs/FORMAT.md alone: not a line of the
//! program's own reader is used, so that one mistake in it cannot hide another.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use duolog_engine::ids::{Hlc, Lsn, Revision};
use duolog_net::client::RecordedEvent;

const SEGMENT_MAGIC: &[u8] = b"DLOGSEG1";
const BLOCK_MAGIC: &[u8] = b"DLOGBLK1";
const SEGMENT_HEADER_BYTES: usize = 128;
const BLOCK_HEADER_BYTES: usize = 160;
const EVENT_HEADER_BYTES: usize = 64;
const KIND_APPEND: u8 = 1;
const KIND_EVENT: u8 = 2;

/// A shard's log.
#[derive(Debug, Default)]
pub struct FileLog {
    /// All its events.
    pub events: Vec<RecordedEvent>,
    /// Blocks, over all segments.
    pub blocks: u64,
    /// The hash of the last block.
    pub hash: [u8; 32],
    /// Stamp of the last block.
    hlc: u64,
    /// Epoch of the last block.
    epoch: u64,
    /// The cluster, as its first segment says.
    cluster: Vec<u8>,
    /// The idempotency keys so far.
    keys: HashSet<u128>,
    /// Events that an append record has announced and that are still to come.
    announced: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

/// Reads a shard's log up to its last whole block.
///
/// # Errors
/// What contradicts the format, in words.
pub fn read(data_dir: &Path, shard: u32) -> Result<FileLog, String> {
    let folder = data_dir.join(format!("shard-{shard:03}"));
    let mut log = FileLog::default();
    for generation in 1.. {
        let path = folder.join(format!("seg-{generation:08}.log"));
        let Ok(bytes) = fs::read(&path) else { break };
        let begins = segment(&bytes, shard, generation, &mut log);
        match begins.map_err(|what| format!("{}: {what}", path.display()))? {
            Some(align) => {
                blocks(&bytes, align, shard, generation, &mut log)
                    .map_err(|what| format!("{}: {what}", path.display()))?;
            }
            // Prepared and not used yet: the log ended before.
            None => break,
        }
    }
    Ok(log)
}

/// The segment's alignment; nothing if it has not been begun.
fn segment(
    bytes: &[u8],
    shard: u32,
    generation: u32,
    log: &mut FileLog,
) -> Result<Option<usize>, String> {
    let header = bytes.get(..SEGMENT_HEADER_BYTES).ok_or("it is too short")?;
    let whole = header.starts_with(SEGMENT_MAGIC)
        && u32_at(header, 12) == crc32c::crc32c(&header[16..])
        && u32_at(header, 36) == generation;
    if !whole {
        return Ok(None);
    }
    if u32_at(header, 32) != shard {
        return Err(format!("it is of shard {}", u32_at(header, 32)));
    }
    if generation == 1 {
        let mut genesis = blake3::Hasher::new();
        genesis.update(b"duolog genesis 1").update(&header[16..32]).update(&shard.to_le_bytes());
        log.hash = *genesis.finalize().as_bytes();
        log.cluster = header[16..32].to_vec();
    }
    if header[16..32] != log.cluster {
        return Err("it is of another cluster".to_owned());
    }
    let base = (u64_at(header, 48), u64_at(header, 56), u64_at(header, 64), &header[72..104]);
    if base != (log.events.len() as u64, log.hlc, log.epoch, log.hash.as_slice()) {
        // What a recycled file held, or a tail that was cut: the log does not go on here.
        return Ok(None);
    }
    Ok(Some(u32_at(header, 44) as usize))
}

fn blocks(
    bytes: &[u8],
    align: usize,
    shard: u32,
    generation: u32,
    log: &mut FileLog,
) -> Result<(), String> {
    let mut at = align;
    while let Some(length) = block(&bytes[at.min(bytes.len())..], shard, generation, log)? {
        at = (at + length).next_multiple_of(align);
    }
    Ok(())
}

/// Takes the block at the beginning of `bytes` if it continues the log; its length.
fn block(
    bytes: &[u8],
    shard: u32,
    generation: u32,
    log: &mut FileLog,
) -> Result<Option<usize>, String> {
    let Some(header) = bytes.get(..BLOCK_HEADER_BYTES) else { return Ok(None) };
    let continues = header.starts_with(BLOCK_MAGIC)
        && u32_at(header, 12) == crc32c::crc32c(&header[16..])
        && u32_at(header, 24) == shard
        && u32_at(header, 28) == generation
        && u64_at(header, 40) == log.events.len() as u64 + 1
        && header[96..128] == log.hash;
    if !continues {
        return Ok(None);
    }
    let length = BLOCK_HEADER_BYTES + u32_at(header, 20) as usize;
    let Some(body) = bytes.get(BLOCK_HEADER_BYTES..length) else { return Ok(None) };
    if crc32c::crc32c(body) != u32_at(header, 16) {
        return Ok(None);
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header[16..128]).update(body);
    if hasher.finalize().as_bytes() != &header[128..160] {
        return Err(format!("the block behind LSN {} has a wrong hash", log.events.len()));
    }
    let before = log.events.len();
    let (hlc, mark) = (u64_at(header, 56), u64_at(header, 64));
    if hlc <= log.hlc {
        return Err(format!("A1: the stamp of the block behind LSN {before} is not a later one"));
    }
    log.hlc = hlc;
    records(body, log)?;
    if mark > log.events.len() as u64 {
        return Err(format!("the block behind LSN {before} marks {mark}, beyond its own end"));
    }
    let (count, told) = (log.events.len() - before, u32_at(header, 48) as usize);
    if count != told {
        return Err(format!("the block behind LSN {before} has {count} events, says {told}"));
    }
    let epoch = u64_at(header, 32);
    if epoch < log.epoch {
        return Err(format!("epoch {epoch} follows {}", log.epoch));
    }
    log.epoch = epoch;
    log.hash = header[128..160].try_into().expect("32 bytes");
    log.blocks += 1;
    Ok(Some(length))
}

fn records(body: &[u8], log: &mut FileLog) -> Result<(), String> {
    let mut at = 0;
    while at < body.len() {
        let rest = &body[at..];
        let lsn = log.events.len();
        let bad = |what: &str| format!("record behind LSN {lsn}: {what}");
        if rest.len() < EVENT_HEADER_BYTES {
            return Err(bad("too short"));
        }
        let length = u32_at(rest, 4) as usize;
        let record = rest.get(..length).ok_or_else(|| bad("beyond the block"))?;
        if crc32c::crc32c(&record[4..]) != u32_at(record, 0) {
            return Err(bad("wrong checksum"));
        }
        if u64_at(record, 8) != log.events.len() as u64 + 1 {
            return Err(bad(&format!("LSN {}", u64_at(record, 8))));
        }
        match record[48] {
            KIND_EVENT if u64_at(record, 24) != log.hlc => return Err(bad("another stamp")),
            KIND_EVENT => {
                log.events.push(event(record).ok_or_else(|| bad("wrong lengths"))?);
                log.announced = log.announced.saturating_sub(1);
            }
            KIND_APPEND => append(record, log).map_err(bad)?,
            kind => return Err(bad(&format!("kind {kind}"))),
        }
        at += length.next_multiple_of(8);
    }
    if log.announced > 0 {
        return Err(format!("{} events of an append are in another block", log.announced));
    }
    Ok(())
}

/// What precedes the events of an append with a key or a token.
fn append(record: &[u8], log: &mut FileLog) -> Result<(), &'static str> {
    let key = u128_at(record, 16);
    if record[49] & 1 != 0 && !log.keys.insert(key) {
        return Err("A6: a key is there twice");
    }
    if log.announced > 0 {
        return Err("it interrupts an append");
    }
    log.announced = u32_at(record, 52);
    Ok(())
}

fn event(record: &[u8]) -> Option<RecordedEvent> {
    let mut at = EVENT_HEADER_BYTES;
    let mut take = |length: usize| {
        let part = record.get(at..at + length)?.to_vec();
        at += length;
        Some(part)
    };
    let (name, kind) = (take(record[49].into())?, take(record[50].into())?);
    let metadata = take(u32_at(record, 52) as usize)?;
    let data = take(u32_at(record, 56) as usize)?;
    let hlc = u64_at(record, 24);
    Some(RecordedEvent {
        stream: String::from_utf8(name).ok()?,
        revision: Revision(u64_at(record, 16)),
        lsn: Lsn(u64_at(record, 8)),
        hlc: Hlc(hlc),
        timestamp_ms: hlc >> 16,
        id: uuid::Uuid::from_u128(u128_at(record, 32)),
        kind: String::from_utf8(kind).ok()?,
        metadata,
        data,
    })
}

#[cfg(test)]
mod tests {
    use duolog_engine::append::Expect;
    use duolog_tests::process::log_files::{blocks, flip};
    use duolog_tests::process::{Operation, ServerOptions, Wire, scratch};

    use super::*;

    /// Promised: the files hold what the server showed; a block with a turned bit ends the log.
    /// Provoked: appends over several segments, a clean stop, one bit of a block in the middle.
    /// Broken: another event, a missing one, or one behind the damage.
    #[test]
    fn files_are_read_by_the_documented_format() {
        let folder = scratch();
        let server = ServerOptions::new(folder.path().join("data")).tiny_segments().start();
        let mut wire = Wire::connect(server.address()).expect("the server takes clients");
        for number in 1..=300_u128 {
            let stream = format!("stream-{}", number % 3);
            let data = vec![number as u8; 40_000];
            let operation = Operation::single(number << 32, &stream, Expect::Any, &data);
            let _ = wire.append(&operation.request()).receipt();
        }
        let shown = wire.log(0, 1);
        let dir = server.dir().to_owned();
        assert_eq!(server.stop().code, Some(0));
        let log = read(&dir, 0).expect("the files can be read");
        assert_eq!(log.events, shown);
        let all = blocks(&dir, 0);
        assert_eq!(log.blocks, all.len() as u64);
        assert!(all.last().is_some_and(|block| block.header.generation.0 > 2), "several segments");
        let damaged = &all[all.len() / 2];
        flip(&damaged.path, damaged.middle());
        let cut = read(&dir, 0).expect("a torn block is no contradiction");
        let kept = damaged.header.first_lsn.0 as usize - 1;
        assert_eq!(cut.events, shown[..kept]);
    }
}
