//! The locked-memory limit against what the shards' rings need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::exit::Exit;

/// Locked memory that one executor needs: its rings and registered buffers. The runtime refuses to
/// start an executor below this (its documentation, "Memory lock").
pub const PER_SHARD_BYTES: u64 = 512 << 10;

/// `CAP_IPC_LOCK`, bit 14: memory of its holder is not charged against the limit.
const CAP_IPC_LOCK: u32 = 14;

/// The limit as it stands. `None` means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memlock {
    /// In force, bytes.
    pub soft_bytes: Option<u64>,
    /// Up to here the process may raise it itself, bytes.
    pub hard_bytes: Option<u64>,
    /// The process holds `CAP_IPC_LOCK`: the kernel does not charge it.
    pub exempt: bool,
}

/// The limit is too low.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the locked-memory limit is {limit_bytes} bytes, {shards} shards need {needed_bytes}; \
     run: ulimit -l {} (or LimitMEMLOCK={} in the systemd unit, or docker run --ulimit \
     memlock={needed_bytes}), or lower shards.count",
    needed_bytes / 1024,
    needed_bytes
)]
pub struct MemlockError {
    /// The hard limit, bytes.
    pub limit_bytes: u64,
    /// What is needed, bytes.
    pub needed_bytes: u64,
    /// For so many shards.
    pub shards: u32,
}

impl MemlockError {
    /// The exit code of a server that meets this.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        Exit::MemlockTooLow
    }
}

impl Memlock {
    /// Reads the limit of this process.
    #[must_use]
    pub fn read() -> Self {
        let limit = getrlimit(Resource::Memlock);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let exempt = has_capability(&status, CAP_IPC_LOCK);
        Self { soft_bytes: limit.current, hard_bytes: limit.maximum, exempt }
    }

    /// What `shards` executors need under this limit, bytes.
    #[must_use]
    pub fn needed_bytes(&self, shards: u32) -> u64 {
        // Without the charge only the runtime's own check of the limit's size remains.
        if self.exempt { PER_SHARD_BYTES } else { PER_SHARD_BYTES * u64::from(shards) }
    }

    /// Whether `shards` executors fit, if need be after raising the soft limit.
    pub fn check(&self, shards: u32) -> Result<(), MemlockError> {
        let needed_bytes = self.needed_bytes(shards);
        match self.hard_bytes {
            Some(limit_bytes) if limit_bytes < needed_bytes => {
                Err(MemlockError { limit_bytes, needed_bytes, shards })
            }
            _ => Ok(()),
        }
    }
}

/// Makes sure that `shards` executors get their locked memory: raises the soft limit to the hard
/// one where that is enough.
pub fn ensure(shards: u32) -> Result<(), MemlockError> {
    let limit = Memlock::read();
    limit.check(shards)?;
    let needed_bytes = limit.needed_bytes(shards);
    if limit.soft_bytes.is_some_and(|soft| soft < needed_bytes) {
        let raised = Rlimit { current: limit.hard_bytes, maximum: limit.hard_bytes };
        setrlimit(Resource::Memlock, raised).map_err(|_| MemlockError {
            limit_bytes: limit.soft_bytes.unwrap_or(u64::MAX),
            needed_bytes,
            shards,
        })?;
    }
    Ok(())
}

fn has_capability(status: &str, bit: u32) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    set & (1 << bit) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn limit(soft: u64, hard: u64, exempt: bool) -> Memlock {
        Memlock { soft_bytes: Some(soft), hard_bytes: Some(hard), exempt }
    }

    #[test]
    fn the_hard_limit_must_hold_every_shard_not_only_some() {
        let eight_of_sixteen = limit(4 << 20, 4 << 20, false);
        assert_eq!(eight_of_sixteen.check(8), Ok(()));
        let error = eight_of_sixteen.check(16).unwrap_err();
        assert_eq!(error.needed_bytes, 8 << 20);
        let text = error.to_string();
        assert!(text.contains("ulimit -l 8192") && text.contains("LimitMEMLOCK=8388608"), "{text}");
        assert_eq!(limit(1 << 10, 8 << 20, false).check(16), Ok(()));
        assert_eq!(limit(1 << 20, 1 << 20, true).check(16), Ok(()));
        assert!(limit(64 << 10, 64 << 10, true).check(1).is_err());
        assert_eq!(Memlock { hard_bytes: None, ..limit(0, 0, false) }.check(512), Ok(()));
    }

    #[test]
    fn capabilities_are_read_from_the_status_file() {
        assert!(has_capability("CapPrm:\t0\nCapEff:\t0000000000004000\n", CAP_IPC_LOCK));
        assert!(!has_capability("CapEff:\t0000000000000001\n", CAP_IPC_LOCK));
        assert!(!has_capability("", CAP_IPC_LOCK));
    }
}
