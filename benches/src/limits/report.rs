//! The limits' result, for machines (JSON) and for people (a table).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::spread::Spread;
use super::{CONNECTIONS, EVENT_SIZE_BYTES, LimitsSettings, NOISE_MAX_PERCENT, Round, Sample};

/// The connection count of the throughput target.
const TARGET_CONNECTIONS: u32 = 256;
/// Targets: the product's figures are to be no worse.
const P50_OVER_LIMIT_MAX: f64 = 1.25;
/// See [`P50_OVER_LIMIT_MAX`].
const THROUGHPUT_OVER_SKELETON_MIN: f64 = 0.9;

/// Medians over the rounds, each with its range. Numbers that do not exist are `null`.
#[derive(Clone, Debug, Serialize)]
pub struct LimitsReport {
    /// Duolog's p50 at one client over raw write p50 + round trip p50; median of the rounds'
    /// ratios. Target: at most 1.25.
    pub p50_over_limit: Option<f64>,
    /// Duolog's appends per second over the skeleton's at 256 connections; median of the rounds'
    /// ratios. Target: at least 0.9.
    pub throughput_over_skeleton: Option<f64>,
    /// The first ratio with its range.
    pub p50_over_limit_spread: Spread,
    /// The skeleton's own p50 at one client over the same limit.
    pub skeleton_p50_over_limit_spread: Spread,
    /// The plainest server's p50 at one client over the same limit: what a server costs that sleeps
    /// between requests and does nothing else.
    pub plain_p50_over_limit_spread: Spread,
    /// Duolog's with `shards.spin_us`.
    pub spinning_p50_over_limit_spread: Spread,
    /// That setting.
    pub spin_us: u32,
    /// The second ratio by number of connections.
    pub throughput_over_skeleton_by_connections: BTreeMap<u32, Spread>,
    /// One 4 KiB O_DIRECT + O_DSYNC write into written space.
    pub raw_write_us: RawWriteReport,
    /// One round trip of 256 bytes over loopback TCP.
    pub loopback_round_trip_p50_us: Spread,
    /// What other programs used of the processor during these two, percent of one core.
    pub raw_noise_percent: Spread,
    /// The skeleton by number of connections.
    pub skeleton: Vec<LoadReport>,
    /// Duolog by number of connections.
    pub duolog: Vec<LoadReport>,
    /// Rounds measured.
    pub rounds: u32,
    /// Window of each load, seconds.
    pub duration_s: f64,
    /// Payload of each event, bytes.
    pub event_size_bytes: u32,
    /// Groups that the skeleton writes at one time.
    pub skeleton_writes_in_flight: u32,
}

/// The raw write.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct RawWriteReport {
    pub p50: Spread,
    pub p99: Spread,
}

/// One server at one number of connections.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// Connections, one request in flight on each.
    pub connections: u32,
    /// Appends per second.
    pub throughput_per_s: Spread,
    /// Median latency.
    pub p50_us: Spread,
    /// 99th percentile.
    pub p99_us: Spread,
    /// Refusals and losses in all rounds.
    pub errors: u64,
    /// Rounds in which the generator was the bottleneck: the server could do more.
    pub client_limited_rounds: u64,
    /// What other programs used of the processor meanwhile, percent of one core.
    pub noise_percent: Spread,
}

impl LimitsReport {
    /// Puts the rounds together.
    #[must_use]
    pub fn new(settings: &LimitsSettings, rounds: &[Round]) -> Self {
        let of = |value: fn(&Round) -> Option<f64>| Spread::of(rounds.iter().map(value));
        let p50_over_limit_spread = of(|round| over_limit(round, &round.duolog));
        let by_connections: BTreeMap<u32, Spread> = CONNECTIONS
            .iter()
            .enumerate()
            .map(|(index, count)| {
                let ratio = |round: &Round| {
                    let duolog = round.duolog.get(index)?.throughput_per_s;
                    Some(duolog / round.skeleton.get(index)?.throughput_per_s)
                };
                (*count, Spread::of(rounds.iter().map(ratio)))
            })
            .collect();
        let target = by_connections.get(&TARGET_CONNECTIONS);
        Self {
            p50_over_limit: p50_over_limit_spread.median,
            throughput_over_skeleton: target.and_then(|spread| spread.median),
            p50_over_limit_spread,
            skeleton_p50_over_limit_spread: of(|round| over_limit(round, &round.skeleton)),
            plain_p50_over_limit_spread: of(|round| over_limit(round, round.plain.as_slice())),
            spinning_p50_over_limit_spread: of(|round| {
                over_limit(round, round.spinning.as_slice())
            }),
            spin_us: settings.spin_us,
            throughput_over_skeleton_by_connections: by_connections,
            raw_write_us: RawWriteReport {
                p50: of(|round| round.raw_write_us.0),
                p99: of(|round| round.raw_write_us.1),
            },
            loopback_round_trip_p50_us: of(|round| round.loopback_us),
            raw_noise_percent: of(|round| round.raw_noise_percent),
            skeleton: loads(rounds, |round| &round.skeleton),
            duolog: loads(rounds, |round| &round.duolog),
            rounds: settings.rounds,
            duration_s: settings.duration.as_secs_f64(),
            event_size_bytes: EVENT_SIZE_BYTES,
            skeleton_writes_in_flight: settings.skeleton_writes_in_flight,
        }
    }

    /// The table for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write_text(&mut text).expect("a String takes all text");
        text
    }

    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "medians of {} rounds (smallest–largest), {} byte events, one in flight per connection",
            self.rounds, self.event_size_bytes
        )?;
        let raw = &self.raw_write_us;
        writeln!(text, "raw 4 KiB durable write   p50 {} us", raw.p50.to_text(1))?;
        writeln!(text, "                          p99 {} us", raw.p99.to_text(1))?;
        let loopback = self.loopback_round_trip_p50_us.to_text(1);
        writeln!(text, "loopback round trip       p50 {loopback} us\n")?;
        let head = ["connections", "skeleton /s", "duolog /s", "ratio", "skeleton p50 us"];
        writeln!(
            text,
            "{:>11}  {:>26}  {:>26}  {:>18}  {:>24}  duolog p50 us",
            head[0], head[1], head[2], head[3], head[4]
        )?;
        for (skeleton, duolog) in self.skeleton.iter().zip(&self.duolog) {
            let by_connections = &self.throughput_over_skeleton_by_connections;
            let ratio = by_connections.get(&duolog.connections).copied().unwrap_or_default();
            writeln!(
                text,
                "{:>11}  {:>26}  {:>26}  {:>18}  {:>24}  {}",
                duolog.connections,
                skeleton.throughput_per_s.to_text(0),
                duolog.throughput_per_s.to_text(0),
                ratio.to_text(2),
                skeleton.p50_us.to_text(0),
                duolog.p50_us.to_text(0),
            )?;
        }
        let spread = self.p50_over_limit_spread.to_text(2);
        let reached = self.p50_over_limit.map(|ratio| ratio <= P50_OVER_LIMIT_MAX);
        let verdict = self.verdict(reached, 1);
        writeln!(
            text,
            "\np50_over_limit            {spread}, target <= {P50_OVER_LIMIT_MAX}: {verdict}"
        )?;
        for (name, spread) in [
            ("the skeleton".to_owned(), self.skeleton_p50_over_limit_spread),
            ("the plainest server".to_owned(), self.plain_p50_over_limit_spread),
            (format!("with shards.spin_us {}", self.spin_us), self.spinning_p50_over_limit_spread),
        ] {
            writeln!(text, "  {name:<23} {}", spread.to_text(2))?;
        }
        let by_connections = &self.throughput_over_skeleton_by_connections;
        let spread = by_connections.get(&TARGET_CONNECTIONS).copied().unwrap_or_default();
        let reached =
            self.throughput_over_skeleton.map(|ratio| ratio >= THROUGHPUT_OVER_SKELETON_MIN);
        writeln!(
            text,
            "throughput_over_skeleton  {}, target >= {THROUGHPUT_OVER_SKELETON_MIN} at \
             {TARGET_CONNECTIONS}: {}",
            spread.to_text(2),
            self.verdict(reached, TARGET_CONNECTIONS),
        )?;
        self.write_warnings(text)
    }

    /// A figure of a noisy step proves nothing in either direction.
    fn verdict(&self, reached: Option<bool>, connections: u32) -> &'static str {
        let mut loads = self.duolog.iter();
        let load = loads.find(|load| load.connections == connections);
        let is_noisy = |noise: Spread| noise.median > Some(NOISE_MAX_PERCENT);
        let noisy = load.is_some_and(|load| is_noisy(load.noise_percent))
            || (connections == 1 && is_noisy(self.raw_noise_percent));
        match reached {
            None => "not measured",
            Some(_) if noisy => "not proven, the machine was busy",
            Some(true) => "reached",
            Some(false) => "missed",
        }
    }

    fn write_warnings(&self, text: &mut String) -> std::fmt::Result {
        if self.raw_noise_percent.median > Some(NOISE_MAX_PERCENT) {
            let noise = self.raw_noise_percent.to_text(0);
            writeln!(text, "WARNING at the raw limits: other programs used {noise} % of a core")?;
        }
        for load in &self.duolog {
            if load.noise_percent.median > Some(NOISE_MAX_PERCENT) {
                writeln!(
                    text,
                    "WARNING at {}: other programs used {} % of a core; figures suffer",
                    load.connections,
                    load.noise_percent.to_text(0)
                )?;
            }
        }
        for (name, loads) in [("skeleton", &self.skeleton), ("duolog", &self.duolog)] {
            for load in loads {
                let (count, rounds) = (load.connections, load.client_limited_rounds);
                if load.errors > 0 {
                    writeln!(text, "WARNING {name} at {count}: {} errors", load.errors)?;
                }
                if rounds > 0 {
                    writeln!(
                        text,
                        "WARNING {name} at {count}: client-limited in {rounds} rounds; the server \
                         could do more"
                    )?;
                }
            }
        }
        Ok(())
    }
}

fn over_limit(round: &Round, server: &[Sample]) -> Option<f64> {
    let limit = round.raw_write_us.0? + round.loopback_us?;
    Some(server.first()?.p50_us? / limit)
}

fn loads(rounds: &[Round], server: fn(&Round) -> &Vec<Sample>) -> Vec<LoadReport> {
    let report = |(index, connections): (usize, &u32)| {
        let samples: Vec<&Sample> =
            rounds.iter().filter_map(|round| server(round).get(index)).collect();
        let of = |value: fn(&Sample) -> Option<f64>| {
            Spread::of(samples.iter().map(|sample| value(sample)))
        };
        LoadReport {
            connections: *connections,
            throughput_per_s: of(|sample| Some(sample.throughput_per_s)),
            p50_us: of(|sample| sample.p50_us),
            p99_us: of(|sample| sample.p99_us),
            errors: samples.iter().map(|sample| sample.errors).sum(),
            noise_percent: of(|sample| sample.noise_percent),
            client_limited_rounds: samples.iter().filter(|sample| sample.client_limited).count()
                as u64,
        }
    };
    CONNECTIONS.iter().enumerate().map(report).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(throughput_per_s: f64, p50_us: f64) -> Sample {
        let (p50_us, p99_us) = (Some(p50_us), None);
        Sample {
            throughput_per_s,
            p50_us,
            p99_us,
            errors: 0,
            client_limited: false,
            noise_percent: Some(1.0),
        }
    }

    fn settings() -> LimitsSettings {
        LimitsSettings {
            dir: "unused".into(),
            rounds: 3,
            duration: Duration::from_secs(1),
            skeleton_writes_in_flight: 1,
            spin_us: 200,
        }
    }

    /// Ratios are taken within a round and then the median is taken. Broken if a machine that
    /// slows down between rounds moves the ratio.
    #[test]
    fn ratios_are_taken_within_each_round() {
        let round = |speed: f64| Round {
            raw_write_us: (Some(80.0 / speed), None),
            loopback_us: Some(20.0 / speed),
            raw_noise_percent: Some(1.0),
            skeleton: vec![sample(1000.0 * speed, 120.0 / speed); 4],
            duolog: vec![sample(900.0 * speed, 125.0 / speed); 4],
            plain: Some(sample(900.0 * speed, 140.0 / speed)),
            spinning: Some(sample(900.0 * speed, 110.0 / speed)),
        };
        let rounds = [round(1.0), round(0.1), round(3.0)];
        let report = LimitsReport::new(&settings(), &rounds);
        assert_eq!(report.p50_over_limit, Some(1.25));
        assert_eq!(report.plain_p50_over_limit_spread.median, Some(1.4));
        assert_eq!(report.spinning_p50_over_limit_spread.median, Some(1.1));
        assert_eq!(report.throughput_over_skeleton, Some(0.9));
        assert_eq!(report.skeleton_p50_over_limit_spread.median, Some(1.2));
        let text = report.to_text();
        assert!(text.contains("target <= 1.25: reached"), "{text}");
        assert!(text.contains("target >= 0.9 at 256: reached"), "{text}");
        let noisy = |round: &Round| Round { raw_noise_percent: Some(50.0), ..round.clone() };
        let report = LimitsReport::new(&settings(), &rounds.map(|round| noisy(&round)));
        let text = report.to_text();
        assert!(text.contains("target <= 1.25: not proven"), "{text}");
        assert!(text.contains("target >= 0.9 at 256: reached"), "{text}");
    }

    /// A server that acknowledged nothing gives nulls, not NaN.
    #[test]
    fn nothing_measured_is_valid_json_with_nulls() {
        let empty = Sample {
            throughput_per_s: 0.0,
            p50_us: None,
            p99_us: None,
            errors: 9,
            client_limited: false,
            noise_percent: None,
        };
        let round = Round { skeleton: vec![empty; 4], duolog: vec![empty; 4], ..Round::default() };
        let report = LimitsReport::new(&settings(), &[round]);
        let text = serde_json::to_string(&report).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(json["p50_over_limit"].is_null());
        assert!(json["throughput_over_skeleton"].is_null());
        assert!(report.to_text().contains("not measured"));
    }
}
