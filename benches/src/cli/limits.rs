//! `duolog bench limits`: its options.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use crate::limits::{self, LimitsSettings};

pub(super) const HELP: &str = "\
Examples:
  duolog bench limits --dir /var/lib/duolog
  duolog bench limits --dir ./scratch --rounds 5 --json

Measures in DIR, in interleaved rounds: a raw 4 KiB durable write, a loopback round trip, a bare
server (accept, frame, group, durable write, reply) and Duolog itself with one shard, at 1, 64, 256
and 1024 connections; one client also with the plainest server there can be, and with
shards.spin_us. Prints how near Duolog comes to the machine's limits.";

/// `duolog bench limits`.
#[derive(Args, Clone, Debug)]
pub struct LimitsArgs {
    /// Directory on the device to measure
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Rounds, at least 3
    #[arg(long, default_value_t = limits::ROUNDS_MIN, value_name = "N")]
    pub rounds: u32,
    /// Measured time of each of the ten loads of a round
    #[arg(long, default_value = "2s", value_parser = parse_duration, value_name = "T")]
    pub duration: Duration,
    /// Groups that the skeleton writes at one time, 1 to 8
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub skeleton_writes_in_flight: u32,
    /// `shards.spin_us` of the Duolog that one client is measured with beside the default one
    #[arg(long, default_value_t = 200, value_name = "US",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub spin_us: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

impl LimitsArgs {
    pub(super) fn settings(&self) -> LimitsSettings {
        LimitsSettings {
            dir: self.dir.clone(),
            rounds: self.rounds,
            duration: self.duration,
            skeleton_writes_in_flight: self.skeleton_writes_in_flight,
            spin_us: self.spin_us,
        }
    }
}
