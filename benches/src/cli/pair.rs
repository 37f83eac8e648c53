//! `duolog bench pair`: its options, and how small a quick run is.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use crate::pair::PairSettings;

pub(super) const HELP: &str = "\
Examples:
  duolog bench pair --dir /var/lib/duolog
  duolog bench pair --dir ./scratch --json
  duolog bench pair --dir ./scratch --quick

Starts an embedded S3, two nodes and a standalone server in DIR and ends them by their process ids.
In interleaved rounds it measures appends on both at 1 and 256 connections. Then one client appends
through planned handovers and through kill -9 of the leader; a pause is its longest time without an
ack. In the end everything that was acknowledged is looked for on both nodes, and a blank node
copies the log.

Everything shares this machine's cores: where they decide, throughput_over_standalone says less
than cpu_per_append_over_standalone.

A follower does not challenge before the lease in the bucket that it saw when it began to follow
has run out; later, heartbeats alone decide. The nodes run with --s3-lease-duration-ms 3000, and
between two kills the benchmark waits for that long. Heartbeats have their defaults.

Exit code 1 if an acknowledged event is missing, doubled or elsewhere than told, or if the healthy
pair asked the bucket for anything; times only print. --quick is the same in small, in less than
a minute.";

/// `duolog bench pair`. What is not given is as large as --quick, or its absence, says.
#[derive(Args, Clone, Debug)]
pub struct PairArgs {
    /// Directory on the device to measure
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// A small run, for checks of a change: 1 round, 2 handovers, 1 kill, 3 s healthy, 32 MiB
    #[arg(long)]
    pub quick: bool,
    /// Rounds beside the standalone server [default: 3]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Measured time of each of the four loads of a round [default: 2s]
    #[arg(long, value_parser = parse_duration, value_name = "T")]
    pub duration: Option<Duration>,
    /// Planned handovers [default: 20]
    #[arg(long, value_name = "N")]
    pub handovers: Option<u32>,
    /// Kills of the leader [default: 20]
    #[arg(long, value_name = "N")]
    pub kills: Option<u32>,
    /// How long the requests of a healthy pair are counted [default: 60s]
    #[arg(long, value_parser = parse_duration, value_name = "T")]
    pub healthy: Option<Duration>,
    /// Size of the log that a blank node copies; 0 leaves it out [default: 256]
    #[arg(long, value_name = "MIB")]
    pub copy_mib: Option<u32>,
    /// The embedded S3 answers that much later: `20ms` is a bucket in the same region
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "T")]
    pub s3_delay: Duration,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

impl PairArgs {
    pub(super) fn settings(&self) -> PairSettings {
        let quick = self.quick;
        let count =
            |given: Option<u32>, small, large| given.unwrap_or(if quick { small } else { large });
        let time = |given: Option<Duration>, small, large| {
            given.unwrap_or(Duration::from_millis(if quick { small } else { large }))
        };
        PairSettings {
            dir: self.dir.clone(),
            rounds: count(self.rounds, 1, 3),
            duration: time(self.duration, 500, 2000),
            handovers: count(self.handovers, 2, 20),
            kills: count(self.kills, 1, 20),
            healthy: time(self.healthy, 3000, 60_000),
            copy_mib: count(self.copy_mib, 32, 256),
        }
    }
}
