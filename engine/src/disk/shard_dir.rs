//! The directory of one shard: which file is called what. Blocking.
//!
//! | file | what |
//! |---|---|
//! | `seg-00000001.log` | a segment, by generation |
//! | `spare-00000004.log` | a segment file that was prepared and not used; taken for the next one |
//! | `unfinished.tmp` | a segment being written through with zeros |
//! | `mark` | see [`super::mark`] |
//! | `index-*.run`, `index-*.keys`, `manifest` | saved indexes; derived, can be deleted |

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::ids::{Generation, ShardId};
use crate::recovery::LogSource;

/// One shard's directory.
#[derive(Clone, Debug)]
pub struct ShardDir {
    path: PathBuf,
}

impl ShardDir {
    /// The directory of `shard` in the data directory. Nothing is read.
    #[must_use]
    pub fn new(data_dir: &Path, shard: ShardId) -> Self {
        Self { path: data_dir.join(format!("shard-{:03}", shard.0)) }
    }

    /// Makes the directory if it is not there, durably.
    pub fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        if let Some(parent) = self.path.parent() {
            File::open(parent)?.sync_all()?;
        }
        Ok(())
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The segment's file.
    #[must_use]
    pub fn segment(&self, generation: Generation) -> PathBuf {
        self.path.join(format!("seg-{:08}.log", generation.0))
    }

    /// The mark's file.
    #[must_use]
    pub fn mark(&self) -> PathBuf {
        self.path.join("mark")
    }

    /// A segment file in the making.
    #[must_use]
    pub fn unfinished(&self) -> PathBuf {
        self.path.join("unfinished.tmp")
    }

    /// Makes renames and new files in the directory durable.
    pub fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Sets aside the segment files beyond `newest`: prepared and never used, or used by blocks
    /// that were never acknowledged. Their content stays; generation and hash link tell it from
    /// what will be written there (invariant D5). The last one goes first, durably, so that a crash
    /// in between leaves no gap: a gap means that a segment was lost.
    pub fn set_aside_beyond(&self, newest: Generation) -> io::Result<()> {
        for (generation, _) in self.numbered("seg-")?.into_iter().rev() {
            if generation > newest {
                fs::rename(self.segment(generation), self.spare(generation))?;
                self.sync()?;
            }
        }
        match fs::remove_file(self.unfinished()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.sync()
    }

    fn spare(&self, generation: Generation) -> PathBuf {
        self.path.join(format!("spare-{:08}.log", generation.0))
    }

    /// A file set aside that has the right size; others are deleted.
    pub fn take_spare(&self, size_bytes: u32) -> io::Result<Option<PathBuf>> {
        for (generation, size) in self.numbered("spare-")? {
            let path = self.spare(generation);
            if size == u64::from(size_bytes) {
                return Ok(Some(path));
            }
            fs::remove_file(path)?;
        }
        Ok(None)
    }

    /// Files called `<prefix><number>.log`, with their sizes, in order of their numbers.
    fn numbered(&self, prefix: &str) -> io::Result<Vec<(Generation, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
            let number = number.and_then(|name| name.strip_suffix(".log"));
            if let Some(number) = number.and_then(|number| number.parse().ok()) {
                found.push((Generation(number), entry.metadata()?.len()));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The segment files that exist, with their sizes in bytes, in order.
    pub fn segments(&self) -> io::Result<Vec<(Generation, u64)>> {
        self.numbered("seg-")
    }
}

/// Reads a shard's segments with ordinary blocking reads.
#[derive(Debug)]
pub struct DirSource {
    dir: ShardDir,
    open: Option<(Generation, File)>,
}

impl DirSource {
    /// Reads the segments in `dir`.
    #[must_use]
    pub const fn new(dir: ShardDir) -> Self {
        Self { dir, open: None }
    }
}

impl LogSource for DirSource {
    fn settle(&mut self, first: Generation) -> io::Result<()> {
        for (generation, size) in self.dir.segments()? {
            if generation >= first {
                let path = self.dir.segment(generation);
                let file = fs::OpenOptions::new().write(true).open(path)?;
                // A killed process may leave writes in flight that the kernel finishes after the
                // process is gone; one of them could land on top of what this process writes.
                // Setting a file's length waits for its direct I/O, on ext4 and XFS alike
                // (`inode_dio_wait`); setting the length it has changes nothing.
                file.set_len(size)?;
                file.sync_data()?;
            }
        }
        self.dir.sync()
    }

    fn segments(&mut self) -> io::Result<Vec<(Generation, u64)>> {
        self.dir.segments()
    }

    fn read(
        &mut self,
        generation: Generation,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != generation) {
            self.open = match File::open(self.dir.segment(generation)) {
                Ok(file) => Some((generation, file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
                Err(error) => return Err(error),
            };
        }
        let Some((_, file)) = &self.open else { return Ok(0) };
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}
