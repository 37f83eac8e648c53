//! A whole run file as bytes (a read-only mapping, a buffer), read from front to back.
//!
//! For merging and for offline checks, both off the shard's thread; lookups use
//! [`crate::index::lookup`] instead. Each page is checked once, when the walk comes to it.

use crate::ids::{Place, StreamId};
use crate::index::lookup::Run;
use crate::index::page::{IndexFileError, PAGE_BYTES, PageError, PageFault, PageId, PageKind};
use crate::index::run::{ENTRY_BYTES, Entry, RunCounts, RunHeader, items};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct RunView<'a> {
    header: RunHeader,
    bytes: &'a [u8],
}

impl<'a> RunView<'a> {
    /// Decodes the header and checks the file's size; pages are checked when they are read.
    pub fn new(bytes: &'a [u8]) -> Result<Self, IndexFileError> {
        let page = bytes.get(..PAGE_BYTES).unwrap_or(bytes);
        let header = RunHeader::decode(page, bytes.len() as u64)?;
        Ok(Self { header, bytes })
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &RunHeader {
        &self.header
    }

    /// Loads the part that stays in memory.
    pub fn open(&self) -> Result<Run, IndexFileError> {
        // `new` compared the file's size with the header's layout.
        Run::open(self.header, &self.bytes[self.header.resident_offset() as usize..])
    }

    fn page(&self, kind: PageKind, index: u32) -> Result<(PageId, &'a [u8]), PageError> {
        let (id, count) = self.header.page(kind, index);
        let offset = id.number as usize * PAGE_BYTES;
        let page = self.bytes.get(offset..offset + PAGE_BYTES).unwrap_or_default();
        Ok((id, id.open(page, count)?))
    }

    /// Walks over the entries.
    #[must_use]
    pub const fn entries(&self) -> EntryWalk<'a> {
        EntryWalk { view: *self, page: None, taken: 0, previous: None, postings: 0 }
    }

    /// Walks over the postings of all streams.
    #[must_use]
    pub const fn postings(&self) -> PostingWalk<'a> {
        PostingWalk { view: *self, page: &[], taken: 0 }
    }

    /// Reads and checks everything: every page, the order of streams, the sums, and that filter
    /// and fences know every stream. Returns how much there is.
    pub fn verify(&self) -> Result<RunCounts, IndexFileError> {
        let run = self.open()?;
        let mut entries = self.entries();
        let mut postings = self.postings();
        while let Some(entry) = entries.next_entry()? {
            if !run.may_contain(entry.stream) {
                let (id, _) = self.header.page(PageKind::Filter, 0);
                return Err(id.error(PageFault::Content("filter: lacks a stream")).into());
            }
            for _ in 0..entry.span.count {
                let place = postings.next_place()?;
                let scope = &self.header.scope;
                if place.generation < scope.first || place.generation > scope.last {
                    return Err(postings.error("segment of a posting").into());
                }
            }
        }
        Ok(self.header.counts)
    }
}

/// Walks over a run's entries in the order of their streams.
#[derive(Clone, Debug)]
pub struct EntryWalk<'a> {
    view: RunView<'a>,
    page: Option<(PageId, &'a [[u8; ENTRY_BYTES]])>,
    taken: u64,
    previous: Option<StreamId>,
    /// Postings of the entries so far.
    postings: u64,
}

impl EntryWalk<'_> {
    /// The next entry; `None` behind the last.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, PageError> {
        let RunCounts { streams, postings } = self.view.header.counts;
        if self.taken == streams {
            return Ok(None);
        }
        let within = (self.taken % PageKind::Entries.per_page()) as usize;
        let (id, page) = match self.page {
            Some(page) if within > 0 => page,
            _ => {
                let index = (self.taken / PageKind::Entries.per_page()) as u32;
                let (id, bytes) = self.view.page(PageKind::Entries, index)?;
                *self.page.insert((id, items(bytes)))
            }
        };
        let content = |what| id.error(PageFault::Content(what));
        let item = page.get(within).ok_or(content("number of entries"))?;
        let entry = Entry::decode(item, postings).map_err(content)?;
        if self.previous >= Some(entry.stream) {
            return Err(content("order of streams"));
        }
        if entry.postings_start != self.postings {
            return Err(content("start of postings"));
        }
        self.previous = Some(entry.stream);
        self.postings += entry.span.count;
        self.taken += 1;
        if self.taken == streams && self.postings != postings {
            return Err(content("sum of events"));
        }
        Ok(Some(entry))
    }
}

/// Walks over a run's postings in the order of their streams.
#[derive(Clone, Debug)]
pub struct PostingWalk<'a> {
    view: RunView<'a>,
    page: &'a [[u8; 8]],
    taken: u64,
}

impl PostingWalk<'_> {
    fn index(&self) -> u32 {
        (self.taken / PageKind::Postings.per_page()) as u32
    }

    fn error(&self, what: &'static str) -> PageError {
        self.view.header.page(PageKind::Postings, self.index()).0.error(PageFault::Content(what))
    }

    /// The next place; asking behind the last is an error about a page that is not there.
    pub fn next_place(&mut self) -> Result<Place, PageError> {
        let within = (self.taken % PageKind::Postings.per_page()) as usize;
        if within == 0 {
            self.page = items(self.view.page(PageKind::Postings, self.index())?.1);
        }
        let posting = self.page.get(within).ok_or_else(|| self.error("number of postings"))?;
        self.taken += 1;
        Ok(Place::unpack(u64::from_le_bytes(*posting)))
    }
}
