//! Putting blocks back into segment files. Blocking.
//!
//! A segment is made whole beside the old file and takes its place at once, so that a crash leaves
//! either the damage, which the next start finds again, or none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use duolog_engine::disk::shard_dir::ShardDir;
use duolog_engine::ids::{ClusterId, Generation, Place, ShardId};
use duolog_engine::segment::{LogEnd, SEGMENT_HEADER_BYTES, SegmentHeader};

use super::course::Shape;

/// Bytes copied or zeroed at once.
const CHUNK_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct Mender {
    dir: ShardDir,
    cluster: ClusterId,
    shard: ShardId,
    open: Option<(Generation, File)>,
}

impl Mender {
    /// Nothing is written yet.
    #[must_use]
    pub const fn new(dir: ShardDir, cluster: ClusterId, shard: ShardId) -> Self {
        Self { dir, cluster, shard, open: None }
    }

    /// How the segment was made, if it is there and begins where the log stands at `base`.
    pub fn shape(&self, generation: Generation, base: &LogEnd) -> Option<Shape> {
        let header = self.header(generation)?;
        let begins = (header.base.lsn, header.base.hash) == (base.lsn, base.hash);
        begins.then_some(Shape { size_bytes: header.size_bytes, align_bytes: header.align_bytes })
    }

    /// The segment's header, if it is one of this log.
    pub fn header(&self, generation: Generation) -> Option<SegmentHeader> {
        let file = File::open(self.dir.segment(generation)).ok()?;
        let mut page = [0; SEGMENT_HEADER_BYTES];
        file.read_exact_at(&mut page, 0).ok()?;
        let header = SegmentHeader::decode(&page).ok()?;
        let own = (self.cluster, self.shard, generation);
        ((header.cluster, header.shard, header.generation) == own).then_some(header)
    }

    /// Writes a block to its place; before the first one of a segment, its header.
    pub fn write(
        &mut self,
        place: Place,
        shape: Shape,
        base: Option<LogEnd>,
        block: &[u8],
    ) -> io::Result<()> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != place.generation) {
            self.finish()?;
            let file = self.begin(place.generation, shape)?;
            self.open = Some((place.generation, file));
        }
        let Some((_, file)) = &self.open else { return Ok(()) };
        if let Some(base) = base {
            let mut page = vec![0; shape.align_bytes as usize];
            let header = SegmentHeader {
                cluster: self.cluster,
                shard: self.shard,
                generation: place.generation,
                size_bytes: shape.size_bytes,
                align_bytes: shape.align_bytes,
                base,
            };
            header.encode(&mut page);
            file.write_all_at(&page, 0)?;
        }
        let offset = u64::from(place.offset);
        file.write_all_at(block, offset)?;
        let padded = block.len().next_multiple_of(shape.align_bytes as usize);
        file.write_all_at(&vec![0; padded - block.len()], offset + block.len() as u64)
    }

    /// Puts the segment that was written last in its place, durably.
    pub fn finish(&mut self) -> io::Result<()> {
        let Some((generation, file)) = self.open.take() else { return Ok(()) };
        file.sync_all()?;
        fs::rename(self.dir.unfinished(), self.dir.segment(generation))?;
        self.dir.sync()
    }

    /// A copy of what there is of the segment, in its full size.
    fn begin(&self, generation: Generation, shape: Shape) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let copy = options.write(true).create(true).truncate(true).open(self.dir.unfinished())?;
        let old = match File::open(self.dir.segment(generation)) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let size = u64::from(shape.size_bytes);
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        while offset < size {
            let length = (size - offset).min(CHUNK_BYTES as u64) as usize;
            let chunk = &mut buffer[..length];
            let filled = old.as_ref().map_or(Ok(0), |old| read_up_to(old, chunk, offset))?;
            chunk[filled..].fill(0);
            copy.write_all_at(chunk, offset)?;
            offset += length as u64;
        }
        Ok(copy)
    }
}

fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use duolog_engine::ids::{Hlc, LeaseEpoch, Lsn};

    use super::*;

    const SHAPE: Shape = Shape { size_bytes: 3 << 20, align_bytes: 4096 };

    fn mender(path: &std::path::Path) -> (ShardDir, Mender) {
        let dir = ShardDir::new(path, ShardId(2));
        dir.create().unwrap();
        (dir.clone(), Mender::new(dir, ClusterId(4), ShardId(2)))
    }

    fn base(lsn: u64) -> LogEnd {
        LogEnd { lsn: Lsn(lsn), hash: [lsn as u8; 32], hlc: Hlc(lsn), epoch: LeaseEpoch(1) }
    }

    #[test]
    fn a_lost_segment_is_made_in_full_size_with_its_header() {
        let files = tempfile::tempdir().unwrap();
        let (dir, mut mender) = mender(files.path());
        let place = Place { generation: Generation(3), offset: 4096 };
        mender.write(place, SHAPE, Some(base(9)), &[7; 5000]).unwrap();
        assert!(!dir.segment(place.generation).exists(), "it appears when it is whole");
        mender.finish().unwrap();
        let content = std::fs::read(dir.segment(place.generation)).unwrap();
        assert_eq!(content.len(), SHAPE.size_bytes as usize);
        assert!(content[4096..9096].iter().all(|byte| *byte == 7));
        assert!(content[9096..].iter().all(|byte| *byte == 0));
        assert_eq!(mender.shape(place.generation, &base(9)), Some(SHAPE));
        assert_eq!(mender.shape(place.generation, &base(8)), None, "it begins elsewhere");
        assert_eq!(mender.header(Generation(4)), None);
        assert!(!dir.unfinished().exists());
    }

    #[test]
    fn what_is_left_of_a_segment_stays_around_the_blocks_that_come_back() {
        let files = tempfile::tempdir().unwrap();
        let (dir, mut mender) = mender(files.path());
        let generation = Generation(1);
        std::fs::write(dir.segment(generation), vec![5; 2 << 20]).unwrap();
        let place = Place { generation, offset: 8192 };
        mender.write(place, SHAPE, None, &[7; 5000]).unwrap();
        // The next segment's first block puts this one in its place.
        let next = Place { generation: Generation(2), offset: 4096 };
        mender.write(next, SHAPE, Some(base(4)), &[8; 160]).unwrap();
        let content = std::fs::read(dir.segment(generation)).unwrap();
        assert!(content[..8192].iter().all(|byte| *byte == 5));
        assert!(content[8192..13_192].iter().all(|byte| *byte == 7));
        assert!(content[13_192..16_384].iter().all(|byte| *byte == 0), "padding");
        assert!(content[16_384..2 << 20].iter().all(|byte| *byte == 5));
        assert!(content[2 << 20..].iter().all(|byte| *byte == 0), "the end that was cut off");
        assert_eq!(content.len(), SHAPE.size_bytes as usize);
    }
}
