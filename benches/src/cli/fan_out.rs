//! `duolog bench subscribe`: its options.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration::parse_duration;
use super::size::parse_size_bytes;
use super::{BenchError, Outcome, json};
use crate::fan_out::{self, FanOutSettings, Followed};

pub(super) const HELP: &str = "\
Examples:
  duolog bench subscribe --subscribers 100 --rate 1000
  duolog bench subscribe --subscribers 10 --follow all --idle 1000
  duolog bench subscribe --subscribers 0 --idle 1000 --duration 60s    beside another load
  duolog bench subscribe --replay                                      everything there is

Publishes events at a fixed rate to one stream and measures, from the moment each was due, when its
append is acknowledged and when each subscriber has it. Every subscriber checks that it gets every
event once and in order; exit code 1 if one is missing, and an error if one comes twice or out of
order. Subscribers, publisher and server share this machine's cores. --replay reads the whole log
through one subscription to everything and counts.";

/// What subscribers follow.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub enum Follow {
    /// The stream
    Stream,
    /// A prefix of names, merged over the shards
    Prefix,
    /// Everything, merged over the shards
    All,
}

/// `duolog bench subscribe`.
#[derive(Args, Clone, Debug)]
pub struct FanOutArgs {
    /// The server; both nodes of a pair separated by a comma
    #[arg(long, env = "DUOLOG_ADDR", default_value = "127.0.0.1:7400", value_name = "HOST:PORT")]
    pub addr: String,
    /// Subscribers that get every event
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub subscribers: u32,
    /// Subscribers beside them that wait for streams to which nothing is appended
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub idle: u32,
    /// What the former follow
    #[arg(long, value_enum, default_value_t = Follow::Stream)]
    pub follow: Follow,
    /// Events a second
    #[arg(long, default_value_t = 1000, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rate: u32,
    /// How long events are published
    #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "T")]
    pub duration: Duration,
    /// Bytes of an event's data, at least 16
    #[arg(long, default_value = "100", value_parser = parse_size_bytes, value_name = "SIZE")]
    pub size: u32,
    /// Read everything there is instead
    #[arg(long)]
    pub replay: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(arguments: &FanOutArgs) -> Result<Outcome, BenchError> {
    if arguments.replay {
        let report = fan_out::replay(&arguments.addr)?;
        let text = if arguments.json { json(&report)? } else { report.to_text() };
        return Ok(Outcome { text, passed: true });
    }
    let report = fan_out::run(&FanOutSettings {
        addr: arguments.addr.clone(),
        subscribers: arguments.subscribers,
        idle: arguments.idle,
        followed: match arguments.follow {
            Follow::Stream => Followed::Stream,
            Follow::Prefix => Followed::Prefix,
            Follow::All => Followed::All,
        },
        rate_per_s: arguments.rate,
        duration: arguments.duration,
        event_size_bytes: arguments.size as usize,
    })?;
    let text = if arguments.json { json(&report)? } else { report.to_text() };
    Ok(Outcome { text, passed: report.is_whole() })
}
