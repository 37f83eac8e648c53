//! `duolog failover explain`: why the lead moved, how long appends waited, what each part cost.
//!
//! `gather` fetches, `merge` orders, `story` and `cause` find out, `words` tell.

mod cause;
mod evidence;
mod gather;
mod merge;
mod story;
#[cfg(test)]
mod tests;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::client::{ServerArgs, block_on};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::settings::Settings;
use crate::settings::flags::SettingFlags;
use crate::settings::key::Key;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog failover explain --addr 10.0.0.1:7400,10.0.0.2:7400
  duolog failover explain --last 5 --config /etc/duolog.toml --addr A:7400,B:7400 --json
  duolog failover explain --addr A:7400 --data-dir ./copy-of-B
  duolog failover explain --addr '' --data-dir ./copy-of-A --data-dir ./copy-of-B

Both nodes' event logs are merged by what must have come first, not by clocks; their difference is
told. A node that does not answer is named; its log can be given as a directory (--data-dir, also
more than once). With settings for the bucket the lease object is looked at, too. Exit code 0: all
that was named could be read; 1: something is missing; 3: no event log at all.";

/// `duolog failover`
#[derive(Debug, Subcommand)]
pub enum FailoverCommand {
    /// Tell why the lead moved, how long appends waited, and what each part of it cost.
    #[command(after_help = HELP, mut_arg("data_dir", |arg| arg.action(clap::ArgAction::Append)))]
    Explain(Box<ExplainArgs>),
}

/// `duolog failover explain`
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The newest changes of the lead to tell.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub last: usize,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// The servers.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Settings: those of the bucket are used, and data_dir.
    #[command(flatten)]
    pub settings: SettingFlags,
}

impl ExplainArgs {
    /// Directories named on the command line: a file's data_dir is the own node's, which answers.
    fn dirs(&self) -> Vec<PathBuf> {
        let index = Key::index("data_dir");
        let given = self.settings.given.iter().filter(|(key, _)| Some(*key) == index);
        given.map(|(_, text)| PathBuf::from(text)).collect()
    }
}

/// Gathers, and prints what happened.
pub fn run(
    arguments: &ExplainArgs,
    settings: &Settings,
    mut output: Output,
) -> Result<Exit, Failure> {
    let (addresses, dirs) = (arguments.server.addresses(), arguments.dirs());
    let bucket = settings.s3.bucket.is_some().then_some(&settings.s3);
    let deadline = Duration::from_millis(arguments.server.deadline_ms);
    let evidence =
        block_on(async { Ok(gather::gather(&addresses, &dirs, bucket, deadline).await) })?;
    let story = story::tell(&evidence);
    if arguments.json {
        output.json(&words::json(&story, &evidence, arguments.last))?;
    } else {
        output.text(&words::text(&story, &evidence, arguments.last))?;
    }
    output.flush()?;
    let lease_failed = evidence.lease.as_ref().is_some_and(Result::is_err);
    Ok(match (evidence.logs.is_empty(), evidence.missing.is_empty()) {
        (true, _) => Exit::Unreachable,
        (false, true) if !lease_failed => Exit::Ok,
        _ => Exit::CheckFailed,
    })
}

#[cfg(test)]
mod arguments {
    use std::path::PathBuf;

    use clap::Parser;

    use super::FailoverCommand;
    use crate::cli::{Cli, Command};

    #[test]
    fn several_directories_can_be_named() {
        let line = ["duolog", "failover", "explain", "--data-dir", "a", "--data-dir=b"];
        let Ok(Cli { command: Command::Failover(FailoverCommand::Explain(arguments)) }) =
            Cli::try_parse_from(line)
        else {
            panic!("not understood: {line:?}")
        };
        assert_eq!(arguments.dirs(), [PathBuf::from("a"), PathBuf::from("b")]);
        let twice = ["duolog", "serve", "--data-dir", "a", "--data-dir", "b"];
        assert!(Cli::try_parse_from(twice).is_err(), "a server has one");
    }
}
