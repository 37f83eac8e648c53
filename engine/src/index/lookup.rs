//! Looking a stream up in one run, page by page.
//!
//! Owns the part of a run that stays in memory ([`Run`]) and the two machines of a lookup. They
//! borrow nothing and read nothing: they name a page, the driver reads it and feeds it back. A
//! lookup started on a run goes on working after the run was merged away, as long as its file is
//! still open.

use crate::ids::{Place, Revision, StreamId};
use crate::index::filter::{FILTER_BLOCK_BYTES, Filter};
use crate::index::page::{IndexFileError, PAGE_BYTES, PageError, PageFault, PageKind};
use crate::index::run::{ENTRY_BYTES, Entry, RunHeader, items};
use crate::index::span::Direction;

/// What a lookup needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need<T> {
    /// The page with this number, to be given to `feed`.
    Page(u32),
    /// Nothing: this is the answer.
    Done(T),
}

/// What stays in memory of a run: 10 bits and a bit per stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    header: RunHeader,
    filter: Filter,
    /// Upper half of the first identity of each entry page.
    fences: Vec<u64>,
}

impl Run {
    pub(crate) fn from_parts(header: RunHeader, filter: Filter, fences: Vec<u64>) -> Self {
        Self { header, filter, fences }
    }

    /// Opens a run from its decoded header and the bytes of its file from
    /// [`RunHeader::resident_offset`] to the end.
    pub fn open(header: RunHeader, resident: &[u8]) -> Result<Self, IndexFileError> {
        let expected = header.file_size_bytes() - header.resident_offset();
        if resident.len() as u64 != expected {
            let found = header.resident_offset() + resident.len() as u64;
            return Err(IndexFileError::Size { expected: header.file_size_bytes(), found });
        }
        let mut pages = resident.chunks_exact(PAGE_BYTES);
        // What is reserved here is smaller than `resident`.
        let mut filter = Filter::for_blocks(header.filter_block_count() as usize);
        for index in 0..PageKind::Filter.pages(header.filter_block_count()) as u32 {
            let (id, count) = header.page(PageKind::Filter, index);
            let bytes = id.open(pages.next().unwrap_or_default(), count)?;
            for block in items::<FILTER_BLOCK_BYTES>(bytes) {
                filter.push_block(block);
            }
        }
        let mut fences = Vec::with_capacity(header.entry_page_count() as usize);
        for index in 0..PageKind::Fences.pages(u64::from(header.entry_page_count())) as u32 {
            let (id, count) = header.page(PageKind::Fences, index);
            let bytes = id.open(pages.next().unwrap_or_default(), count)?;
            fences.extend(items(bytes).iter().map(|fence| u64::from_le_bytes(*fence)));
            if !fences.is_sorted() {
                return Err(id.error(PageFault::Content("order of fences")).into());
            }
        }
        Ok(Self { header, filter, fences })
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &RunHeader {
        &self.header
    }

    /// Memory, bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.filter.size_bytes() + self.fences.len() * size_of::<u64>()
    }

    /// `false`: the run has nothing of `stream`. `true`: it has, with an error of one in a hundred.
    #[must_use]
    pub fn may_contain(&self, stream: StreamId) -> bool {
        self.filter.may_contain(stream)
    }

    /// Starts to look for the entry of `stream`. Does not ask the filter.
    #[must_use]
    pub fn look_up(&self, stream: StreamId) -> EntryLookup {
        let upper = (stream.0 >> 64) as u64;
        let behind = self.fences.partition_point(|fence| *fence <= upper);
        let state = match behind.checked_sub(1) {
            // There are fewer than 2^32 pages.
            Some(page) => EntryState::Reading(page as u32),
            None => EntryState::Done(None),
        };
        EntryLookup { header: self.header, stream, state }
    }
}

#[derive(Clone, Copy, Debug)]
enum EntryState {
    /// Entry page, counted from the first.
    Reading(u32),
    Done(Option<Entry>),
}

/// Looks for a stream's entry: one page, and one more for each page whose first identity shares
/// its upper 64 bits with the stream's but lies above it (not known to happen).
#[derive(Clone, Copy, Debug)]
pub struct EntryLookup {
    header: RunHeader,
    stream: StreamId,
    state: EntryState,
}

impl EntryLookup {
    /// What to do next.
    #[must_use]
    pub fn need(&self) -> Need<Option<Entry>> {
        match self.state {
            EntryState::Reading(index) => {
                Need::Page(self.header.page(PageKind::Entries, index).0.number)
            }
            EntryState::Done(entry) => Need::Done(entry),
        }
    }

    /// Takes the page that was asked for. Nothing changes when it is damaged.
    pub fn feed(&mut self, page: &[u8]) -> Result<(), PageError> {
        let EntryState::Reading(index) = self.state else { return Ok(()) };
        let (id, count) = self.header.page(PageKind::Entries, index);
        let entries = items::<ENTRY_BYTES>(id.open(page, count)?);
        let found = entries.binary_search_by_key(&self.stream, Entry::stream_of);
        self.state = match found {
            Ok(at) => {
                let entry = Entry::decode(&entries[at], self.header.counts.postings);
                EntryState::Done(Some(entry.map_err(|what| id.error(PageFault::Content(what)))?))
            }
            Err(0) if index > 0 => EntryState::Reading(index - 1),
            Err(_) => EntryState::Done(None),
        };
        Ok(())
    }
}

/// Fetches the places of a stream's events, page by page, in the order of reading.
#[derive(Clone, Copy, Debug)]
pub struct PostingLookup {
    header: RunHeader,
    direction: Direction,
    /// Postings still to come, as indices among the run's: `start..end`.
    start: u64,
    end: u64,
}

impl PostingLookup {
    /// At most `max` events of `entry`, which must come from the run with `header`, beginning with
    /// revision `from` (see [`crate::index::span::Span::window`]).
    #[must_use]
    pub fn new(
        header: &RunHeader,
        entry: &Entry,
        from: Revision,
        direction: Direction,
        max: usize,
    ) -> Self {
        let window = entry.span.window(from, direction, max as u64);
        let start = entry.postings_start + window.start;
        let end = start + window.count;
        assert!(end <= header.counts.postings, "the entry is of another run");
        Self { header: *header, direction, start, end }
    }

    /// Section page of the next posting to fetch.
    fn index(&self) -> u32 {
        let posting = match self.direction {
            Direction::Forwards => self.start,
            Direction::Backwards => self.end - 1,
        };
        // The header's layout has fewer than 2^32 pages.
        (posting / PageKind::Postings.per_page()) as u32
    }

    /// What to do next.
    #[must_use]
    pub fn need(&self) -> Need<()> {
        if self.start == self.end {
            return Need::Done(());
        }
        Need::Page(self.header.page(PageKind::Postings, self.index()).0.number)
    }

    /// Takes the page that was asked for and appends its places to `out`. Nothing changes when it
    /// is damaged.
    pub fn feed(&mut self, page: &[u8], out: &mut Vec<Place>) -> Result<(), PageError> {
        if self.start == self.end {
            return Ok(());
        }
        let index = self.index();
        let (id, count) = self.header.page(PageKind::Postings, index);
        let postings = items(id.open(page, count)?);
        let first = u64::from(index) * PageKind::Postings.per_page();
        // Both lie within the page, because the next posting does and postings end in `counts`.
        let low = self.start.max(first) - first;
        let high = self.end.min(first + count) - first;
        let postings = &postings[low as usize..high as usize];
        let places = postings.iter().map(|posting| Place::unpack(u64::from_le_bytes(*posting)));
        match self.direction {
            Direction::Forwards => {
                out.extend(places);
                self.start = first + high;
            }
            Direction::Backwards => {
                out.extend(places.rev());
                self.end = first + low;
            }
        }
        Ok(())
    }
}
