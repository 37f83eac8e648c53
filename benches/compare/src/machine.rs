//! What the machine says of itself.

use std::fs;
use std::io;
use std::path::Path;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::probe::Device;
use crate::results::Machine;

/// Describes the machine and the device under `dir`.
#[must_use]
pub fn describe(dir: &Path, device: &Device) -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let memory = value_in(&read("/proc/meminfo"), "MemTotal:");
    let memory_kib: f64 = memory.trim_end_matches(" kB").parse().unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Machine {
        processor: value_in(&read("/proc/cpuinfo"), "model name"),
        cores,
        memory_gib: (memory_kib / 104_857.6).round() / 10.0,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        file_system: file_system(dir, &read("/proc/mounts")),
        device: device.name.clone(),
        write_cache: device.write_cache(),
    }
}

/// Pins the calling thread, and what it starts, to one core.
///
/// # Errors
/// There is no such core.
pub fn pin(cpu: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    Ok(sched_setaffinity(None, &set)?)
}

fn value_in(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim_start_matches([' ', '\t', ':']).trim().to_owned()
}

/// The type of the file system with the longest mount point above `dir`.
fn file_system(dir: &Path, mounts: &str) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let entries = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = entries.filter(|(point, _)| dir.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map_or_else(String::new, |(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_point_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\n/dev/b /tmp xfs rw 0 0\n/dev/c /tm btrfs rw 0 0\n";
        assert_eq!(file_system(Path::new("/tmp"), mounts), "xfs");
        assert_eq!(file_system(Path::new("/"), mounts), "ext4");
        assert_eq!(value_in("model name\t: A B\n", "model name"), "A B");
    }
}
