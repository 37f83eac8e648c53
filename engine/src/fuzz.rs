//! Entries for fuzz targets: everything that looks at stored or received bytes, on any bytes. None
//! of them may panic, whatever the bytes.
//!
//! Checksums keep random bytes out of the decoders, so each entry also *blesses* what it is given:
//! it puts the right checksums in, as only a writer with a fault (or a forger) could.

use std::collections::BTreeMap;
use std::io;

use crate::append::{AppendBuilder, AppendView};
use crate::block::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, Block, BlockHeader, BlockSeal, seal};
use crate::ids::{ClusterId, Generation, Hlc, LeaseEpoch, Lsn, Revision, ShardId, StreamId};
use crate::index::keys::KeyWindow;
use crate::record::{EventParts, Record, encode_event};
use crate::recovery::{
    Checkpoint, IndexStore, LogIdentity, LogSource, RecoverError, Recovered, empty_log, recover,
};
use crate::replica::BlockEnd;
use crate::replica::chain::header::{CHAIN_HEADER_BYTES, CHAIN_MAGIC, ObjectHeader, ObjectKind};
use crate::replica::chain::object::{Object, ObjectParts, encode};
use crate::segment::{LogEnd, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::shard::{Layout, Sealed, ShardConfig, StoredHead};

/// Events that a fuzz target's appends may have, bytes; small, so that the limit is met.
const EVENT_MAX_BYTES: usize = 64 << 10;
const PAGE: usize = 4096;
const SEGMENT: usize = 64 << 10;

/// Parses `bytes` as an append request; what is accepted has one form only.
pub fn fuzz_append(bytes: &[u8]) {
    let Ok(view) = AppendView::parse(bytes, EVENT_MAX_BYTES) else { return };
    assert_eq!(view.streams().count(), usize::from(view.stream_count()));
    assert_eq!(view.events().count(), view.event_count() as usize);
    let mut builder = AppendBuilder::new();
    if let Some(key) = view.key() {
        builder.key(key);
    }
    if let Some(token) = view.fencing_token() {
        builder.fencing_token(token);
    }
    let text = |bytes| std::str::from_utf8(bytes).expect("parse() has checked the texts");
    let mut events = view.events();
    for stream in view.streams() {
        builder.stream(text(stream.name), stream.expect).expect("parse() has checked the name");
        for event in events.by_ref().take(stream.event_count as usize) {
            let kind = text(event.kind);
            let added = builder.event(event.id, kind, event.metadata, event.data);
            added.expect("parse() has checked the event");
        }
    }
    let mut again = Vec::with_capacity(bytes.len());
    builder.encode(&mut again);
    let other = AppendView::parse(&again, EVENT_MAX_BYTES).expect("what was built can be parsed");
    assert_eq!(other.fingerprint(), view.fingerprint(), "an append survives being built anew");
    assert_eq!(again.len(), bytes.len());
}

/// Decodes `bytes` as a record, as they are and blessed.
pub fn fuzz_record(bytes: &[u8]) {
    look_at_record(bytes);
    let mut blessed = bytes.to_vec();
    if let Some(length) = Record::length(bytes).filter(|length| (4..=bytes.len()).contains(length))
    {
        let checksum = crc32c::crc32c(&blessed[4..length]);
        blessed[..4].copy_from_slice(&checksum.to_le_bytes());
        look_at_record(&blessed);
    }
}

fn look_at_record(bytes: &[u8]) {
    let Ok((record, taken)) = Record::decode(bytes) else { return };
    assert!(taken >= crate::record::RECORD_FIXED_BYTES && taken < bytes.len() + 8);
    match record {
        Record::Append(append) => {
            assert!(append.streams().count() <= bytes.len());
        }
        Record::Event(event) => {
            let texts = event.stream.len() + event.kind.len();
            assert!(texts + event.metadata.len() + event.data.len() <= bytes.len());
        }
    }
}

/// Decodes `bytes` as a block, as they are and blessed, with whatever is in it.
pub fn fuzz_block(bytes: &[u8]) {
    look_at_block(bytes);
    if let Some(blessed) = bless_block(bytes) {
        look_at_block(&blessed);
    }
}

fn look_at_block(bytes: &[u8]) {
    let Ok(block) = Block::decode(bytes) else { return };
    assert_eq!(block.header.length(), BLOCK_HEADER_BYTES + block.body.len());
    assert!(block.header.last_lsn() >= block.header.first_lsn);
    let mut errors = 0;
    for record in block.records() {
        match record {
            Ok((offset, _)) => assert!((offset as usize) < block.header.length()),
            Err(_) => errors += 1,
        }
    }
    assert!(errors <= 1, "a walk ends with the first record that cannot be read");
}

/// The same bytes with a right magic, version, body length, checksums and hash.
fn bless_block(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut block = bytes.to_vec();
    let (header, body) = block.split_at_mut_checked(BLOCK_HEADER_BYTES)?;
    header[..8].copy_from_slice(&BLOCK_MAGIC);
    header[8..12].copy_from_slice(&[1, 0, BLOCK_HEADER_BYTES as u8, 0]);
    header[16..20].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    header[20..24].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header[16..128]);
    hasher.update(body);
    header[128..].copy_from_slice(hasher.finalize().as_bytes());
    let checksum = crc32c::crc32c(&header[16..]);
    header[12..16].copy_from_slice(&checksum.to_le_bytes());
    Some(block)
}

/// Decodes `bytes` as headers of a block and of a segment, as they are and blessed.
pub fn fuzz_headers(bytes: &[u8]) {
    let _ = BlockHeader::decode(bytes);
    let _ = SegmentHeader::decode(bytes);
    let Some(head) = bytes.get(..BLOCK_HEADER_BYTES) else { return };
    let mut block = head.to_vec();
    block[..8].copy_from_slice(&BLOCK_MAGIC);
    block[8..12].copy_from_slice(&[1, 0, BLOCK_HEADER_BYTES as u8, 0]);
    let checksum = crc32c::crc32c(&block[16..]);
    block[12..16].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(header) = BlockHeader::decode(&block) {
        assert!(header.length() < 1 << 27, "nothing large is read on the strength of a header");
        assert!(header.last_lsn() >= header.first_lsn);
    }
    if let Ok(header) = SegmentHeader::decode(&bless_segment(&bytes[..SEGMENT_HEADER_BYTES])) {
        assert!(header.align_bytes.is_power_of_two() && header.align_bytes < header.size_bytes);
    }
}

fn bless_segment(bytes: &[u8]) -> Vec<u8> {
    let mut page = bytes.to_vec();
    page[..8].copy_from_slice(&crate::segment::SEGMENT_MAGIC);
    page[8..12].copy_from_slice(&[1, 0, 0, 0]);
    let checksum = crc32c::crc32c(&page[16..]);
    page[12..16].copy_from_slice(&checksum.to_le_bytes());
    page
}

/// Decodes `bytes` as a chain object, as they are and blessed (magic, version, lengths, checksums
/// put right, the body's blocks too if they are as long as they say).
pub fn fuzz_chain(bytes: &[u8]) {
    look_at_chain(bytes);
    let Some((head, body)) = bytes.split_at_checked(CHAIN_HEADER_BYTES) else { return };
    let (mut header, mut body) = (head.to_vec(), body.to_vec());
    let mut at = 0;
    while let Some(blessed) = body.get(at..).and_then(bless_front) {
        body[at..at + blessed.len()].copy_from_slice(&blessed);
        at += blessed.len();
    }
    let length = (body.len() as u32).to_le_bytes();
    header[..8].copy_from_slice(&CHAIN_MAGIC);
    header[8..12].copy_from_slice(&[1, 0, CHAIN_HEADER_BYTES as u8, 0]);
    header[128..132].copy_from_slice(&length);
    if header[125] == 0 {
        header[132..136].copy_from_slice(&length);
    }
    header[136..140].copy_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    header[140..].fill(0);
    let checksum = crc32c::crc32c(&header[16..]);
    header[12..16].copy_from_slice(&checksum.to_le_bytes());
    header.extend_from_slice(&body);
    look_at_chain(&header);
}

/// The block at the front of `bytes`, blessed, if its body is as long as its header says.
fn bless_front(bytes: &[u8]) -> Option<Vec<u8>> {
    let length = bytes.get(20..24)?.try_into().map(u32::from_le_bytes).ok()?;
    bless_block(bytes.get(..BLOCK_HEADER_BYTES + length as usize)?)
}

fn look_at_chain(bytes: &[u8]) {
    let Ok(header) = ObjectHeader::decode(bytes) else { return };
    let mut room = Vec::new();
    let decoded = Object::decode(bytes, header.id, &mut room);
    let Ok(object) = decoded else { return };
    let ends: Vec<BlockEnd> = object.ends().collect();
    assert_eq!(ends.len(), header.block_count as usize);
    assert_eq!(ends.last().map_or(header.base.lsn, |end| end.lsn), header.last_lsn);
    let parts =
        ObjectParts { id: header.id, kind: header.kind, node: header.node, base: header.base };
    if header.kind != ObjectKind::Seal {
        let blocks = object.blocks().map(|(_, block)| block);
        let mut again = Vec::new();
        let encoded = encode(&parts, blocks, header.packing, &mut again);
        let encoded = encoded.expect("what was decoded can be encoded");
        assert_eq!(encoded.body_bytes, header.body_bytes);
    }
}

/// Changes a log of three blocks in two segments as `bytes` say (three bytes each: segment and
/// page, place in the page, what to put there), and recovers it. Whatever was changed: the
/// log ends where one of its blocks ended, and no changed block is in it.
pub fn fuzz_log(bytes: &[u8]) {
    let (mut log, ends) = whole_log();
    for change in bytes.chunks_exact(4) {
        let generation = Generation(1 + u32::from(change[0] >> 7));
        // Blocks and headers lie in the first pages; the others get their share.
        let page = usize::from(change[0] & 0xf) % (SEGMENT / PAGE);
        let at = usize::from(u16::from_le_bytes([change[1], change[2]])) % PAGE;
        let file = log.files.get_mut(&generation).expect("the log has two segments");
        file[page * PAGE + at] = change[3];
    }
    match recover_log(&mut log) {
        Ok(recovered) => {
            let end = recovered.scan.end;
            let known = ends.contains(&end);
            assert!(known, "D2: no block is taken for whole that is not: {end:?}");
        }
        Err(RecoverError::Newer { .. } | RecoverError::OtherCluster { .. }) => {}
        Err(error) => panic!("damage is no reason to fail: {error}"),
    }
}

/// Recovers a log whose one segment holds blessed blocks with arbitrary bodies: `bytes` cut into
/// pieces of at most a page.
pub fn fuzz_bodies(bytes: &[u8]) {
    let mut log = Log { files: BTreeMap::from([(Generation(1), vec![0; SEGMENT])]) };
    let mut end = empty_log(identity());
    log.header(Generation(1), end);
    let mut offset = PAGE;
    for body in bytes.chunks(PAGE - BLOCK_HEADER_BYTES).take(SEGMENT / PAGE - 1) {
        let mut block = vec![0; BLOCK_HEADER_BYTES];
        block.extend_from_slice(body);
        end = seal_behind(&mut block, Generation(1), end, 1);
        log.put(Generation(1), offset, &block);
        offset += PAGE;
    }
    // A record that cannot be read, or not follow the one before, is an error and not a panic.
    let _ = recover_log(&mut log);
}

struct Log {
    files: BTreeMap<Generation, Vec<u8>>,
}

impl Log {
    fn put(&mut self, generation: Generation, offset: usize, bytes: &[u8]) {
        let file = self.files.get_mut(&generation).expect("the segment was made");
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn header(&mut self, generation: Generation, base: LogEnd) {
        let LogIdentity { cluster, shard } = identity();
        let (size_bytes, align_bytes) = (SEGMENT as u32, PAGE as u32);
        let header = SegmentHeader { cluster, shard, generation, size_bytes, align_bytes, base };
        let mut page = vec![0; PAGE];
        header.encode(&mut page);
        self.put(generation, 0, &page);
    }
}

fn identity() -> LogIdentity {
    LogIdentity { cluster: ClusterId(7), shard: ShardId(0) }
}

/// Three blocks, the last one in a second segment; and all ends the log ever had.
fn whole_log() -> (Log, Vec<LogEnd>) {
    let files = [1, 2].map(|generation| (Generation(generation), vec![0; SEGMENT]));
    let mut log = Log { files: BTreeMap::from(files) };
    let mut ends = vec![empty_log(identity())];
    for (number, (generation, offset)) in (0..).zip([(1, PAGE), (1, 2 * PAGE), (2, PAGE)]) {
        let (generation, end) = (Generation(generation), ends[number]);
        if offset == PAGE {
            log.header(generation, end);
        }
        let mut block = vec![0; BLOCK_HEADER_BYTES];
        let parts = EventParts {
            lsn: end.lsn.next(),
            revision: Revision(end.lsn.0),
            hlc: Hlc(end.hlc.0 + 1),
            id: 3,
            stream: b"a",
            type_length: 1,
            metadata_length: 0,
            body: b"tdata",
        };
        encode_event(&mut block, &parts);
        ends.push(seal_behind(&mut block, generation, end, 1));
        log.put(generation, offset, &block);
    }
    (log, ends)
}

/// Seals a block of `event_count` events behind `end`; the end behind it.
fn seal_behind(block: &mut [u8], generation: Generation, end: LogEnd, event_count: u32) -> LogEnd {
    let what = BlockSeal {
        shard: identity().shard,
        generation,
        epoch: LeaseEpoch(0),
        first_lsn: end.lsn.next(),
        event_count,
        hlc: Hlc(end.hlc.0 + 1),
        commit_mark: end.lsn,
        previous_hash: end.hash,
    };
    let hash = seal(block, &what);
    let lsn = Lsn(end.lsn.0 + u64::from(event_count));
    LogEnd { lsn, hash, hlc: what.hlc, epoch: what.epoch }
}

fn recover_log(log: &mut Log) -> Result<Recovered, RecoverError> {
    let LogIdentity { cluster, shard } = identity();
    let config = ShardConfig {
        cluster,
        shard,
        shard_count: 1,
        pair: None,
        layout: Layout { segment_size_bytes: SEGMENT as u32, align_bytes: PAGE as u32 },
        blocks_in_flight_max: 1,
        block_target_bytes: 1,
        idempotency_window: 10,
        hot_streams_max: 10,
        recent_max_bytes: 0,
        in_flight_max: 1,
        in_flight_max_bytes: 1,
    };
    let (end, keys) = (empty_log(identity()), KeyWindow::new(10, 0));
    let checkpoint = Checkpoint { flushed: Generation(0), end, mark: None, keys };
    recover(&config, log, checkpoint, &mut NoIndex)
}

impl LogSource for Log {
    fn segments(&mut self) -> io::Result<Vec<(Generation, u64)>> {
        Ok(self.files.iter().map(|(at, file)| (*at, file.len() as u64)).collect())
    }

    fn settle(&mut self, _: Generation) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self, at: Generation, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let file = self.files.get(&at).map(Vec::as_slice).unwrap_or_default();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let rest = file.get(offset..).unwrap_or_default();
        let length = buffer.len().min(rest.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

struct NoIndex;

impl IndexStore for NoIndex {
    fn save(&mut self, _: &Sealed) -> io::Result<()> {
        Ok(())
    }

    fn head(&mut self, _: StreamId) -> io::Result<Option<StoredHead>> {
        Ok(None)
    }
}
