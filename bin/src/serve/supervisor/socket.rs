//! The way to the service manager: one datagram socket, named by `NOTIFY_SOCKET`. Never blocks.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use super::word::Word;

/// Where the manager listens, and how often it wants to hear that the process is alive.
#[derive(Debug, Default)]
pub struct Socket {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    /// Awaited words that could not be sent yet.
    unsent: Vec<Word>,
}

impl Socket {
    /// What the environment of this process says. Without a manager everything is said to nobody.
    #[must_use]
    pub fn of_this_process() -> Self {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let Some(name) = var("NOTIFY_SOCKET") else { return Self::default() };
        let number = |name| var(name)?.into_string().ok()?.parse::<u64>().ok();
        let mine = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| mine && *usec > 0);
        match open(&name) {
            Ok(to) => Self {
                to: Some(to),
                watchdog: watchdog.map(Duration::from_micros),
                unsent: Vec::new(),
            },
            Err(error) => {
                tracing::warn!(event = "manager_unreachable", socket = ?name, %error);
                Self::default()
            }
        }
    }

    /// Whether anybody listens.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.to.is_some()
    }

    /// Without a sign of life for so long the manager ends the process.
    #[must_use]
    pub const fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Says `words` in one message. What is awaited and cannot be sent now goes with the next one.
    pub fn say(&mut self, words: &[Word]) {
        let Some((socket, address)) = &self.to else { return };
        self.unsent.extend_from_slice(words);
        if self.unsent.is_empty() {
            return;
        }
        let mut message = String::new();
        self.unsent.iter().for_each(|word| word.encode(&mut message));
        match socket.send_to_addr(message.as_bytes(), address) {
            Ok(_) => self.unsent.clear(),
            Err(_) => self.unsent.retain(Word::is_awaited),
        }
    }
}

fn open(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(OsString::from(name))?,
        _ => return Err(io::Error::other("neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 512];
        let count = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
    }

    #[test]
    fn what_is_awaited_is_said_again_when_the_manager_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let to = Some(open(path.as_os_str()).unwrap());
        let mut socket = Socket { to, ..Socket::default() };
        socket.say(&[Word::Ready, Word::Alive]);
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        socket.say(&[]);
        assert_eq!(received(&manager).as_deref(), Some("READY=1\n"));
        socket.say(&[]);
        assert_eq!(received(&manager), None);
    }

    #[test]
    fn a_name_of_another_kind_is_refused() {
        assert!(open(OsStr::new("vsock:2:1234")).is_err());
        assert!(open(OsStr::new("@duolog-test")).is_ok());
    }
}
