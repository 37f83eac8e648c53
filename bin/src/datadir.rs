//! The data directory: who it belongs to and who is using it.
//!
//! `identity.json` names cluster, node, shard count and format; it is written once, durably, before
//! the first segment. `LOCK` is locked by the process that uses the directory and tells its number;
//! the kernel lets go of the lock when that process ends, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use duolog_engine::ids::{ClusterId, NodeId};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::exit::Exit;

/// Version of the directory's layout that this program reads and writes.
pub const FORMAT: u32 = 1;
/// Name of the file that says whom a data directory belongs to.
pub const IDENTITY_FILE: &str = "identity.json";
const LOCK_FILE: &str = "LOCK";

/// Who a data directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Layout of the directory.
    pub format: u32,
    /// The cluster, made with its first data directory.
    pub cluster_id: Uuid,
    /// The node, made with this directory: a lost disk is a new node.
    pub node_id: Uuid,
    /// Fixed for the life of the cluster.
    pub shard_count: u32,
}

impl Identity {
    /// The cluster, as the engine wants it.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        ClusterId(self.cluster_id.as_u128())
    }

    /// The node, as the engine wants it.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        NodeId(self.node_id.as_u128())
    }

    #[expect(clippy::disallowed_methods, reason = "a new directory's ids are random, once")]
    fn new(shard_count: u32, cluster: Option<ClusterId>) -> Self {
        let cluster_id = cluster.map_or_else(Uuid::new_v4, |cluster| Uuid::from_u128(cluster.0));
        Self { format: FORMAT, cluster_id, node_id: Uuid::new_v4(), shard_count }
    }

    /// Reads the identity of the directory `dir`; `None` if it has none yet.
    pub fn read(dir: &Path) -> Result<Option<Self>, DataDirError> {
        let path = dir.join(IDENTITY_FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(DataDirError::unusable(&path, &error)),
        };
        let identity: Self = serde_json::from_slice(&text)
            .map_err(|error| DataDirError::Unreadable { path, reason: error.to_string() })?;
        if identity.format != FORMAT {
            let (dir, found) = (dir.to_owned(), identity.format);
            return Err(DataDirError::Format { dir, found });
        }
        Ok(Some(identity))
    }

    /// Writes it durably: after a crash the file is whole or not there.
    fn write(&self, dir: &Path) -> io::Result<()> {
        let temporary = dir.join("identity.tmp");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&temporary, dir.join(IDENTITY_FILE))?;
        File::open(dir)?.sync_all()
    }
}

/// Why a data directory cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataDirError {
    /// Another process uses it.
    #[error(
        "the data directory {} is in use by {holder}; stop it first, \
         two processes never share a directory", dir.display()
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// What its lock file says.
        holder: String,
    },
    /// It was made for another number of shards.
    #[error(
        "the data directory {} was created with {stored} shards, the settings say {wanted} \
         (shards.count, from {origin}); set shards.count = {stored}, or use another data_dir",
        dir.display()
    )]
    ShardCount {
        /// The directory.
        dir: PathBuf,
        /// As stored.
        stored: u32,
        /// As set.
        wanted: u32,
        /// Where the setting came from.
        origin: String,
    },
    /// It was made by another version.
    #[error(
        "the data directory {} has format {found}, this program reads format {FORMAT}; \
         use the program it was made with", dir.display()
    )]
    Format {
        /// The directory.
        dir: PathBuf,
        /// As stored.
        found: u32,
    },
    /// It has segments but no identity: not to be adopted as an empty directory.
    #[error(
        "the data directory {} has shards but no {IDENTITY_FILE}; restore that file, \
         or use another data_dir", dir.display()
    )]
    IdentityLost {
        /// The directory.
        dir: PathBuf,
    },
    /// The identity cannot be understood.
    #[error("{} is damaged: {reason}; restore it from a copy", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system refuses.
    #[error("cannot use {}: {reason}; check owner, mode and mount", path.display())]
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
}

impl DataDirError {
    fn unusable(path: &Path, error: &io::Error) -> Self {
        Self::Unusable { path: path.to_owned(), reason: error.to_string() }
    }

    /// The exit code of a command that meets this.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match self {
            Self::InUse { .. } => Exit::DataDirInUse,
            Self::ShardCount { .. }
            | Self::Format { .. }
            | Self::IdentityLost { .. }
            | Self::Unreadable { .. } => Exit::DataDirMismatch,
            Self::Unusable { .. } => Exit::DataDirUnusable,
        }
    }
}

/// The hold on a data directory; ends with the value or the process.
#[derive(Debug)]
pub struct DataDirLock {
    _file: File,
}

/// Takes the directory for this process alone.
pub fn lock(dir: &Path) -> Result<DataDirLock, DataDirError> {
    let path = dir.join(LOCK_FILE);
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
    let mut file = options.open(&path).map_err(|error| DataDirError::unusable(&path, &error))?;
    take(dir, &mut file, FlockOperation::NonBlockingLockExclusive)?;
    // For people and for the message of the next one; the lock itself is the kernel's. Overwritten
    // in place, because a full disk may have no other block, and no reason not to serve.
    let text = format!("process {}\n", std::process::id());
    let _ = file.write_all_at(text.as_bytes(), 0).and_then(|()| file.set_len(text.len() as u64));
    Ok(DataDirLock { _file: file })
}

/// Makes sure that no server uses the directory while an offline tool reads it. Several tools may
/// read at a time. A directory without a lock file was never used by a server.
pub fn lock_for_reading(dir: &Path) -> Result<Option<DataDirLock>, DataDirError> {
    let path = dir.join(LOCK_FILE);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DataDirError::unusable(&path, &error)),
    };
    take(dir, &mut file, FlockOperation::NonBlockingLockShared)?;
    Ok(Some(DataDirLock { _file: file }))
}

fn take(dir: &Path, file: &mut File, operation: FlockOperation) -> Result<(), DataDirError> {
    match rustix::fs::flock(&*file, operation) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            let read = file.read_to_string(&mut holder);
            let holder = holder.trim();
            let named = read.is_ok() && !holder.is_empty();
            let holder = if named { holder } else { "another process" };
            Err(DataDirError::InUse { dir: dir.to_owned(), holder: holder.to_owned() })
        }
        Err(error) => Err(DataDirError::unusable(&dir.join(LOCK_FILE), &error.into())),
    }
}

/// Reads the identity of `dir`, or makes one for `shard_count` shards if the directory is new.
/// Call it with the lock held. `origin` says where the shard count came from; `cluster` is the one
/// to join, none to found one.
pub fn identify(
    dir: &Path,
    shard_count: u32,
    origin: &str,
    cluster: Option<ClusterId>,
) -> Result<Identity, DataDirError> {
    if let Some(identity) = Identity::read(dir)? {
        if identity.shard_count == shard_count {
            return Ok(identity);
        }
        let (stored, wanted) = (identity.shard_count, shard_count);
        let (dir, origin) = (dir.to_owned(), origin.to_owned());
        return Err(DataDirError::ShardCount { dir, stored, wanted, origin });
    }
    let entries = fs::read_dir(dir).map_err(|error| DataDirError::unusable(dir, &error))?;
    let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    if names.any(|name| name.starts_with("shard-")) {
        return Err(DataDirError::IdentityLost { dir: dir.to_owned() });
    }
    let identity = Identity::new(shard_count, cluster);
    identity.write(dir).map_err(|error| DataDirError::unusable(dir, &error))?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let made = identify(dir.path(), 3, "default", None).unwrap();
        assert_eq!(identify(dir.path(), 3, "default", None).unwrap(), made);
        assert_eq!(Identity::read(dir.path()).unwrap(), Some(made));
        let other = tempfile::tempdir().unwrap();
        let other = identify(other.path(), 3, "default", None).unwrap();
        assert_ne!((other.cluster(), other.node()), (made.cluster(), made.node()));
    }

    #[test]
    fn another_shard_count_is_refused_and_says_which_setting_to_change() {
        let dir = tempfile::tempdir().unwrap();
        identify(dir.path(), 3, "default", None).unwrap();
        let error = identify(dir.path(), 4, "flag --shards-count", None).unwrap_err();
        assert_eq!(error.exit(), Exit::DataDirMismatch);
        let text = error.to_string();
        assert!(text.contains("set shards.count = 3"), "{text}");
        assert!(text.contains("flag --shards-count"), "{text}");
    }

    #[test]
    fn shards_without_an_identity_are_not_adopted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("shard-000")).unwrap();
        let error = identify(dir.path(), 1, "default", None).unwrap_err();
        assert_eq!(error.exit(), Exit::DataDirMismatch);
        assert_eq!(Identity::read(dir.path()).unwrap(), None);
    }

    #[test]
    fn a_damaged_or_newer_identity_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(IDENTITY_FILE);
        fs::write(&path, "{").unwrap();
        let error = Identity::read(dir.path()).unwrap_err();
        assert_eq!(error.exit(), Exit::DataDirMismatch);
        let newer = Identity { format: FORMAT + 1, ..Identity::new(1, None) };
        fs::write(&path, serde_json::to_vec(&newer).unwrap()).unwrap();
        assert!(matches!(Identity::read(dir.path()), Err(DataDirError::Format { found: 2, .. })));
    }

    /// A lock belongs to an open file, so a second open of this process stands for another one.
    #[test]
    fn a_second_holder_is_refused_and_told_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(lock_for_reading(dir.path()).unwrap().is_none());
        let held = lock(dir.path()).unwrap();
        for refused in [lock(dir.path()).unwrap_err(), lock_for_reading(dir.path()).unwrap_err()] {
            assert_eq!(refused.exit(), Exit::DataDirInUse);
            let holder = format!("process {}", std::process::id());
            assert!(refused.to_string().contains(&holder), "{refused}");
        }
        drop(held);
        let reading = lock_for_reading(dir.path()).unwrap().unwrap();
        let also_reading = lock_for_reading(dir.path()).unwrap();
        assert!(lock(dir.path()).is_err());
        drop((reading, also_reading));
        lock(dir.path()).unwrap();
    }
}
