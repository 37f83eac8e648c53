//! The mark: a durable lower bound of what is committed, written when the log stands still and at
//! a clean stop. It is what proves that an idle log's last blocks are missing (invariant D4); it is
//! never needed to read a log. Two slots of 4 KiB take turns, so that a torn write costs nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::bytes::{Cursor, TooShort};
use crate::ids::{Hlc, LeaseEpoch, Lsn};
use crate::segment::LogEnd;

const SLOT_BYTES: u64 = 4096;
const MARK_BYTES: usize = 80;
const MAGIC: [u8; 8] = *b"DLOGMRK1";
const CHECKED_FROM: usize = 12;

/// The mark file of one shard, open for writing.
#[derive(Debug)]
pub struct MarkFile {
    file: File,
    turn: u32,
}

impl MarkFile {
    /// Opens or creates the file and reads the newest mark.
    pub fn open(path: &Path) -> io::Result<(Self, Option<LogEnd>)> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() < 2 * SLOT_BYTES {
            file.set_len(2 * SLOT_BYTES)?;
        }
        let newest = read_newest(&file)?;
        let turn = newest.map_or(0, |(turn, _)| turn);
        Ok((Self { file, turn }, newest.map(|(_, end)| end)))
    }

    /// Writes and syncs a newer mark.
    pub fn write(&mut self, end: &LogEnd) -> io::Result<()> {
        self.turn = self.turn.wrapping_add(1);
        let slot = encode(self.turn, end);
        self.file.write_all_at(&slot, u64::from(self.turn % 2) * SLOT_BYTES)?;
        self.file.sync_data()
    }
}

/// The newest mark in the file at `path`; `None` if there is none.
pub fn read(path: &Path) -> io::Result<Option<LogEnd>> {
    match File::open(path) {
        Ok(file) => Ok(read_newest(&file)?.map(|(_, end)| end)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_newest(file: &File) -> io::Result<Option<(u32, LogEnd)>> {
    let mut newest: Option<(u32, LogEnd)> = None;
    for slot in 0..2 {
        let mut bytes = [0; MARK_BYTES];
        if file.read_exact_at(&mut bytes, slot * SLOT_BYTES).is_err() {
            continue;
        }
        if let Some(found) = decode(&bytes)
            && newest.is_none_or(|(_, end)| end.lsn < found.1.lsn)
        {
            newest = Some(found);
        }
    }
    Ok(newest)
}

fn encode(turn: u32, end: &LogEnd) -> [u8; MARK_BYTES] {
    let mut out = [0; MARK_BYTES];
    let mut put = |at: usize, value: &[u8]| out[at..at + value.len()].copy_from_slice(value);
    put(0, &MAGIC);
    put(12, &turn.to_le_bytes());
    put(16, &end.lsn.0.to_le_bytes());
    put(24, &end.hlc.0.to_le_bytes());
    put(32, &end.epoch.0.to_le_bytes());
    put(40, &end.hash);
    let checksum = crc32c::crc32c(&out[CHECKED_FROM..]);
    out[8..12].copy_from_slice(&checksum.to_le_bytes());
    out
}

fn decode(bytes: &[u8; MARK_BYTES]) -> Option<(u32, LogEnd)> {
    fn fields(bytes: &[u8]) -> Result<(u32, u32, LogEnd), TooShort> {
        let mut cursor = Cursor::new(bytes);
        let (checksum, turn) = (cursor.u32()?, cursor.u32()?);
        let lsn = Lsn(cursor.u64()?);
        let hlc = Hlc(cursor.u64()?);
        let epoch = LeaseEpoch(cursor.u64()?);
        Ok((checksum, turn, LogEnd { lsn, hash: cursor.hash()?, hlc, epoch }))
    }
    let (checksum, turn, end) = fields(bytes.strip_prefix(&MAGIC)?).ok()?;
    (checksum == crc32c::crc32c(&bytes[CHECKED_FROM..])).then_some((turn, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(lsn: u64) -> LogEnd {
        LogEnd { lsn: Lsn(lsn), hash: [lsn as u8; 32], hlc: Hlc(lsn << 16), epoch: LeaseEpoch(0) }
    }

    #[test]
    fn the_newest_whole_mark_is_read_even_when_the_other_slot_is_torn() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mark");
        assert_eq!(read(&path).unwrap(), None);
        let (mut marks, none) = MarkFile::open(&path).unwrap();
        assert_eq!(none, None);
        for lsn in 1..=5 {
            marks.write(&end(lsn)).unwrap();
            assert_eq!(read(&path).unwrap(), Some(end(lsn)));
        }
        // Turn 5 lies in slot 1; damage it and turn 4 is the newest.
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[0xff], SLOT_BYTES + 50).unwrap();
        let (mut marks, newest) = MarkFile::open(&path).unwrap();
        assert_eq!(newest, Some(end(4)));
        marks.write(&end(6)).unwrap();
        assert_eq!(read(&path).unwrap(), Some(end(6)));
    }
}
