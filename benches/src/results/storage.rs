//! Where a directory lies: its mount, its file system and the queue of its device.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::host::{chosen, text};

/// See the module's text. What the kernel does not tell is `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Storage {
    pub dir: String,
    pub mount_point: Option<String>,
    pub file_system: Option<String>,
    pub mount_options: Option<String>,
    /// The mounted device as the mount table names it.
    pub source: Option<String>,
    /// The disk's kernel name; none for file systems without one disk.
    pub device: Option<String>,
    pub device_model: Option<String>,
    pub device_size_bytes: Option<u64>,
    /// `write back`: a volatile cache that durable writes have to flush.
    pub write_cache: Option<String>,
    /// The device can write through its cache in one command.
    pub fua: Option<bool>,
    pub scheduler: Option<String>,
    pub rotational: Option<bool>,
    pub logical_block_bytes: Option<u64>,
    pub queue_requests_max: Option<u64>,
}

impl Storage {
    /// Of `dir`, which exists.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        let dir = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
        let table = text("/proc/self/mountinfo").unwrap_or_default();
        let mount = mount_of(&table, &dir);
        let storage = Self { dir: dir.display().to_string(), ..mount.unwrap_or_default() };
        match std::fs::metadata(&dir).ok().and_then(|known| disk(known.dev())) {
            Some(disk) => storage.with_disk(&disk),
            None => storage,
        }
    }

    fn with_disk(self, disk: &Path) -> Self {
        let queue = |name: &str| text(disk.join("queue").join(name));
        let number = |name: &str| queue(name)?.parse::<u64>().ok();
        let flag = |name: &str| number(name).map(|value| value != 0);
        Self {
            device: disk.file_name().map(|name| name.to_string_lossy().into_owned()),
            device_model: text(disk.join("device/model")),
            // Sectors here are always 512 bytes.
            device_size_bytes: text(disk.join("size"))
                .and_then(|text| text.parse::<u64>().ok())
                .map(|sectors| sectors * 512),
            write_cache: queue("write_cache"),
            fua: flag("fua"),
            scheduler: queue("scheduler").as_deref().and_then(chosen),
            rotational: flag("rotational"),
            logical_block_bytes: number("logical_block_size"),
            queue_requests_max: number("nr_requests"),
            ..self
        }
    }
}

/// The disk of a device number, as its directory in sysfs; a partition's queue is its disk's.
fn disk(device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let found = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let owner = found.ancestors().take(2).find(|path| path.join("queue").is_dir())?;
    Some(owner.to_path_buf())
}

/// The line of `/proc/self/mountinfo` (proc(5)) that holds `dir`: of several at one place the last
/// one counts, it lies on top.
fn mount_of(table: &str, dir: &Path) -> Option<Storage> {
    let mut best: Option<(usize, Storage)> = None;
    for line in table.lines() {
        let Some((mount, file_system)) = line.split_once(" - ") else { continue };
        let mount: Vec<&str> = mount.split(' ').collect();
        let (Some(at), Some(options)) = (mount.get(4), mount.get(5)) else { continue };
        let at = plain(at);
        let depth = Path::new(&at).components().count();
        if !dir.starts_with(&at) || best.as_ref().is_some_and(|(found, _)| *found > depth) {
            continue;
        }
        let mut of_file_system = file_system.split(' ');
        let storage = Storage {
            mount_point: Some(at),
            file_system: of_file_system.next().map(str::to_owned),
            mount_options: Some((*options).to_owned()),
            source: of_file_system.next().map(plain),
            ..Storage::default()
        };
        best = Some((depth, storage));
    }
    best.map(|(_, storage)| storage)
}

/// Blanks and the like are written as octal numbers in the table.
fn plain(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:20 / /data rw - tmpfs none rw
31 22 254:16 / /data rw,noatime shared:9 - xfs /dev/vdb rw,attr2
32 22 254:32 / /my\\040disk rw - ext4 /dev/vdc rw
broken line";

    #[test]
    fn the_deepest_and_topmost_mount_holds_a_directory() {
        let found = |dir: &str| {
            let storage = mount_of(TABLE, Path::new(dir)).unwrap();
            (storage.mount_point.unwrap(), storage.file_system.unwrap(), storage.source.unwrap())
        };
        let told = |at: &str, kind: &str, from: &str| (at.into(), kind.into(), from.into());
        assert_eq!(found("/data/a/b"), told("/data", "xfs", "/dev/vdb"));
        assert_eq!(found("/database"), told("/", "ext4", "/dev/root"));
        assert_eq!(found("/my disk/x"), told("/my disk", "ext4", "/dev/vdc"));
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn a_disks_queue_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("nvme0n1");
        std::fs::create_dir_all(disk.join("queue")).unwrap();
        std::fs::write(disk.join("size"), "2048\n").unwrap();
        for (name, text) in [
            ("write_cache", "write through\n"),
            ("fua", "0\n"),
            ("scheduler", "[none] mq-deadline\n"),
            ("nr_requests", "1023\n"),
        ] {
            std::fs::write(disk.join("queue").join(name), text).unwrap();
        }
        let expected = Storage {
            device: Some("nvme0n1".to_owned()),
            device_size_bytes: Some(1 << 20),
            write_cache: Some("write through".to_owned()),
            fua: Some(false),
            scheduler: Some("none".to_owned()),
            queue_requests_max: Some(1023),
            ..Storage::default()
        };
        assert_eq!(Storage::default().with_disk(&disk), expected);
    }
}
