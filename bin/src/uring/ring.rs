//! Whether this process may use `io_uring`: asks the kernel for a ring and gives it back.

use rustix::io::Errno;

use crate::exit::Exit;

/// Why there is no ring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The administrator switched it off.
    #[error(
        "io_uring is switched off: kernel.io_uring_disabled is {0}; \
         run: sysctl -w kernel.io_uring_disabled=0"
    )]
    Sysctl(u32),
    /// A seccomp filter forbids it, as container run-times do by default.
    #[error(
        "io_uring is forbidden by a seccomp filter (container run-times do this by default); \
         allow io_uring_setup, io_uring_enter and io_uring_register in the profile, \
         for example: docker run --security-opt seccomp=PROFILE.json"
    )]
    Seccomp,
    /// Forbidden by something else, for example a security module.
    #[error(
        "io_uring is forbidden (EPERM) though kernel.io_uring_disabled is 0 and no seccomp \
         filter is active; look for a security module's denial in the kernel log"
    )]
    Denied,
    /// The kernel has none.
    #[error("this kernel has no io_uring; use Linux 5.8 or newer, built with CONFIG_IO_URING")]
    Missing,
    /// The ring's memory was refused.
    #[error(
        "the kernel refused memory for an io_uring ring (ENOMEM); \
         raise the locked-memory limit: ulimit -l unlimited"
    )]
    Memory,
    /// Anything else.
    #[error("io_uring_setup failed: {0}; look in the kernel log")]
    Other(String),
}

impl RingError {
    /// The exit code of a server that meets this.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Memory => Exit::MemlockTooLow,
            _ => Exit::IoUringUnavailable,
        }
    }
}

/// Asks for a ring of 8 entries and drops it.
#[expect(unsafe_code, reason = "the system call's wrapper is unsafe for shared worker queues only")]
pub fn check() -> Result<(), RingError> {
    let mut params = rustix::io_uring::io_uring_params::default();
    // SAFETY: the contract concerns `wq_fd` with ATTACH_WQ; the default parameters set neither.
    let ring = unsafe { rustix::io_uring::io_uring_setup(8, &mut params) };
    match ring {
        Ok(_ring) => Ok(()),
        Err(errno) => Err(explain(errno, sysctl(), seccomp_mode())),
    }
}

/// The sysctl's value; 0 where the kernel has no such sysctl.
#[must_use]
pub fn sysctl() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The filter that this process is under: 0 none, 1 strict, 2 a filter (`Seccomp:` of
/// `/proc/self/status`).
#[must_use]
pub fn seccomp_mode() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.and_then(|mode| mode.trim().parse().ok()).unwrap_or(0)
}

fn explain(errno: Errno, sysctl: u32, seccomp_mode: u32) -> RingError {
    match errno {
        Errno::PERM | Errno::ACCESS if sysctl > 0 => RingError::Sysctl(sysctl),
        Errno::PERM | Errno::ACCESS if seccomp_mode > 0 => RingError::Seccomp,
        Errno::PERM | Errno::ACCESS => RingError::Denied,
        // Some profiles answer "no such call" instead of "not permitted".
        Errno::NOSYS if seccomp_mode > 0 => RingError::Seccomp,
        Errno::NOSYS => RingError::Missing,
        Errno::NOMEM => RingError::Memory,
        other => RingError::Other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same refusal has several causes with different remedies; each is told apart.
    #[test]
    fn each_cause_of_a_refusal_gets_its_own_remedy() {
        assert_eq!(explain(Errno::PERM, 2, 2), RingError::Sysctl(2));
        assert_eq!(explain(Errno::PERM, 0, 2), RingError::Seccomp);
        assert_eq!(explain(Errno::PERM, 0, 0), RingError::Denied);
        assert_eq!(explain(Errno::NOSYS, 0, 2), RingError::Seccomp);
        assert_eq!(explain(Errno::NOSYS, 0, 0), RingError::Missing);
        assert_eq!(explain(Errno::NOMEM, 0, 0).exit(), Exit::MemlockTooLow);
        assert_eq!(explain(Errno::INVAL, 0, 0).exit(), Exit::IoUringUnavailable);
        assert!(RingError::Sysctl(1).to_string().contains("sysctl -w kernel.io_uring_disabled=0"));
    }
}
