//! What a server costs and does while it is under load, as the kernel counts it: flushes of the
//! block device, processor time and memory of the server's processes, other programs' use of the
//! processor.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The kernel tells processor time in hundredths of a second, whatever its own tick is.
const TICKS_PER_S: f64 = 100.0;
/// Share of user time of a process that has not used a whole tick yet.
const USER_SHARE_GUESSED: f64 = 0.5;
/// Flush requests: the 16th field of `/sys/block/<dev>/stat` (kernel: Documentation/block/stat).
const FLUSHES_FIELD: usize = 15;

/// The block device under a directory.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name in `/sys/block`.
    pub name: String,
    stat: PathBuf,
}

impl Device {
    /// Finds it.
    ///
    /// # Errors
    /// The directory is on no block device that counts flushes.
    pub fn of(dir: &Path) -> io::Result<Self> {
        let number = fs::metadata(dir)?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let mut place = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))?;
        // Flushes are counted by the disk, not by its partitions.
        if place.join("partition").exists() {
            place.pop();
        }
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let device = Self { name, stat: place.join("stat") };
        device.flushes()?;
        Ok(device)
    }

    /// Flushes since the machine started.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn flushes(&self) -> io::Result<u64> {
        let text = fs::read_to_string(&self.stat)?;
        let flushes = flushes_in(&text);
        flushes.ok_or_else(|| io::Error::other(format!("{} counts no flushes", self.name)))
    }

    /// What the device says of its write cache: `write back` or `write through`.
    #[must_use]
    pub fn write_cache(&self) -> String {
        let told = fs::read_to_string(format!("/sys/block/{}/queue/write_cache", self.name));
        told.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
    }
}

fn flushes_in(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(FLUSHES_FIELD)?.parse().ok()
}

/// Processor time so far.
#[derive(Clone, Debug, Default)]
pub struct Consumption {
    servers: BTreeMap<u32, Spent>,
    own: Spent,
    machine_user_s: f64,
}

/// Processor time of one process, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spent {
    all_s: f64,
    user_s: f64,
}

impl Consumption {
    /// Of these processes and all that descend from them.
    #[must_use]
    pub fn now(roots: &[u32]) -> Self {
        let spent = |id: u32| Some((id, spent_by(id)?));
        let servers = family(roots).into_iter().filter_map(spent).collect();
        let own = spent_by(std::process::id()).unwrap_or_default();
        let machine = fs::read_to_string("/proc/stat").unwrap_or_default();
        let machine_user_s = machine_user_ticks(&machine).unwrap_or(0) as f64 / TICKS_PER_S;
        Self { servers, own, machine_user_s }
    }

    /// Seconds that the servers have used since `earlier`. A process that has ended meanwhile is
    /// not counted, one that began counts in full.
    #[must_use]
    pub fn server_seconds_since(&self, earlier: &Self) -> f64 {
        self.servers_since(earlier).all_s
    }

    /// Seconds of user time of programs that have nothing to do with the measurement. Kernel time
    /// belongs to nobody (interrupts, the disk's workers) and is left out.
    #[must_use]
    pub fn foreign_seconds_since(&self, earlier: &Self) -> f64 {
        let own_s = self.own.user_s - earlier.own.user_s;
        let all_s = self.machine_user_s - earlier.machine_user_s;
        (all_s - own_s - self.servers_since(earlier).user_s).max(0.0)
    }

    fn servers_since(&self, earlier: &Self) -> Spent {
        let mut used = Spent::default();
        for (id, now) in &self.servers {
            let before = earlier.servers.get(id).copied().unwrap_or_default();
            used.all_s += (now.all_s - before.all_s).max(0.0);
            used.user_s += (now.user_s - before.user_s).max(0.0);
        }
        used
    }
}

/// These processes and their descendants.
#[must_use]
pub fn family(roots: &[u32]) -> BTreeSet<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let stat = id.and_then(|id| fs::read_to_string(format!("/proc/{id}/stat")).ok());
        if let (Some(id), Some(parent)) = (id, stat.as_deref().and_then(parent_in)) {
            parents.push((id, parent));
        }
    }
    descendants(roots, &parents)
}

fn descendants(roots: &[u32], parents: &[(u32, u32)]) -> BTreeSet<u32> {
    let mut all: BTreeSet<u32> = roots.iter().copied().collect();
    loop {
        let before = all.len();
        let children = parents.iter().filter(|(_, parent)| all.contains(parent));
        let children: Vec<u32> = children.map(|(id, _)| *id).collect();
        all.extend(children);
        if all.len() == before {
            return all;
        }
    }
}

/// Memory of these processes and their descendants, MiB: what they share counts once (Pss).
#[must_use]
pub fn memory_mib(roots: &[u32]) -> f64 {
    let pss_kib = |id: &u32| {
        let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let sum: f64 = family(roots).iter().filter_map(pss_kib).sum();
    (sum / 102.4).round() / 10.0
}

fn spent_by(id: u32) -> Option<Spent> {
    let ticks = ticks_in(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?;
    let exact = fs::read_to_string(format!("/proc/{id}/schedstat")).ok();
    Some(spent(ticks, exact.as_deref().and_then(run_ns_in)))
}

/// Ticks are cut per process: of five hundred that used some milliseconds each nothing would be
/// seen. The scheduler's own count is exact, but is that of one thread only.
fn spent(ticks: Ticks, run_ns: Option<u64>) -> Spent {
    let told_s = (ticks.user + ticks.system) as f64 / TICKS_PER_S;
    let user_s = ticks.user as f64 / TICKS_PER_S;
    match run_ns.filter(|_| ticks.threads == 1) {
        None => Spent { all_s: told_s, user_s },
        Some(run_ns) => {
            let all_s = run_ns as f64 / 1e9;
            let user_share = if told_s > 0.0 { user_s / told_s } else { USER_SHARE_GUESSED };
            Spent { all_s, user_s: all_s * user_share }
        }
    }
}

/// The fields of `/proc/PID/stat` behind the name, which may itself contain spaces and brackets.
fn fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat[stat.rfind(')')? + 1..].split_whitespace())
}

fn parent_in(stat: &str) -> Option<u32> {
    fields(stat)?.nth(1)?.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    user: u64,
    system: u64,
    threads: u64,
}

fn ticks_in(stat: &str) -> Option<Ticks> {
    let mut fields = fields(stat)?.skip(11);
    let (user, system) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    // Times of children that were waited for, priority and niceness lie in between.
    Some(Ticks { user, system, threads: fields.nth(4)?.parse().ok()? })
}

/// Time on a processor, the first number of `/proc/PID/schedstat`.
fn run_ns_in(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

fn machine_user_ticks(text: &str) -> Option<u64> {
    let mut fields = text.lines().next()?.split_whitespace().skip(1);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's lines are read at the right fields. Broken if reads, discards or the time of
    /// flushes are taken for their number.
    #[test]
    fn the_kernels_lines_are_read_at_the_right_fields() {
        assert_eq!(flushes_in("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n"), Some(16));
        assert_eq!(flushes_in("1 2 3 4 5 6 7 8 9 10 11\n"), None);
        let stat = "77 (a b) c) S 5 2 3 4 5 6 7 8 9 10 42 17 0 0 20 0 3 0";
        assert_eq!(ticks_in(stat), Some(Ticks { user: 42, system: 17, threads: 3 }));
        assert_eq!(run_ns_in("123 4 5\n"), Some(123));
        assert_eq!(parent_in(stat), Some(5));
        assert_eq!(machine_user_ticks("cpu  10 3 7 100 0 0 1\ncpu0 5 1 3 50\n"), Some(13));
    }

    /// A server's processes are all that descend from it, however deep, and nobody else's.
    #[test]
    fn a_family_is_all_descendants() {
        let parents = [(9, 5), (5, 2), (2, 1), (3, 1), (4, 3)];
        assert_eq!(descendants(&[2], &parents), BTreeSet::from([2, 5, 9]));
    }

    /// A process that began between two looks counts in full, one that ended not at all. Broken if
    /// backends that live during a load are missed.
    #[test]
    fn processes_that_begin_count_in_full() {
        let of = |servers: &[(u32, f64)], own_user_s, machine_user_s| Consumption {
            servers: servers
                .iter()
                .map(|(id, user_s)| (*id, Spent { all_s: *user_s * 2.0, user_s: *user_s }))
                .collect(),
            own: Spent { all_s: own_user_s, user_s: own_user_s },
            machine_user_s,
        };
        let before = of(&[(1, 1.0), (2, 0.5)], 0.1, 10.0);
        let after = of(&[(1, 1.5), (3, 0.3)], 0.4, 12.0);
        assert!((after.server_seconds_since(&before) - 1.6).abs() < 1e-9);
        assert!((after.foreign_seconds_since(&before) - 0.9).abs() < 1e-9);
    }

    /// A process of one thread is told to the nanosecond, its user time by its share; of several
    /// threads only ticks tell all. Broken if short work of many processes counts as nothing.
    #[test]
    fn short_work_of_single_threads_is_seen() {
        let ticks = |user, system, threads| Ticks { user, system, threads };
        let short = spent(ticks(0, 0, 1), Some(4_000_000));
        assert_eq!(short, Spent { all_s: 0.004, user_s: 0.002 });
        let longer = spent(ticks(3, 1, 1), Some(44_000_000));
        assert!((longer.all_s - 0.044).abs() < 1e-9 && (longer.user_s - 0.033).abs() < 1e-9);
        assert_eq!(spent(ticks(3, 1, 2), Some(1)), Spent { all_s: 0.04, user_s: 0.03 });
    }
}
