//! The block device under a directory: its volatile write cache and what it costs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the kernel tells about a block device's queue. `None`: not told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Kernel name, e.g. `nvme0n1`.
    pub name: String,
    /// The device has a volatile cache, so every durable write needs a flush or FUA.
    pub volatile_cache: Option<bool>,
    /// The device can write through its cache in one command.
    pub fua: Option<bool>,
    /// Logical block size, bytes.
    pub logical_block_bytes: Option<u32>,
    /// A disk with a moving head.
    pub rotational: Option<bool>,
}

/// The device under `path`; `None` for file systems without one device (overlay, btrfs, network).
#[must_use]
pub fn of(path: &Path) -> Option<Device> {
    let device = std::fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let link = format!("/sys/dev/block/{major}:{minor}");
    queue(&std::fs::canonicalize(link).ok()?).map(|(name, queue)| read(name, &queue))
}

/// A partition has no queue of its own; its parent has.
fn queue(device: &Path) -> Option<(String, PathBuf)> {
    let owner = device.ancestors().take(2).find(|path| path.join("queue").is_dir())?;
    Some((owner.file_name()?.to_str()?.to_owned(), owner.join("queue")))
}

fn read(name: String, queue: &Path) -> Device {
    let text = |file: &str| {
        let text = std::fs::read_to_string(queue.join(file)).ok()?;
        Some(text.trim().to_owned())
    };
    let flag = |file: &str| text(file).map(|text| text != "0");
    Device {
        name,
        volatile_cache: text("write_cache").map(|text| text == "write back"),
        fua: flag("fua"),
        logical_block_bytes: text("logical_block_size").and_then(|text| text.parse().ok()),
        rotational: flag("rotational"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_read_through_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        let partition = dir.path().join("nvme0n1").join("nvme0n1p2");
        std::fs::create_dir_all(&partition).unwrap();
        let files = dir.path().join("nvme0n1").join("queue");
        std::fs::create_dir_all(&files).unwrap();
        for (name, text) in
            [("write_cache", "write back\n"), ("fua", "1\n"), ("logical_block_size", "512\n")]
        {
            std::fs::write(files.join(name), text).unwrap();
        }
        let (name, found) = queue(&partition).unwrap();
        let expected = Device {
            name: "nvme0n1".to_owned(),
            volatile_cache: Some(true),
            fua: Some(true),
            logical_block_bytes: Some(512),
            rotational: None,
        };
        assert_eq!(read(name, &found), expected);
    }
}
