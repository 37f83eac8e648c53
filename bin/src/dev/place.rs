//! Where the development pair keeps its data, and which ports it takes.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};
use crate::probe::direct;

/// A directory, removed at the end if it is temporary.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    temporary: bool,
}

impl Place {
    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.temporary
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("duolog: {} is left: {error}", self.path.display());
        }
    }
}

/// The directory given, or a new temporary one on a file system that does direct I/O.
pub fn choose(given: Option<&Path>) -> Result<Place, Failure> {
    let create = |path: &Path| {
        std::fs::create_dir_all(path).map_err(|error| {
            Failure::new(Exit::LocalIo, format!("{} cannot be made: {error}", path.display()))
        })
    };
    if let Some(path) = given {
        create(path)?;
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        return Ok(Place { path, temporary: false });
    }
    let name = format!("duolog-dev-{}", std::process::id());
    let here = std::env::current_dir().unwrap_or_default();
    let mut refusals = Vec::new();
    for base in [std::env::temp_dir(), PathBuf::from("/var/tmp"), here] {
        let place = Place { path: base.join(&name), temporary: true };
        if let Err(error) = create(&place.path) {
            refusals.push(error.text);
            continue;
        }
        match direct::check(&place.path) {
            Ok(_) => return Ok(place),
            Err(error) => refusals.push(error.to_string()),
        }
    }
    let text = format!(
        "no directory for the data does direct I/O; name one with --dir. Tried: {}",
        refusals.join("; ")
    );
    Err(Failure::new(Exit::DirectIoUnavailable, text))
}

/// An address on loopback: the usual port, or a free one if that is taken.
pub fn port(usual: u16) -> Result<SocketAddr, Failure> {
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let bound = TcpListener::bind(address(usual)).or_else(|_| TcpListener::bind(address(0)));
    bound.and_then(|listener| listener.local_addr()).map_err(|error| {
        Failure::new(Exit::PortInUse, format!("no port is free on the loopback: {error}"))
    })
}
