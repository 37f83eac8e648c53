//! The two nodes as child processes, and what an operator asks of them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duolog_net::client::Client;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::{PairError, S3_LEASE};
use crate::generator::clock::{Clock, pause};
use crate::limits::child::{ChildError, Server, free_address};

/// Between two looks at the nodes.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A pair is healthy again after this at the latest.
const HEALTHY_MAX: Duration = Duration::from_secs(90);
/// How long one question may take.
const ASK_MAX: Duration = Duration::from_millis(1000);

/// One node; `server` is `None` while it is dead.
#[derive(Debug)]
pub struct Node {
    name: &'static str,
    /// Where it takes clients, also after a restart.
    pub client: SocketAddr,
    peer: SocketAddr,
    data: PathBuf,
    server: Option<Server>,
}

/// The nodes of one pair.
#[derive(Debug)]
pub struct Nodes {
    dir: PathBuf,
    store_arguments: Vec<String>,
    runtime: Runtime,
    /// The pair; a third place is that of a blank node.
    pub nodes: Vec<Node>,
}

impl Nodes {
    /// Starts both nodes on a new cluster in a store and waits until they are a pair.
    pub fn start(dir: &Path, store_arguments: Vec<String>) -> Result<Self, PairError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(PairError::Runtime)?;
        let dir = dir.to_owned();
        let mut nodes = Self { dir, store_arguments, runtime, nodes: Vec::new() };
        nodes.add("node-1")?;
        nodes.add("node-2")?;
        nodes.wait_until_healthy()?;
        Ok(nodes)
    }

    /// Starts a blank node.
    pub fn add(&mut self, name: &'static str) -> Result<usize, PairError> {
        let address = || free_address().map_err(|source| ChildError::Start { name, source });
        let (client, peer) = (address()?, address()?);
        let data = self.dir.join(name);
        self.nodes.push(Node { name, client, peer, data, server: None });
        let index = self.nodes.len() - 1;
        self.restart(index)?;
        Ok(index)
    }

    /// Starts a node that is dead, with what it has on disk.
    pub fn restart(&mut self, index: usize) -> Result<(), PairError> {
        let node = &self.nodes[index];
        let (data, lease_ms) = (node.data.to_string_lossy(), S3_LEASE.as_millis().to_string());
        let (client, peer) = (node.client.to_string(), node.peer.to_string());
        let arguments = ["serve", "--data-dir", &data, "--shards-count", "1"];
        let listen = ["--listen-client", &client, "--listen-peer", &peer, "--listen-http", "off"];
        let lease = ["--s3-lease-duration-ms", &lease_ms];
        let store = self.store_arguments.iter().map(String::as_str);
        let arguments: Vec<&str> =
            arguments.into_iter().chain(listen).chain(lease).chain(store).collect();
        let server = Server::start_at(node.name, &self.dir, node.client, &arguments)?;
        self.nodes[index].server = Some(server);
        Ok(())
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self, index: usize) {
        self.nodes[index].server = None;
    }

    /// The process of a node.
    #[must_use]
    pub fn process_id(&self, index: usize) -> Option<u32> {
        self.nodes[index].server.as_ref().map(Server::process_id)
    }

    /// The processes that run.
    #[must_use]
    pub fn process_ids(&self) -> Vec<u32> {
        (0..self.nodes.len()).filter_map(|index| self.process_id(index)).collect()
    }

    /// All addresses for clients, separated by commas.
    #[must_use]
    pub fn addresses(&self) -> String {
        let addresses: Vec<String> =
            self.nodes.iter().map(|node| node.client.to_string()).collect();
        addresses.join(",")
    }

    /// What the node says about itself; `None` when it does not answer.
    #[must_use]
    pub fn status(&self, index: usize) -> Option<Value> {
        self.status_at(self.nodes[index].client)
    }

    /// What the server at `address` says about itself, be it one of these nodes or not.
    #[must_use]
    pub fn status_at(&self, address: SocketAddr) -> Option<Value> {
        status(&self.runtime, address)
    }

    /// Runs a call of the client library.
    pub fn block_on<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// The node that leads, at once or soon.
    pub fn leader(&self) -> Result<usize, PairError> {
        self.wait("a leader", |nodes| {
            (0..nodes.nodes.len())
                .find(|index| nodes.status(*index).is_some_and(|status| status["role"] == "leader"))
        })
    }

    /// Waits until one node leads and the other is its follower whose acks count; the leader.
    pub fn wait_until_healthy(&self) -> Result<usize, PairError> {
        self.wait("a leader with a follower", |nodes| {
            let all = 0..nodes.nodes.len();
            let running = all.filter(|index| nodes.process_id(*index).is_some());
            let told: Vec<(usize, Value)> =
                running.map(|index| Some((index, nodes.status(index)?))).collect::<Option<_>>()?;
            healthy_leader(&told)
        })
    }

    /// Waits until both have committed the same, and no less than they had at the call.
    pub fn wait_until_equal(&self) -> Result<(), PairError> {
        self.wait("equal logs", |nodes| {
            let all = 0..nodes.nodes.len();
            let running = all.filter(|index| nodes.process_id(*index).is_some());
            let told: Vec<Value> =
                running.map(|index| nodes.status(index)).collect::<Option<_>>()?;
            let end = |status: &Value| status["shards"][0]["lsn"].as_u64();
            let whole = |status: &Value| {
                status["shards"][0]["committed"].as_u64() == end(status)
                    && end(status) == end(&told[0])
            };
            told.iter().all(whole).then_some(())
        })
    }

    /// Asks the leader to do something; repeated while the pair is not ready for it.
    pub fn command(&self, request: &str) -> Result<(), PairError> {
        let mut refusal = String::new();
        let outcome = self.wait("the command to be taken", |nodes| {
            let addresses = nodes.addresses();
            let outcome = nodes.runtime.block_on(async {
                let client = Client::builder().addresses(&addresses).deadline(ASK_MAX);
                client.connect().await?.command(request).await
            });
            outcome.map_err(|error| refusal = error.to_string()).ok()
        });
        outcome.map(drop).map_err(|error| match error {
            PairError::Waited { what, after_s, .. } => {
                PairError::Waited { what, after_s, last: refusal }
            }
            other => other,
        })
    }

    fn wait<T>(
        &self,
        what: &'static str,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, PairError> {
        let clock = Clock::start();
        while u128::from(clock.now_ns()) < HEALTHY_MAX.as_nanos() {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            pause(LOOK_EVERY);
        }
        let all = (0..self.nodes.len()).filter(|index| self.process_id(*index).is_some());
        let told: Vec<String> = all
            .map(|index| self.status(index).map_or("no answer".to_owned(), |told| told.to_string()))
            .collect();
        Err(PairError::Waited { what, after_s: HEALTHY_MAX.as_secs(), last: told.join("; ") })
    }
}

fn status(runtime: &Runtime, address: SocketAddr) -> Option<Value> {
    let text = runtime.block_on(async {
        let client = Client::builder().addresses(&address.to_string()).any_node();
        let client = client.connect_timeout(ASK_MAX).deadline(ASK_MAX).connect().await?;
        client.status().await
    });
    serde_json::from_str(&text.ok()?).ok()
}

/// The index of the leader, if there is one and everybody else follows it.
fn healthy_leader(told: &[(usize, Value)]) -> Option<usize> {
    let mut leaders = told.iter().filter(|(_, status)| status["role"] == "leader");
    let (leader, status) = leaders.next()?;
    // Whether a follower is a member is the leader's to say: it may not have heard of it.
    let follows = |other: &Value| {
        ["follower", "catching_up"].iter().any(|role| other["role"] == *role)
            && other["epoch"] == status["epoch"]
    };
    let others_follow = told.iter().all(|(index, other)| index == leader || follows(other));
    let members = status["in_sync"].as_array().map_or(0, Vec::len);
    let counts = status["acks_go_to"] == "peer" && status["peer"]["connected"] == true;
    (told.len() == 2 && others_follow && members == 2 && counts).then_some(*leader)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Broken if something were measured while acks still go through the bucket, or while the
    /// other node still follows the reign before.
    #[test]
    fn a_pair_is_healthy_when_the_follower_of_this_reign_counts() {
        let leader = json!({
            "role": "leader", "epoch": 4, "in_sync": ["a", "b"], "acks_go_to": "peer",
            "peer": {"connected": true},
        });
        let follower = json!({"role": "follower", "epoch": 4});
        let pair = |leader: &Value, follower: &Value| {
            healthy_leader(&[(0, follower.clone()), (1, leader.clone())])
        };
        assert_eq!(pair(&leader, &follower), Some(1));
        let but = |whole: &Value, field: &str, value: Value| {
            let mut changed = whole.clone();
            changed[field] = value;
            changed
        };
        assert_eq!(pair(&but(&leader, "acks_go_to", json!("s3")), &follower), None);
        assert_eq!(pair(&but(&leader, "in_sync", json!(["a"])), &follower), None);
        assert_eq!(pair(&but(&leader, "peer", json!({"connected": false})), &follower), None);
        assert_eq!(pair(&leader, &but(&follower, "epoch", json!(3))), None);
        assert_eq!(pair(&leader, &but(&follower, "role", json!("booting"))), None);
        assert_eq!(healthy_leader(&[(0, leader)]), None);
    }
}
