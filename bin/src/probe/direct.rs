//! Whether a directory's file system really does direct I/O, and with which alignment.
//!
//! A file system that takes `O_DIRECT` and then goes through its cache anyway would make every
//! promise about durable blocks depend on luck; it is told by letting a misaligned write pass.

use std::io;
use std::path::{Path, PathBuf};

use duolog_engine::disk::aligned::AlignedBuffer;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::exit::Exit;

/// Alignment assumed where the kernel does not tell: every file system in use accepts it.
pub const ALIGN_BYTES_DEFAULT: u32 = 4096;
/// Where the kernel has the devices by their numbers.
const DEVICES: &str = "/sys/dev/block";
/// Larger alignments than this are no alignments but mistakes.
const ALIGN_BYTES_MAX: u32 = 1 << 20;

/// What a directory's file system offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectIo {
    /// Name of the file system's type.
    pub file_system: String,
    /// Alignment of offsets and lengths, bytes.
    pub offset_align_bytes: u32,
    /// Alignment of buffers, bytes.
    pub memory_align_bytes: u32,
    /// The kernel told the alignment (`STATX_DIOALIGN`); else it was assumed and tried.
    pub told_by_kernel: bool,
}

/// Why a directory cannot hold a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectError {
    /// A file system in memory.
    #[error(
        "{} is on {file_system}, which keeps files in memory: nothing there is durable; \
         choose a data_dir on a disk (ext4 or XFS)", dir.display()
    )]
    InMemory {
        /// The directory.
        dir: PathBuf,
        /// Its file system.
        file_system: String,
    },
    /// Direct I/O is refused.
    #[error(
        "{} is on {file_system}, which refuses direct I/O ({reason}); \
         choose a data_dir on ext4 or XFS", dir.display()
    )]
    Refused {
        /// The directory.
        dir: PathBuf,
        /// Its file system.
        file_system: String,
        /// The system's reason.
        reason: String,
    },
    /// Direct I/O is accepted and then not done.
    #[error(
        "{} is on {file_system}, which accepts O_DIRECT but does not do direct I/O (a misaligned \
         write passed); choose a data_dir on ext4 or XFS", dir.display()
    )]
    Pretended {
        /// The directory.
        dir: PathBuf,
        /// Its file system.
        file_system: String,
    },
    /// The runtime may not look for the limits of devices.
    #[error(
        "{DEVICES} is hidden from this process ({reason}), as some container run-times do; the \
         limits of the disk are looked up there, let it be seen: \
         podman run --security-opt unmask={DEVICES}"
    )]
    Hidden {
        /// The system's reason.
        reason: String,
    },
    /// No space even for the probe.
    #[error(
        "{}: no space left on the device; free some, the log needs whole segments",
        dir.display()
    )]
    NoSpace {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory cannot be used at all.
    #[error(
        "cannot write in the data directory {}: {reason}; check its owner and mode",
        dir.display()
    )]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// The system's reason.
        reason: String,
    },
}

impl DirectError {
    /// The exit code of a server that meets this.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match self {
            Self::InMemory { .. }
            | Self::Refused { .. }
            | Self::Pretended { .. }
            | Self::Hidden { .. } => Exit::DirectIoUnavailable,
            Self::NoSpace { .. } => Exit::DiskFull,
            Self::Unusable { .. } => Exit::DataDirUnusable,
        }
    }
}

/// Whether `/sys/dev/block` can be looked into, by what came of looking there. A device that is not
/// there is fine, the runtime then assumes limits; at anything else it would give up.
fn visible(looked: io::Result<()>) -> Result<(), DirectError> {
    match looked {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DirectError::Hidden { reason: error.to_string() })
        }
        _ => Ok(()),
    }
}

/// Tries direct I/O in `dir`, which must exist. Leaves nothing behind.
pub fn check(dir: &Path) -> Result<DirectIo, DirectError> {
    let unusable = |error: Errno| DirectError::Unusable {
        dir: dir.to_owned(),
        reason: io::Error::from(error).to_string(),
    };
    visible(std::fs::metadata(Path::new(DEVICES).join("0:0")).map(drop))?;
    let magic = rustix::fs::statfs(dir).map_err(unusable)?.f_type as u64;
    let file_system = file_system_name(magic);
    if matches!(magic, MAGIC_TMPFS | MAGIC_RAMFS) {
        return Err(DirectError::InMemory { dir: dir.to_owned(), file_system });
    }
    let file = open_unnamed(dir, &file_system)?;
    let told = alignment(&file);
    let (memory_align_bytes, offset_align_bytes) =
        told.unwrap_or((ALIGN_BYTES_DEFAULT, ALIGN_BYTES_DEFAULT));
    let refused = |reason: String| DirectError::Refused {
        dir: dir.to_owned(),
        file_system: file_system.clone(),
        reason,
    };
    if offset_align_bytes == 0 {
        return Err(refused("the kernel tells no alignment for it".to_owned()));
    }
    if offset_align_bytes.max(memory_align_bytes) > ALIGN_BYTES_MAX {
        return Err(refused(format!("alignment of {offset_align_bytes} bytes")));
    }
    let length = offset_align_bytes.max(ALIGN_BYTES_DEFAULT) as usize;
    let buffer = AlignedBuffer::zeroed(length, length);
    match rustix::io::pwrite(&file, buffer.bytes(), 0) {
        Ok(written) if written == length => {}
        Ok(written) => return Err(refused(format!("a write of {length} bytes took {written}"))),
        Err(Errno::NOSPC | Errno::DQUOT) => {
            return Err(DirectError::NoSpace { dir: dir.to_owned() });
        }
        Err(error) => return Err(refused(io::Error::from(error).to_string())),
    }
    // No device has an odd alignment, so this must be refused.
    match rustix::io::pwrite(&file, &buffer.bytes()[..17], 1) {
        Err(_) => Ok(DirectIo {
            file_system,
            offset_align_bytes,
            memory_align_bytes,
            told_by_kernel: told.is_some(),
        }),
        Ok(_) => Err(DirectError::Pretended { dir: dir.to_owned(), file_system }),
    }
}

/// What the kernel tells of `path`, a file in a directory that passed [`check`] when it was new.
/// Nothing is written: for a full disk.
pub fn of_file(path: &Path) -> Result<DirectIo, DirectError> {
    let dir = path.parent().unwrap_or(path);
    let failed = |error: Errno| DirectError::Unusable {
        dir: dir.to_owned(),
        reason: io::Error::from(error).to_string(),
    };
    let magic = rustix::fs::statfs(dir).map_err(failed)?.f_type as u64;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let told = alignment(&file);
    let (memory_align_bytes, offset_align_bytes) =
        told.unwrap_or((ALIGN_BYTES_DEFAULT, ALIGN_BYTES_DEFAULT));
    Ok(DirectIo {
        file_system: file_system_name(magic),
        offset_align_bytes,
        memory_align_bytes,
        told_by_kernel: told.is_some(),
    })
}

/// A direct file without a name in `dir`: gone when closed, whatever happens.
fn open_unnamed(dir: &Path, file_system: &str) -> Result<OwnedFd, DirectError> {
    let open = |more: OFlags| {
        let path = dir.join(format!(".duolog-probe-{}", std::process::id()));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | more;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
        // Without its name the file lives as long as the descriptor. A name that cannot be
        // removed again is only a leftover of an unusable directory, which the open reports.
        let _ = rustix::fs::unlink(&path);
        file
    };
    let dir = dir.to_owned();
    match open(OFlags::DIRECT) {
        Ok(file) => Ok(file),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Err(DirectError::Refused {
            dir,
            file_system: file_system.to_owned(),
            reason: "it cannot open a file with O_DIRECT".to_owned(),
        }),
        Err(Errno::NOSPC | Errno::DQUOT) => Err(DirectError::NoSpace { dir }),
        Err(error) => {
            Err(DirectError::Unusable { dir, reason: io::Error::from(error).to_string() })
        }
    }
}

/// Alignment of buffers and of offsets as the kernel tells it (Linux 6.1 and newer).
fn alignment(file: impl AsFd) -> Option<(u32, u32)> {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let mask = StatxFlags::from_bits_retain(told.stx_mask);
    mask.contains(StatxFlags::DIOALIGN)
        .then_some((told.stx_dio_mem_align, told.stx_dio_offset_align))
}

const MAGIC_TMPFS: u64 = 0x0102_1994;
const MAGIC_RAMFS: u64 = 0x8584_58f6;

/// Names of file systems by their magic number (statfs(2)).
fn file_system_name(magic: u64) -> String {
    let known = match magic {
        0xef53 => "ext4",
        0x5846_5342 => "XFS",
        0x9123_683e => "btrfs",
        MAGIC_TMPFS => "tmpfs",
        MAGIC_RAMFS => "ramfs",
        0x794c_7630 => "overlayfs",
        0x6969 => "NFS",
        0x2fc1_2fc1 => "ZFS",
        0xf2f5_2010 => "F2FS",
        0x6573_5546 => "FUSE",
        0x0102_1997 => "9p",
        _ => return format!("a file system of type {magic:#x}"),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_devices_are_told_from_missing_ones() {
        let looked = |kind: io::ErrorKind| visible(Err(kind.into()));
        assert_eq!(visible(Ok(())), Ok(()));
        assert_eq!(looked(io::ErrorKind::NotFound), Ok(()));
        let hidden = looked(io::ErrorKind::PermissionDenied).unwrap_err();
        assert_eq!(hidden.exit(), Exit::DirectIoUnavailable);
        assert!(hidden.to_string().contains("unmask=/sys/dev/block"), "{hidden}");
    }

    #[test]
    fn memory_file_systems_are_refused_even_where_they_accept_the_flag() {
        let dir = Path::new("/dev/shm");
        if !dir.is_dir() {
            eprintln!("skipped: this machine has no tmpfs at /dev/shm");
            return;
        }
        let error = check(dir).unwrap_err();
        assert_eq!(error.exit(), Exit::DirectIoUnavailable);
        assert!(error.to_string().contains("tmpfs"), "{error}");
    }

    #[test]
    fn a_missing_directory_is_unusable_not_incapable() {
        let error = check(Path::new("/nowhere/at/all")).unwrap_err();
        assert_eq!(error.exit(), Exit::DataDirUnusable);
    }

    /// Whatever the answer on the file system of the build, the probe leaves no file.
    #[test]
    fn the_probe_leaves_nothing_behind() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        if let Ok(found) = check(dir.path()) {
            assert!(found.offset_align_bytes.is_power_of_two(), "{found:?}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
