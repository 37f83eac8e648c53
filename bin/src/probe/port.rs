//! Whether a port is free. Shards share the client port with `SO_REUSEPORT`, under which a second
//! server would start without an error and take half of the connections: so this probe binds
//! without it first. The standard library's listener sets `SO_REUSEADDR`, which lets it pass over
//! closed connections in `TIME_WAIT` but not over a program that listens.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::exit::Exit;

/// How often a port in use is looked at before a server gives up, and the pause between: 2 s.
const LOOKS_MAX: u32 = 100;
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// A port that the settings name.
#[derive(Clone, Copy, Debug)]
pub struct Port<'a> {
    /// Where to listen.
    pub address: SocketAddr,
    /// The setting that says so.
    pub setting: &'static str,
    /// Where the setting came from.
    pub origin: &'a str,
}

/// Why nobody can be served at the address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// Somebody listens there.
    #[error(
        "another program listens on {address} ({setting}, from {origin}); \
         stop it (ss -ltnp shows it) or choose another address"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
        /// The setting that names it.
        setting: &'static str,
        /// Where the setting came from.
        origin: String,
    },
    /// The address is not one of this machine, or the port needs a privilege.
    #[error(
        "cannot listen on {address} ({setting}, from {origin}): {reason}; \
         correct the address"
    )]
    Unusable {
        /// The address.
        address: SocketAddr,
        /// The setting that names it.
        setting: &'static str,
        /// Where the setting came from.
        origin: String,
        /// The system's reason.
        reason: String,
    },
}

impl PortError {
    /// The exit code of a server that meets this.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match self {
            Self::InUse { .. } => Exit::PortInUse,
            Self::Unusable { .. } => Exit::Usage,
        }
    }

    /// The refusal of a bind, with its setting.
    #[must_use]
    pub fn of(error: &io::Error, port: Port<'_>) -> Self {
        let Port { address, setting, origin } = port;
        let origin = origin.to_owned();
        match error.kind() {
            ErrorKind::AddrInUse => Self::InUse { address, setting, origin },
            ErrorKind::AddrNotAvailable => {
                let reason = "no network interface of this machine has this address".to_owned();
                Self::Unusable { address, setting, origin, reason }
            }
            ErrorKind::PermissionDenied => {
                let reason = "ports below 1024 need the capability CAP_NET_BIND_SERVICE".to_owned();
                Self::Unusable { address, setting, origin, reason }
            }
            _ => Self::Unusable { address, setting, origin, reason: error.to_string() },
        }
    }
}

/// Binds and lets go.
pub fn check(port: Port<'_>) -> Result<(), PortError> {
    match TcpListener::bind(port.address) {
        Ok(_listener) => Ok(()),
        Err(error) => Err(PortError::of(&error, port)),
    }
}

/// As [`check`], but patient. The kernel takes down the rings of a killed server after its process
/// is gone, and with them its listening sockets: for some ten milliseconds (measured, Linux 6.18) a
/// port is in use by nobody, and a supervisor that starts the server again at once would meet it.
pub fn await_free(port: Port<'_>) -> Result<(), PortError> {
    for _ in 1..LOOKS_MAX {
        match check(port) {
            Err(PortError::InUse { .. }) => {}
            other => return other,
        }
        #[expect(clippy::disallowed_methods, reason = "the program's start; no shard runs yet")]
        std::thread::sleep(LOOK_PAUSE);
    }
    check(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
    use std::net::{Ipv4Addr, TcpStream};

    fn any() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    }

    fn port(address: SocketAddr) -> Port<'static> {
        Port { address, setting: "listen.client", origin: "flag --listen-client" }
    }

    /// A listener with SO_REUSEPORT, as another Duolog has it, is found all the same.
    #[test]
    fn a_listener_that_shares_its_port_is_found() {
        let other = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseport(&other, true).unwrap();
        bind(&other, &any()).unwrap();
        listen(&other, 1).unwrap();
        let address = SocketAddr::try_from(rustix::net::getsockname(&other).unwrap()).unwrap();
        let error = check(port(address)).unwrap_err();
        assert_eq!(error.exit(), Exit::PortInUse);
        assert!(error.to_string().contains(&address.to_string()));
    }

    /// The server closes first, so its side of the connection stays in TIME_WAIT on the port.
    #[test]
    fn a_closed_connection_in_time_wait_is_no_listener() {
        let listener = TcpListener::bind(any()).unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let (served, _) = listener.accept().unwrap();
        drop(served);
        drop(client);
        drop(listener);
        assert_eq!(check(port(address)), Ok(()));
    }

    #[test]
    fn a_foreign_address_is_a_mistake_in_the_settings() {
        let error = check(port("192.0.2.1:7400".parse().unwrap())).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert!(error.to_string().contains("flag --listen-client"), "{error}");
    }
}
