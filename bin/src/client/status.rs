//! `duolog status`: what each node says about itself, and which ones say nothing.

use std::time::Duration;

use clap::Args;
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;

use crate::client::{ServerArgs, block_on, question};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::timestamp::rfc3339;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog status
  duolog status --addr 10.0.0.1:7400,10.0.0.2:7400
  DUOLOG_ADDR=10.0.0.1:7400,10.0.0.2:7400 duolog status --json

Every address is asked for itself. Exit code 0: all of them answer and one takes appends; 1: one
does not answer, or none takes appends; 3: none answers.";

/// `duolog status`
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// The servers.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// What one address said: the members of docs/OPERATIONS.md, "Status", or why there are none.
#[derive(Debug)]
struct Node {
    address: String,
    said: Result<Json, String>,
}

impl Node {
    fn member(&self, name: &str) -> &Json {
        self.said.as_ref().map_or(&Json::Null, |status| &status[name])
    }

    fn takes_appends(&self) -> bool {
        matches!(self.member("role").as_str(), Some("leader" | "standalone"))
    }

    fn json(&self) -> Json {
        json!({
            "address": self.address,
            "reachable": self.said.is_ok(),
            "error": self.said.as_ref().err(),
            "status": self.said.as_ref().ok(),
        })
    }
}

/// Asks every address and prints what they say.
pub fn run(arguments: &StatusArgs, mut output: Output) -> Result<Exit, Failure> {
    let nodes = block_on(async { Ok(ask_all(&arguments.server).await) })?;
    if arguments.json {
        let list: Vec<Json> = nodes.iter().map(Node::json).collect();
        output.json(&json!({ "nodes": list }))?;
    } else {
        output.text(&table(&nodes))?;
        nodes
            .iter()
            .filter(|node| node.said.is_ok())
            .try_for_each(|node| output.text(&details(node)))?;
    }
    output.flush()?;
    Ok(exit(&nodes))
}

fn exit(nodes: &[Node]) -> Exit {
    if nodes.iter().all(|node| node.said.is_err()) {
        Exit::Unreachable
    } else if nodes.iter().all(|node| node.said.is_ok()) && nodes.iter().any(Node::takes_appends) {
        Exit::Ok
    } else {
        Exit::CheckFailed
    }
}

/// All addresses at one time, in the order given.
async fn ask_all(server: &ServerArgs) -> Vec<Node> {
    let mut asked = JoinSet::new();
    for (index, address) in server.addresses().into_iter().enumerate() {
        let deadline = Duration::from_millis(server.deadline_ms);
        asked.spawn(async move {
            let said = ask(&address, deadline).await;
            (index, Node { address, said })
        });
    }
    let mut nodes = asked.join_all().await;
    nodes.sort_by_key(|(index, _)| *index);
    nodes.into_iter().map(|(_, node)| node).collect()
}

/// What the node at one address says.
pub async fn ask(address: &str, deadline: Duration) -> Result<Json, String> {
    question::ask(address, r#"{"command":"status"}"#, deadline).await
}

/// A value as people read it; `-` for none.
fn plain(value: &Json) -> String {
    match value {
        Json::Null => "-".to_owned(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn milliseconds(value: &Json) -> String {
    if value.is_null() { "-".to_owned() } else { format!("{} ms", plain(value)) }
}

/// One line for each address.
fn table(nodes: &[Node]) -> String {
    let mut rows =
        vec![["ADDRESS", "ROLE", "EPOCH", "LEASE", "ACKS GO TO", "LAG"].map(String::from)];
    for node in nodes {
        let shards = node.member("shards").as_array().map_or(&[][..], Vec::as_slice);
        let lag = shards.iter().filter_map(|shard| shard["lag"].as_u64()).max();
        rows.push(match &node.said {
            Ok(_) => [
                node.address.clone(),
                plain(node.member("role")),
                plain(node.member("epoch")),
                milliseconds(node.member("lease_remaining_ms")),
                plain(node.member("acks_go_to")),
                lag.map_or("-".to_owned(), |lag| lag.to_string()),
            ],
            Err(reason) => {
                let [a, b, c, d] = [(); 4].map(|()| String::new());
                [node.address.clone(), format!("unreachable: {reason}"), a, b, c, d]
            }
        });
    }
    let reached = |row: &[String; 6]| !row[2].is_empty();
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| column == 0 || reached(row));
        cells.map(|row| row[column].chars().count()).max().unwrap_or(0)
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// What the node's process has used; `-` if it does not tell.
fn process(node: &Node) -> String {
    let number = |name: &str| node.member(name).as_u64();
    match (number("cpu_us"), number("resident_bytes")) {
        (Some(cpu_us), Some(bytes)) => {
            format!("{:.1} s of CPU, {} MiB", cpu_us as f64 / 1e6, bytes >> 20)
        }
        _ => "-".to_owned(),
    }
}

/// What does not fit into the table.
fn details(node: &Node) -> String {
    let mut text = format!("\n{}  node {}\n", node.address, plain(node.member("node")));
    let mut say = |name: &str, value: String| {
        if value != "-" {
            text.push_str(&format!("  {name:<9} {value}\n"));
        }
    };
    say("status", plain(node.member("status")));
    say("reason", plain(node.member("reason")));
    let members = node.member("in_sync").as_array().map_or(&[][..], Vec::as_slice);
    say("in sync", members.iter().map(plain).collect::<Vec<_>>().join(", "));
    let peer = node.member("peer");
    if peer.is_object() {
        let connected = if peer["connected"] == true { "connected" } else { "not connected" };
        say(
            "peer",
            format!("{} at {}, {connected}", plain(&peer["node"]), plain(&peer["address"])),
        );
    }
    let skew = node.member("skew_ms");
    say("version", plain(node.member("version")));
    say("process", process(node));
    say("peer skew", milliseconds(&skew["peer"]));
    say("S3 skew", milliseconds(&skew["s3"]));
    for shard in node.member("shards").as_array().into_iter().flatten() {
        let [lsn, durable, committed, lag] =
            ["lsn", "durable", "committed", "lag"].map(|name| plain(&shard[name]));
        let mut of_shard =
            format!("LSN {lsn}  durable {durable}  committed {committed}  lag {lag}");
        if let Some(writes) = shard["writes"].as_u64() {
            of_shard.push_str(&format!("  writes {writes}"));
        }
        say(&format!("shard {}", plain(&shard["shard"])), of_shard);
    }
    for failover in node.member("failovers").as_array().into_iter().flatten() {
        let at = failover["at_ms"].as_u64().map_or("-".to_owned(), rfc3339);
        let (epoch, reason) = (plain(&failover["epoch"]), plain(&failover["reason"]));
        let pause = match milliseconds(&failover["pause_ms"]).as_str() {
            "-" => String::new(),
            pause => format!(", appends paused {pause}"),
        };
        say("failover", format!("{at}  epoch {epoch}: {reason}{pause}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Vec<Node> {
        let leader = json!({
            "node": "aaaa", "role": "leader", "status": "leads", "reason": "the lease has run out",
            "epoch": 7, "lease_remaining_ms": 1200, "in_sync": ["aaaa", "bbbb"],
            "peer": {"node": "bbbb", "address": "10.0.0.2:7401", "connected": false},
            "acks_go_to": "s3",
            "shards": [{"shard": 0, "lsn": 9, "durable": 9, "committed": 8, "lag": 1, "writes": 3}],
            "version": "0.1.0", "cpu_us": 12_340_000, "resident_bytes": 45 << 20,
            "failovers": [
                {"at_ms": 1_000_000_000_000_u64, "epoch": 7, "reason": "x", "pause_ms": 40},
            ],
            "skew_ms": {"peer": null, "s3": -3},
        });
        vec![
            Node { address: "10.0.0.1:7400".to_owned(), said: Ok(leader) },
            Node { address: "b:1".to_owned(), said: Err("connection refused".to_owned()) },
        ]
    }

    #[test]
    fn people_see_one_line_for_each_address_then_the_details() {
        let text = table(&nodes());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ADDRESS        ROLE    EPOCH  LEASE    ACKS GO TO  LAG");
        assert_eq!(lines[1], "10.0.0.1:7400  leader  7      1200 ms  s3          1");
        assert_eq!(lines[2], "b:1            unreachable: connection refused");
        let text = details(&nodes()[0]);
        for line in [
            "10.0.0.1:7400  node aaaa",
            "  status    leads",
            "  reason    the lease has run out",
            "  in sync   aaaa, bbbb",
            "  peer      bbbb at 10.0.0.2:7401, not connected",
            "  S3 skew   -3 ms",
            "  version   0.1.0",
            "  process   12.3 s of CPU, 45 MiB",
            "  shard 0   LSN 9  durable 9  committed 8  lag 1  writes 3",
            "  failover  2001-09-09T01:46:40.000Z  epoch 7: x, appends paused 40 ms",
        ] {
            assert!(text.lines().any(|known| known == line), "{line:?} in\n{text}");
        }
        assert!(!text.contains("peer skew"), "what is not known is not told");
    }

    #[test]
    fn the_exit_code_tells_whether_the_pair_is_whole() {
        let mut all = nodes();
        assert_eq!(exit(&all), Exit::CheckFailed);
        assert_eq!(exit(&all[..1]), Exit::Ok);
        assert_eq!(exit(&all[1..]), Exit::Unreachable);
        all[1].said = Ok(json!({"role": "follower"}));
        assert_eq!((exit(&all), exit(&all[1..])), (Exit::Ok, Exit::CheckFailed));
    }
}
