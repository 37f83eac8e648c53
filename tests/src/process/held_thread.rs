//! One thread of a server, held in its tracks while the others run.

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// See the module. Goes on when this is dropped, by the thread that held it.
#[derive(Debug)]
pub struct HeldThread(Pid);

impl HeldThread {
    /// Holds the thread of `process` with this name; why it cannot.
    pub fn hold(process: u32, name: &str) -> Result<Self, String> {
        let thread = find(process, name).ok_or_else(|| format!("{process} has no {name}"))?;
        let refused = |error: nix::Error| format!("{name} cannot be traced: {error}");
        ptrace::attach(thread).map_err(refused)?;
        waitpid(thread, Some(WaitPidFlag::__WALL)).map_err(refused)?;
        Ok(Self(thread))
    }
}

impl Drop for HeldThread {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = ptrace::detach(self.0, None);
    }
}

fn find(process: u32, name: &str) -> Option<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    tasks.flatten().find_map(|task| {
        let found = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let number = task.file_name().to_str()?.parse().ok()?;
        (found.trim() == name).then(|| Pid::from_raw(number))
    })
}
