//! The idempotency keys of a range of segments as an immutable file (FORMAT.md, "Key file"), so
//! that a restart fills the window without reading the segments.
//!
//! Owns the list that is collected while a segment is written, the file's codec and the joining
//! of files. Keys keep the order of the log, in which the window takes them.

use std::io::{self, Write};

use crate::bytes::{Cursor, TooShort};
use crate::ids::{ClusterId, Generation, IdempotencyKey, Place, ShardId};
use crate::index::page::{
    HeaderFault, IndexFileError, PAGE_BYTES, PageError, PageFault, PageId, PageKind, PageWriter,
    header_page, open_header_page, page_offset,
};
use crate::record::{RECORD_FIXED_BYTES, RECORD_STREAM_BYTES};

/// First bytes of every key file.
pub const KEY_FILE_MAGIC: [u8; 8] = *b"DLOGKEY1";
const VERSION: u16 = 1;
const FIELDS_BYTES: usize = 40;
const KEY_BYTES: usize = PageKind::Keys.item_bytes();

/// Keys of the segment that is being written, in the order of its appends.
#[derive(Clone, Debug)]
pub struct SegmentKeys {
    generation: Generation,
    /// A key in one piece would make an entry 32 bytes.
    entries: Vec<([u64; 2], u32)>,
}

impl SegmentKeys {
    /// An empty list for segment `generation` of `segment_size_bytes`, with room reserved (not
    /// touched) for all keyed appends that fit into it.
    #[must_use]
    pub fn for_segment(generation: Generation, segment_size_bytes: u32) -> Self {
        // An append record of one stream and an event record without its texts.
        let smallest = 2 * RECORD_FIXED_BYTES + RECORD_STREAM_BYTES;
        let entries = Vec::with_capacity(segment_size_bytes as usize / smallest);
        Self { generation, entries }
    }

    /// Forgets everything, keeps the memory, and starts segment `generation`.
    pub fn clear(&mut self, generation: Generation) {
        self.generation = generation;
        self.entries.clear();
    }

    /// The segment whose keys are here.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the key of the append whose record lies at byte `offset` of the segment.
    pub fn push(&mut self, key: IdempotencyKey, offset: u32) {
        self.entries.push(([(key.0 >> 64) as u64, key.0 as u64], offset));
    }

    /// Keys and places in the order of the log.
    pub fn iter(&self) -> impl Iterator<Item = (IdempotencyKey, Place)> + '_ {
        self.entries.iter().map(|(key, offset)| {
            let key = u128::from(key[0]) << 64 | u128::from(key[1]);
            (IdempotencyKey(key), Place { generation: self.generation, offset: *offset })
        })
    }
}

/// What a key file is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyScope {
    /// The cluster.
    pub cluster: ClusterId,
    /// The shard.
    pub shard: ShardId,
    /// First segment.
    pub first: Generation,
    /// Last segment; all between are included.
    pub last: Generation,
}

/// A key file's header page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFileHeader {
    /// What it is about.
    pub scope: KeyScope,
    /// Number of keys.
    pub key_count: u64,
    page_count: u32,
    mark: u32,
}

impl KeyFileHeader {
    /// A header; `None` if the file would have 2^32 pages or more.
    fn new(scope: KeyScope, key_count: u64) -> Option<Self> {
        let page_count = u32::try_from(PageKind::Keys.pages(key_count)).ok()?;
        page_count.checked_add(1)?;
        let mut header = Self { scope, key_count, page_count, mark: 0 };
        header.mark = crc32c::crc32c(&header.fields());
        Some(header)
    }

    fn fields(&self) -> [u8; FIELDS_BYTES] {
        let mut out = [0; FIELDS_BYTES];
        let KeyScope { cluster, shard, first, last } = self.scope;
        out[..16].copy_from_slice(&cluster.0.to_le_bytes());
        out[16..20].copy_from_slice(&shard.0.to_le_bytes());
        out[20..24].copy_from_slice(&first.0.to_le_bytes());
        out[24..28].copy_from_slice(&last.0.to_le_bytes());
        out[28..32].copy_from_slice(&self.page_count.to_le_bytes());
        out[32..].copy_from_slice(&self.key_count.to_le_bytes());
        out
    }

    /// Decodes and checks the first page of a file of `file_size_bytes`.
    pub fn decode(page: &[u8], file_size_bytes: u64) -> Result<Self, IndexFileError> {
        let fields = open_header_page(page, KEY_FILE_MAGIC, VERSION)?;
        let content = |what| HeaderFault::Page(PageFault::Content(what));
        let decoded = decode_fields(fields).map_err(|_| content("header length"))?;
        let (scope, key_count) = decoded;
        if scope.first.0 == 0 || scope.first > scope.last {
            return Err(content("segment range").into());
        }
        let header = Self::new(scope, key_count).ok_or(content("number of keys"))?;
        if fields[..FIELDS_BYTES] != header.fields() {
            return Err(content("number of pages").into());
        }
        let expected = header.file_size_bytes();
        if expected != file_size_bytes {
            return Err(IndexFileError::Size { expected, found: file_size_bytes });
        }
        Ok(header)
    }

    /// Size of the file, bytes.
    #[must_use]
    pub const fn file_size_bytes(&self) -> u64 {
        page_offset(self.page_count) + PAGE_BYTES as u64
    }

    /// Last page of the file. Keys are in the pages `1..=last_page()`.
    #[must_use]
    pub const fn last_page(&self) -> u32 {
        self.page_count
    }

    /// Checks page `number` of the file and walks over its keys.
    pub fn keys<'a>(
        &self,
        number: u32,
        page: &'a [u8],
    ) -> Result<impl Iterator<Item = (IdempotencyKey, Place)> + use<'a>, PageError> {
        let id = PageId { kind: PageKind::Keys, number, mark: self.mark };
        let before = u64::from(number.saturating_sub(1)) * PageKind::Keys.per_page();
        let count = self.key_count.saturating_sub(before).min(PageKind::Keys.per_page());
        let items: &[[u8; KEY_BYTES]] = id.open(page, count)?.as_chunks().0;
        Ok(items.iter().map(|item| {
            let mut cursor = Cursor::new(item);
            let mut fields = || -> Result<_, TooShort> { Ok((cursor.u128()?, cursor.u64()?)) };
            let (key, place) = fields().expect("an item is 24 bytes long");
            (IdempotencyKey(key), Place::unpack(place))
        }))
    }
}

fn decode_fields(fields: &[u8]) -> Result<(KeyScope, u64), TooShort> {
    let mut cursor = Cursor::new(fields);
    let cluster = ClusterId(cursor.u128()?);
    let shard = ShardId(cursor.u32()?);
    let first = Generation(cursor.u32()?);
    let last = Generation(cursor.u32()?);
    let _page_count = cursor.u32()?;
    Ok((KeyScope { cluster, shard, first, last }, cursor.u64()?))
}

/// Writes a file front to back.
struct KeyFileWriter<W> {
    pages: PageWriter<W>,
    left: u64,
}

impl<W: Write> KeyFileWriter<W> {
    fn begin(out: W, scope: KeyScope, key_count: u64) -> io::Result<Self> {
        let header = KeyFileHeader::new(scope, key_count).ok_or(io::ErrorKind::FileTooLarge)?;
        let page = header_page(KEY_FILE_MAGIC, VERSION, &header.fields());
        Ok(Self { pages: PageWriter::begin(out, &page, header.mark)?, left: key_count })
    }

    fn put(&mut self, key: IdempotencyKey, place: Place) -> io::Result<()> {
        let mut item = [0; KEY_BYTES];
        item[..16].copy_from_slice(&key.0.to_le_bytes());
        item[16..].copy_from_slice(&place.pack().to_le_bytes());
        self.left = self.left.checked_sub(1).expect("a key file has as many keys as announced");
        self.pages.put(PageKind::Keys, &item)
    }

    fn finish(self) -> io::Result<W> {
        assert_eq!(self.left, 0, "a key file has as many keys as announced");
        self.pages.finish()
    }
}

/// Writes the file of one segment. The sink is neither flushed nor synced.
pub fn write_keys<W: Write>(
    keys: &SegmentKeys,
    cluster: ClusterId,
    shard: ShardId,
    out: W,
) -> io::Result<W> {
    let (first, last) = (keys.generation, keys.generation);
    let scope = KeyScope { cluster, shard, first, last };
    let mut writer = KeyFileWriter::begin(out, scope, keys.len() as u64)?;
    for (key, place) in keys.iter() {
        writer.put(key, place)?;
    }
    writer.finish()
}

/// Why files were not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Nothing to join.
    #[error("no key files were given to join")]
    NoInput,
    /// The inputs do not follow each other in one shard of one cluster.
    #[error("key files to join do not continue at segment {0}")]
    NotAdjacent(Generation),
    /// Input `index` cannot be read; it has to be rebuilt.
    #[error("key file {index} of the join: {error}")]
    Input {
        /// Which input, 0 = oldest.
        index: usize,
        /// What is wrong with it.
        error: IndexFileError,
    },
    /// The sink failed.
    #[error("writing the joined key file failed: {0}")]
    Write(#[from] io::Error),
}

/// Joins whole files, oldest first, into one. The sink is neither flushed nor synced.
pub fn join_key_files<W: Write>(inputs: &[&[u8]], out: W) -> Result<W, JoinError> {
    let mut headers = Vec::with_capacity(inputs.len());
    for (index, bytes) in inputs.iter().enumerate() {
        let page = bytes.get(..PAGE_BYTES).unwrap_or(bytes);
        let header = KeyFileHeader::decode(page, bytes.len() as u64)
            .map_err(|error| JoinError::Input { index, error })?;
        headers.push(header);
    }
    let mut scope = headers.first().ok_or(JoinError::NoInput)?.scope;
    for next in headers.iter().skip(1).map(|header| header.scope) {
        let same = (next.cluster, next.shard) == (scope.cluster, scope.shard);
        if !same || scope.last.0.checked_add(1) != Some(next.first.0) {
            return Err(JoinError::NotAdjacent(next.first));
        }
        scope.last = next.last;
    }
    // Each count is below 2^40, because its file has fewer than 2^32 pages.
    let key_count = headers.iter().map(|header| header.key_count).sum();
    let mut writer = KeyFileWriter::begin(out, scope, key_count)?;
    for (index, (bytes, header)) in inputs.iter().zip(&headers).enumerate() {
        for (page, number) in bytes.chunks(PAGE_BYTES).zip(0..).skip(1) {
            let keys = header
                .keys(number, page)
                .map_err(|error| JoinError::Input { index, error: error.into() })?;
            for (key, place) in keys {
                writer.put(key, place)?;
            }
        }
    }
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::keys::KeyWindow;
    use proptest::prelude::*;

    const CLUSTER: ClusterId = ClusterId(3);
    const SHARD: ShardId = ShardId(1);

    fn keys(generation: u32, count: u32) -> SegmentKeys {
        let mut keys = SegmentKeys::for_segment(Generation(generation), 1 << 16);
        for index in 0..count {
            keys.push(IdempotencyKey(u128::from(generation) << 99 | u128::from(index)), index * 8);
        }
        keys
    }

    fn file(keys: &SegmentKeys) -> Vec<u8> {
        write_keys(keys, CLUSTER, SHARD, Vec::new()).unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<(IdempotencyKey, Place)>, IndexFileError> {
        let page = bytes.get(..PAGE_BYTES).unwrap_or(bytes);
        let header = KeyFileHeader::decode(page, bytes.len() as u64)?;
        let mut found = Vec::new();
        for number in 1..=header.last_page() {
            let page = &bytes[page_offset(number) as usize..][..PAGE_BYTES];
            found.extend(header.keys(number, page)?);
        }
        Ok(found)
    }

    #[test]
    fn keys_come_back_in_the_order_of_the_log() {
        for count in [0, 1, 169, 170, 171, 1000] {
            let keys = keys(1, count);
            assert_eq!(read(&file(&keys)), Ok(keys.iter().collect()));
        }
    }

    #[test]
    fn joined_files_fill_the_window_as_the_appends_did() {
        let segments = [keys(4, 500), keys(5, 0), keys(6, 171), keys(7, 1)];
        let files: Vec<Vec<u8>> = segments.iter().map(file).collect();
        let files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
        let joined = join_key_files(&files, Vec::new()).unwrap();
        let mut expected = KeyWindow::new(300, 1);
        segments
            .iter()
            .flat_map(SegmentKeys::iter)
            .for_each(|(k, place)| expected.insert(k, place));
        let mut window = KeyWindow::new(300, 2);
        read(&joined).unwrap().into_iter().for_each(|(k, place)| window.restore(k, place));
        assert!(window.iter().eq(expected.iter()));
        let header = KeyFileHeader::decode(&joined[..PAGE_BYTES], joined.len() as u64).unwrap();
        assert_eq!((header.scope.first, header.scope.last), (Generation(4), Generation(7)));
    }

    #[test]
    fn files_that_do_not_continue_are_not_joined() {
        let (one, three) = (file(&keys(1, 5)), file(&keys(3, 5)));
        let error = join_key_files(&[&one, &three], Vec::new()).unwrap_err();
        assert!(matches!(error, JoinError::NotAdjacent(Generation(3))));
        assert!(matches!(join_key_files(&[], Vec::new()), Err(JoinError::NoInput)));
        let mut damaged = file(&keys(2, 5));
        damaged[PAGE_BYTES + 20] ^= 1;
        let error = join_key_files(&[&one, &damaged], Vec::new()).unwrap_err();
        assert!(matches!(error, JoinError::Input { index: 1, .. }));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_detected() {
        let mut bytes = file(&keys(1, 300));
        for at in (0..bytes.len()).step_by(7) {
            bytes[at] ^= 1 << (at % 8);
            assert!(read(&bytes).is_err(), "byte {at}");
            bytes[at] ^= 1 << (at % 8);
        }
        for length in [0, 4095, 4096, bytes.len() - 1] {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_headers_with_right_checksums_never_panic(
            fields in proptest::collection::vec(any::<u8>(), FIELDS_BYTES),
            count in any::<u64>(), size in any::<u64>(),
        ) {
            let mut fields = fields;
            fields[32..].copy_from_slice(&count.to_le_bytes());
            let page = header_page(KEY_FILE_MAGIC, VERSION, &fields);
            prop_assert!(KeyFileHeader::decode(&page[..], size).is_err());
        }

        #[test]
        fn changed_pages_with_right_checksums_never_panic(
            at in 4_usize..PAGE_BYTES, value in any::<u8>(),
        ) {
            let mut bytes = file(&keys(1, 100));
            bytes[PAGE_BYTES + at] = value;
            let checksum = crc32c::crc32c(&bytes[PAGE_BYTES + 4..]);
            bytes[PAGE_BYTES..PAGE_BYTES + 4].copy_from_slice(&checksum.to_le_bytes());
            let _ = read(&bytes);
        }
    }
}
