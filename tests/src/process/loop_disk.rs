//! A small disk of one's own: an ext4 image behind a loop device. Needs root; without it, and
//! where the tools or devices are missing, the test is skipped with a message.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::patience::{pause, skip};
use super::program::scratch;

/// Bytes written at a time when the disk is filled.
const CHUNK_BYTES: usize = 64 << 10;

/// A mounted file system; unmounted and removed with the value.
#[derive(Debug)]
pub struct LoopDisk {
    // Holds the image and the mount point; removed last.
    _scratch: TempDir,
    image: PathBuf,
    mount: PathBuf,
    mounted: bool,
}

impl LoopDisk {
    /// Makes and mounts one; `None`, and a message in the name of `test`, where that is not
    /// possible.
    #[must_use]
    pub fn new(test: &str, size_bytes: u64) -> Option<Self> {
        match Self::make(size_bytes) {
            Ok(disk) => Some(disk),
            Err(reason) => {
                skip(test, &reason);
                None
            }
        }
    }

    /// The same.
    ///
    /// # Errors
    /// Why that is not possible, in words.
    pub fn make(size_bytes: u64) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting a file system needs root".to_owned());
        }
        let scratch = scratch();
        let (image, mount) = (scratch.path().join("image"), scratch.path().join("mount"));
        let mut disk = Self { _scratch: scratch, image, mount, mounted: false };
        let made = disk.format(size_bytes);
        made.map_err(|error| format!("no small file system can be mounted here: {error}"))?;
        Ok(disk)
    }

    fn format(&mut self, size_bytes: u64) -> io::Result<()> {
        fs::create_dir(&self.mount)?;
        File::create(&self.image)?.set_len(size_bytes)?;
        // No space kept back for root: root fills it here.
        call(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&self.image))?;
        self.mount()
    }

    fn mount(&mut self) -> io::Result<()> {
        call(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.mount))?;
        self.mounted = true;
        Ok(())
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Takes all space that is left.
    ///
    /// # Panics
    /// When that fails for another reason than the lack of space.
    pub fn fill(&self) {
        let file = fs::OpenOptions::new().create(true).append(true).open(self.filler());
        let mut file = file.expect("the filler can be opened");
        for size in [CHUNK_BYTES, 4096, 512, 1] {
            let chunk = vec![0xee; size];
            loop {
                match file.write_all(&chunk).and_then(|()| file.sync_data()) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => panic!("filling the disk: {error}"),
                }
            }
        }
    }

    /// Gives back the space taken by [`LoopDisk::fill`].
    ///
    /// # Panics
    /// When that fails.
    pub fn free(&self) {
        fs::remove_file(self.filler()).expect("the filler can be removed");
    }

    fn filler(&self) -> PathBuf {
        self.mount.join("filler")
    }

    /// From now on every write to the disk fails, as after a fault of the device.
    pub fn fail_writes(&self) -> io::Result<()> {
        call(Command::new("mount").args(["-o", "remount,abort"]).arg(&self.mount))
    }

    /// Ends a fault: the disk is checked and mounted anew.
    pub fn repair(&mut self) -> io::Result<()> {
        self.unmount()?;
        let checked = Command::new("fsck.ext4").args(["-p", "-f"]).arg(&self.image).output()?;
        // 1: errors were found and corrected.
        match checked.status.code() {
            Some(0 | 1) => self.mount(),
            _ => Err(io::Error::other(String::from_utf8_lossy(&checked.stdout).into_owned())),
        }
    }

    /// What a power cut leaves: nothing that the file system has only in memory reaches the device
    /// any more, and what the device has is mounted again after its journal is replayed. Nobody may
    /// be using the disk. A loop device has no cache of its own that could be lost, too.
    pub fn cut_power(&mut self) -> io::Result<()> {
        self.fail_writes()?;
        self.repair()
    }

    fn unmount(&mut self) -> io::Result<()> {
        let mut last = Ok(());
        for _ in 0..100 {
            last = call(Command::new("umount").arg(&self.mount));
            if last.is_ok() {
                self.mounted = false;
                return last;
            }
            // A process that has just ended may still hold it.
            pause(Duration::from_millis(50));
        }
        last
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if self.mounted
            && let Err(error) = self.unmount()
        {
            skip("a loop disk", &format!("{} stays mounted: {error}", self.mount.display()));
        }
    }
}

fn call(command: &mut Command) -> io::Result<()> {
    let ran = command.output()?;
    if ran.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(io::Error::other(format!("{command:?}: {text}")))
}
