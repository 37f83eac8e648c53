//! Which CPUs this process may run on.

use rustix::thread::{CpuSet, sched_getaffinity};

/// The CPUs in the affinity mask of this process, ascending; never empty: a process runs somewhere.
#[must_use]
pub fn cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(mask) => (0..CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect(),
        // The call fails only on machines with more CPUs than a mask holds: count them instead.
        Err(_) => {
            let count = std::thread::available_parallelism().map_or(1, usize::from);
            (0..count).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_on_some_cpu_and_the_list_ascends() {
        let cpus = cpus();
        assert!(!cpus.is_empty());
        assert!(cpus.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
