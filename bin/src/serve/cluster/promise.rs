//! The promised epoch on disk: a node never accepts a leader, and never acts, below it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use duolog_engine::ids::LeaseEpoch;

const FILE: &str = "promised-epoch";
const MAGIC: &[u8; 8] = b"DLOGPRM1";
const BYTES: usize = 20;

/// The file of one data directory.
#[derive(Clone, Debug)]
pub struct PromiseFile {
    dir: PathBuf,
}

impl PromiseFile {
    /// The file in `dir`, which need not exist yet.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The epoch on disk; 0 in a new directory. A damaged file is an error, never 0: a node that
    /// forgot its promise could ack for a leader that was deposed.
    pub fn read(&self) -> io::Result<LeaseEpoch> {
        let bytes = match fs::read(self.dir.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(LeaseEpoch(0)),
            Err(error) => return Err(error),
        };
        decode(&bytes).ok_or_else(|| {
            let path = self.dir.join(FILE);
            let text = format!(
                "{} is damaged, and nothing else tells what this node has promised: treat the node \
                 as lost, start it with an empty data directory and admit it (`duolog node \
                 replace`)",
                path.display()
            );
            io::Error::new(ErrorKind::InvalidData, text)
        })
    }

    /// Replaces the file durably. After a crash it is the old one or the new one.
    pub fn write(&self, epoch: LeaseEpoch) -> io::Result<()> {
        let temporary = self.dir.join("promised-epoch.tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(&encode(epoch))?;
        file.sync_all()?;
        fs::rename(&temporary, self.dir.join(FILE))?;
        File::open(&self.dir)?.sync_all()
    }
}

fn encode(epoch: LeaseEpoch) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[12..].copy_from_slice(&epoch.0.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<LeaseEpoch> {
    let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
    let checksum = u32::from_le_bytes(*bytes[8..].first_chunk()?);
    let epoch = u64::from_le_bytes(*bytes[12..].first_chunk()?);
    (bytes[..8] == *MAGIC && checksum == crc32c::crc32c(&bytes[12..])).then_some(LeaseEpoch(epoch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_kept_and_a_damaged_one_is_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let file = PromiseFile::new(dir.path());
        assert_eq!(file.read().unwrap(), LeaseEpoch(0));
        file.write(LeaseEpoch(3)).unwrap();
        file.write(LeaseEpoch(4)).unwrap();
        assert_eq!(file.read().unwrap(), LeaseEpoch(4));
        let path = dir.path().join(FILE);
        for at in 0..BYTES {
            let mut bytes = encode(LeaseEpoch(4));
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            assert!(file.read().is_err(), "byte {at}");
        }
        fs::write(&path, b"").unwrap();
        assert!(file.read().is_err());
    }
}
