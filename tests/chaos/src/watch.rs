//! Looks at the nodes all the time and writes down what they say they are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use duolog_tests::pair::{Role, Status};
use duolog_tests::process::pause;
use serde_json::{Value as Json, json};

use crate::journal::Journal;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug)]
pub struct Watch {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

fn seen(status: Option<&Status>) -> Json {
    let Some(status) = status else { return json!({ "role": "silent" }) };
    let role = match status.role() {
        Role::Leader if status.acks_by_peer() => "leader",
        Role::Leader => "leader, second copy in the bucket",
        Role::Follower => "follower",
        Role::Other => "between",
    };
    json!({ "role": role, "epoch": status.epoch() })
}

impl Watch {
    /// Begins.
    #[must_use]
    pub fn start(nodes: Vec<SocketAddr>, journal: &Journal) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = nodes.into_iter().enumerate().map(|(number, address)| {
            let (stop, journal) = (Arc::clone(&stop), journal.clone());
            std::thread::spawn(move || {
                let mut before = Json::Null;
                while !stop.load(Ordering::Relaxed) {
                    let now = seen(Status::of(address).as_ref());
                    if now != before {
                        let mut line = now.clone();
                        line["node"] = json!(number);
                        journal.note("role", line);
                        before = now;
                    }
                    pause(LOOK);
                }
            })
        });
        Self { threads: threads.collect(), stop }
    }

    /// Ends.
    ///
    /// # Panics
    /// When a look did.
    pub fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("looking does not panic");
        }
    }
}
