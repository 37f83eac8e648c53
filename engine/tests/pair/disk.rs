//! A disk of one shard: what is written becomes durable when its write completes, not before.

use std::collections::BTreeMap;
use std::io;

use duolog_engine::ids::{Generation, Lsn, Place};
use duolog_engine::recovery::{LogIdentity, LogSource, block_end_at};
use duolog_engine::shard::{Boundary, Layout};

#[derive(Default)]
pub struct Disk {
    files: BTreeMap<Generation, Vec<u8>>,
}

impl Disk {
    pub fn prepare(&mut self, generation: Generation, layout: Layout) {
        self.files.insert(generation, vec![0; layout.segment_size_bytes as usize]);
    }

    pub fn write(&mut self, at: Place, bytes: &[u8]) {
        let file = self.files.get_mut(&at.generation).expect("segments are prepared first");
        file[at.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    pub fn end_at(&mut self, identity: LogIdentity, lsn: Lsn) -> Option<Boundary> {
        let newest = self.files.keys().next_back().copied().unwrap_or_default();
        block_end_at(self, identity, newest, lsn).expect("a disk in memory can be read")
    }

    /// Cuts everything behind `at`, as the real cut does.
    pub fn cut(&mut self, at: Boundary, align: usize) {
        self.files.retain(|file, _| *file <= at.behind.generation);
        self.blank_behind(at.behind, align);
    }

    pub fn blank_behind(&mut self, place: Place, align: usize) {
        if let Some(file) = self.files.get_mut(&place.generation) {
            file[(place.offset as usize).max(align)..].fill(0);
        }
    }

    pub fn set_aside_beyond(&mut self, newest: Generation) {
        self.files.retain(|file, _| *file <= newest);
    }
}

impl LogSource for Disk {
    fn segments(&mut self) -> io::Result<Vec<(Generation, u64)>> {
        Ok(self.files.iter().map(|(at, file)| (*at, file.len() as u64)).collect())
    }

    fn settle(&mut self, _: Generation) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self, at: Generation, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let file = self.files.get(&at).map(Vec::as_slice).unwrap_or_default();
        let rest = file.get(offset as usize..).unwrap_or_default();
        let length = buffer.len().min(rest.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}
