//! Network namespaces of the system, as `ip netns` makes them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip netns` keeps them.
const FOLDER: &str = "/run/netns";

/// Moves this thread, and those that it starts from now on, into the namespace `name`.
///
/// # Errors
/// The namespace is not there, or this process may not enter it.
pub fn enter(name: &str) -> io::Result<()> {
    let namespace = File::open(Path::new(FOLDER).join(name))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Runs `task` on a thread that is in the namespace `name`: sockets that it opens and processes
/// that it starts belong there.
///
/// # Errors
/// The namespace is not there, or this process may not enter it.
///
/// # Panics
/// When `task` does.
pub fn within<T: Send>(name: &str, task: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(move || {
            enter(name)?;
            Ok(task())
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
