//! A simulated disk for one shard's segment files. Written is not synced:
//!
//! * a write under way is nothing until it completes; completed, it is durable (`O_DSYNC`);
//! * when the process dies, of each write under way any sectors may have reached the disk's cache:
//!   they can be read, but are durable only after a sync; and the write itself may still end, on
//!   top of whatever the next process does before it waits for it;
//! * when the power fails, of everything that is not durable any sectors may be kept.
//!
//! Sectors of 512 or 4096 bytes are never torn themselves. Segment files are prepared as zeros,
//! from spare files, or with leftovers of an older segment in them.

use std::collections::BTreeMap;
use std::io;

use duolog_engine::block::{BLOCK_HEADER_BYTES, BlockHeader};
use duolog_engine::ids::{Generation, Lsn, Place};
use duolog_engine::recovery::{LogIdentity, LogSource, empty_log};
use duolog_engine::segment::{LogEnd, SEGMENT_HEADER_BYTES, SegmentHeader};
use duolog_engine::shard::{Boundary, Layout};

use super::chance::Chance;

/// Sectors are this long, or a multiple of it.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug)]
struct SegmentFile {
    /// What a read returns.
    visible: Vec<u8>,
    /// What a power failure leaves in any case.
    durable: Vec<u8>,
}

/// Names a write under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId(u64);

#[derive(Debug)]
struct Flight {
    id: WriteId,
    generation: Generation,
    offset: usize,
    bytes: Vec<u8>,
}

/// How the node stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process dies; the machine and its disk cache go on.
    Kill,
    /// The power fails.
    Power,
}

/// What becomes of the sectors of one write in a crash.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Lost,
    Kept,
    /// Kept up to some sector.
    Front,
    /// Each sector by itself.
    Torn,
}

/// See the module.
#[derive(Debug)]
pub struct SimDisk {
    chance: Chance,
    tear_bytes: usize,
    files: BTreeMap<Generation, SegmentFile>,
    spares: BTreeMap<Generation, SegmentFile>,
    flights: Vec<Flight>,
    /// Writes of a process that was killed.
    ghosts: Vec<Flight>,
    next_id: u64,
    /// Nobody waits for the writes of a process that was killed, or syncs what it left.
    pub unsettled: bool,
    /// Reads by recovery, for the report.
    pub read_bytes: u64,
}

impl SimDisk {
    /// An empty disk that tears writes at multiples of `tear_bytes`.
    #[must_use]
    pub fn new(chance: Chance, tear_bytes: usize) -> Self {
        assert!(tear_bytes.is_multiple_of(SECTOR_BYTES), "sectors are whole");
        Self {
            chance,
            tear_bytes,
            files: BTreeMap::new(),
            spares: BTreeMap::new(),
            flights: Vec::new(),
            ghosts: Vec::new(),
            next_id: 0,
            unsettled: false,
            read_bytes: 0,
        }
    }

    /// Makes a segment file, durably: from a spare file if one has the right size, else from zeros
    /// or, when `recycle` says so, with the content of some older segment.
    pub fn prepare(&mut self, generation: Generation, layout: Layout, recycle: bool) {
        assert!(!self.files.contains_key(&generation), "a segment is prepared once");
        let size = layout.segment_size_bytes as usize;
        while let Some((_, mut spare)) = self.spares.pop_first() {
            if spare.visible.len() == size {
                // As the real preparation does.
                spare.visible.fill(0);
                spare.durable.fill(0);
                self.files.insert(generation, spare);
                return;
            }
        }
        let mut content = vec![0; size];
        if recycle && !self.files.is_empty() {
            let index = self.chance.index(self.files.len());
            let old = self.files.values().nth(index).map(|file| &file.visible);
            let old = old.expect("the index is below the number of files");
            let length = old.len().min(size);
            content[..length].copy_from_slice(&old[..length]);
        }
        self.files.insert(generation, SegmentFile { visible: content.clone(), durable: content });
    }

    /// Starts a write. Writes under way never overlap.
    pub fn begin_write(&mut self, generation: Generation, offset: u32, bytes: Vec<u8>) -> WriteId {
        let offset = offset as usize;
        let file = self.files.get(&generation).expect("the machine writes into prepared segments");
        assert!(offset.is_multiple_of(4096), "D6: a direct write is aligned");
        assert!(bytes.len().is_multiple_of(4096), "D6: a direct write is whole pages");
        assert!(offset + bytes.len() <= file.visible.len(), "D6: a write ends inside its segment");
        let end = offset + bytes.len();
        let meets = |flight: &Flight| {
            flight.generation == generation
                && flight.offset < end
                && offset < flight.offset + flight.bytes.len()
        };
        assert!(!self.flights.iter().any(meets), "D6: writes under way never overlap");
        if self.unsettled && self.chance.percent(20) {
            self.land_ghosts();
        }
        let id = WriteId(self.next_id);
        self.next_id += 1;
        self.flights.push(Flight { id, generation, offset, bytes });
        id
    }

    /// The write has completed: it is durable.
    pub fn complete_write(&mut self, id: WriteId) {
        let at = self.flights.iter().position(|flight| flight.id == id);
        let flight = self.flights.swap_remove(at.expect("only writes under way complete"));
        let file = self.files.get_mut(&flight.generation).expect("its file is there");
        let range = flight.offset..flight.offset + flight.bytes.len();
        file.visible[range.clone()].copy_from_slice(&flight.bytes);
        file.durable[range].copy_from_slice(&flight.bytes);
    }

    /// The node stops; writes under way end somehow.
    pub fn crash(&mut self, crash: Crash) {
        let mut flights = std::mem::take(&mut self.ghosts);
        flights.append(&mut self.flights);
        flights.sort_by_key(|flight| flight.id);
        for flight in &flights {
            let fate = self.fate();
            let front = self.chance.index(flight.bytes.len() / self.tear_bytes + 1);
            let file = self.files.get_mut(&flight.generation).expect("its file is there");
            for (index, sector) in flight.bytes.chunks(self.tear_bytes).enumerate() {
                if kept(&mut self.chance, fate, index, front) {
                    let at = flight.offset + index * self.tear_bytes;
                    file.visible[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        match crash {
            Crash::Power => self.lose_power(),
            Crash::Kill => {
                flights.retain(|_| self.chance.percent(50));
                self.ghosts = flights;
            }
        }
    }

    /// Writes of a process that was killed end.
    fn land_ghosts(&mut self) {
        for ghost in std::mem::take(&mut self.ghosts) {
            let Some(file) = self.files.get_mut(&ghost.generation) else { continue };
            let range = ghost.offset..ghost.offset + ghost.bytes.len();
            file.visible[range].copy_from_slice(&ghost.bytes);
        }
    }

    fn fate(&mut self) -> Fate {
        self.chance.pick(&[Fate::Lost, Fate::Kept, Fate::Kept, Fate::Front, Fate::Torn])
    }

    fn lose_power(&mut self) {
        let fate = self.fate();
        for file in self.files.values_mut().chain(self.spares.values_mut()) {
            if file.visible == file.durable {
                continue;
            }
            let front = self.chance.index(file.visible.len() / self.tear_bytes + 1);
            let sectors = file.visible.chunks(self.tear_bytes);
            for (index, (sector, old)) in
                sectors.zip(file.durable.chunks_mut(self.tear_bytes)).enumerate()
            {
                if sector != old && kept(&mut self.chance, fate, index, front) {
                    old.copy_from_slice(sector);
                }
            }
            file.visible.copy_from_slice(&file.durable);
        }
    }

    /// Sets files beyond `newest` aside, as a start does after recovery.
    pub fn set_aside_beyond(&mut self, newest: Generation) {
        let beyond = self.files.split_off(&newest.next());
        self.spares.extend(beyond);
    }

    /// The block that ends exactly at `lsn`, and the place behind it. Walks one segment; blocks
    /// lie at multiples of `align`.
    #[must_use]
    pub fn end_at(&self, identity: LogIdentity, align: usize, lsn: Lsn) -> Option<Boundary> {
        if lsn == Lsn(0) {
            let behind = Place { generation: Generation(1), offset: 0 };
            return Some(Boundary { end: empty_log(identity), behind });
        }
        let headers = self.files.iter().rev().filter_map(|(generation, file)| {
            let header = SegmentHeader::decode(&file.visible[..SEGMENT_HEADER_BYTES]).ok()?;
            (header.generation == *generation).then_some((*generation, file, header.base))
        });
        let (generation, file, mut end) = { headers }.find(|(.., base)| base.lsn < lsn)?;
        let mut offset = align;
        while end.lsn < lsn {
            let bytes = file.visible.get(offset..).filter(|b| b.len() >= BLOCK_HEADER_BYTES)?;
            let header = BlockHeader::decode(&bytes[..BLOCK_HEADER_BYTES]).ok()?;
            if header.previous_hash != end.hash || header.first_lsn != end.lsn.next() {
                return None;
            }
            let body = bytes.get(BLOCK_HEADER_BYTES..header.length())?;
            if crc32c::crc32c(body) != header.body_checksum {
                return None;
            }
            let (lsn, hash) = (header.last_lsn(), header.hash);
            end = LogEnd { lsn, hash, hlc: header.hlc, epoch: header.epoch };
            offset = (offset + header.length()).next_multiple_of(align);
        }
        let behind = Place { generation, offset: u32::try_from(offset).ok()? };
        (end.lsn == lsn).then_some(Boundary { end, behind })
    }

    /// Cuts everything behind `place`, durably, as the real cut does.
    pub fn cut_behind(&mut self, place: Place, align: usize) {
        self.set_aside_beyond(place.generation);
        self.blank_behind(place, align);
    }

    /// Blanks what a crash has left behind the log's end, durably, as a start does.
    pub fn blank_behind(&mut self, place: Place, align: usize) {
        if let Some(file) = self.files.get_mut(&place.generation) {
            let from = (place.offset as usize).max(align);
            file.visible[from..].fill(0);
            file.durable[from..].fill(0);
        }
    }

    /// What a read of `length` bytes at `place` returns; fewer at the end of the file.
    #[must_use]
    pub fn visible(&self, place: Place, length: usize) -> &[u8] {
        let Some(file) = self.files.get(&place.generation) else { return &[] };
        let start = (place.offset as usize).min(file.visible.len());
        let end = (start + length).min(file.visible.len());
        &file.visible[start..end]
    }

    /// Flips one bit of a file, on the medium itself. Flipping it again heals it.
    pub fn flip_bit(&mut self, place: Place, bit: u8) {
        let file = self.files.get_mut(&place.generation).expect("rot hits an existing file");
        file.visible[place.offset as usize] ^= 1 << bit;
        file.durable[place.offset as usize] ^= 1 << bit;
    }

    /// A write that belongs to `from` has gone to `to`, on the medium itself.
    pub fn misdirect(&mut self, from: Place, to: Place, length: usize) {
        let bytes = self.visible(from, length).to_vec();
        let file = self.files.get_mut(&to.generation).expect("it hits an existing file");
        let range = to.offset as usize..to.offset as usize + bytes.len();
        file.visible[range.clone()].copy_from_slice(&bytes);
        file.durable[range].copy_from_slice(&bytes);
    }

    /// The size of a segment file, bytes.
    #[must_use]
    pub fn size_of(&self, generation: Generation) -> Option<usize> {
        self.files.get(&generation).map(|file| file.visible.len())
    }
}

/// What a write puts on the disk: the segment's header if it has one to write, then the blocks,
/// each padded with zeros to `align`.
pub fn image<'a>(
    header: Option<&SegmentHeader>,
    blocks: impl IntoIterator<Item = &'a [u8]>,
    align: usize,
) -> Vec<u8> {
    let mut image = Vec::new();
    if let Some(header) = header {
        image.resize(align, 0);
        header.encode(&mut image);
    }
    for block in blocks {
        image.extend_from_slice(block);
        image.resize(image.len().next_multiple_of(align), 0);
    }
    image
}

fn kept(chance: &mut Chance, fate: Fate, index: usize, front: usize) -> bool {
    match fate {
        Fate::Lost => false,
        Fate::Kept => true,
        Fate::Front => index < front,
        Fate::Torn => chance.percent(50),
    }
}

impl LogSource for SimDisk {
    fn settle(&mut self, first: Generation) -> io::Result<()> {
        if self.unsettled {
            return Ok(());
        }
        self.land_ghosts();
        for file in self.files.range_mut(first..).map(|(_, file)| file) {
            file.durable.copy_from_slice(&file.visible);
        }
        Ok(())
    }

    fn segments(&mut self) -> io::Result<Vec<(Generation, u64)>> {
        Ok(self.files.iter().map(|(at, file)| (*at, file.visible.len() as u64)).collect())
    }

    fn read(
        &mut self,
        generation: Generation,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let Some(file) = self.files.get(&generation) else { return Ok(0) };
        let start = usize::try_from(offset).map_err(io::Error::other)?.min(file.visible.len());
        let length = buffer.len().min(file.visible.len() - start);
        buffer[..length].copy_from_slice(&file.visible[start..start + length]);
        self.read_bytes += length as u64;
        Ok(length)
    }
}
