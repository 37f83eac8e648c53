//! Writes a run file, front to back, to any sink.
//!
//! Owns the order of a run's sections. Promises bounded memory: one page, and the filter and the
//! fences, which the opened run keeps in memory anyway. Runs on a background thread.

use std::io::{self, Write};

use crate::ids::{Place, StreamId};
use crate::index::filter::Filter;
use crate::index::lookup::Run;
use crate::index::page::{PageKind, PageWriter};
use crate::index::run::{Entry, RunCounts, RunHeader, RunScope};
use crate::index::span::Span;
use crate::index::tail::Tail;

/// See the module. All entries first, then all postings in the same order, then
/// [`RunWriter::finish`]; the counts are promised beforehand and asserted.
#[derive(Debug)]
pub struct RunWriter<W> {
    header: RunHeader,
    pages: PageWriter<W>,
    filter: Filter,
    fences: Vec<u64>,
    previous: Option<StreamId>,
    written: RunCounts,
    announced_postings: u64,
}

impl<W: Write> RunWriter<W> {
    /// Starts a run of exactly `counts`. Fails when the sink does, or if the file would have 2^32
    /// pages (16 TiB) or more.
    pub fn begin(out: W, scope: RunScope, counts: RunCounts) -> io::Result<Self> {
        let header = RunHeader::new(scope, counts).ok_or(io::ErrorKind::FileTooLarge)?;
        let pages = PageWriter::begin(out, &header.encode(), header.mark())?;
        let blocks = usize::try_from(header.filter_block_count());
        let blocks = blocks.map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            header,
            pages,
            filter: Filter::new(blocks),
            fences: Vec::with_capacity(header.entry_page_count() as usize),
            previous: None,
            written: RunCounts::default(),
            announced_postings: 0,
        })
    }

    /// Adds a stream; identities must ascend.
    pub fn entry(&mut self, stream: StreamId, span: Span) -> io::Result<()> {
        assert!(self.written.postings == 0, "entries come before postings");
        assert!(self.previous < Some(stream), "streams ascend: {stream:?}");
        self.previous = Some(stream);
        if self.written.streams.is_multiple_of(PageKind::Entries.per_page()) {
            self.fences.push((stream.0 >> 64) as u64);
        }
        self.filter.insert(stream);
        let entry = Entry { stream, span, postings_start: self.announced_postings };
        self.announced_postings += span.count;
        self.written.streams += 1;
        self.pages.put(PageKind::Entries, &entry.encode())
    }

    /// Adds the place of an event: of the first stream first, by revision.
    pub fn posting(&mut self, place: Place) -> io::Result<()> {
        self.written.postings += 1;
        self.pages.put(PageKind::Postings, &place.pack().to_le_bytes())
    }

    /// Writes filter and fences. Returns the sink, which is neither flushed nor synced, and the
    /// run as if it had been opened.
    pub fn finish(mut self) -> io::Result<(Run, W)> {
        assert_eq!(self.written, self.header.counts, "a run is what its header says");
        assert_eq!(self.announced_postings, self.written.postings, "a run has all its postings");
        for block in self.filter.blocks() {
            self.pages.put(PageKind::Filter, &block)?;
        }
        for fence in &self.fences {
            self.pages.put(PageKind::Fences, &fence.to_le_bytes())?;
        }
        let run = Run::from_parts(self.header, self.filter, self.fences);
        Ok((run, self.pages.finish()?))
    }
}

/// Writes the run of a frozen tail, whose segment must be the one and only of `scope`.
pub fn write_tail<W: Write>(tail: &Tail, scope: RunScope, out: W) -> io::Result<(Run, W)> {
    assert_eq!(scope.first, tail.generation(), "a tail is one segment");
    assert_eq!(scope.last, tail.generation(), "a tail is one segment");
    let counts = RunCounts { streams: tail.stream_count() as u64, postings: tail.event_count() };
    let mut writer = RunWriter::begin(out, scope, counts)?;
    let sorted = tail.sorted();
    for stream in sorted.streams() {
        writer.entry(stream.id(), stream.span())?;
    }
    for place in sorted.streams().flat_map(|stream| stream.places()) {
        writer.posting(place)?;
    }
    writer.finish()
}
