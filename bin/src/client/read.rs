//! `duolog read`: events of a stream, or of a shard's log, one per line.

use clap::Args;
use duolog_net::client::{
    Client, Consistency, LogRead, Lsn, RecordedEvent, Revision, ShardId, StreamRead,
};

use crate::client::{ServerArgs, block_on, failure, record, shard_of_stream};
use crate::event_line;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog read order-7                            all events of a stream
  duolog read order-7 --backwards --limit 1      the newest one
  duolog read order-7 --from 100 --type Paid --json
  duolog read --shard 0 --from-lsn 1 --limit 10  the log of a shard, all its streams

Each line is: revision@stream, type, time, data; of a shard's log, the LSN before them. With
--json each line is a document; data is embedded as JSON, or is given as data_text or data_base64.";

/// `duolog read`
#[derive(Args, Debug)]
pub struct ReadArgs {
    /// The stream's name.
    #[arg(required_unless_present = "shard", conflicts_with = "shard")]
    pub stream: Option<String>,
    /// First revision to read, inclusive.
    #[arg(long, value_name = "REVISION", conflicts_with = "shard")]
    pub from: Option<u64>,
    /// From the end towards revision 0.
    #[arg(long, conflicts_with = "shard")]
    pub backwards: bool,
    /// Only events of this type.
    #[arg(long, value_name = "TYPE", conflicts_with = "shard")]
    pub r#type: Option<String>,
    /// Read this shard's log instead of a stream.
    #[arg(long, value_name = "N")]
    pub shard: Option<u32>,
    /// First LSN to read, inclusive.
    #[arg(long, value_name = "LSN", requires = "shard", conflicts_with = "stream")]
    pub from_lsn: Option<u64>,
    /// Take what any node has committed: also without a leader, maybe not the newest.
    #[arg(long)]
    pub any: bool,
    /// Have the leader prove by its follower or the bucket that it leads: right whatever the clocks
    /// do, for one more round trip.
    #[arg(long, conflicts_with = "any")]
    pub confirmed: bool,
    /// At most so many events.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
}

impl ReadArgs {
    const fn consistency(&self) -> Consistency {
        match (self.any, self.confirmed) {
            (true, _) => Consistency::Any,
            (false, true) => Consistency::Confirmed,
            (false, false) => Consistency::Linearizable,
        }
    }
}

/// Where events come from.
#[derive(Debug)]
pub enum Reader {
    /// A stream.
    Stream(StreamRead),
    /// A shard's log.
    Log(LogRead),
}

impl Reader {
    /// The next event; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<RecordedEvent>, Failure> {
        let next = match self {
            Self::Stream(read) => read.next().await,
            Self::Log(read) => read.next().await,
        };
        next.map_err(|error| failure(&error))
    }
}

/// Prints the events.
pub fn run(arguments: &ReadArgs, mut output: Output) -> Result<Exit, Failure> {
    block_on(async {
        let client = arguments.server.connect().await?;
        let (mut reader, shard) = reader(arguments, &client)?;
        let mut events = 0_u64;
        while let Some(event) = reader.next().await? {
            let event = record(&event);
            let line = match (arguments.json, arguments.shard) {
                (true, _) => event_line::json(shard, &event)?,
                (false, None) => event_line::human(&event),
                (false, Some(_)) => format!("{}  {}", event.lsn, event_line::human(&event)),
            };
            output.line(&line)?;
            events += 1;
        }
        output.flush()?;
        if let (0, Some(stream)) = (events, &arguments.stream)
            && !exists(&client, arguments, stream).await?
        {
            eprintln!("duolog: there is no stream {stream:?}");
        }
        Ok(Exit::Ok)
    })
}

async fn exists(client: &Client, arguments: &ReadArgs, stream: &str) -> Result<bool, Failure> {
    let page = client.read(stream).limit(1).consistency(arguments.consistency()).page().await;
    Ok(page.map_err(|error| failure(&error))?.tail.stream_next > Revision(0))
}

fn reader(arguments: &ReadArgs, client: &Client) -> Result<(Reader, ShardId), Failure> {
    let limit = arguments.limit.unwrap_or(u64::MAX);
    if let Some(shard) = arguments.shard.map(ShardId) {
        let read = client.read_log(shard, Lsn(arguments.from_lsn.unwrap_or(1))).limit(limit);
        return Ok((Reader::Log(read.consistency(arguments.consistency())), shard));
    }
    let stream = arguments.stream.as_deref().unwrap_or_default();
    let mut read = client.read(stream).limit(limit);
    if let Some(from) = arguments.from {
        read = read.from(Revision(from));
    }
    if arguments.backwards {
        read = read.backwards();
    }
    if let Some(kind) = &arguments.r#type {
        read = read.of_type(kind);
    }
    let read = read.consistency(arguments.consistency());
    Ok((Reader::Stream(read), shard_of_stream(client, stream)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Test {
        #[command(flatten)]
        read: ReadArgs,
    }

    fn parse(arguments: &[&str]) -> bool {
        Test::try_parse_from([&["read"], arguments].concat()).map(|test| test.read).is_ok()
    }

    #[test]
    fn a_stream_or_a_shard_but_not_both() {
        assert!(parse(&["s"]) && parse(&["--shard", "0"]));
        assert!(parse(&["s", "--from", "3", "--backwards", "--type", "t", "--limit", "1"]));
        assert!(parse(&["--shard", "0", "--from-lsn", "9"]));
        assert!(parse(&["s", "--confirmed"]) && !parse(&["s", "--confirmed", "--any"]));
        assert!(!parse(&[]));
        assert!(!parse(&["s", "--shard", "0"]));
        assert!(!parse(&["s", "--from-lsn", "9"]));
        assert!(!parse(&["--shard", "0", "--backwards"]));
    }
}
