//! Network namespaces of the system, as `ip netns` makes them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip netns` keeps them.
const FOLDER: &str = "/run/netns";

/// Runs `task` on a thread that is in the namespace `name`: sockets that it opens and processes
/// that it starts belong there.
///
/// # Errors
/// The namespace is not there, or this process may not enter it.
///
/// # Panics
/// When `task` does.
pub fn within<T: Send>(name: &str, task: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = File::open(Path::new(FOLDER).join(name))?;
    std::thread::scope(|scope| {
        let inside = scope.spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(task())
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
