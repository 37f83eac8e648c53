//! The thread that answers `duolog doctor` for this node: it looks at the machine and knocks at the
//! other node's door, and may take its time over it.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded};
use duolog_engine::ids::ClusterId;
use duolog_engine::shard::RequestId;
use duolog_net::limits::ADMIN_ANSWER_MAX_BYTES;
use duolog_net::wire::encode_admin_answer;
use serde_json::{Value as Json, json};

use super::clock::Clock;
use super::cluster::join;
use super::inbox::{Inbox, Message};
use crate::doctor;
use crate::settings::Settings;
use crate::settings::show::value_json;
use crate::version::{COMMIT, VERSION};

/// Visits that wait, at most.
const VISITS_MAX: usize = 8;
/// Doors to knock at in one visit, at most.
const DOORS_MAX: usize = 4;
/// How long a door may take to open: as long as the pair's own connections may.
const KNOCK_MAX: Duration = Duration::from_secs(2);
/// Settings that both nodes of a pair must share.
const SHARED: [&str; 7] = [
    "standalone",
    "shards.count",
    "log.segment_size_bytes",
    "heartbeat.interval_ms",
    "heartbeat.lease_duration_ms",
    "max_clock_drift_ms",
    "s3.lease_duration_ms",
];
/// Settings that say where the cluster's objects lie.
const PLACE: [&str; 2] = ["s3.bucket", "s3.subfolder"];

/// Who asks, and where the answer goes.
#[derive(Debug)]
pub struct Asker {
    /// The shard that has the connection.
    pub inbox: Arc<Inbox>,
    /// Its name for the request.
    pub id: RequestId,
    /// The client's number for it.
    pub correlation: u64,
    /// This node.
    pub node: String,
}

impl Asker {
    /// Sends the answer. Waits if the shard's inbox is full: only for threads that may.
    pub fn answer(&self, answer: &Json) {
        let mut text = answer.to_string();
        if text.len() > ADMIN_ANSWER_MAX_BYTES {
            text = json!({ "error": "the answer has more than 256 KiB" }).to_string();
        }
        let mut frame = Vec::new();
        encode_admin_answer(&mut frame, self.correlation, &text);
        self.inbox.send_waiting(Message::Answer { id: self.id, frame });
    }
}

/// The way to the thread.
#[derive(Clone, Debug)]
pub struct Visits {
    jobs: Sender<(Asker, Vec<String>)>,
}

impl Visits {
    /// Starts the thread; it ends with the process.
    ///
    /// # Errors
    /// Of the thread.
    pub fn start(settings: &Settings, cluster: ClusterId) -> io::Result<Self> {
        let (jobs, receiver) = bounded(VISITS_MAX);
        let settings = settings.clone();
        let thread = std::thread::Builder::new().name("visits".to_owned());
        thread.spawn(move || run(&settings, &cluster.to_string(), &receiver))?;
        Ok(Self { jobs })
    }

    /// Has this node looked at, and the doors at `reach` knocked at; whether that was accepted.
    /// Never waits.
    pub fn ask(&self, asker: Asker, reach: Vec<String>) -> bool {
        self.jobs.try_send((asker, reach)).is_ok()
    }
}

fn run(settings: &Settings, cluster: &str, jobs: &Receiver<(Asker, Vec<String>)>) {
    for (asker, reach) in jobs {
        let reached: Vec<Json> = reach.iter().take(DOORS_MAX).map(|door| knock(door)).collect();
        let findings = doctor::json(&doctor::examine_running(settings));
        let proven = settings.data_dir.as_deref().and_then(join::proven);
        let (shared, place) = (some_of(settings, &SHARED), some_of(settings, &PLACE));
        // The clock last: the answer leaves at this moment.
        asker.answer(&json!({
            "node": asker.node,
            "cluster": cluster,
            "version": VERSION,
            "commit": COMMIT,
            "peer_address": peer_address(settings),
            "settings": shared,
            "place": place,
            "store": proven,
            "findings": findings["findings"],
            "reach": reached,
            "at_ms": Clock.now().wall.0,
        }));
    }
}

fn peer_address(settings: &Settings) -> Option<String> {
    let cluster = &settings.cluster;
    let advertised = cluster.advertise_peer.clone();
    (!settings.standalone).then(|| advertised.unwrap_or_else(|| cluster.listen_peer.to_string()))
}

fn some_of(settings: &Settings, names: &[&str]) -> Json {
    let wanted = settings.resolved.iter().filter(|resolved| names.contains(&resolved.key.name));
    let values = wanted.map(|resolved| {
        let value = resolved.value.as_ref().map_or(Json::Null, value_json);
        (resolved.key.name.to_owned(), value)
    });
    Json::Object(values.collect())
}

/// Whether somebody accepts connections there.
#[must_use]
pub fn knock(door: &str) -> Json {
    let began = Clock.mono();
    let opened = door.to_socket_addrs().and_then(|addresses| {
        let nobody = || io::Error::other("the name has no address");
        let mut last = nobody();
        for address in addresses {
            match TcpStream::connect_timeout(&address, KNOCK_MAX) {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    });
    let took_us = Clock.mono().0.saturating_sub(began.0);
    let error = opened.err().map(|error| error.to_string());
    json!({ "address": door, "open": error.is_none(), "error": error, "took_us": took_us })
}
