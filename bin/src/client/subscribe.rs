//! `duolog subscribe`: events as they come, one per line.

use std::time::Duration;

use clap::{ArgGroup, Args};
use duolog_net::client::{
    Bookmark, Client, Cursor, Delivered, Delivery, ShardId, Start, SubscribeCall, Subscription,
};

use crate::client::{ServerArgs, block_on, failure, record};
use crate::event_line;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Examples and rules for `--help`.
pub const HELP: &str = "\
Examples:
  duolog subscribe order-7                       a stream: what is there, then what comes
  duolog subscribe --prefix order- --type Paid   all streams whose names begin so
  duolog subscribe --all --from end --json       everything from now on, in one order
  duolog subscribe --all --after p115847238129385472-3-1207
  duolog subscribe --all --until-caught-up       what is there, then end
  duolog subscribe --all --cursor billing --limit 100   the next hundred, then remember

Each line is: position, revision@stream, type, time, data. A position given to --after goes on
behind that event. With --json each line is a document with a member `position`, and the notice
that everything there was has come is {\"caught_up\": true}. With --cursor the position is kept in
the log under that name: after every 1,000 events, when none comes for a second, and at the end.";

/// Events printed between two moves of a cursor.
const CURSOR_EVERY: u64 = 1_000;
/// How long nothing has to come before it is moved.
const CURSOR_AFTER: Duration = Duration::from_secs(1);

/// `duolog subscribe`
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("topic").required(true).args(["stream", "prefix", "shard", "all"])))]
pub struct SubscribeArgs {
    /// The stream's name.
    pub stream: Option<String>,
    /// All streams whose names begin so, in one order.
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// One shard's log.
    #[arg(long, value_name = "N")]
    pub shard: Option<u32>,
    /// All streams of all shards, in one order.
    #[arg(long)]
    pub all: bool,
    /// Where to begin: start, end, or a revision (of a stream) or an LSN (of a shard).
    #[arg(long, value_name = "PLACE", default_value = "start", conflicts_with = "after")]
    pub from: String,
    /// Begin behind the event that was printed with this position.
    #[arg(long, value_name = "POSITION")]
    pub after: Option<String>,
    /// Only events of this type.
    #[arg(long, value_name = "TYPE")]
    pub r#type: Option<String>,
    /// Also events of Duolog's own streams ($duolog.…).
    #[arg(long)]
    pub with_system: bool,
    /// From any node, not only from the one that leads.
    #[arg(long)]
    pub any: bool,
    /// End after so many events.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// End when everything that was there has come.
    #[arg(long)]
    pub until_caught_up: bool,
    /// Go on where the cursor with this name is, and keep it moving.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["from", "after"])]
    pub cursor: Option<String>,
    /// Machine-readable output.
    #[arg(long)]
    pub json: bool,
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Prints what comes.
pub fn run(arguments: &SubscribeArgs, output: Output) -> Result<Exit, Failure> {
    block_on(async {
        let client = arguments.server.connect().await?;
        let cursor = match &arguments.cursor {
            Some(name) => Some(client.cursor(name).await.map_err(|error| failure(&error))?),
            None => None,
        };
        let start = start(arguments, cursor.as_ref())?;
        let subscription = call(arguments, &client).from(start).open();
        let subscription = subscription.map_err(|error| failure(&error))?;
        let mut printer = Printer { arguments, output, cursor, last: None, unsaved: 0 };
        let ended = printer.print(subscription).await;
        // Also after a failure: what was printed was printed.
        printer.output.flush()?;
        printer.save().await?;
        ended
    })
}

fn call(arguments: &SubscribeArgs, client: &Client) -> SubscribeCall {
    let call = match (&arguments.stream, &arguments.prefix, arguments.shard) {
        (Some(stream), ..) => client.subscribe(stream),
        (_, Some(prefix), _) => client.subscribe_prefix(prefix),
        (.., Some(shard)) => client.subscribe_shard(ShardId(shard)),
        _ => client.subscribe_all(),
    };
    let call = match &arguments.r#type {
        Some(kind) => call.kind(kind),
        None => call,
    };
    let call = if arguments.with_system { call.with_system() } else { call };
    if arguments.any { call.any_node() } else { call }
}

fn start(arguments: &SubscribeArgs, cursor: Option<&Cursor>) -> Result<Start, Failure> {
    if let Some(cursor) = cursor {
        return Ok(cursor.bookmark().map_or(Start::Beginning, Start::After));
    }
    if let Some(after) = &arguments.after {
        let bookmark: Bookmark = after.parse().map_err(|error| Failure::new(Exit::Usage, error))?;
        return Ok(Start::After(bookmark));
    }
    match arguments.from.as_str() {
        "start" => Ok(Start::Beginning),
        "end" => Ok(Start::End),
        number => number.parse().map(Start::At).map_err(|_| {
            let text = format!("--from {number:?}: start, end, a revision or an LSN is wanted");
            Failure::new(Exit::Usage, text)
        }),
    }
}

struct Printer<'a> {
    arguments: &'a SubscribeArgs,
    output: Output,
    cursor: Option<Cursor>,
    last: Option<Bookmark>,
    /// Events printed since the cursor was moved.
    unsaved: u64,
}

impl Printer<'_> {
    async fn print(&mut self, mut subscription: Subscription) -> Result<Exit, Failure> {
        let mut left = self.arguments.limit.unwrap_or(u64::MAX);
        while left > 0 {
            match self.next(&mut subscription).await? {
                Delivery::Event(delivered) => {
                    self.event(&delivered)?;
                    left -= 1;
                    if self.unsaved >= CURSOR_EVERY {
                        self.output.flush()?;
                        self.save().await?;
                    }
                }
                Delivery::CaughtUp if self.arguments.until_caught_up => break,
                Delivery::CaughtUp if self.arguments.json => {
                    self.output.line(r#"{"caught_up":true}"#)?;
                }
                Delivery::CaughtUp => eprintln!("duolog: caught up; what follows is new"),
            }
        }
        Ok(Exit::Ok)
    }

    /// The next delivery; before it waits, everything printed leaves; when it waits long, the
    /// cursor moves.
    async fn next(&mut self, subscription: &mut Subscription) -> Result<Delivery, Failure> {
        let there = futures_lite::future::poll_once(subscription.next()).await;
        let delivery = match there {
            Some(delivery) => delivery,
            None => {
                self.output.flush()?;
                match tokio::time::timeout(CURSOR_AFTER, subscription.next()).await {
                    Ok(delivery) => delivery,
                    Err(_) => {
                        self.save().await?;
                        subscription.next().await
                    }
                }
            }
        };
        delivery.map_err(|error| failure(&error))
    }

    fn event(&mut self, delivered: &Delivered) -> Result<(), Failure> {
        let Delivered { event, shard, bookmark } = delivered;
        let event = record(event);
        let position = bookmark.to_string();
        let line = if self.arguments.json {
            event_line::json_at(*shard, &event, &position)?
        } else {
            format!("{position}  {}", event_line::human(&event))
        };
        self.output.line(&line)?;
        self.last = Some(*bookmark);
        self.unsaved += 1;
        Ok(())
    }

    async fn save(&mut self) -> Result<(), Failure> {
        if let (Some(cursor), Some(last)) = (&mut self.cursor, self.last)
            && self.unsaved > 0
        {
            cursor.save(last).await.map_err(|error| failure(&error))?;
        }
        self.unsaved = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Test {
        #[command(flatten)]
        subscribe: SubscribeArgs,
    }

    fn parse(arguments: &[&str]) -> Option<SubscribeArgs> {
        let parsed = Test::try_parse_from([&["subscribe"], arguments].concat());
        parsed.ok().map(|test| test.subscribe)
    }

    #[test]
    fn one_topic_and_one_beginning() {
        for good in [&["s"][..], &["--all"], &["--prefix", "p"], &["--shard", "0", "--from", "7"]] {
            assert!(parse(good).is_some(), "{good:?}");
        }
        for bad in [&[][..], &["s", "--all"], &["--prefix", "p", "--shard", "0"]] {
            assert!(parse(bad).is_none(), "{bad:?}");
        }
        assert!(parse(&["s", "--cursor", "c", "--from", "end"]).is_none());
        assert!(parse(&["s", "--after", "r1", "--from", "end"]).is_none());
    }

    #[test]
    fn beginnings_are_understood() {
        let start_of = |given: &[&str]| start(&parse(given).expect("arguments"), None).ok();
        assert_eq!(start_of(&["s"]), Some(Start::Beginning));
        assert_eq!(start_of(&["s", "--from", "end"]), Some(Start::End));
        assert_eq!(start_of(&["s", "--from", "12"]), Some(Start::At(12)));
        assert!(matches!(start_of(&["s", "--after", "r12"]), Some(Start::After(_))));
        assert_eq!(start_of(&["s", "--from", "soon"]), None);
        assert_eq!(start_of(&["s", "--after", "12"]), None);
    }
}
