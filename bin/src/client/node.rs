//! `duolog node replace`: another node takes the place of one that is lost.

use clap::{Args, Subcommand};
use duolog_lease::ids::{NodeId, parse_uuid};
use serde_json::json;

use crate::client::{ServerArgs, block_on, failure};
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog node replace --dead 6f1c4a52-2d3b-4d56-9e0c-0a4c5b0b8a11
  duolog node replace --dead 6f1c4a52-2d3b-4d56-9e0c-0a4c5b0b8a11 \\
      --newcomer 0b7c9a10-88aa-4f0e-b2c1-5d8f6f0d3e21

The ids are those of `duolog status`. Start the newcomer first, with an empty data directory and
the settings of the lost node: it copies everything before it counts. Without --newcomer it is the
node that started last of those that are no members. A node that still answers is replaced with
--force only. A member is never removed without one that takes its place: what only it held would
be on one disk. The command goes to the node that leads and is sent once; if its answer is lost,
the exit code is 5. Exit code 4: refused, nothing was changed.";

/// `duolog node`
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Put a node in the place of one that is lost.
    #[command(after_help = HELP)]
    Replace(ReplaceArgs),
}

/// `duolog node replace`
#[derive(Args, Debug)]
pub struct ReplaceArgs {
    /// The node to remove.
    #[arg(long, value_name = "ID", value_parser = parse_node)]
    pub dead: NodeId,
    /// The node that takes its place [default: the one that is no member and started last]
    #[arg(long, value_name = "ID", value_parser = parse_node)]
    pub newcomer: Option<NodeId>,
    /// Do it although the node still answers.
    #[arg(long)]
    pub force: bool,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// The servers.
    #[command(flatten)]
    pub server: ServerArgs,
}

fn parse_node(text: &str) -> Result<NodeId, String> {
    let form = "a node id is a UUID like 6f1c4a52-2d3b-4d56-9e0c-0a4c5b0b8a11: see `duolog status`";
    parse_uuid(text).map(NodeId).ok_or_else(|| form.to_owned())
}

/// Sends the command and prints the answer.
pub fn run(arguments: &ReplaceArgs, mut output: Output) -> Result<Exit, Failure> {
    let command = json!({
        "command": "replace",
        "dead": arguments.dead.to_string(),
        "newcomer": arguments.newcomer.map(|node| node.to_string()),
        "force": arguments.force,
    });
    let answer = block_on(async {
        let client = arguments.server.connect().await?;
        client.command(&command.to_string()).await.map_err(|error| failure(&error))
    })?;
    if arguments.json {
        output.line(&answer)?;
    } else {
        let told: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
        let node = told["newcomer"].as_str().unwrap_or("the newcomer");
        let next = format!("{node} becomes a member when it has copied everything");
        output.line(&format!("accepted: {next}; see `duolog status`"))?;
    }
    output.flush()?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_are_those_that_the_status_prints() {
        let text = "6f1c4a52-2d3b-4d56-9e0c-0a4c5b0b8a11";
        assert_eq!(parse_node(text).map(|node| node.to_string()), Ok(text.to_owned()));
        assert!(parse_node("node-a").is_err_and(|text| text.contains("duolog status")));
    }
}
