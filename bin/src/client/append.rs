//! `duolog append`: one event into one stream, and the receipt.

use std::io::Read;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use duolog_net::client::{Copies, Event, Expect, Receipt, Revision, Uuid};
use serde_json::{Value as Json, json};

use crate::client::{ServerArgs, block_on, failure};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::timestamp::rfc3339;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog append order-7 --type Placed --data '{\"total\": 12}'
  duolog append order-7 --type Paid --data '{}' --expect 0
  generate | duolog append reports --type Report -
  duolog append order-8 --type Placed --data '{}' --expect no-stream \\
      --idempotency-key 6f1c4a52-2d3b-4d56-9e0c-0a4c5b0b8a11

The answer comes when the event is on disk. Without --idempotency-key a random one is used, so
that a lost connection is retried safely; give your own to make a repeated command harmless too.
Exit code 4: refused, nothing was appended (another revision than expected, a lower fencing
token, ...); 5: the outcome is unknown, run the command again with the key from the message.";

/// `duolog append`
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("payload").required(true).args(["data", "data_file", "stdin"])))]
pub struct AppendArgs {
    /// The stream's name, 1 to 255 bytes.
    pub stream: String,
    /// The event's type, 1 to 255 bytes.
    #[arg(long, value_name = "TYPE")]
    pub r#type: String,
    /// The event's data.
    #[arg(long, value_name = "TEXT")]
    pub data: Option<String>,
    /// A file that holds the event's data.
    #[arg(long, value_name = "FILE")]
    pub data_file: Option<PathBuf>,
    /// "-": the event's data comes from standard input.
    #[arg(value_name = "-", value_parser = ["-"])]
    pub stdin: Option<String>,
    /// The event's metadata.
    #[arg(long, value_name = "TEXT")]
    pub metadata: Option<String>,
    /// What the stream must look like: any, no-stream, stream-exists, or its last revision.
    #[arg(long, default_value = "any", value_parser = parse_expect)]
    pub expect: Expect,
    /// Names the append: however often it is sent, it happens once.
    #[arg(long, value_name = "UUID")]
    pub idempotency_key: Option<Uuid>,
    /// Refuse if the stream has seen a higher token.
    #[arg(long, value_name = "N")]
    pub fencing_token: Option<u64>,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
}

fn parse_expect(text: &str) -> Result<Expect, String> {
    match text {
        "any" => Ok(Expect::Any),
        "no-stream" => Ok(Expect::NoStream),
        "stream-exists" => Ok(Expect::StreamExists),
        number => number.parse().map(|number| Expect::Exact(Revision(number))).map_err(|_| {
            "allowed are any, no-stream, stream-exists, or the stream's last revision".to_owned()
        }),
    }
}

/// Appends the event and prints the receipt.
pub fn run(arguments: &AppendArgs, mut output: Output) -> Result<Exit, Failure> {
    let mut event = Event::new(&arguments.r#type, payload(arguments)?);
    if let Some(metadata) = &arguments.metadata {
        event = event.metadata(metadata.as_bytes());
    }
    let receipt = block_on(async {
        let client = arguments.server.connect().await?;
        let mut call = client.append(&arguments.stream).expect(arguments.expect).event(event);
        call = match arguments.idempotency_key {
            Some(key) => call.idempotency_key(key),
            None => call.retry(),
        };
        if let Some(token) = arguments.fencing_token {
            call = call.fencing_token(token);
        }
        call.send().await.map_err(|error| failure(&error))
    })?;
    if arguments.json {
        output.json(&receipt_json(&receipt))?;
    } else {
        output.line(&receipt_text(&receipt))?;
    }
    output.flush()?;
    Ok(Exit::Ok)
}

fn payload(arguments: &AppendArgs) -> Result<Vec<u8>, Failure> {
    if let Some(data) = &arguments.data {
        return Ok(data.clone().into_bytes());
    }
    let (read, from) = match &arguments.data_file {
        Some(path) => (std::fs::read(path), path.display().to_string()),
        None => {
            let mut data = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut data);
            (read.map(|_| data), "standard input".to_owned())
        }
    };
    read.map_err(|error| Failure::new(Exit::LocalIo, format!("cannot read {from}: {error}")))
}

const fn copies(copies: Copies) -> &'static str {
    match copies {
        Copies::ThisDisk => "this disk",
        Copies::ThisDiskAndPeer => "this disk and the peer's",
        Copies::ThisDiskAndS3 => "this disk and S3",
    }
}

/// The receipt for people.
#[must_use]
pub fn receipt_text(receipt: &Receipt) -> String {
    let streams = receipt.streams.iter().map(|stream| match stream.first == stream.last {
        true => format!("{}@{}", stream.first, stream.stream),
        false => format!("{}-{}@{}", stream.first, stream.last, stream.stream),
    });
    format!(
        "{}  LSN {}  shard {}  {}  on {}{}",
        streams.collect::<Vec<_>>().join(" "),
        receipt.first_lsn,
        receipt.shard,
        rfc3339(receipt.hlc.wall_ms()),
        copies(receipt.copies),
        if receipt.replayed { "  (had been appended before)" } else { "" },
    )
}

/// The receipt for machines.
#[must_use]
pub fn receipt_json(receipt: &Receipt) -> Json {
    let streams = receipt.streams.iter().map(|stream| {
        json!({
            "stream": stream.stream,
            "first_revision": stream.first.get(),
            "last_revision": stream.last.get(),
        })
    });
    json!({
        "streams": streams.collect::<Vec<_>>(),
        "shard": receipt.shard.get(),
        "first_lsn": receipt.first_lsn.get(),
        "last_lsn": receipt.last_lsn.get(),
        "hlc": receipt.hlc.get(),
        "time": rfc3339(receipt.hlc.wall_ms()),
        "epoch": receipt.epoch.get(),
        "copies": copies(receipt.copies),
        "replayed": receipt.replayed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Test {
        #[command(flatten)]
        append: AppendArgs,
    }

    fn parse(arguments: &[&str]) -> Result<AppendArgs, clap::Error> {
        let fixed = ["append", "s", "--type", "t"];
        Test::try_parse_from([&fixed, arguments].concat()).map(|test| test.append)
    }

    #[test]
    fn exactly_one_source_of_data() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["--data", "x", "-"]).is_err());
        assert!(parse(&["--data", "x", "--data-file", "f"]).is_err());
        assert!(parse(&["other"]).is_err());
        assert_eq!(parse(&["--data", "x"]).unwrap().data.as_deref(), Some("x"));
        assert!(parse(&["-"]).unwrap().stdin.is_some());
    }

    #[test]
    fn expectations_read_as_people_write_them() {
        let expect = |text| parse(&["--data", "x", "--expect", text]).map(|parsed| parsed.expect);
        assert_eq!(expect("any").unwrap(), Expect::Any);
        assert_eq!(expect("no-stream").unwrap(), Expect::NoStream);
        assert_eq!(expect("stream-exists").unwrap(), Expect::StreamExists);
        assert_eq!(expect("17").unwrap(), Expect::Exact(Revision(17)));
        let text = expect("none").unwrap_err().to_string();
        assert!(text.contains("no-stream"), "{text}");
    }
}
