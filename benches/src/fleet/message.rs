//! What a coordinator and its workers say to each other: JSON documents behind their length
//! (`u32`, little-endian). Every message has a bound on its size, so that neither side can be made
//! to fill the other's memory.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::generator::Settings;
use crate::generator::tally::Tally;
use crate::generator::time_line::Reading;

/// The version of what is said here and in which order. A coordinator and a worker of different
/// versions refuse each other.
pub const PROTOCOL: u32 = 1;
/// Largest message of a coordinator, bytes: settings with names and addresses.
pub const ASK_MAX_BYTES: u32 = 64 << 10;
/// Largest message of a worker, bytes: the histograms and time lines of all its threads.
pub const REPLY_MAX_BYTES: u32 = 64 << 20;

/// Protocol and program of one side. Two that differ in any part would not understand each other,
/// or their figures would not add up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The program's version.
    pub program: String,
    /// A hash of the members of [`Settings`] and [`Tally`], so that nobody has to remember to
    /// raise a number when these change.
    pub forms: String,
}

/// A coordinator to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// Answers [`Reply::Hello`].
    Join {
        /// The coordinator's.
        version: Version,
        /// That it knows the token, if it has one; see [`super::token`].
        proof: Option<String>,
    },
    /// To be answered at once: measures the round trip.
    Ping {
        /// Comes back.
        number: u32,
    },
    /// Open the connections of these threads.
    Prepare {
        /// Of the whole run: all workers get the same.
        settings: Box<Settings>,
        /// The first of this worker's threads, in the numbers of the whole run.
        first_thread: u32,
        /// How many it has.
        thread_count: u32,
    },
    /// The load begins this long after the message arrived.
    Go {
        /// Microseconds.
        after_us: u64,
    },
    /// The coordinator is there.
    Alive,
}

/// A worker to its coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The first thing said on a connection.
    Hello {
        /// The worker's.
        version: Version,
        /// What a proof has to be made of; new on every connection.
        nonce: String,
        /// Whether it asks for a proof.
        needs_token: bool,
    },
    /// The connection ends.
    Refused {
        /// Why.
        reason: String,
    },
    /// The coordinator has joined.
    Welcome,
    /// Answers [`Ask::Ping`].
    Pong {
        /// Of the ping.
        number: u32,
    },
    /// Answers [`Ask::Prepare`]: all connections are open.
    Ready,
    /// Answers [`Ask::Go`], when the load is over.
    Done {
        /// One of each thread.
        tallies: Vec<Tally>,
    },
    /// The run cannot go on here.
    Failed {
        /// The server could not be reached.
        unreachable: bool,
        /// Why.
        reason: String,
    },
    /// The worker is there.
    Alive {
        /// What its threads have done so far in this run.
        so_far: Reading,
    },
}

impl Reply {
    /// For an error.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Refused { .. } => "refused",
            Self::Welcome => "welcome",
            Self::Pong { .. } => "pong",
            Self::Ready => "ready",
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
            Self::Alive { .. } => "alive",
        }
    }
}

impl Version {
    /// This program's.
    #[must_use]
    pub fn ours() -> Self {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Self { protocol: PROTOCOL, program, forms: forms() }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, program, forms } = self;
        write!(out, "{program} (control protocol {protocol}, forms {forms})")
    }
}

fn forms() -> String {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let settings = Settings::appends(nowhere, 1, 1, Duration::from_secs(1));
    let mut names = Vec::new();
    for value in [serde_json::to_value(settings), serde_json::to_value(Tally::default())] {
        let value = value.expect("settings and tallies have a JSON form");
        name_members(&value, "", &mut names);
    }
    names.sort_unstable();
    blake3::hash(names.join(" ").as_bytes()).to_hex()[..8].to_owned()
}

/// The path of every member of `value`.
fn name_members(value: &Value, path: &str, names: &mut Vec<String>) {
    for (name, member) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{name}");
        name_members(member, &path, names);
        names.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever travels counts, to the last member. Broken if a member more, less or elsewhere
    /// gives the same names.
    #[test]
    fn every_member_has_a_name() {
        let mut names = Vec::new();
        let value = serde_json::json!({"one": {"two": 2, "three": {}}, "four": [1]});
        name_members(&value, "", &mut names);
        names.sort_unstable();
        assert_eq!(names, ["/four", "/one", "/one/three", "/one/two"]);
        assert_eq!(Version::ours(), Version::ours(), "whatever the run's number is");
    }
}
