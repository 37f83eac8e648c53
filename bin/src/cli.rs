//! The command line: the tree of commands and what their `--help` teaches. Each command's own
//! arguments live with the command.

use clap::{Args, Parser, Subcommand};

use crate::client::append::{self, AppendArgs};
use crate::client::export::{self, ExportArgs};
use crate::client::handoff::{self, HandoffArgs};
use crate::client::import::{self, ImportArgs};
use crate::client::node::NodeCommand;
use crate::client::read::{self, ReadArgs};
use crate::client::status::{self, StatusArgs};
use crate::client::subscribe::{self, SubscribeArgs};
use crate::completions::{self, CompletionsArgs};
use crate::dev::DevPairArgs;
use crate::failover::FailoverCommand;
use crate::man::{self, ManArgs};
use crate::offline::inspect::{self, InspectArgs};
use crate::offline::verify::{self, VerifyArgs};
use crate::s3::dev::{self, DevArgs};
use crate::s3::lease::LeaseCommand;
use crate::s3::probe::{self, ProbeArgs};
use crate::settings::flags::SettingFlags;
use crate::top::{self, TopArgs};

const AFTER_HELP: &str = "\
Examples:
  duolog dev                                    a pair on this machine, with an S3 of its own
  duolog doctor --data-dir ./data               is this machine fit, and what to change
  duolog serve --config duolog.toml             a node of a pair
  duolog status --addr A:7400,B:7400            who leads, how far behind the other is
  duolog serve --standalone --data-dir ./data   one node, every event on this disk
  duolog failover explain --addr A:7400,B:7400  why the lead moved, and what it cost
  duolog append order-7 --type Placed --data '{\"total\": 12}'
  duolog read order-7
  duolog subscribe --all --from end             everything that is appended from now on
  duolog import flights.ndjson --stream-field origin --type Flight
  duolog export > all.ndjson
  duolog config show --shards-count 4           each setting and where it came from
  duolog config default > duolog.toml           a commented configuration file
  duolog verify ./data                          every block whole and linked?

Results go to standard output, logs and errors to standard error. Exit codes are listed in
docs/OPERATIONS.md: 0 done, 1 a check failed, 2 usage or configuration, 3 unreachable,
4 refused, 5 outcome unknown, 10 and up a server that cannot run.";

/// A durable event log: streams of events, appended atomically, on disk before the answer.
#[derive(Debug, Parser)]
#[command(name = "duolog", version, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server in the foreground.
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArgs),
    /// Run an S3 and a pair of nodes on this machine, to try things out.
    #[command(after_help = crate::dev::HELP)]
    Dev(DevPairArgs),
    /// Show settings and where they come from, or print a configuration file.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look at this machine, or at a cluster: what it needs, and the remedy for what is missing.
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Append one event to a stream and print the receipt.
    #[command(after_help = append::HELP)]
    Append(AppendArgs),
    /// Print the events of a stream, or of a shard's log.
    #[command(after_help = read::HELP)]
    Read(ReadArgs),
    /// Print events as they come: of a stream, of many, or all of them in one order.
    #[command(after_help = subscribe::HELP)]
    Subscribe(SubscribeArgs),
    /// Import an NDJSON file; running it again adds nothing.
    #[command(after_help = import::HELP)]
    Import(ImportArgs),
    /// Print events as NDJSON.
    #[command(after_help = export::HELP)]
    Export(ExportArgs),
    /// Show what each node is, how far it has come, and which ones do not answer.
    #[command(after_help = status::HELP)]
    Status(StatusArgs),
    /// Watch the nodes at a terminal: roles, leases, shards, rates, the last changes of the lead.
    #[command(after_help = top::HELP)]
    Top(TopArgs),
    /// Give the lead to the other node.
    #[command(after_help = handoff::HELP)]
    Handoff(HandoffArgs),
    /// Commands about changes of the lead.
    #[command(subcommand)]
    Failover(FailoverCommand),
    /// Commands about the members of a pair.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Check every checksum and hash link of a data directory, without a server.
    #[command(after_help = verify::HELP)]
    Verify(VerifyArgs),
    /// Show what lies in one segment file.
    #[command(after_help = inspect::HELP)]
    Inspect(InspectArgs),
    /// Commands about the lease, which decides who leads.
    #[command(subcommand)]
    Lease(LeaseCommand),
    /// Commands about the store that holds lease and chain.
    #[command(subcommand)]
    S3(S3Command),
    /// Run an S3 server for development and tests in the foreground.
    #[command(name = "s3-dev", after_help = dev::HELP)]
    S3Dev(DevArgs),
    /// Load generator and measurements.
    #[command(subcommand)]
    Bench(duolog_benches::BenchCommand),
    /// Print what a shell needs to complete commands and flags.
    #[command(after_help = completions::HELP)]
    Completions(CompletionsArgs),
    /// Write manual pages.
    #[command(after_help = man::HELP)]
    Man(ManArgs),
}

const SERVE_HELP: &str = "\
Examples:
  duolog serve --standalone --data-dir ./data
  duolog serve --config /etc/duolog.toml --shards-cpus 2-9
  DUOLOG_LISTEN_CLIENT=0.0.0.0:7400 duolog serve --standalone --data-dir /var/lib/duolog

SIGTERM or SIGINT drains and exits with 0; a second one exits at once.";

const DOCTOR_HELP: &str = "\
Examples:
  duolog doctor --data-dir /var/lib/duolog
  duolog doctor --config /etc/duolog.toml --json
  duolog doctor --addr 10.0.0.1:7400,10.0.0.2:7400 --config /etc/duolog.toml

With --addr it visits the nodes: their machines, clocks, versions and settings, whether each reaches
the other's peer port; with settings for the bucket each permission in it, the store's clock and
fitness. This machine is looked at too if there is a data directory in the settings.

Each line is ok, warn (a server starts, but slower or less safe) or FAIL (it would refuse to
start) with the remedy below it. Exit code 1 if anything fails.";

/// `duolog serve`
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Settings.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// `duolog config`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print each setting's value and where it came from.
    Show {
        /// Machine-readable output.
        #[arg(long)]
        json: bool,
        /// Settings.
        #[command(flatten)]
        settings: SettingFlags,
    },
    /// Print a commented duolog.toml with every default.
    Default,
}

/// `duolog s3`
#[derive(Debug, Subcommand)]
pub enum S3Command {
    /// Find out whether the bucket's store is safe for leases.
    #[command(after_help = probe::HELP)]
    Probe(Box<ProbeArgs>),
}

/// `duolog doctor`
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Visit a cluster: the addresses of its nodes, separated by a comma.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub addr: Vec<String>,
    /// Prove anew that the bucket's store may hold a lease, instead of trusting what nodes found.
    #[arg(long, requires = "addr")]
    pub probe: bool,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingFlags,
}

impl Command {
    /// Whether errors are to be printed for machines too.
    #[must_use]
    pub const fn json(&self) -> bool {
        match self {
            Self::Serve(_) | Self::Config(ConfigCommand::Default) => false,
            Self::Completions(_) | Self::Man(_) => false,
            Self::Config(ConfigCommand::Show { json, .. }) => *json,
            Self::Bench(command) => command.json(),
            Self::Dev(arguments) => arguments.json,
            Self::Doctor(arguments) => arguments.json,
            Self::Lease(LeaseCommand::Show(arguments)) => arguments.json,
            Self::S3(S3Command::Probe(arguments)) => arguments.json,
            Self::S3Dev(arguments) => arguments.json,
            Self::Append(arguments) => arguments.json,
            Self::Read(arguments) => arguments.json,
            Self::Subscribe(arguments) => arguments.json,
            Self::Import(arguments) => arguments.json,
            Self::Export(arguments) => arguments.json,
            Self::Status(arguments) => arguments.json,
            Self::Top(arguments) => arguments.json,
            Self::Handoff(arguments) => arguments.json,
            Self::Failover(FailoverCommand::Explain(arguments)) => arguments.json,
            Self::Node(NodeCommand::Replace(arguments)) => arguments.json,
            Self::Verify(arguments) => arguments.json,
            Self::Inspect(arguments) => arguments.json,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_tree_of_commands_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_explains_itself() {
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
        }
    }
}
