//! The pair's result, for machines (JSON) and for people (a table).

use std::fmt::Write as _;

use serde::Serialize;

use super::copy::MIB;
use super::loads::{CONNECTIONS, EVENT_SIZE_BYTES, Round, Sample};
use super::{HEARTBEAT_LEASE_MS, Measured, PairSettings, S3_LEASE};
use crate::limits::spread::Spread;

/// Requests to the store that are shown when there should have been none.
const REQUESTS_SHOWN_MAX: usize = 20;
/// How many round trips of the store a failover may take beside the heartbeat lease.
const KILL_ROUND_TRIPS: f64 = 10.0;

/// Medians with their ranges. Numbers that do not exist, or were not asked for, are `null`.
#[derive(Clone, Debug, Serialize)]
pub struct PairReport {
    /// The pair's p50 at one client over the standalone server's; median of the rounds' ratios.
    pub p50_over_standalone: Option<f64>,
    /// Appends per second at 256 clients likewise.
    pub throughput_over_standalone: Option<f64>,
    /// Processor time of both nodes per append at 256 clients over the standalone server's. All
    /// share this machine's cores; where those decide, the pair's throughput is the inverse.
    pub cpu_per_append_over_standalone: Option<f64>,
    /// Longest time without an ack around a planned handover.
    pub handover_pause_ms_max: Option<f64>,
    /// Longest time without an ack around a kill of the leader.
    pub kill_pause_ms_max: Option<f64>,
    /// What that may be: heartbeat lease + 10 round trips of the store.
    pub kill_pause_ms_limit: Option<f64>,
    /// A conditional write of a small object, median.
    pub s3_round_trip_ms: Option<f64>,
    /// Acknowledged events that are missing, doubled or elsewhere than told, on both nodes.
    pub acked_lost: u64,
    /// Requests that the store got from the healthy pair.
    pub s3_requests_healthy_minute: Option<u64>,
    /// Rate at which a blank node copies the log over that of a plain copy of a file.
    pub copy_over_disk: Option<f64>,
    /// Growth of the leader's resident memory meanwhile.
    pub leader_memory_mib: Option<f64>,
    /// Each figure with its target and whether it was reached.
    pub targets: Vec<Target>,
    /// Acknowledged events that were looked for.
    pub acked: u64,
    /// How long the healthy pair was watched, seconds.
    pub healthy_s: f64,
    /// What the store was asked meanwhile: the first few.
    pub s3_requests: Vec<String>,
    /// Handovers with their range.
    pub handover_pause_ms: Spread,
    /// Handovers made.
    pub handovers: usize,
    /// Kills with their range.
    pub kill_pause_ms: Spread,
    /// Kills made.
    pub kills: usize,
    /// Round trips of the store with their range.
    pub s3_round_trip_ms_spread: Spread,
    /// The standalone server by number of connections.
    pub standalone: Vec<LoadReport>,
    /// The pair likewise.
    pub pair: Vec<LoadReport>,
    /// The copy.
    pub copy: Option<CopyReport>,
    /// Rounds beside the standalone server.
    pub rounds: u32,
    /// Payload of each event, bytes.
    pub event_size_bytes: u32,
    /// Lease of the nodes' lease document, ms: short, so that a restarted node may soon take over.
    pub s3_lease_ms: u64,
    /// Cores of this machine, shared by all.
    pub cores: usize,
    /// The whole run, seconds.
    pub took_s: f64,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// Its key.
    pub name: &'static str,
    /// Its value.
    pub value: Option<f64>,
    /// What it is to be; empty when it only informs.
    pub target: String,
    /// `reached`, `missed`, `not measured`, or empty.
    pub verdict: &'static str,
}

/// One server at one number of connections.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    pub connections: u32,
    pub throughput_per_s: Spread,
    pub p50_us: Spread,
    /// Processor time of the server, or of both nodes.
    pub cpu_per_append_us: Spread,
    pub errors: u64,
    /// What other programs used of the processor meanwhile, percent of one core.
    pub noise_percent: Spread,
}

/// The copy of the log to a blank node.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CopyReport {
    pub size_mib: f64,
    pub took_s: f64,
    pub mib_per_s: f64,
    /// A plain copy of a file on the same disk, which holds both nodes' logs.
    pub disk_mib_per_s: f64,
    pub disk_read_mib_per_s: f64,
    pub disk_write_mib_per_s: f64,
}

impl PairReport {
    /// Puts everything together.
    #[must_use]
    pub(super) fn new(settings: &PairSettings, measured: &Measured) -> Self {
        let rounds = &measured.rounds;
        let ratio = |index: usize, value: fn(&Sample) -> Option<f64>| {
            let of =
                |round: &Round| Some(value(&round.pair[index])? / value(&round.standalone[index])?);
            Spread::of(rounds.iter().map(of)).median
        };
        let spread = |values: &[f64]| Spread::of(values.iter().copied().map(Some));
        let round_trip = spread(&measured.round_trips_ms);
        let copy = measured.copy.map(|copied| CopyReport {
            size_mib: copied.size_mib,
            took_s: copied.took_s,
            mib_per_s: copied.size_mib / copied.took_s,
            disk_mib_per_s: copied.disk.copy / MIB,
            disk_read_mib_per_s: copied.disk.read / MIB,
            disk_write_mib_per_s: copied.disk.write / MIB,
        });
        let healthy = measured.healthy.as_ref();
        let limit = |ms: f64| HEARTBEAT_LEASE_MS + KILL_ROUND_TRIPS * ms;
        let mut report = Self {
            p50_over_standalone: ratio(0, |sample| sample.p50_us),
            throughput_over_standalone: ratio(1, |sample| Some(sample.throughput_per_s)),
            cpu_per_append_over_standalone: ratio(1, |sample| sample.cpu_per_append_us),
            handover_pause_ms_max: spread(&measured.handover_pauses_ms).max,
            kill_pause_ms_max: spread(&measured.kill_pauses_ms).max,
            kill_pause_ms_limit: round_trip.median.map(limit),
            s3_round_trip_ms: round_trip.median,
            acked_lost: measured.verdicts.iter().map(super::ledger::Verdict::lost).sum(),
            s3_requests_healthy_minute: healthy.map(|(requests, _)| requests.len() as u64),
            copy_over_disk: copy.map(|copy| copy.mib_per_s / copy.disk_mib_per_s),
            leader_memory_mib: measured.copy.and_then(|copied| copied.leader_memory_mib),
            targets: Vec::new(),
            acked: measured.acked,
            healthy_s: healthy.map_or(0.0, |(_, time)| time.as_secs_f64()),
            s3_requests: healthy.map_or_else(Vec::new, |(requests, _)| {
                requests.iter().take(REQUESTS_SHOWN_MAX).cloned().collect()
            }),
            handover_pause_ms: spread(&measured.handover_pauses_ms),
            handovers: measured.handover_pauses_ms.len(),
            kill_pause_ms: spread(&measured.kill_pauses_ms),
            kills: measured.kill_pauses_ms.len(),
            s3_round_trip_ms_spread: round_trip,
            standalone: loads(rounds, |round| &round.standalone),
            pair: loads(rounds, |round| &round.pair),
            copy,
            rounds: settings.rounds,
            event_size_bytes: EVENT_SIZE_BYTES,
            s3_lease_ms: u64::try_from(S3_LEASE.as_millis()).unwrap_or(u64::MAX),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            took_s: measured.took_s,
        };
        report.targets = report.judge();
        report
    }

    /// Whether what must hold on every machine does: nothing acknowledged was lost, and a healthy
    /// pair left the store alone.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        self.acked_lost == 0 && self.s3_requests_healthy_minute.unwrap_or(0) == 0
    }

    fn judge(&self) -> Vec<Target> {
        let at_most =
            |name, value, max: f64| target(name, value, format!("<= {max}"), |value| value <= max);
        let at_least =
            |name, value, min: f64| target(name, value, format!(">= {min}"), |value| value >= min);
        let below =
            |name, value, max: f64| target(name, value, format!("< {max:.1}"), |value| value < max);
        let tells = |name, value| Target { name, value, target: String::new(), verdict: "" };
        let count = |count: u64| count as f64;
        let kill = self.kill_pause_ms_limit.unwrap_or(HEARTBEAT_LEASE_MS);
        vec![
            at_most("p50_over_standalone", self.p50_over_standalone, 2.0),
            at_least("throughput_over_standalone", self.throughput_over_standalone, 0.5),
            tells("cpu_per_append_over_standalone", self.cpu_per_append_over_standalone),
            below("handover_pause_ms_max", self.handover_pause_ms_max, 50.0),
            below("kill_pause_ms_max", self.kill_pause_ms_max, kill),
            tells("s3_round_trip_ms", self.s3_round_trip_ms),
            at_most("acked_lost", Some(count(self.acked_lost)), 0.0),
            at_most("s3_requests_healthy_minute", self.s3_requests_healthy_minute.map(count), 0.0),
            at_least("copy_over_disk", self.copy_over_disk, 0.5),
            below("leader_memory_mib", self.leader_memory_mib, 64.0),
        ]
    }

    /// The table for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write_text(&mut text).expect("a String takes all text");
        text
    }

    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let (rounds, size, cores) = (self.rounds, self.event_size_bytes, self.cores);
        writeln!(
            text,
            "medians of {rounds} rounds (smallest–largest), {size} byte events; both nodes, the \
             store and the client share {cores} cores\n"
        )?;
        let head = ["server", "connections", "appends /s", "p50 us"];
        writeln!(
            text,
            "{:<10}  {:>11}  {:>22}  {:>20}  processor us/append",
            head[0], head[1], head[2], head[3]
        )?;
        for (name, loads) in [("standalone", &self.standalone), ("pair", &self.pair)] {
            for load in loads {
                writeln!(
                    text,
                    "{name:<10}  {:>11}  {:>22}  {:>20}  {}",
                    load.connections,
                    load.throughput_per_s.to_text(0),
                    load.p50_us.to_text(0),
                    load.cpu_per_append_us.to_text(1),
                )?;
            }
        }
        writeln!(
            text,
            "\nhandovers     {:>4}, ms  {}",
            self.handovers,
            self.handover_pause_ms.to_text(1)
        )?;
        writeln!(text, "kills         {:>4}, ms  {}", self.kills, self.kill_pause_ms.to_text(0))?;
        writeln!(text, "store           rtt ms  {}", self.s3_round_trip_ms_spread.to_text(2))?;
        if let Some(copy) = &self.copy {
            writeln!(
                text,
                "copy            {:.0} MiB in {:.2} s: {:.0} MiB/s; the disk alone copies a file \
                 at {:.0} MiB/s, reads {:.0}, writes {:.0}",
                copy.size_mib,
                copy.took_s,
                copy.mib_per_s,
                copy.disk_mib_per_s,
                copy.disk_read_mib_per_s,
                copy.disk_write_mib_per_s,
            )?;
        }
        writeln!(text, "acked           {} events, looked for on both nodes", self.acked)?;
        writeln!(
            text,
            "healthy         {:.0} s watched, whole run {:.0} s\n",
            self.healthy_s, self.took_s
        )?;
        for target in &self.targets {
            let value = target.value.map_or("-".to_owned(), |value| format!("{value:.2}"));
            let (name, wanted, verdict) = (target.name, &target.target, target.verdict);
            writeln!(
                text,
                "{}",
                format!("{name:<31} {value:>9}  {wanted:<9} {verdict}").trim_end()
            )?;
        }
        self.write_warnings(text)
    }

    fn write_warnings(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\nWhere the cores decide, read throughput beside cpu_per_append_over_standalone: two \
             machines\nhave twice the cores. Kills wait for the lease in the store to run out \
             ({} ms) before the next.",
            self.s3_lease_ms
        )?;
        for request in &self.s3_requests {
            writeln!(text, "WARNING the healthy pair asked the store: {request}")?;
        }
        for (name, loads) in [("standalone", &self.standalone), ("pair", &self.pair)] {
            for load in loads.iter().filter(|load| load.errors > 0) {
                writeln!(text, "WARNING {name} at {}: {} errors", load.connections, load.errors)?;
            }
            for load in loads {
                if load.noise_percent.median > Some(crate::limits::NOISE_MAX_PERCENT) {
                    let noise = load.noise_percent.to_text(0);
                    let at = load.connections;
                    writeln!(
                        text,
                        "WARNING {name} at {at}: other programs used {noise} % of a core"
                    )?;
                }
            }
        }
        Ok(())
    }
}

fn target(
    name: &'static str,
    value: Option<f64>,
    target: String,
    holds: impl Fn(f64) -> bool,
) -> Target {
    let verdict = match value.map(holds) {
        None => "not measured",
        Some(true) => "reached",
        Some(false) => "missed",
    };
    Target { name, value, target, verdict }
}

fn loads(rounds: &[Round], server: fn(&Round) -> &[Sample; 2]) -> Vec<LoadReport> {
    let report = |(index, connections): (usize, &u32)| {
        let samples: Vec<&Sample> = rounds.iter().map(|round| &server(round)[index]).collect();
        let of = |value: fn(&Sample) -> Option<f64>| {
            Spread::of(samples.iter().map(|sample| value(sample)))
        };
        LoadReport {
            connections: *connections,
            throughput_per_s: of(|sample| Some(sample.throughput_per_s)),
            p50_us: of(|sample| sample.p50_us),
            cpu_per_append_us: of(|sample| sample.cpu_per_append_us),
            errors: samples.iter().map(|sample| sample.errors).sum(),
            noise_percent: of(|sample| sample.noise_percent),
        }
    };
    CONNECTIONS.iter().enumerate().map(report).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::copy::Copied;
    use super::super::ledger::Verdict;
    use super::*;
    use crate::limits::sequence::Rates;

    fn settings() -> PairSettings {
        PairSettings {
            dir: "unused".into(),
            rounds: 2,
            duration: Duration::from_secs(1),
            handovers: 2,
            kills: 1,
            healthy: Duration::from_secs(60),
            copy_mib: 100,
        }
    }

    fn sample(throughput_per_s: f64, p50_us: f64, cpu_us: f64) -> Sample {
        Sample {
            throughput_per_s,
            p50_us: Some(p50_us),
            cpu_per_append_us: Some(cpu_us),
            ..Sample::default()
        }
    }

    fn measured() -> Measured {
        let round = Round {
            standalone: [sample(1000.0, 100.0, 10.0); 2],
            pair: [sample(600.0, 150.0, 25.0); 2],
            pair_acked: 9,
        };
        Measured {
            rounds: vec![round, round],
            handover_pauses_ms: vec![20.0, 30.0],
            kill_pauses_ms: vec![1504.0],
            round_trips_ms: vec![0.5, 0.5],
            healthy: Some((Vec::new(), Duration::from_secs(60))),
            acked: 12,
            verdicts: vec![Verdict::default(); 2],
            copy: Some(Copied {
                size_mib: 100.0,
                took_s: 1.0,
                disk: Rates { copy: 150.0 * MIB, ..Rates::default() },
                leader_memory_mib: Some(3.0),
            }),
            took_s: 9.0,
        }
    }

    fn verdicts(measured: &Measured) -> (bool, Vec<&'static str>) {
        let report = PairReport::new(&settings(), measured);
        (report.is_safe(), report.targets.iter().map(|target| target.verdict).collect())
    }

    /// Each figure is held against its target. Broken if one at the wrong side passed.
    #[test]
    fn figures_are_held_against_their_targets() {
        let good = measured();
        let (safe, all) = verdicts(&good);
        assert!(safe);
        assert!(all.iter().all(|verdict| ["reached", ""].contains(verdict)), "{all:?}");
        let mut bad = good.clone();
        for round in &mut bad.rounds {
            round.pair = [sample(499.0, 201.0, 30.0); 2];
        }
        bad.handover_pauses_ms.push(50.0);
        bad.kill_pauses_ms.push(1505.0);
        bad.verdicts[1].missing = 1;
        bad.healthy = Some((vec!["GET /lease".to_owned()], Duration::from_secs(60)));
        bad.copy = Some(Copied {
            size_mib: 70.0,
            took_s: 1.0,
            disk: Rates { copy: 150.0 * MIB, ..Rates::default() },
            leader_memory_mib: Some(64.0),
        });
        let (safe, all) = verdicts(&bad);
        assert!(!safe);
        assert!(all.iter().all(|verdict| ["missed", ""].contains(verdict)), "{all:?}");
        let text = PairReport::new(&settings(), &bad).to_text();
        assert!(text.contains("asked the store: GET /lease"), "{text}");
    }

    /// One lost event, or one request, is enough to be unsafe; times are not.
    #[test]
    fn only_losses_and_requests_are_unsafe() {
        let slow = Measured { kill_pauses_ms: vec![9e9], ..measured() };
        assert!(verdicts(&slow).0);
        let lost = Verdict { doubled: 1, ..Verdict::default() };
        assert!(!verdicts(&Measured { verdicts: vec![lost], ..measured() }).0);
        let asked = Some((vec![String::new()], Duration::from_secs(3)));
        assert!(!verdicts(&Measured { healthy: asked, ..measured() }).0);
    }

    #[test]
    fn nothing_measured_is_valid_json_with_nulls() {
        let report = PairReport::new(&settings(), &Measured::default());
        let text = serde_json::to_string(&report).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(json["p50_over_standalone"].is_null());
        assert!(json["kill_pause_ms_max"].is_null());
        assert_eq!(json["acked_lost"], 0);
        assert!(report.to_text().contains("not measured"));
    }
}
