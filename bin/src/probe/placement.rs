//! Which CPUs the shards are pinned to, held against the machine: threads of one core, NUMA nodes,
//! and the CPUs that the interrupts of disk and network go to.

use std::path::{Path, PathBuf};

use crate::settings::cpus::{parse_list, write_list};

/// Lines with fewer interrupts than this since the start do not matter.
const INTERRUPTS_MIN: u64 = 1000;

/// One line of a device's interrupts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupts {
    /// The line's name, e.g. `nvme0q1`.
    pub name: String,
    /// Its number under `/proc/irq`.
    pub number: u32,
    /// Since the start.
    pub count: u64,
    /// Where they go now, ascending.
    pub cpus: Vec<usize>,
}

/// What the kernel tells. Empty where it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Threads of one core, where there are several.
    pub siblings: Vec<Vec<usize>>,
    /// CPUs of each NUMA node, where there are several.
    pub nodes: Vec<Vec<usize>>,
    /// Of the disk below the data directory.
    pub disk: Vec<Interrupts>,
    /// Of network devices.
    pub network: Vec<Interrupts>,
}

/// Something to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What is so.
    pub value: String,
    /// What to do.
    pub remedy: String,
}

impl Layout {
    /// Reads it from the system's files below `root`; `disk` is the block device's kernel name.
    #[must_use]
    pub fn read(root: &Path, disk: Option<&str>) -> Self {
        let cpus = root.join("sys/devices/system/cpu");
        let mut siblings = lists(&cpus, "cpu", "topology/thread_siblings_list");
        siblings.retain(|group| group.len() > 1);
        let mut nodes = lists(&root.join("sys/devices/system/node"), "node", "cpulist");
        if nodes.len() < 2 {
            nodes.clear();
        }
        let lines = std::fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
        let interrupts = read_interrupts(&lines, &root.join("proc/irq"));
        let of = |devices: &[String]| {
            let belongs = |line: &&Interrupts| devices.iter().any(|name| is_of(&line.name, name));
            interrupts.iter().filter(belongs).cloned().collect()
        };
        let disk = disk.and_then(|disk| device(&root.join("sys/block").join(disk)));
        Self {
            siblings,
            nodes,
            disk: of(&disk.into_iter().collect::<Vec<_>>()),
            network: of(&network_devices(&root.join("sys/class/net"))),
        }
    }

    /// What could be better with shards pinned to these CPUs.
    #[must_use]
    pub fn advice(&self, shards: &[Vec<usize>]) -> Vec<Advice> {
        let used: Vec<usize> = shards.concat();
        let mut advice = Vec::new();
        for group in &self.siblings {
            if shards.iter().filter(|cpus| meet(cpus, group)).count() > 1 {
                advice.push(Advice {
                    value: format!("CPUs {} are threads of one core", write_list(group)),
                    remedy: "give each shard a core: name one of them in shards.cpus".to_owned(),
                });
            }
        }
        if self.nodes.iter().filter(|node| meet(&used, node)).count() > 1 {
            let nodes: Vec<String> = self.nodes.iter().map(|node| write_list(node)).collect();
            advice.push(Advice {
                value: format!("the shards span NUMA nodes ({})", nodes.join("; ")),
                remedy: "keep them on the node that disk and network are attached to".to_owned(),
            });
        }
        advice.extend(self.network_advice(&used));
        if let [line] = &*self.disk
            && line.count >= INTERRUPTS_MIN
            && !meet(&used, &line.cpus)
        {
            let (name, cpus) = (&line.name, write_list(&line.cpus));
            advice.push(Advice {
                value: format!("the disk's only interrupt ({name}) goes to CPU {cpus}, no shard's"),
                remedy: format!(
                    "pin a shard there (shards.cpus), or write a shard's CPU into \
                     /proc/irq/{}/smp_affinity_list: a write's end then wakes no other core",
                    line.number
                ),
            });
        }
        advice
    }

    /// All network interrupts that go to shards' CPUs, in one.
    fn network_advice(&self, used: &[usize]) -> Option<Advice> {
        let disturbs = |line: &&Interrupts| line.count >= INTERRUPTS_MIN && meet(used, &line.cpus);
        let lines: Vec<&Interrupts> = self.network.iter().filter(disturbs).collect();
        let first = lines.first()?;
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        Some(Advice {
            value: format!("network interrupts come to shards' CPUs ({})", names.join(", ")),
            remedy: format!(
                "keep some CPUs for them: stop irqbalance, write those into \
                 /proc/irq/{}/smp_affinity_list and so on",
                first.number
            ),
        })
    }
}

/// Whether two sets have a CPU in common.
fn meet(some: &[usize], others: &[usize]) -> bool {
    some.iter().any(|cpu| others.contains(cpu))
}

/// The CPU lists in `dir/<prefix><number>/<file>`, each once.
fn lists(dir: &Path, prefix: &str, file: &str) -> Vec<Vec<usize>> {
    let numbered = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix(prefix));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<Vec<usize>> = entries
        .map(|entry| entry.path())
        .filter(numbered)
        .filter_map(|path| parse_list(std::fs::read_to_string(path.join(file)).ok()?.trim()).ok())
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The lines of `/proc/interrupts` that have a number, but for those of a device's settings.
fn read_interrupts(text: &str, lines_dir: &Path) -> Vec<Interrupts> {
    let mut lines = text.lines();
    let columns = lines.next().map_or(0, |head| head.split_whitespace().count());
    lines.filter_map(|line| read_line(line, columns, lines_dir)).collect()
}

fn read_line(line: &str, columns: usize, lines_dir: &Path) -> Option<Interrupts> {
    let (number, rest) = line.split_once(':')?;
    let number: u32 = number.trim().parse().ok()?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let counts: Vec<u64> =
        words.iter().take(columns).filter_map(|word| word.parse().ok()).collect();
    let name = (*words.last()?).to_owned();
    // Changes of settings and NVMe's administration come here, no data.
    if counts.len() < columns || name.ends_with("-config") || name.ends_with("q0") {
        return None;
    }
    // The counts are since the start; where they go may have been changed since.
    let goes = lines_dir.join(number.to_string()).join("effective_affinity_list");
    let told = std::fs::read_to_string(goes).ok().and_then(|text| parse_list(text.trim()).ok());
    let took = counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(cpu, _)| cpu);
    let cpus = told.unwrap_or_else(|| took.collect());
    Some(Interrupts { name, number, count: counts.iter().sum(), cpus })
}

/// Whether an interrupt's name is one of a device's: `virtio1-req.0`, `nvme0q1`, `eth0-Tx-Rx-0`,
/// `ena-mgmnt@pci:0000:00:05.0`.
fn is_of(line: &str, device: &str) -> bool {
    let rest = line.split_once(device);
    rest.is_some_and(|(_, rest)| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

/// The name of the device behind a class or block entry: `virtio1`, `nvme0`, `0000:00:05.0`.
fn device(entry: &Path) -> Option<String> {
    let real = std::fs::canonicalize(entry.join("device")).ok()?;
    Some(real.file_name()?.to_str()?.to_owned())
}

/// Network devices with hardware behind them, by their own and their device's name.
fn network_devices(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if let Some(device) = device(&entry.path()) {
            names.extend(entry.file_name().to_str().map(str::to_owned));
            names.push(device);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPTS: &str = "           CPU0       CPU1       CPU2       CPU3
 24:          1          0          0          0  IO-APIC   5-edge      ACPI:Ged
 35:          0          0          1          0 PCI-MSIX 0-edge      virtio1-config
 36:          0      51512          0          0 PCI-MSIX 1-edge      virtio1-req.0
 38:          0          0      19424       3000 PCI-MSIX 1-edge      virtio2-input.0
 39:          0          0      19424          0 PCI-MSIX 1-edge      virtio12-input.0
NMI:          0          0          0          0   Non-maskable interrupts
";

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Two cores of two threads on two nodes; a disk on CPU 1, a network device on CPU 3.
    fn machine(root: &Path) {
        for (cpu, siblings) in ["0,2", "1,3", "0,2", "1,3"].iter().enumerate() {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            write(&root.join(file), siblings);
        }
        write(&root.join("sys/devices/system/cpu/cpufreq/boost"), "1");
        write(&root.join("sys/devices/system/node/node0/cpulist"), "0,2\n");
        write(&root.join("sys/devices/system/node/node1/cpulist"), "1,3\n");
        write(&root.join("proc/interrupts"), INTERRUPTS);
        // Moved since most of them came.
        write(&root.join("proc/irq/38/effective_affinity_list"), "3\n");
        for (entry, device) in [("sys/block/vda", "virtio1"), ("sys/class/net/eth0", "virtio2")] {
            let real = root.join("sys/devices/pci").join(device);
            std::fs::create_dir_all(&real).unwrap();
            std::fs::create_dir_all(root.join(entry)).unwrap();
            std::os::unix::fs::symlink(&real, root.join(entry).join("device")).unwrap();
        }
        std::fs::create_dir_all(root.join("sys/class/net/lo")).unwrap();
    }

    /// The files of a machine become its layout. Broken if a device is taken for another whose name
    /// begins alike, or interrupts count where they went before they were moved.
    #[test]
    fn a_machine_is_read() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path());
        let line = |name: &str, number, count, cpus: &[usize]| Interrupts {
            name: name.to_owned(),
            number,
            count,
            cpus: cpus.to_vec(),
        };
        let expected = Layout {
            siblings: vec![vec![0, 2], vec![1, 3]],
            nodes: vec![vec![0, 2], vec![1, 3]],
            disk: vec![line("virtio1-req.0", 36, 51512, &[1])],
            network: vec![line("virtio2-input.0", 38, 22424, &[3])],
        };
        assert_eq!(Layout::read(root.path(), Some("vda")), expected);
        assert_eq!(Layout::read(&root.path().join("none"), Some("vda")), Layout::default());
    }

    /// Each point comes when it is so, with what to do, and only then.
    #[test]
    fn advice_is_for_what_could_be_better() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path());
        let layout = Layout::read(root.path(), Some("vda"));
        let values = |shards: &[&[usize]]| -> Vec<String> {
            let shards: Vec<Vec<usize>> = shards.iter().map(|cpus| cpus.to_vec()).collect();
            layout.advice(&shards).into_iter().map(|advice| advice.value).collect()
        };
        assert_eq!(values(&[&[1]]), Vec::<String>::new());
        let away = ["the disk's only interrupt (virtio1-req.0) goes to CPU 1, no shard's"];
        assert_eq!(values(&[&[0]]), away);
        let both = values(&[&[1], &[3]]);
        assert_eq!(both[0], "CPUs 1,3 are threads of one core");
        assert_eq!(both[1], "network interrupts come to shards' CPUs (virtio2-input.0)");
        assert_eq!(both.len(), 2);
        // One shard may move between the threads of a core.
        assert_eq!(values(&[&[1, 3]]).len(), 1, "only the network's interrupts");
        assert_eq!(values(&[&[0], &[1]]), ["the shards span NUMA nodes (0,2; 1,3)"]);
    }
}
