//! The two files of the event log: appended to by the thread that owns them, read by anybody.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::entry::Entry;

/// The newer file.
const NEWER: &str = "events.ndjson";
/// The older one.
const OLDER: &str = "events.1.ndjson";
/// Largest file, bytes: some weeks of a pair that changes its lead every day.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// Longest line that is written, bytes: a reason may quote what another program said.
const LINE_MAX_BYTES: usize = 8 << 10;

/// The end of the event log, open for appending.
#[derive(Debug)]
pub struct JournalFile {
    dir: PathBuf,
    file: File,
    size_bytes: u64,
    file_max_bytes: u64,
    last: Option<Entry>,
    next_number: u64,
}

impl JournalFile {
    /// Opens the log in `dir`, which exists, or begins one.
    ///
    /// # Errors
    /// Of opening, reading or writing the files.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Self::open_with(dir, FILE_MAX_BYTES)
    }

    fn open_with(dir: &Path, file_max_bytes: u64) -> io::Result<Self> {
        let last = read(dir, 1, usize::MAX)?.entries.pop();
        let file = OpenOptions::new().create(true).append(true).open(dir.join(NEWER))?;
        let size_bytes = file.metadata()?.len();
        let next_number = last.as_ref().map_or(1, |entry| entry.number + 1);
        let dir = dir.to_owned();
        let mut journal = Self { dir, file, size_bytes, file_max_bytes, last, next_number };
        if size_bytes > 0 && !fs::read(journal.dir.join(NEWER))?.ends_with(b"\n") {
            // A torn line stays for itself.
            journal.put(b"\n")?;
        }
        Ok(journal)
    }

    /// The newest entry that was there when the log was opened.
    #[must_use]
    pub const fn last(&self) -> Option<&Entry> {
        self.last.as_ref()
    }

    /// Gives the entry its number and appends it. It reaches the disk when the system sees fit.
    ///
    /// # Errors
    /// Of writing; the number is used up then.
    pub fn append(&mut self, mut entry: Entry) -> io::Result<()> {
        entry.number = self.next_number;
        self.next_number += 1;
        let mut line = serde_json::to_vec(&entry)?;
        if line.len() >= LINE_MAX_BYTES {
            let (reason, facts) = (Some("too long to be kept".to_owned()), Default::default());
            line = serde_json::to_vec(&Entry { reason, facts, ..entry })?;
        }
        line.push(b'\n');
        if self.size_bytes + line.len() as u64 > self.file_max_bytes {
            self.rotate()?;
        }
        self.put(&line)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.size_bytes += bytes.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        fs::rename(self.dir.join(NEWER), self.dir.join(OLDER))?;
        self.file = OpenOptions::new().create(true).append(true).open(self.dir.join(NEWER))?;
        self.size_bytes = 0;
        Ok(())
    }
}

/// The newest entries of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// In their order, the newest last.
    pub entries: Vec<Entry>,
    /// There are older ones.
    pub left_out: bool,
}

/// The newest `last` entries of the log in `dir` whose lines have no more than `max_bytes` bytes
/// together. Lines that are no entries are skipped; no files, no entries.
///
/// # Errors
/// Of reading the files.
pub fn read(dir: &Path, last: usize, max_bytes: usize) -> io::Result<Page> {
    let mut kept: VecDeque<(Entry, usize)> = VecDeque::new();
    let (mut bytes, mut left_out) = (0_usize, false);
    for name in [OLDER, NEWER] {
        let text = match fs::read(dir.join(name)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in text.split(|byte| *byte == b'\n') {
            let Ok(entry) = serde_json::from_slice::<Entry>(line) else { continue };
            kept.push_back((entry, line.len() + 1));
            bytes += line.len() + 1;
            while kept.len() > last || bytes > max_bytes {
                bytes -= kept.pop_front().map_or(bytes, |(_, size)| size);
                left_out = true;
            }
        }
    }
    Ok(Page { entries: kept.into_iter().map(|(entry, _)| entry).collect(), left_out })
}

#[cfg(test)]
mod tests {
    use duolog_engine::ids::{MonoUs, Now, WallMs};

    use super::super::entry::Note;
    use super::*;

    fn entry(epoch: u64) -> Entry {
        let at = Now { mono: MonoUs(epoch * 1000), wall: WallMs(epoch) };
        Entry::new(Note::new("leads").at_epoch(epoch).with("peer", "x"), at, "boot")
    }

    fn epochs(dir: &Path, last: usize, max_bytes: usize) -> Vec<u64> {
        let page = read(dir, last, max_bytes).unwrap();
        page.entries.iter().filter_map(|entry| entry.epoch).collect()
    }

    #[test]
    fn entries_survive_and_their_numbers_go_on() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path(), 9, usize::MAX).unwrap(), Page::default());
        for epoch in 1..=3 {
            let mut journal = JournalFile::open(dir.path()).unwrap();
            assert_eq!(journal.last().and_then(|last| last.epoch), (epoch > 1).then(|| epoch - 1));
            journal.append(entry(epoch)).unwrap();
        }
        let page = read(dir.path(), 2, usize::MAX).unwrap();
        let numbers: Vec<u64> = page.entries.iter().map(|entry| entry.number).collect();
        assert_eq!((numbers, page.left_out), (vec![2, 3], true));
        assert_eq!(page.entries[1].facts["peer"], "x");
        assert!(!read(dir.path(), 3, usize::MAX).unwrap().left_out);
    }

    #[test]
    fn two_files_of_bounded_size_keep_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = JournalFile::open_with(dir.path(), 1000).unwrap();
        for epoch in 1..=100 {
            journal.append(entry(epoch)).unwrap();
        }
        let sizes = [OLDER, NEWER].map(|name| fs::metadata(dir.path().join(name)).unwrap().len());
        assert!(sizes.iter().all(|size| *size <= 1000), "{sizes:?}");
        let kept = epochs(dir.path(), 1000, usize::MAX);
        assert_eq!(kept.last(), Some(&100));
        assert!(kept.windows(2).all(|pair| pair[1] == pair[0] + 1), "{kept:?}");
        assert!(kept.len() > 8, "{kept:?}");
        let few = epochs(dir.path(), 1000, 300);
        assert!(few.len() < 4 && few.ends_with(&[100]), "{few:?}");
    }

    #[test]
    fn a_torn_line_is_skipped_and_spoils_no_other() {
        let dir = tempfile::tempdir().unwrap();
        JournalFile::open(dir.path()).unwrap().append(entry(1)).unwrap();
        let mut text = fs::read(dir.path().join(NEWER)).unwrap();
        let whole = text.clone();
        text.extend_from_slice(&whole[..whole.len() / 2]);
        fs::write(dir.path().join(NEWER), text).unwrap();
        let mut journal = JournalFile::open(dir.path()).unwrap();
        journal.append(entry(2)).unwrap();
        assert_eq!(epochs(dir.path(), 9, usize::MAX), [1, 2]);
    }

    #[test]
    fn a_line_that_is_too_long_loses_what_makes_it_long() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = JournalFile::open(dir.path()).unwrap();
        let long = Entry { reason: Some("x".repeat(LINE_MAX_BYTES)), ..entry(7) };
        journal.append(long).unwrap();
        let page = read(dir.path(), 1, LINE_MAX_BYTES).unwrap();
        assert_eq!(page.entries[0].epoch, Some(7));
        assert!(page.entries[0].reason.as_deref().unwrap().contains("too long"));
    }
}
