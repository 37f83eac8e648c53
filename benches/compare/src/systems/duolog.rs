//! Duolog: a standalone server, and a pair with the development S3.

use serde_json::Value;

use super::{Running, Site, SystemError};
use crate::process::Launch;

const SERVER: &str = "serve";
/// The keys that the development S3 has unless it is told others.
const STORE_KEYS: [&str; 4] =
    ["--s3-access-key-id", "duolog-dev", "--s3-secret-access-key", "duolog-dev-secret"];
/// Kept short so that a pair that starts again need not wait long for its last lease.
const LEASE_MS: &str = "3000";

/// One node alone, with further `arguments`.
pub fn start(site: &Site, arguments: &[&str]) -> Result<Running, SystemError> {
    let (program, data) = (site.programs.duolog.to_string_lossy(), site.path("data"));
    let (client, peer) = (site.addr(0).to_string(), site.addr(1).to_string());
    let words = [&*program, SERVER, "--standalone", "--data-dir", &data];
    let launch = Launch::new("duolog", site.cpu, words).with([
        "--shards-count",
        "1",
        "--listen-client",
        &client,
        "--listen-peer",
        &peer,
        "--listen-http",
        "off",
    ]);
    site.launch(&[launch.with(arguments.iter().copied())])
}

/// The store and both nodes; waits until one leads and the other's disk counts.
pub fn start_pair(site: &Site) -> Result<Running, SystemError> {
    let (program, data) = (site.programs.duolog.to_string_lossy(), site.path("s3"));
    let listen = site.addr(4).to_string();
    let words = [&*program, "s3-dev", "--listen", &listen, "--dir", &data];
    let mut running = site.launch(&[Launch::new("s3-dev", site.cpu, words)])?;
    for (name, index) in [("node-1", 0), ("node-2", 2)] {
        running.add(site, &node(site, name, index))?;
    }
    let clients = [site.addr(0), site.addr(2)];
    let addresses = clients.map(|addr| addr.to_string()).join(",");
    let status = Launch::new("status", site.cpu, [&*program, "status", "--json"]).with([
        "--addr",
        &addresses,
        "--deadline-ms",
        "1000",
    ]);
    let mut leader = None;
    running.wait("the pair has a leader and a follower", || {
        let told = status.run(&site.dir).map_err(|error| error.to_string())?;
        let status: Value = serde_json::from_str(&told).map_err(|error| error.to_string())?;
        leader = leader_of(&status);
        if leader.is_some() { Ok(()) } else { Err(told) }
    })?;
    if let Some(index) = leader {
        running.addr = clients[index];
    }
    Ok(running)
}

fn node(site: &Site, name: &'static str, index: u16) -> Launch {
    let (program, data) = (site.programs.duolog.to_string_lossy(), site.path(name));
    let (client, peer) = (site.addr(index).to_string(), site.addr(index + 1).to_string());
    let store = format!("http://{}", site.addr(4));
    Launch::new(name, site.cpu, [&*program, SERVER, "--data-dir", &data, "--shards-count", "1"])
        .with(["--listen-client", &client, "--listen-peer", &peer, "--listen-http", "off"])
        .with(["--s3-endpoint", &store, "--s3-allow-http", "--s3-bucket", "duolog"])
        .with(STORE_KEYS)
        .with(["--s3-lease-duration-ms", LEASE_MS])
}

/// Which of the nodes leads, once the other one follows it and its disk counts.
fn leader_of(status: &Value) -> Option<usize> {
    let nodes = status["nodes"].as_array()?;
    let role = |index: usize| &nodes[index]["status"]["role"];
    let leader = (0..nodes.len()).find(|index| role(*index) == "leader")?;
    let follows = (0..nodes.len()).all(|index| index == leader || role(index) == "follower");
    let said = &nodes[leader]["status"];
    let members = said["in_sync"].as_array().map_or(0, Vec::len);
    let counts = said["acks_go_to"] == "peer" && members == 2;
    (nodes.len() == 2 && follows && counts).then_some(leader)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Broken if a load began while acks still go through the bucket or the follower catches up.
    #[test]
    fn a_pair_is_ready_when_the_followers_disk_counts() {
        let status = |follower: &str, acks: &str| {
            json!({"nodes": [
                {"status": {"role": follower}},
                {"status": {"role": "leader", "acks_go_to": acks, "in_sync": ["a", "b"]}},
            ]})
        };
        assert_eq!(leader_of(&status("follower", "peer")), Some(1));
        assert_eq!(leader_of(&status("catching_up", "peer")), None);
        assert_eq!(leader_of(&status("follower", "s3")), None);
        assert_eq!(leader_of(&json!({"nodes": []})), None);
    }
}
