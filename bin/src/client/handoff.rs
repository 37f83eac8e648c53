//! `duolog handoff`: the leader gives the lead to the other node.

use std::time::Duration;

use clap::Args;
use duolog_net::client::{Client, LeaseEpoch, NodeRole, ServerInfo};
use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep};

use crate::client::{ServerArgs, block_on, failure};
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Between two looks at who leads.
const LOOK_MS: u64 = 20;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Example:
  duolog handoff --addr 10.0.0.1:7400,10.0.0.2:7400

Name both nodes: the command goes to the one that leads and waits until the other one does. It is
sent once; if its answer is lost, the exit code is 5. Exit code 1: the old leader leads again; 4:
there is nobody to hand over to.";

/// `duolog handoff`
#[derive(Args, Debug)]
pub struct HandoffArgs {
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// The servers.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Hands over and says who leads then.
pub fn run(arguments: &HandoffArgs, mut output: Output) -> Result<Exit, Failure> {
    let deadline = Duration::from_millis(arguments.server.deadline_ms);
    let (before, after, took) = block_on(async {
        let client = arguments.server.connect().await?;
        let started = Instant::now();
        let answer = client.command(r#"{"command":"handoff"}"#).await;
        let before = client.server();
        let answer = answer.map_err(|error| failure(&error))?;
        let answer: Json = serde_json::from_str(&answer).unwrap_or_default();
        let epoch = LeaseEpoch(answer["epoch"].as_u64().unwrap_or(before.epoch.0));
        let after = successor(&client, epoch, started + deadline).await?;
        Ok((before, after, started.elapsed()))
    })?;
    let (took_ms, moved) = (took.as_millis() as u64, before.node != after.node);
    if arguments.json {
        output.json(&json!({
            "moved": moved,
            "leader": after.node.to_string(),
            "address": after.address,
            "epoch": after.epoch.0,
            "took_ms": took_ms,
        }))?;
    } else {
        let again = if moved { "" } else { " again: no successor showed itself in time" };
        output.line(&format!(
            "{} (node {}) leads since epoch {}, after {took_ms} ms{again}",
            after.address, after.node, after.epoch
        ))?;
    }
    output.flush()?;
    Ok(if moved { Exit::Ok } else { Exit::CheckFailed })
}

/// The node that leads by a newer reign than `epoch`.
async fn successor(
    client: &Client,
    epoch: LeaseEpoch,
    ends_at: Instant,
) -> Result<ServerInfo, Failure> {
    loop {
        // A ping goes to the node that leads, as soon as one does.
        let alive = client.ping().await;
        let info = client.server();
        if alive.is_ok() && info.role == NodeRole::Leader && info.epoch > epoch {
            return Ok(info);
        }
        if Instant::now() >= ends_at {
            let text = "the handover was accepted, and no node leads by a newer reign yet: see \
                        `duolog status`";
            return Err(Failure::new(Exit::Unknown, text));
        }
        sleep(Duration::from_millis(LOOK_MS)).await;
    }
}
