//! A run: the index of a range of segments as an immutable file (FORMAT.md, "Run file").
//!
//! Owns the header, the layout of the sections and the entry codec; writing is in `run_writer`,
//! looking up in `lookup`. Sections follow each other: header, entries sorted by stream, postings
//! in the order of the entries, filter, fences. Their sizes follow from the header's counts alone,
//! so that a header that contradicts the file's size is refused before anything is reserved.

use crate::block::BlockHash;
use crate::bytes::{Cursor, TooShort};
use crate::ids::{ClusterId, Generation, Hlc, LeaseEpoch, Lsn, Revision, ShardId, StreamId};
use crate::index::filter::Filter;
use crate::index::page::{
    HeaderFault, IndexFileError, PAGE_BYTES, PageFault, PageId, PageKind, header_page,
    open_header_page, page_offset,
};
use crate::index::span::Span;
use crate::segment::LogEnd;

/// First bytes of every run file.
pub const RUN_MAGIC: [u8; 8] = *b"DLOGRUN1";
const VERSION: u16 = 1;
const FIELDS_BYTES: usize = 160;

/// What an index file is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunScope {
    /// The cluster.
    pub cluster: ClusterId,
    /// The shard.
    pub shard: ShardId,
    /// First segment indexed.
    pub first: Generation,
    /// Last segment indexed; all between are too.
    pub last: Generation,
    /// The shard at the end of the last segment.
    pub state: LogEnd,
}

/// How much is in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Different streams.
    pub streams: u64,
    /// Events of all streams together.
    pub postings: u64,
}

/// A run's header page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHeader {
    /// What it is about.
    pub scope: RunScope,
    /// How much it holds.
    pub counts: RunCounts,
    layout: Layout,
    mark: u32,
}

/// Page numbers at which sections begin. All follow from the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    postings: u32,
    filter: u32,
    fences: u32,
    end: u32,
}

/// The entries begin right behind the header.
const ENTRIES_PAGE: u32 = 1;

impl Layout {
    /// `None` if the file would have 2^32 pages (16 TiB) or more.
    fn of(counts: RunCounts) -> Option<Self> {
        let entries = PageKind::Entries.pages(counts.streams);
        let behind =
            |page: u32, pages: u64| u32::try_from(u64::from(page).checked_add(pages)?).ok();
        let postings = behind(ENTRIES_PAGE, entries)?;
        let filter = behind(postings, PageKind::Postings.pages(counts.postings))?;
        let filter_blocks = Filter::block_count(counts.streams);
        let fences = behind(filter, PageKind::Filter.pages(filter_blocks))?;
        let end = behind(fences, PageKind::Fences.pages(entries))?;
        Some(Self { postings, filter, fences, end })
    }
}

impl RunHeader {
    /// A header; `None` if the file would have 2^32 pages (16 TiB) or more.
    #[must_use]
    pub fn new(scope: RunScope, counts: RunCounts) -> Option<Self> {
        let layout = Layout::of(counts)?;
        let mut header = Self { scope, counts, layout, mark: 0 };
        header.mark = crc32c::crc32c(&header.fields());
        Some(header)
    }

    /// Size of the file, bytes.
    #[must_use]
    pub const fn file_size_bytes(&self) -> u64 {
        page_offset(self.layout.end)
    }

    /// Where the part that stays in memory begins (filter and fences, up to the file's end),
    /// bytes from the start of the file.
    #[must_use]
    pub const fn resident_offset(&self) -> u64 {
        page_offset(self.layout.filter)
    }

    /// The mark that all pages of this file carry.
    pub(crate) const fn mark(&self) -> u32 {
        self.mark
    }

    /// Number of entry pages.
    pub(crate) const fn entry_page_count(&self) -> u32 {
        self.layout.postings - ENTRIES_PAGE
    }

    pub(crate) const fn filter_block_count(&self) -> u64 {
        Filter::block_count(self.counts.streams)
    }

    /// Identity and item count of a page of a section, `index` counted from the section's start.
    pub(crate) fn page(&self, kind: PageKind, index: u32) -> (PageId, u64) {
        let (start, items) = match kind {
            PageKind::Entries => (ENTRIES_PAGE, self.counts.streams),
            PageKind::Postings => (self.layout.postings, self.counts.postings),
            PageKind::Filter => (self.layout.filter, self.filter_block_count()),
            PageKind::Fences => (self.layout.fences, u64::from(self.entry_page_count())),
            PageKind::Keys => unreachable!("runs have no key pages"),
        };
        let before = u64::from(index) * kind.per_page();
        let count = items.saturating_sub(before).min(kind.per_page());
        // A section's page lies below `layout.end`.
        (PageId { kind, number: start + index, mark: self.mark }, count)
    }

    fn fields(&self) -> [u8; FIELDS_BYTES] {
        let mut out = [0; FIELDS_BYTES];
        let mut put = |at: usize, value: &[u8]| out[at..at + value.len()].copy_from_slice(value);
        let RunScope { cluster, shard, first, last, state } = self.scope;
        put(0, &cluster.0.to_le_bytes());
        put(16, &shard.0.to_le_bytes());
        put(20, &first.0.to_le_bytes());
        put(24, &last.0.to_le_bytes());
        put(28, &self.layout.end.to_le_bytes());
        put(32, &self.counts.streams.to_le_bytes());
        put(40, &self.counts.postings.to_le_bytes());
        put(48, &self.layout.postings.to_le_bytes());
        put(52, &self.layout.filter.to_le_bytes());
        put(56, &self.layout.fences.to_le_bytes());
        put(64, &state.lsn.0.to_le_bytes());
        put(72, &state.hlc.0.to_le_bytes());
        put(80, &state.epoch.0.to_le_bytes());
        put(88, &state.hash);
        out
    }

    /// The header page.
    #[must_use]
    pub fn encode(&self) -> Box<[u8; PAGE_BYTES]> {
        header_page(RUN_MAGIC, VERSION, &self.fields())
    }

    /// Decodes and checks the first page of a file of `file_size_bytes`.
    pub fn decode(page: &[u8], file_size_bytes: u64) -> Result<Self, IndexFileError> {
        let fields = open_header_page(page, RUN_MAGIC, VERSION)?;
        let content = |what| IndexFileError::from(HeaderFault::from(PageFault::Content(what)));
        let short = |_: TooShort| content("header length");
        let (scope, counts) = decode_fields(fields).map_err(short)?;
        if scope.first.0 == 0 || scope.first > scope.last {
            return Err(content("segment range"));
        }
        let header = Self::new(scope, counts).ok_or(content("counts"))?;
        if fields[..FIELDS_BYTES] != header.fields() {
            return Err(content("section page"));
        }
        let expected = header.file_size_bytes();
        if expected != file_size_bytes {
            return Err(IndexFileError::Size { expected, found: file_size_bytes });
        }
        Ok(header)
    }
}

fn decode_fields(fields: &[u8]) -> Result<(RunScope, RunCounts), TooShort> {
    let mut cursor = Cursor::new(fields);
    let cluster = ClusterId(cursor.u128()?);
    let shard = ShardId(cursor.u32()?);
    let first = Generation(cursor.u32()?);
    let last = Generation(cursor.u32()?);
    let _end = cursor.u32()?;
    let counts = RunCounts { streams: cursor.u64()?, postings: cursor.u64()? };
    // The section pages and a reserved field: compared as a whole by the caller.
    let _sections = cursor.take(16)?;
    let lsn = Lsn(cursor.u64()?);
    let hlc = Hlc(cursor.u64()?);
    let epoch = LeaseEpoch(cursor.u64()?);
    let hash: BlockHash = cursor.hash()?;
    let state = LogEnd { lsn, hash, hlc, epoch };
    Ok((RunScope { cluster, shard, first, last, state }, counts))
}

/// One stream of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which stream.
    pub stream: StreamId,
    /// What the run has of it.
    pub span: Span,
    /// Index of its first posting among the run's.
    pub postings_start: u64,
}

/// Size of an entry as stored, bytes.
pub(crate) const ENTRY_BYTES: usize = PageKind::Entries.item_bytes();

impl Entry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        out[..16].copy_from_slice(&self.stream.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.span.first.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.span.count.to_le_bytes());
        out[32..40].copy_from_slice(&self.span.fencing_token.to_le_bytes());
        out[40..].copy_from_slice(&self.postings_start.to_le_bytes());
        out
    }

    /// The stream of a stored entry, without looking at the rest.
    pub(crate) fn stream_of(item: &[u8; ENTRY_BYTES]) -> StreamId {
        StreamId(u128::from_le_bytes(*item.first_chunk().expect("an entry is 48 bytes long")))
    }

    /// Decodes an entry of a run with `postings` postings; the error names the impossible field.
    pub(crate) fn decode(item: &[u8; ENTRY_BYTES], postings: u64) -> Result<Self, &'static str> {
        let mut cursor = Cursor::new(item);
        let mut fields = || -> Result<Self, TooShort> {
            Ok(Self {
                stream: StreamId(cursor.u128()?),
                span: Span {
                    first: Revision(cursor.u64()?),
                    count: cursor.u64()?,
                    fencing_token: cursor.u64()?,
                },
                postings_start: cursor.u64()?,
            })
        };
        let entry = fields().expect("an entry is 48 bytes long");
        let end = entry.postings_start.checked_add(entry.span.count);
        if entry.span.count == 0 || end.is_none_or(|end| end > postings) {
            return Err("number of events");
        }
        if entry.span.first.0.checked_add(entry.span.count).is_none() {
            return Err("first revision");
        }
        Ok(entry)
    }
}

/// The items of an opened page.
pub(crate) fn items<const N: usize>(bytes: &[u8]) -> &[[u8; N]] {
    bytes.as_chunks().0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn scope(first: u32, last: u32) -> RunScope {
        let state = LogEnd { lsn: Lsn(9), hash: [7; 32], hlc: Hlc(8), epoch: LeaseEpoch(2) };
        RunScope {
            cluster: ClusterId(5),
            shard: ShardId(1),
            first: Generation(first),
            last: Generation(last),
            state,
        }
    }

    #[test]
    fn a_header_comes_back() {
        let counts = RunCounts { streams: 1_000_000, postings: 3_000_000 };
        let header = RunHeader::new(scope(3, 9), counts).unwrap();
        let page = header.encode();
        assert_eq!(RunHeader::decode(&page[..], header.file_size_bytes()), Ok(header));
        let size = header.file_size_bytes();
        let error = RunHeader::decode(&page[..], size - 4096).unwrap_err();
        assert_eq!(error, IndexFileError::Size { expected: size, found: size - 4096 });
    }

    #[test]
    fn a_header_with_huge_counts_is_refused() {
        for counts in [
            RunCounts { streams: u64::MAX, postings: 1 },
            RunCounts { streams: 1, postings: u64::MAX },
            RunCounts { streams: u64::MAX / 11, postings: u64::MAX },
        ] {
            assert_eq!(RunHeader::new(scope(1, 1), counts), None);
            let mut header = RunHeader::new(scope(1, 1), RunCounts::default()).unwrap();
            header.counts = counts;
            assert!(matches!(
                RunHeader::decode(&header.encode()[..], 4096),
                Err(IndexFileError::Header(HeaderFault::Page(PageFault::Content("counts"))))
            ));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_fields_are_refused_or_consistent(
            fields in proptest::collection::vec(any::<u8>(), FIELDS_BYTES), size in any::<u64>(),
        ) {
            let page = header_page(RUN_MAGIC, VERSION, &fields);
            prop_assert!(RunHeader::decode(&page[..], size).is_err());
        }

        #[test]
        fn arbitrary_entries_never_point_outside(
            item in any::<[u8; 24]>(), start in 0_u64..200, count in 0_u64..200,
        ) {
            let mut bytes = [0; ENTRY_BYTES];
            bytes[..24].copy_from_slice(&item);
            bytes[24..32].copy_from_slice(&count.to_le_bytes());
            bytes[40..].copy_from_slice(&start.to_le_bytes());
            match Entry::decode(&bytes, 100) {
                Ok(entry) => {
                    prop_assert!(entry.postings_start + entry.span.count <= 100);
                    prop_assert_eq!(entry.encode(), bytes);
                    prop_assert_eq!(Entry::stream_of(&bytes), entry.stream);
                }
                Err(_) => prop_assert!(count == 0 || start + count > 100
                    || u64::from_le_bytes(item[16..].try_into().unwrap()) > u64::MAX - count),
            }
        }
    }
}
