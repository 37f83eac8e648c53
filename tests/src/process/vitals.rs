//! What the system says about a running process.

use std::time::Duration;

/// Figures of a process, read from `/proc`.
#[derive(Clone, Copy, Debug)]
pub struct Vitals {
    /// Memory in RAM, bytes.
    pub resident_bytes: u64,
    /// Time on a CPU so far, in user and kernel mode, ended threads included.
    pub cpu: Duration,
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
}

impl Vitals {
    /// Reads the figures of the process with this number.
    #[must_use]
    pub fn of(process: u32) -> Self {
        let read = |name: &str| {
            let path = format!("/proc/{process}/{name}");
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let status = read("status");
        let number = |label: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(label));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse::<u64>().ok())
                .unwrap_or_else(|| panic!("process {process} has no {label}"))
        };
        let open = std::fs::read_dir(format!("/proc/{process}/fd"));
        Self {
            resident_bytes: number("VmRSS:") * 1024,
            cpu: cpu(&read("stat")),
            descriptors: open.map_or(0, Iterator::count),
            threads: number("Threads:") as usize,
        }
    }
}

/// Fields 14 and 15 of `stat`, counted behind the name, which may hold anything but `)`.
fn cpu(stat: &str) -> Duration {
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let sum = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
    let sum = sum.unwrap_or_else(|| panic!("not a process's stat: {stat}"));
    Duration::from_millis(sum * 1000 / rustix::param::clock_ticks_per_second())
}
