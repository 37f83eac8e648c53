//! Probes of the machine: small questions to the kernel and the disk with typed answers. `doctor`
//! prints them all; a server asks the ones it cannot live without before it touches anything.

pub mod affinity;
pub mod device;
pub mod direct;
pub mod latency;
pub mod memlock;
pub mod placement;
pub mod port;

use crate::datadir::IDENTITY_FILE;
use crate::exit::{Exit, Failure};
use crate::probe::direct::{DirectError, DirectIo};
use crate::probe::port::Port;
use crate::settings::Settings;
use crate::uring::ring;

/// What a server has to know before it starts. Asks in the order in which a person would repair:
/// kernel, limits, port, disk. Creates the data directory if it is missing; writes nothing else.
pub fn boot(settings: &Settings) -> Result<DirectIo, Failure> {
    let dir = settings.data_dir()?;
    let log = dir.join(IDENTITY_FILE);
    ring::check().map_err(|error| Failure::new(error.exit(), error))?;
    memlock::ensure(settings.shards.count).map_err(|error| Failure::new(error.exit(), error))?;
    for (setting, address) in settings.listen.ports() {
        let origin = settings.origin(setting);
        port::await_free(Port { address, setting, origin: &origin })
            .map_err(|error| Failure::new(error.exit(), error))?;
    }
    std::fs::create_dir_all(dir).map_err(|error| {
        let (path, origin) = (dir.display(), settings.origin("data_dir"));
        let text = format!("cannot create the data directory {path} (from {origin}): {error}");
        Failure::new(Exit::DataDirUnusable, text)
    })?;
    let direct = match direct::check(dir) {
        // A log that is there is served on a full disk too.
        Err(DirectError::NoSpace { .. }) if log.exists() => direct::of_file(&log),
        other => other,
    };
    direct.map_err(|error| Failure::new(error.exit(), error))
}
