//! The machine that a result was measured on, as the kernel tells it. What is not told is `null`.

use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};

/// The generator's machine; also the server's if they share one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Host {
    pub name: String,
    pub kernel: String,
    pub architecture: String,
    pub cpu_model: Option<String>,
    /// Logical processors that are online.
    pub cpus_online: Option<String>,
    /// The generator may run on these.
    pub affinity: String,
    pub sockets: Option<usize>,
    /// Logical processors of one core.
    pub threads_per_core: Option<usize>,
    /// What sets the clock rate; virtual machines have none.
    pub governor: Option<String>,
    pub memory_bytes: Option<u64>,
    /// What the machine runs in; `null`: nothing that shows.
    pub virtualisation: Option<String>,
    pub transparent_huge_pages: Option<String>,
    /// Runnable threads, average of the last minute before the run.
    pub load_average_1m: Option<f64>,
}

impl Host {
    /// This machine.
    #[must_use]
    pub fn read() -> Self {
        let system = rustix::system::uname();
        let cpu_info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = "/sys/devices/system/cpu";
        Self {
            name: system.nodename().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
            architecture: system.machine().to_string_lossy().into_owned(),
            cpu_model: field(&cpu_info, "model name"),
            cpus_online: text(format!("{cpu}/online")),
            affinity: affinity(),
            sockets: count(&cpu_info, "physical id"),
            threads_per_core: text(format!("{cpu}/cpu0/topology/thread_siblings_list"))
                .map(|list| expand(&list)),
            governor: text(format!("{cpu}/cpu0/cpufreq/scaling_governor")),
            memory_bytes: text("/proc/meminfo").as_deref().and_then(memory_bytes),
            virtualisation: virtualisation(&cpu_info),
            transparent_huge_pages: text("/sys/kernel/mm/transparent_hugepage/enabled")
                .as_deref()
                .and_then(chosen),
            load_average_1m: text("/proc/loadavg")
                .and_then(|text| text.split_whitespace().next()?.parse().ok()),
        }
    }
}

/// A file's text without the blanks at its ends.
pub(super) fn text(path: impl AsRef<Path>) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The one of several words that stands in brackets, as the kernel marks a choice.
pub(super) fn chosen(text: &str) -> Option<String> {
    let (_, behind) = text.split_once('[')?;
    Some(behind.split_once(']')?.0.to_owned())
}

fn values<'a>(cpu_info: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    cpu_info.lines().filter_map(move |line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim())
    })
}

fn field(cpu_info: &str, name: &str) -> Option<String> {
    values(cpu_info, name).next().map(str::to_owned)
}

/// How many different values a field has.
fn count(cpu_info: &str, name: &str) -> Option<usize> {
    let mut found: Vec<&str> = values(cpu_info, name).collect();
    found.sort_unstable();
    found.dedup();
    (!found.is_empty()).then_some(found.len())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let kib = values(meminfo, "MemTotal").next()?.strip_suffix(" kB")?;
    kib.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// A product name of the firmware, else what the hypervisor tells the processor to say.
fn virtualisation(cpu_info: &str) -> Option<String> {
    let flags = values(cpu_info, "flags").next().unwrap_or_default();
    let virtual_cpu = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let container = Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists();
    let vendor = text("/sys/class/dmi/id/sys_vendor");
    let product = text("/sys/class/dmi/id/product_name");
    let name = match (vendor, product) {
        (Some(vendor), Some(product)) => format!("{vendor} {product}"),
        _ => "virtual machine".to_owned(),
    };
    match (virtual_cpu, container) {
        (true, true) => Some(format!("container in {name}")),
        (true, false) => Some(name),
        (false, true) => Some("container".to_owned()),
        (false, false) => None,
    }
}

/// The processors of this thread's mask, as the kernel writes lists: `0-3,8`.
fn affinity() -> String {
    let Ok(mask) = sched_getaffinity(None) else { return "unknown".to_owned() };
    let set: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect();
    ranges(&set)
}

fn ranges(ascending: &[usize]) -> String {
    let runs = ascending.chunk_by(|one, next| one + 1 == *next);
    let run = |run: &[usize]| match run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(usize::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

/// How many numbers a list like `0-3,8` names.
fn expand(list: &str) -> usize {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => last.saturating_sub(first) + 1,
            _ => 0,
        }
    };
    list.split(',').map(part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let first = "processor : 0\nmodel name\t: A B\nphysical id\t: 0\nflags\t: hypervisor\n";
        let cpu_info = &format!("{first}processor : 1\nmodel name\t: A B\nphysical id\t: 1\n");
        assert_eq!(field(cpu_info, "model name").as_deref(), Some("A B"));
        assert_eq!((count(cpu_info, "physical id"), count(cpu_info, "no")), (Some(2), None));
        assert!(virtualisation(cpu_info).is_some());
        assert_eq!(memory_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn lists_of_processors_are_written_as_the_kernel_writes_them() {
        assert_eq!(ranges(&[0, 1, 2, 5, 8, 9]), "0-2,5,8-9");
        assert_eq!((ranges(&[]), expand("0-2,5"), expand("0")), (String::new(), 4, 1));
    }

    #[test]
    fn this_machine_has_a_name_a_kernel_and_memory() {
        let host = Host::read();
        assert!(!host.kernel.is_empty() && !host.affinity.is_empty(), "{host:?}");
        assert!(host.memory_bytes > Some(1 << 20), "{host:?}");
    }
}
