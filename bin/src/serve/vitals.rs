//! What this process has consumed so far, as the kernel counts it.

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::version::{COMMIT, VERSION};

/// A reading.
#[derive(Clone, Copy, Debug)]
pub struct Vitals {
    /// Processor time of all threads since the start, in user and kernel mode, microseconds.
    pub cpu_us: u64,
    /// Memory in use; `None` where `/proc` is not there.
    pub resident_bytes: Option<u64>,
    /// Open files, sockets included; `None` where `/proc` is not there.
    pub open_files: Option<u64>,
}

impl Vitals {
    /// Of this process, now.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let part = |part: i64| u64::try_from(part).unwrap_or(0);
        let cpu_us = part(time.tv_sec) * 1_000_000 + part(time.tv_nsec) / 1000;
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.as_deref().and_then(resident_pages);
        let resident_bytes = pages.map(|pages| pages * rustix::param::page_size() as u64);
        // One of them is the list itself.
        let open = std::fs::read_dir("/proc/self/fd").ok();
        let open_files = open.map(|list| (list.count() as u64).saturating_sub(1));
        Self { cpu_us, resident_bytes, open_files }
    }
}

/// Puts into a node's status what its process is and has consumed.
pub fn tell(status: &mut Value) {
    let Vitals { cpu_us, resident_bytes, .. } = Vitals::now();
    status["version"] = json!(VERSION);
    status["commit"] = json!(COMMIT);
    status["cpu_us"] = json!(cpu_us);
    status["resident_bytes"] = json!(resident_bytes);
}

/// The second number of `/proc/PID/statm` (proc(5)).
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_and_memory_is_in_bytes() {
        let before = Vitals::now();
        let mut sum = 0_u64;
        while Vitals::now().cpu_us == before.cpu_us {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(Vitals::now().cpu_us > before.cpu_us);
        assert_eq!(resident_pages("1000 250 80 1 0 400 0\n"), Some(250));
        assert_eq!(resident_pages(""), None);
        let resident = before.resident_bytes.expect("this machine has /proc");
        assert!(resident > 500_000, "{resident} bytes is less than any process has");
        let files: Vec<_> = (0..200).map(|_| std::fs::File::open("/proc/self/statm")).collect();
        assert!(files.iter().all(Result::is_ok) && Vitals::now().open_files >= Some(200));
    }
}
