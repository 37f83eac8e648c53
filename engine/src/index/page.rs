//! Pages: what the index's files are made of. 4096 bytes each, so that a lookup is one direct read,
//! each with its own checksum, kind, number and the mark of its file, so that a damaged, displaced
//! or foreign page is told apart before anything in it is believed.
//!
//! The first page of a file is its header page (magic first, for people and tools); the others
//! hold items of one size (FORMAT.md, "Index files").

use std::io::{self, Write};

/// Size of a page, bytes.
pub const PAGE_BYTES: usize = 4096;
/// Bytes before a page's items.
pub const PAGE_HEADER_BYTES: usize = 16;
/// Bytes of a page that hold items: 85 entries, 510 postings, 170 keys without a remainder.
pub const PAGE_PAYLOAD_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;

const CHECKED_FROM: usize = 4;
const HEADER_PAGE_CHECKED_FROM: usize = 16;

/// What the items of a page are. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Streams of a run, sorted by identity.
    Entries = 1,
    /// Places of a run's events, stream by stream.
    Postings = 2,
    /// The run's filter.
    Filter = 3,
    /// The upper half of the first identity of each entry page.
    Fences = 4,
    /// Idempotency keys in the order of the log.
    Keys = 5,
}

impl PageKind {
    /// Size of one item, bytes.
    #[must_use]
    pub const fn item_bytes(self) -> usize {
        match self {
            Self::Entries => 48,
            Self::Postings | Self::Fences => 8,
            Self::Filter => 64,
            Self::Keys => 24,
        }
    }

    /// Items in a full page.
    #[must_use]
    pub const fn per_page(self) -> u64 {
        (PAGE_PAYLOAD_BYTES / self.item_bytes()) as u64
    }

    /// Pages that `count` items take.
    #[must_use]
    pub const fn pages(self, count: u64) -> u64 {
        count.div_ceil(self.per_page())
    }
}

/// Which page is expected where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageId {
    /// What its items are.
    pub kind: PageKind,
    /// Its number in the file; the header page is 0.
    pub number: u32,
    /// The file's mark.
    pub mark: u32,
}

/// Bytes from the start of the file to page `number`.
#[must_use]
pub const fn page_offset(number: u32) -> u64 {
    number as u64 * PAGE_BYTES as u64
}

/// What is wrong with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageFault {
    /// Cut short.
    #[error("{0} bytes instead of 4096")]
    Length(usize),
    /// Damaged.
    #[error("checksum {found:#010x} instead of {stored:#010x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        found: u32,
    },
    /// Whole, but another page than this place should have: number, kind or file differ.
    #[error("another page lies here: number {number}, kind {kind}, file mark {mark:#010x}")]
    Displaced {
        /// Number as stored.
        number: u32,
        /// Kind as stored.
        kind: u8,
        /// File mark as stored.
        mark: u32,
    },
    /// Whole, but not with the items this page should have.
    #[error("{found} items instead of {expected}")]
    Count {
        /// Items that belong there.
        expected: u64,
        /// As stored.
        found: u16,
    },
    /// Whole, but with a value that no writer makes.
    #[error("impossible {0}")]
    Content(&'static str),
}

/// A page that cannot be used. The file is derived from the log: the remedy is to rebuild it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("index file is damaged at byte {offset}: {fault}; it will be rebuilt from the segments")]
pub struct PageError {
    /// Bytes from the start of the file to the page.
    pub offset: u64,
    /// What is wrong.
    pub fault: PageFault,
}

impl PageId {
    /// An error about this page.
    #[must_use]
    pub const fn error(&self, fault: PageFault) -> PageError {
        PageError { offset: page_offset(self.number), fault }
    }

    /// Checks that `page` is this page and holds `expected` items, and returns their bytes.
    pub fn open<'a>(&self, page: &'a [u8], expected: u64) -> Result<&'a [u8], PageError> {
        let page = whole(page).map_err(|fault| self.error(fault))?;
        let stored = u32_at(page, 0);
        let found = crc32c::crc32c(&page[CHECKED_FROM..]);
        if stored != found {
            return Err(self.error(PageFault::Checksum { stored, found }));
        }
        let (kind, number, mark) = (page[4], u32_at(page, 8), u32_at(page, 12));
        if (kind, number, mark) != (self.kind as u8, self.number, self.mark) {
            return Err(self.error(PageFault::Displaced { number, kind, mark }));
        }
        let found = u16::from_le_bytes([page[6], page[7]]);
        if u64::from(found) != expected || expected > self.kind.per_page() {
            return Err(self.error(PageFault::Count { expected, found }));
        }
        let length = usize::from(found) * self.kind.item_bytes();
        Ok(&page[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + length])
    }
}

fn whole(page: &[u8]) -> Result<&[u8; PAGE_BYTES], PageFault> {
    page.try_into().map_err(|_| PageFault::Length(page.len()))
}

fn u32_at(page: &[u8; PAGE_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
}

/// Why a file's first page is not the header page that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// Cut short, damaged, or with impossible values.
    #[error(transparent)]
    Page(#[from] PageFault),
    /// Another kind of file.
    #[error("the file does not begin with the expected magic")]
    Magic,
    /// Newer than this program.
    #[error("file version {0} is newer than this program")]
    Version(u16),
}

/// Why a file of the index cannot be used. Such files are derived from the log: the remedy is to
/// rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexFileError {
    /// Another kind of file, a newer one, or a damaged header.
    #[error("no usable index file header at byte 0: {0}; it will be rebuilt from the segments")]
    Header(#[from] HeaderFault),
    /// The file is shorter or longer than its header says.
    #[error("index file of {found} bytes should have {expected}; it will be rebuilt")]
    Size {
        /// As the header's counts say, bytes.
        expected: u64,
        /// As found, bytes.
        found: u64,
    },
    /// A page is damaged.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// Makes a header page: magic, version, checksum, then `fields`.
#[must_use]
pub fn header_page(magic: [u8; 8], version: u16, fields: &[u8]) -> Box<[u8; PAGE_BYTES]> {
    let mut page = Box::new([0; PAGE_BYTES]);
    page[..8].copy_from_slice(&magic);
    page[8..10].copy_from_slice(&version.to_le_bytes());
    page[16..16 + fields.len()].copy_from_slice(fields);
    let checksum = crc32c::crc32c(&page[HEADER_PAGE_CHECKED_FROM..]);
    page[12..16].copy_from_slice(&checksum.to_le_bytes());
    page
}

/// Checks a header page and returns the bytes behind its checksum.
pub fn open_header_page(page: &[u8], magic: [u8; 8], version: u16) -> Result<&[u8], HeaderFault> {
    let page = whole(page)?;
    if page[..8] != magic {
        return Err(HeaderFault::Magic);
    }
    let stored = u32_at(page, 12);
    let found = crc32c::crc32c(&page[HEADER_PAGE_CHECKED_FROM..]);
    if stored != found {
        return Err(PageFault::Checksum { stored, found }.into());
    }
    let stored_version = u16::from_le_bytes([page[8], page[9]]);
    if stored_version != version {
        return Err(HeaderFault::Version(stored_version));
    }
    if page[10..12] != [0, 0] {
        return Err(PageFault::Content("reserved field of the header").into());
    }
    Ok(&page[HEADER_PAGE_CHECKED_FROM..])
}

/// Packs items into pages and writes each as it becomes full.
#[derive(Debug)]
pub struct PageWriter<W> {
    out: W,
    mark: u32,
    number: u32,
    kind: PageKind,
    filled_bytes: usize,
    page: Box<[u8; PAGE_BYTES]>,
}

impl<W: Write> PageWriter<W> {
    /// Starts a file with its header page.
    pub fn begin(mut out: W, header: &[u8; PAGE_BYTES], mark: u32) -> io::Result<Self> {
        out.write_all(header)?;
        let page = Box::new([0; PAGE_BYTES]);
        Ok(Self { out, mark, number: 1, kind: PageKind::Entries, filled_bytes: 0, page })
    }

    /// Number of the page that the next item goes to.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Whether the next item begins a page.
    #[must_use]
    pub const fn is_at_page_start(&self) -> bool {
        self.filled_bytes == 0
    }

    /// Adds an item; one of another kind than the last begins a new page.
    pub fn put(&mut self, kind: PageKind, item: &[u8]) -> io::Result<()> {
        debug_assert_eq!(item.len(), kind.item_bytes());
        if kind != self.kind {
            self.end_section()?;
            self.kind = kind;
        }
        let at = PAGE_HEADER_BYTES + self.filled_bytes;
        self.page[at..at + item.len()].copy_from_slice(item);
        self.filled_bytes += item.len();
        if self.filled_bytes + item.len() > PAGE_PAYLOAD_BYTES {
            self.end_section()?;
        }
        Ok(())
    }

    /// Writes the page that is not full yet, if there is one.
    pub fn end_section(&mut self) -> io::Result<()> {
        if self.filled_bytes == 0 {
            return Ok(());
        }
        let count = (self.filled_bytes / self.kind.item_bytes()) as u16;
        let page = &mut self.page;
        page[PAGE_HEADER_BYTES + self.filled_bytes..].fill(0);
        page[4] = self.kind as u8;
        page[5] = 0;
        page[6..8].copy_from_slice(&count.to_le_bytes());
        page[8..12].copy_from_slice(&self.number.to_le_bytes());
        page[12..16].copy_from_slice(&self.mark.to_le_bytes());
        let checksum = crc32c::crc32c(&page[CHECKED_FROM..]);
        page[..4].copy_from_slice(&checksum.to_le_bytes());
        self.out.write_all(&page[..])?;
        self.filled_bytes = 0;
        self.number = self.number.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(())
    }

    /// Ends the file. The sink is neither flushed nor synced.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_section()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MARK: u32 = 77;

    fn file(kind: PageKind, count: usize) -> Vec<u8> {
        let header = header_page(*b"DLOGTEST", 1, b"fields");
        let mut writer = PageWriter::begin(Vec::new(), &header, MARK).unwrap();
        for item in 0..count {
            writer.put(kind, &vec![item as u8; kind.item_bytes()]).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn items_come_back_page_by_page() {
        for kind in [PageKind::Entries, PageKind::Filter, PageKind::Fences, PageKind::Keys] {
            let per_page = kind.per_page() as usize;
            for count in [0, 1, per_page - 1, per_page, per_page + 1, 3 * per_page] {
                let bytes = file(kind, count);
                assert_eq!(bytes.len() as u64, (1 + kind.pages(count as u64)) * 4096);
                let mut found = Vec::new();
                for (page, number) in bytes.chunks(PAGE_BYTES).skip(1).zip(1..) {
                    let expected = per_page.min(count - found.len() / kind.item_bytes());
                    let id = PageId { kind, number, mark: MARK };
                    found.extend_from_slice(id.open(page, expected as u64).unwrap());
                }
                let items = found.chunks(kind.item_bytes()).zip(0..);
                assert!(items.clone().all(|(item, index)| item[0] == index as u8));
                assert_eq!(items.count(), count);
            }
        }
    }

    #[test]
    fn a_whole_page_in_the_wrong_place_is_told_apart() {
        let bytes = file(PageKind::Keys, 1);
        let right = PageId { kind: PageKind::Keys, number: 1, mark: MARK };
        assert!(right.open(&bytes[PAGE_BYTES..], 1).is_ok());
        for wrong in [
            PageId { number: 2, ..right },
            PageId { mark: 78, ..right },
            PageId { kind: PageKind::Entries, ..right },
        ] {
            let error = wrong.open(&bytes[PAGE_BYTES..], 1).unwrap_err();
            assert!(matches!(error.fault, PageFault::Displaced { number: 1, kind: 5, mark: 77 }));
            assert_eq!(error.offset, u64::from(wrong.number) * 4096);
        }
        let error = right.open(&bytes[PAGE_BYTES..], 2).unwrap_err();
        assert_eq!(error.fault, PageFault::Count { expected: 2, found: 1 });
    }

    #[test]
    fn every_flipped_bit_of_a_page_is_detected() {
        let mut bytes = file(PageKind::Keys, 100);
        let id = PageId { kind: PageKind::Keys, number: 1, mark: MARK };
        for bit in 0..PAGE_BYTES * 8 {
            bytes[PAGE_BYTES + bit / 8] ^= 1 << (bit % 8);
            assert!(id.open(&bytes[PAGE_BYTES..], 100).is_err(), "bit {bit}");
            bytes[PAGE_BYTES + bit / 8] ^= 1 << (bit % 8);
        }
        for bit in 0..PAGE_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(open_header_page(&bytes[..PAGE_BYTES], *b"DLOGTEST", 1).is_err(), "{bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let fields = open_header_page(&bytes[..PAGE_BYTES], *b"DLOGTEST", 1).unwrap();
        assert_eq!(&fields[..6], b"fields");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_never_a_page(
            bytes in proptest::collection::vec(any::<u8>(), 0..5000), expected in 0_u64..600,
        ) {
            let id = PageId { kind: PageKind::Postings, number: 1, mark: MARK };
            prop_assert!(id.open(&bytes, expected).is_err());
            prop_assert!(open_header_page(&bytes, *b"DLOGTEST", 1).is_err());
        }
    }
}
