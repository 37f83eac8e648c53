//! Segment files on the executor's ring: durable block writes and aligned reads.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::rc::Rc;

use glommio::io::{DmaFile, OpenOptions, ReadResult};

use crate::disk::shard_dir::ShardDir;
use crate::ids::{Generation, Place};
use crate::segment::SegmentHeader;

/// Files kept open for reading, at most: a replay walks through them one by one.
const OPEN_MAX: usize = 64;

/// One file, opened with `O_DIRECT`, for writing with `O_DSYNC` too.
#[derive(Debug)]
pub struct LogFile {
    file: DmaFile,
    align_bytes: usize,
}

impl LogFile {
    /// Opens a prepared segment for durable writes.
    pub async fn open_for_writing(path: &Path, align_bytes: u32) -> io::Result<Self> {
        let durable = rustix::fs::OFlags::DSYNC.bits() as i32;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(durable);
        let file = options.dma_open(path).await.map_err(io_error)?;
        Ok(Self { file, align_bytes: align_bytes as usize })
    }

    /// Opens a file for reading.
    pub async fn open_for_reading(path: &Path, align_bytes: u32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true);
        let file = options.dma_open(path).await.map_err(io_error)?;
        Ok(Self { file, align_bytes: align_bytes as usize })
    }

    /// Writes blocks, behind their segment's header when that is given. Durable when it returns
    /// without error; nothing is known after one.
    pub async fn write_block(
        &self,
        place: Place,
        header: Option<SegmentHeader>,
        block: BlockBuffer,
    ) -> io::Result<()> {
        let offset = if header.is_some() { 0 } else { u64::from(place.offset) };
        let length = block.0.len();
        let written = self.file.write_at(block.0, offset).await.map_err(io_error)?;
        if written == length {
            return Ok(());
        }
        Err(io::Error::other(format!("{written} of {length} bytes were written")))
    }

    /// Copies blocks into memory that the kernel can write from; each padded with zeros, and the
    /// first preceded by its segment's header page when that is given.
    #[must_use]
    pub fn buffer<'a>(
        &self,
        header: Option<&SegmentHeader>,
        blocks: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> BlockBuffer {
        let align = self.align_bytes;
        let head = if header.is_some() { align } else { 0 };
        let body: usize = blocks.clone().map(|block| block.len().next_multiple_of(align)).sum();
        let mut buffer = self.file.alloc_dma_buffer(head + body);
        let bytes = buffer.as_bytes_mut();
        if let Some(header) = header {
            bytes[..head].fill(0);
            header.encode(bytes);
        }
        let mut at = head;
        for block in blocks {
            let end = at + block.len();
            bytes[at..end].copy_from_slice(block);
            at = end.next_multiple_of(align);
            bytes[end..at].fill(0);
        }
        BlockBuffer(buffer)
    }

    /// Reads `length` bytes from `offset` (rounded out to the alignment); fewer at the end of the
    /// file. The result starts at `offset` rounded down.
    pub async fn read(&self, offset: u64, length: usize) -> io::Result<(u64, ReadResult)> {
        let align = self.align_bytes as u64;
        let start = offset - offset % align;
        let end = (offset + length as u64).next_multiple_of(align);
        let read = self.file.read_at_aligned(start, (end - start) as usize).await;
        Ok((start, read.map_err(io_error)?))
    }

    /// Closes the file.
    pub async fn close(self) -> io::Result<()> {
        self.file.close().await.map_err(io_error)
    }
}

/// Blocks in memory that the kernel writes from.
#[derive(Debug)]
pub struct BlockBuffer(glommio::io::DmaBuffer);

impl BlockBuffer {
    /// What will be written, with header and padding, bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }
}

/// A shard's segments open for reading: a bounded cache.
#[derive(Debug)]
pub struct LogFiles {
    dir: ShardDir,
    align_bytes: u32,
    open: RefCell<VecDeque<(Generation, Rc<LogFile>)>>,
}

impl LogFiles {
    /// Reads from the segments in `dir`.
    #[must_use]
    pub const fn new(dir: ShardDir, align_bytes: u32) -> Self {
        Self { dir, align_bytes, open: RefCell::new(VecDeque::new()) }
    }

    /// The file of a segment.
    pub async fn segment(&self, generation: Generation) -> io::Result<Rc<LogFile>> {
        let known = {
            let open = self.open.borrow();
            open.iter().find(|(known, _)| *known == generation).map(|(_, file)| Rc::clone(file))
        };
        if let Some(file) = known {
            return Ok(file);
        }
        let path = self.dir.segment(generation);
        let file = Rc::new(LogFile::open_for_reading(&path, self.align_bytes).await?);
        let mut open = self.open.borrow_mut();
        open.push_back((generation, Rc::clone(&file)));
        if open.len() > OPEN_MAX {
            // Dropping the last reference closes the file.
            open.pop_front();
        }
        Ok(file)
    }
}

/// The runtime's error as an I/O error, with the system's number where there is one.
fn io_error<T>(error: glommio::GlommioError<T>) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(error.to_string()),
    }
}
