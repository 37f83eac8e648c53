//! `duolog dev`: an embedded S3 and a pair of nodes on this machine, in one command.

mod node;
mod place;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use duolog_s3dev::{Server, Settings as S3Settings};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::client::{block_on, status};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use node::{Common, Node, Ports};

/// Examples for `--help`.
pub const HELP: &str = "\
Examples:
  duolog dev                      two nodes and an S3, data in a temporary directory
  duolog dev --dir ./pair         the same with data that stays
  duolog dev --json               one JSON document per change, for scripts

Ctrl-C stops everything. The nodes are ordinary `duolog serve` processes: kill one and look.";

/// How often the nodes are asked.
const LOOK: Duration = Duration::from_millis(500);
/// How long nodes may take to stop.
const STOP_MAX: Duration = Duration::from_secs(20);
/// The bucket of the embedded S3.
const BUCKET: &str = "duolog";

/// `duolog dev`
#[derive(Args, Debug)]
pub struct DevPairArgs {
    /// Keep the data in this directory; in a temporary one without it, removed at the end.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Shards of the cluster.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub shards: u32,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
}

/// Runs until a signal.
pub fn run(arguments: &DevPairArgs, mut output: Output) -> Result<Exit, Failure> {
    let place = place::choose(arguments.dir.as_deref())?;
    let dir = place.path();
    let listen = place::port(7403)?;
    let server = S3Settings {
        listen,
        dir: Some(dir.join("s3")),
        buckets: vec![BUCKET.to_owned()],
        ..S3Settings::default()
    };
    let server = Server::start(&server)
        .map_err(|error| Failure::new(Exit::Internal, format!("the embedded S3: {error}")))?;
    let url = server.url();
    let common = Common { dir, s3_url: &url, bucket: BUCKET, shards: arguments.shards };
    let mut nodes = Vec::new();
    for (name, base) in [("node-1", 7400), ("node-2", 7410)] {
        let (client, peer) = (place::port(base)?, place::port(base + 1)?);
        let ports = Ports { client, peer, http: place::port(base + 2)? };
        let node = Node::start(&common, name, ports).map_err(|error| {
            Failure::new(Exit::Internal, format!("{name} cannot be started: {error}"))
        })?;
        nodes.push(node);
    }
    let outcome = begin(arguments, &mut output, dir, &url, &nodes)
        .and_then(|()| block_on(watch(arguments.json, &mut nodes, &mut output)));
    stop(&mut nodes);
    drop(server);
    outcome
}

fn begin(
    arguments: &DevPairArgs,
    output: &mut Output,
    dir: &std::path::Path,
    url: &str,
    nodes: &[Node],
) -> Result<(), Failure> {
    let addresses: Vec<String> = nodes.iter().map(|node| node.client.to_string()).collect();
    let both = addresses.join(",");
    if arguments.json {
        let nodes: Vec<Value> = nodes
            .iter()
            .map(|node| {
                let Node { name, client, http, .. } = node;
                json!({ "name": name, "client": client, "http": http, "pid": node.pid() })
            })
            .collect();
        output.json(&json!({ "event": "started", "dir": dir, "s3": url, "nodes": nodes }))?;
        return output.flush();
    }
    output.line(&format!("data      {}", dir.display()))?;
    output.line(&format!("S3        {url}, bucket {BUCKET}"))?;
    for node in nodes {
        output.line(&format!(
            "{}    {}, HTTP {}, process {}, log {}",
            node.name,
            node.client,
            node.http,
            node.pid(),
            node.log.display()
        ))?;
    }
    output.line("")?;
    output.line("Try, in another terminal:")?;
    output.line(&format!(
        "  duolog append greetings --type Said --data '{{\"text\": \"hello\"}}' --addr {both}"
    ))?;
    output.line(&format!("  duolog read greetings --addr {both}"))?;
    output.line(&format!("  duolog handoff --addr {both}"))?;
    output.line("Ctrl-C stops everything.")?;
    output.line("")?;
    output.flush()
}

/// Shows the nodes until a signal comes or one of them ends.
async fn watch(json: bool, nodes: &mut [Node], output: &mut Output) -> Result<Exit, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let broken = |error| Failure::new(Exit::Internal, format!("cannot wait for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
    let mut screen = Screen::new(json, nodes);
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(Exit::Ok),
            _ = interrupt.recv() => return Ok(Exit::Ok),
            () = tokio::time::sleep(LOOK) => {}
        }
        for (index, node) in nodes.iter_mut().enumerate() {
            let told = match node.ended() {
                Some(status) => json!({ "role": "ended", "reason": status.to_string() }),
                None => status::ask(&node.client.to_string(), LOOK)
                    .await
                    .unwrap_or_else(|reason| json!({ "role": "unreachable", "reason": reason })),
            };
            node.role = told["role"].as_str().unwrap_or_default().to_owned();
            screen.show(index, node, &told, output)?;
        }
    }
}

/// A live line per node on a terminal, a line per change elsewhere.
#[derive(Debug)]
struct Screen {
    json: bool,
    bars: Option<Vec<ProgressBar>>,
    shown: Vec<String>,
}

impl Screen {
    fn new(json: bool, nodes: &[Node]) -> Self {
        let terminal = !json && std::io::IsTerminal::is_terminal(&std::io::stderr());
        let bars = terminal.then(|| {
            let all = MultiProgress::new();
            let style = ProgressStyle::with_template("{spinner} {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = |_: &Node| all.add(ProgressBar::new_spinner().with_style(style.clone()));
            nodes.iter().map(bar).collect()
        });
        Self { json, bars, shown: vec![String::new(); nodes.len()] }
    }

    fn show(
        &mut self,
        index: usize,
        node: &Node,
        told: &Value,
        output: &mut Output,
    ) -> Result<(), Failure> {
        if let Some(bars) = &self.bars {
            bars[index].set_message(format!("{}  {}", node.name, line(told)));
            bars[index].tick();
            return Ok(());
        }
        let text = |field: &str| told.get(field).map(Value::to_string).unwrap_or_default();
        let change = format!("{} {}", text("role"), text("epoch"));
        if self.shown[index] == change {
            return Ok(());
        }
        self.shown[index] = change;
        if self.json {
            output.json(&json!({ "event": "changed", "node": node.name, "status": told }))?;
        } else {
            output.line(&format!("{}  {}", node.name, line(told)))?;
        }
        output.flush()
    }
}

/// Role, epoch, LSN and lag in one line.
fn line(told: &Value) -> String {
    let text = |field: &str| told.get(field).and_then(Value::as_str).unwrap_or_default();
    let epoch = told.get("epoch").and_then(Value::as_u64).unwrap_or_default();
    let sum = |field: &str| -> u64 {
        let shards = told.get("shards").and_then(Value::as_array);
        let numbers = shards.into_iter().flatten().filter_map(|shard| shard.get(field)?.as_u64());
        numbers.sum()
    };
    let role = text("role");
    match role {
        "ended" | "unreachable" => format!("{role}: {}", text("reason")),
        _ => format!(
            "{role:<9} epoch {epoch:<3} committed {:<9} lag {:<6} acks: {}  {}",
            sum("committed"),
            sum("lag"),
            text("acks_go_to"),
            text("status"),
        ),
    }
}

fn stop(nodes: &mut [Node]) {
    // The leader last: it then has nobody to hand over to and need not wait for a successor.
    let (leaders, others): (Vec<_>, Vec<_>) =
        nodes.iter_mut().partition(|node| node.role == "leader");
    for mut group in [others, leaders] {
        group.iter().for_each(|node| node.terminate());
        let steps = STOP_MAX.as_millis() / 20;
        let ended = (0..steps).any(|_| {
            #[expect(clippy::disallowed_methods, reason = "a command that waits for its children")]
            std::thread::sleep(Duration::from_millis(20));
            group.iter_mut().all(|node| node.ended().is_some())
        });
        if !ended {
            group.iter_mut().for_each(|node| node.kill());
        }
    }
}
