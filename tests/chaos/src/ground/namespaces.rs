//! A network of one's own: namespaces for the nodes and the store, joined by a bridge in the
//! namespace of the clients. Nothing of the machine's own network is touched.
//!
//! A direction is blocked at its sender: the neighbour's address becomes one that nobody has, so
//! that packets leave and vanish. It needs no packet filter and no traffic shaper in the kernel.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use duolog_s3dev::{Server, Settings};
use duolog_tests::pair::{Dress, Ground};
use duolog_tests::process::{skip, within};
use rustix::process::{Pid, Signal, kill_process};

use super::{NODES_MAX, Place};

/// How the names of all of them begin; the supervisor's process number follows.
pub const OURS: &str = "duolog-chaos-";
/// The hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:00:99";
const CLIENT_PORT: u16 = 7400;
const PEER_PORT: u16 = 7401;
const STORE_PORT: u16 = 9000;

/// See the module.
#[derive(Debug)]
pub struct Namespaces {
    prefix: String,
}

const fn address(place: Place) -> Ipv4Addr {
    match place {
        Place::Store => Ipv4Addr::new(10, 213, 0, 2),
        Place::Node(number) => Ipv4Addr::new(10, 213, 0, 10 + number as u8),
    }
}

fn name(prefix: &str, place: Place) -> String {
    match place {
        Place::Store => format!("{prefix}-store"),
        Place::Node(number) => format!("{prefix}-{number}"),
    }
}

/// Where the clients are.
pub fn hub(prefix: &str) -> String {
    format!("{prefix}-hub")
}

fn places() -> impl Iterator<Item = Place> {
    (0..NODES_MAX).map(Place::Node).chain([Place::Store])
}

fn ip(words: &str) -> io::Result<()> {
    let ran = Command::new("ip").args(words.split(' ')).output()?;
    if ran.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(io::Error::other(format!("ip {words}: {told}")))
}

impl Namespaces {
    /// Makes them all.
    ///
    /// # Errors
    /// No `ip`, no right to make namespaces, no bridges or pairs of devices in the kernel.
    pub fn make(prefix: &str) -> io::Result<()> {
        let hub = hub(prefix);
        ip(&format!("netns add {hub}"))?;
        ip(&format!("-n {hub} link add bridge type bridge"))?;
        ip(&format!("-n {hub} address add 10.213.0.1/24 dev bridge"))?;
        ip(&format!("-n {hub} link set lo up"))?;
        ip(&format!("-n {hub} link set bridge up"))?;
        for (port, place) in places().enumerate() {
            let (name, address) = (name(prefix, place), address(place));
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add port{port} netns {hub} type veth peer name eth0 netns {name}"))?;
            ip(&format!("-n {hub} link set port{port} master bridge up"))?;
            ip(&format!("-n {name} address add {address}/24 dev eth0"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
        }
        Ok(())
    }

    /// Ends what supervisors that were killed have left: their nodes and their namespaces.
    pub fn sweep() {
        let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
            let Some(rest) = name.strip_prefix(OURS) else { continue };
            let supervisor = rest.split('-').next().unwrap_or_default();
            if Path::new("/proc").join(supervisor).exists() {
                continue;
            }
            let told = Command::new("ip").args(["netns", "pids", &name]).output();
            let told = told.map(|ran| ran.stdout).unwrap_or_default();
            for pid in String::from_utf8_lossy(&told).lines().filter_map(|pid| pid.parse().ok()) {
                // It may have ended meanwhile.
                let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
            }
            let _ = ip(&format!("netns delete {name}"));
        }
    }

    /// Removes them all, as far as they are there.
    pub fn remove(prefix: &str) {
        for name in places().map(|place| name(prefix, place)).chain([hub(prefix)]) {
            // One that is not there need not be removed.
            let _ = ip(&format!("netns delete {name}"));
        }
    }

    /// Uses those that were made. This process is in the hub.
    pub(super) fn enter(prefix: &str) -> (Self, Ground) {
        let listen = SocketAddr::from((address(Place::Store), STORE_PORT));
        let settings = Settings { listen, ..Settings::default() };
        let started = within(&name(prefix, Place::Store), || Server::start(&settings));
        let s3 = started.expect("the namespace is there").expect("the embedded S3 starts");
        let (url, owned) = (s3.url(), prefix.to_owned());
        let dress = Dress(Box::new(move |number, mut options| {
            let ip = address(Place::Node(number));
            options.address = SocketAddr::from((ip, CLIENT_PORT));
            options
                .namespace(&name(&owned, Place::Node(number)))
                .flag("listen-peer", &SocketAddr::from((ip, PEER_PORT)).to_string())
                .flag("s3-endpoint", &url)
        }));
        (Self { prefix: prefix.to_owned() }, Ground { s3, dress })
    }

    /// See [`super::Lab::block`].
    pub(super) fn block(&self, from: Place, to: Place, blocked: bool) {
        let (name, to) = (name(&self.prefix, from), address(to));
        let done = if blocked {
            ip(&format!("-n {name} neigh replace {to} lladdr {NOBODY} nud permanent dev eth0"))
        } else {
            ip(&format!("-n {name} neigh delete {to} dev eth0"))
        };
        if let (Err(error), true) = (done, blocked) {
            skip("a blocked direction", &error.to_string());
            panic!("the direction from {name} to {to} cannot be blocked");
        }
    }
}
