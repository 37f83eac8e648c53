//! The data directory: identity, lock, shard count. Created once; a mismatch later is an error,
//! because a log that is opened with another identity or shard count would be read wrongly.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use duolog_engine::ids::{ClusterId, NodeId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::exit::{Exit, Failure};

/// The only directory format so far.
const FORMAT: u32 = 1;

/// The content of `identity.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Version of the directory's layout.
    pub format: u32,
    /// The cluster: made with its first data directory.
    pub cluster_id: Uuid,
    /// The node: made with this directory.
    pub node_id: Uuid,
    /// Shards, fixed when the cluster is created.
    pub shard_count: u32,
}

impl Identity {
    /// The cluster's id as the engine has it.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        ClusterId(self.cluster_id.as_u128())
    }

    /// The node's id as the engine has it.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        NodeId(self.node_id.as_u128())
    }
}

/// An open, locked data directory. The lock is the kernel's: it goes when the process goes.
#[derive(Debug)]
pub struct DataDir {
    /// Where it is.
    pub path: PathBuf,
    /// Whose it is.
    pub identity: Identity,
    _lock: File,
}

impl DataDir {
    /// Locks the directory (which exists) and reads its identity, or gives it one if it is empty.
    pub fn open(path: &Path, shard_count: u32) -> Result<Self, Failure> {
        let lock = lock(path)?;
        let file = path.join("identity.json");
        let identity = match fs::read(&file) {
            Ok(bytes) => parse(&file, &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(path, shard_count)?,
            Err(error) => return Err(unusable(&file, &error)),
        };
        if identity.shard_count != shard_count {
            let was = identity.shard_count;
            let text = format!(
                "{} holds a cluster of {was} shards, but shards.count is {shard_count}: the count \
                 is fixed when a cluster is created; set shards.count = {was}",
                path.display()
            );
            return Err(Failure::new(Exit::DataDirMismatch, text));
        }
        Ok(Self { path: path.to_owned(), identity, _lock: lock })
    }
}

fn parse(file: &Path, bytes: &[u8]) -> Result<Identity, Failure> {
    let identity: Identity = serde_json::from_slice(bytes).map_err(|error| {
        let text = format!(
            "{} cannot be read as an identity ({error}): restore the file from a backup; a node \
             does not guess who it is",
            file.display()
        );
        Failure::new(Exit::DataDirMismatch, text)
    })?;
    if identity.format != FORMAT {
        let text = format!(
            "{} has format {}, this program knows {FORMAT}: use the program that wrote it",
            file.display(),
            identity.format
        );
        return Err(Failure::new(Exit::DataDirMismatch, text));
    }
    Ok(identity)
}

fn create(path: &Path, shard_count: u32) -> Result<Identity, Failure> {
    if let Some(stranger) = foreign_entry(path).map_err(|error| unusable(path, &error))? {
        let text = format!(
            "{} has no identity.json but holds {stranger:?}: give an empty directory, or restore \
             identity.json from a backup if this was a data directory",
            path.display()
        );
        return Err(Failure::new(Exit::DataDirMismatch, text));
    }
    #[expect(clippy::disallowed_methods, reason = "a new directory gets random identities")]
    let (cluster_id, node_id) = (Uuid::new_v4(), Uuid::new_v4());
    let identity = Identity { format: FORMAT, cluster_id, node_id, shard_count };
    write_durably(path, &identity).map_err(|error| unusable(path, &error))?;
    Ok(identity)
}

fn foreign_entry(path: &Path) -> io::Result<Option<String>> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "LOCK" && name != "identity.tmp" && name != "lost+found" {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn write_durably(path: &Path, identity: &Identity) -> io::Result<()> {
    let unfinished = path.join("identity.tmp");
    let mut file = File::create(&unfinished)?;
    file.write_all(serde_json::to_string_pretty(identity)?.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(unfinished, path.join("identity.json"))?;
    File::open(path)?.sync_all()
}

fn lock(path: &Path) -> Result<File, Failure> {
    let file = path.join("LOCK");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut lock = options.open(&file).map_err(|error| unusable(&file, &error))?;
    let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    if let Err(error) = rustix::fs::flock(&lock, exclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(unusable(&file, &error.into()));
        }
        let mut holder = String::new();
        // Only for the message; an unreadable number changes nothing.
        let _ = lock.read_to_string(&mut holder);
        let text = format!(
            "the data directory {} is in use by process {}: stop that one, or give another data_dir",
            path.display(),
            holder.trim()
        );
        return Err(Failure::new(Exit::DataDirInUse, text));
    }
    let note = |lock: &mut File| -> io::Result<()> {
        lock.set_len(0)?;
        lock.rewind()?;
        writeln!(lock, "{}", std::process::id())
    };
    note(&mut lock).map_err(|error| unusable(&file, &error))?;
    Ok(lock)
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    let text = format!("cannot use {}: {error}", path.display());
    Failure::new(Exit::DataDirUnusable, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_identity_and_refuses_another_shard_count() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path(), 3).unwrap().identity;
        assert_eq!(DataDir::open(dir.path(), 3).unwrap().identity, first);
        let failure = DataDir::open(dir.path(), 4).unwrap_err();
        assert_eq!(failure.exit, Exit::DataDirMismatch);
        assert!(failure.text.contains("shards.count = 3"), "{failure}");
    }

    #[test]
    fn a_second_opener_is_told_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let _held = DataDir::open(dir.path(), 1).unwrap();
        let failure = DataDir::open(dir.path(), 1).unwrap_err();
        assert_eq!(failure.exit, Exit::DataDirInUse);
        assert!(failure.text.contains(&std::process::id().to_string()), "{failure}");
    }

    #[test]
    fn a_directory_with_other_files_or_a_broken_identity_is_not_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("shard-000"), b"").unwrap();
        let failure = DataDir::open(dir.path(), 1).unwrap_err();
        assert_eq!(failure.exit, Exit::DataDirMismatch);
        fs::write(dir.path().join("identity.json"), b"{\"format\":1").unwrap();
        assert_eq!(DataDir::open(dir.path(), 1).unwrap_err().exit, Exit::DataDirMismatch);
        let other = r#"{"format":9,"cluster_id":"00000000-0000-0000-0000-000000000001",
            "node_id":"00000000-0000-0000-0000-000000000002","shard_count":1}"#;
        fs::write(dir.path().join("identity.json"), other).unwrap();
        assert!(DataDir::open(dir.path(), 1).unwrap_err().text.contains("format 9"));
    }
}
