//! A service manager to servers under test: it listens where `NOTIFY_SOCKET` says and keeps what
//! it is told.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::patience::until;

/// How long a word may take to come.
const PATIENCE: Duration = Duration::from_secs(40);

/// See the module.
#[derive(Debug)]
pub struct Manager {
    /// The value of `NOTIFY_SOCKET`.
    pub address: String,
    told: Arc<Mutex<Vec<String>>>,
}

impl Manager {
    /// Listens at a path.
    ///
    /// # Panics
    /// When there is a file.
    #[must_use]
    pub fn at_path(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("the path is free");
        Self::listen(path.display().to_string(), socket)
    }

    /// Listens at an abstract name that nobody else has.
    ///
    /// # Panics
    /// When the system has no such names.
    #[must_use]
    pub fn at_name() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("duolog-test-{}-{number}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("the name is short");
        let socket = UnixDatagram::bind_addr(&address).expect("nobody has the name");
        Self::listen(format!("@{name}"), socket)
    }

    fn listen(address: String, socket: UnixDatagram) -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let target = Arc::clone(&told);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It ends with the test's process.
            while let Ok(count) = socket.recv(&mut bytes) {
                let message = String::from_utf8_lossy(&bytes[..count]).into_owned();
                let mut told = target.lock().unwrap_or_else(PoisonError::into_inner);
                told.extend(message.lines().map(str::to_owned));
            }
        });
        Self { address, told }
    }

    /// Everything that was said, in order.
    #[must_use]
    pub fn told(&self) -> Vec<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often this was said.
    #[must_use]
    pub fn count(&self, word: &str) -> usize {
        self.told().iter().filter(|told| *told == word).count()
    }

    /// The place of the first word that begins so, if it has come.
    #[must_use]
    pub fn position(&self, beginning: &str) -> Option<usize> {
        self.told().iter().position(|told| told.starts_with(beginning))
    }

    /// Waits until a word that begins so has come `times` times.
    pub fn await_word(&self, beginning: &str, times: usize) {
        until(PATIENCE, &format!("{times} times {beginning}: {:?}", self.told()), || {
            let told = self.told();
            let found = told.iter().filter(|told| told.starts_with(beginning));
            (found.count() >= times).then_some(())
        });
    }
}
