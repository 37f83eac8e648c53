//! `duolog export`: events as NDJSON, shard by shard in the order of their logs.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::str::FromStr;

use clap::Args;
use duolog_net::client::{Client, Lsn, Revision, ShardId};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::client::import::progress::SYSTEM_PREFIX;
use crate::client::read::Reader;
use crate::client::{ServerArgs, block_on, failure, record, shard_of_stream};
use crate::event_line;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog export > all.ndjson
  duolog export --stream order-7 --from 100
  duolog export --from 0:1001,1:998 >> all.ndjson     go on where an export ended

One JSON document per line; the events of a shard in the order of its log, one shard after the
other. At the end (also after an interruption by a broken connection) standard error names the
--from that goes on behind the last line. The bookkeeping of imports (streams that begin with
\"$duolog.\") is left out unless --with-system is given.";

/// `duolog export`
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Only this stream.
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
    /// All streams of all shards (the default).
    #[arg(long, conflicts_with = "stream")]
    pub all: bool,
    /// Where to begin: a revision with --stream, else SHARD:LSN pairs separated by commas.
    #[arg(long, value_name = "POSITION")]
    pub from: Option<String>,
    /// Export the program's own streams too.
    #[arg(long)]
    pub with_system: bool,
    /// Errors as JSON too; the events always are.
    #[arg(long)]
    pub json: bool,
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// The next LSN to export of each shard; shards that are not named begin at 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Position(BTreeMap<u32, u64>);

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = |part: &str| {
            let (shard, lsn) = part.trim().split_once(':')?;
            Some((shard.parse().ok()?, lsn.parse().ok().filter(|lsn| *lsn > 0)?))
        };
        let pairs: Option<Vec<(u32, u64)>> = text.split(',').map(pair).collect();
        let pairs = pairs.ok_or("allowed are pairs of shard and LSN like 0:1001,1:998")?;
        let count = pairs.len();
        let position = Self(pairs.into_iter().collect());
        if position.0.len() == count { Ok(position) } else { Err("a shard is named twice".into()) }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pairs: Vec<String> =
            self.0.iter().map(|(shard, lsn)| format!("{shard}:{lsn}")).collect();
        f.write_str(&pairs.join(","))
    }
}

/// Prints the events.
pub fn run(arguments: &ExportArgs, output: Output) -> Result<Exit, Failure> {
    block_on(async {
        let client = arguments.server.connect().await?;
        let mut export =
            Export { output, bar: progress_bar(), with_system: arguments.with_system, events: 0 };
        match &arguments.stream {
            Some(stream) => {
                let from = parse_revision(arguments.from.as_deref())?;
                let read = client.read(stream).from(from);
                let shard = shard_of_stream(&client, stream);
                export.stream(shard, stream, Reader::Stream(read), from).await?;
            }
            None => export.shards(&client, arguments.from.as_deref()).await?,
        }
        Ok(Exit::Ok)
    })
}

fn parse_revision(text: Option<&str>) -> Result<Revision, Failure> {
    let text = text.unwrap_or("0");
    text.parse().map(Revision).map_err(|_| {
        Failure::new(Exit::Usage, format!("--from {text:?}: with --stream it is a revision"))
    })
}

fn progress_bar() -> ProgressBar {
    // On a terminal the events themselves show the progress.
    if std::io::stdout().is_terminal() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let form = "{bar:30} {human_pos}/{human_len} events  {per_sec}  {eta}";
    bar.set_style(
        ProgressStyle::with_template(form).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}

struct Export {
    output: Output,
    bar: ProgressBar,
    with_system: bool,
    events: u64,
}

impl Export {
    /// All shards from their positions on. Says where to go on whatever happens.
    async fn shards(&mut self, client: &Client, from: Option<&str>) -> Result<(), Failure> {
        let mut position: Position =
            from.map_or(Ok(Position::default()), str::parse).map_err(|reason| {
                Failure::new(Exit::Usage, format!("--from {:?}: {reason}", from.unwrap_or("")))
            })?;
        let shard_count = client.server().shard_count;
        if let Some(shard) = position.0.keys().find(|shard| **shard >= shard_count) {
            let text = format!("--from names shard {shard}, the cluster has {shard_count} shards");
            return Err(Failure::new(Exit::Usage, text));
        }
        for shard in 0..shard_count {
            let from = *position.0.entry(shard).or_insert(1);
            let tail = client.read_log(ShardId(shard), Lsn(from)).limit(1).page().await;
            let committed = tail.map_err(|error| failure(&error))?.tail.committed;
            self.bar.inc_length((committed.get() + 1).saturating_sub(from));
        }
        let mut outcome = Ok(());
        for shard in 0..shard_count {
            let next = position.0.entry(shard).or_insert(1);
            let read = client.read_log(ShardId(shard), Lsn(*next));
            outcome = self.log(ShardId(shard), Reader::Log(read), next).await;
            if outcome.is_err() {
                break;
            }
        }
        self.bar.finish_and_clear();
        self.finish(outcome, &position)
    }

    /// Says where to go on, if everything up to there has reached the reader.
    fn finish(
        &mut self,
        outcome: Result<(), Failure>,
        position: &dyn std::fmt::Display,
    ) -> Result<(), Failure> {
        self.output.flush()?;
        eprintln!("{} events; go on with --from {position}", self.events);
        outcome
    }

    async fn log(
        &mut self,
        shard: ShardId,
        mut reader: Reader,
        next: &mut u64,
    ) -> Result<(), Failure> {
        while let Some(event) = reader.next().await? {
            if self.with_system || !event.stream.starts_with(SYSTEM_PREFIX) {
                self.output.line(&event_line::json(shard, &record(&event))?)?;
                self.events += 1;
            }
            *next = event.lsn.get() + 1;
            self.bar.inc(1);
        }
        Ok(())
    }

    async fn stream(
        &mut self,
        shard: ShardId,
        name: &str,
        mut reader: Reader,
        from: Revision,
    ) -> Result<(), Failure> {
        let mut next = from;
        let outcome = loop {
            match reader.next().await {
                Ok(Some(event)) => {
                    self.output.line(&event_line::json(shard, &record(&event))?)?;
                    self.events += 1;
                    next = event.revision.next();
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.finish(outcome, &format_args!("{next} --stream {name:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_back_as_they_are_written() {
        let position: Position = "1:998, 0:1001".parse().unwrap();
        assert_eq!(position.to_string(), "0:1001,1:998");
        assert_eq!(position.to_string().parse(), Ok(position));
        for wrong in ["", "5", "0:", ":5", "0:0", "0:5,0:6", "a:b"] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_stream_begins_at_a_revision() {
        assert_eq!(parse_revision(None).unwrap(), Revision(0));
        assert_eq!(parse_revision(Some("7")).unwrap(), Revision(7));
        assert_eq!(parse_revision(Some("0:7")).unwrap_err().exit, Exit::Usage);
    }
}
