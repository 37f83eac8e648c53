//! The result of a run, for machines (JSON) and for people (a table).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::latency::Latencies;
use super::settings::Settings;
use super::tally::Tally;
use super::workload::{Arrivals, ReadMode, StreamOrder, Workload};

/// A thread that used more than this share of its time was the bottleneck itself, percent.
const LIMITED_PERCENT: f64 = 95.0;
/// Open loop: falling behind the schedule by more than this share means saturation.
const SATURATED_SHARE: f64 = 0.01;

/// The whole result. Numbers that do not exist are `null`, never NaN or infinite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `append`, `read` or `mixed`.
    pub workload: String,
    /// `closed` (an answer starts the next request) or `open` (arrivals by a timetable, latency
    /// from the intended start).
    pub mode: String,
    /// Measured window, seconds. Opening connections, warm-up and drain lie outside.
    pub window_s: f64,
    /// Successful answers per second of the window.
    pub throughput_per_s: f64,
    /// Successful answers within the window.
    pub acked: u64,
    /// Of these, reads.
    pub acked_reads: u64,
    /// Events read or appended per second of the window.
    pub events_per_s: f64,
    /// Refusals, losses and answers that are none within the window.
    pub errors: u64,
    /// The same by name.
    pub errors_by_code: BTreeMap<String, u64>,
    /// Hot load: conflicts within the window, each of which was tried again.
    pub retries: u64,
    /// `acked + errors + retries`: how often operations were tried within the window.
    pub attempts: u64,
    /// Operations started in the window and never answered.
    pub unanswered: u64,
    /// Connections that broke at any time, in the warm-up and the drain too: from then on the load
    /// was that of fewer. Results of older programs do not tell.
    #[serde(default)]
    pub connections_lost: u64,
    /// Latency of successful operations that started in the window.
    pub latency_us: LatencyReport,
    /// Mixed load: of these, the reads.
    pub read_latency_us: Option<LatencyReport>,
    /// Mixed load: of these, the appends.
    pub append_latency_us: Option<LatencyReport>,
    /// How long refusals took from the sending, of operations that started in the window.
    pub refusals_us: LatencyReport,
    /// Bytes of stream pages per second; append: `null`.
    pub page_bytes_per_s: Option<f64>,
    /// Open loop only.
    pub open_loop: Option<OpenLoopReport>,
    /// How the generator itself did.
    pub client: ClientReport,
    /// What was asked for.
    pub settings: SettingsReport,
}

/// Latencies, microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LatencyReport {
    /// Number of latencies.
    pub samples: u64,
    pub min: Option<f64>,
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub p99_9: Option<f64>,
    pub p99_99: Option<f64>,
    pub max: Option<f64>,
    /// Latencies above 120 s: counted in the top bucket, `max` is exact.
    pub over_range: u64,
}

/// How well the schedule was kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenLoopReport {
    /// Arrivals per second that were asked for.
    pub target_rate_per_s: u64,
    /// Successful answers per second.
    pub achieved_rate_per_s: f64,
    /// Operations due in the window.
    pub scheduled: u64,
    /// Of these, sent more than 1 ms after their time; their latency includes the delay.
    pub late: u64,
    /// Of these, never sent; they have no latency.
    pub unsent: u64,
    /// Largest delay between schedule and sending, us.
    pub lag_max_us: f64,
    /// The rate is above what server or generator can do: latencies show the queue's length.
    pub saturated: bool,
}

/// The generator's own use of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientReport {
    /// Generator threads.
    pub threads: u32,
    /// Processor time of each thread in the window, percent of the window.
    pub cpu_percent: Vec<f64>,
    /// Time each thread was ready but got no processor, percent of the window.
    pub cpu_wait_percent: Vec<f64>,
    /// A thread was more than 95 % busy (running or waiting for a processor): the figures may
    /// show the generator's limit, not the server's.
    pub client_limited: bool,
}

/// The settings, with units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it; see `Settings`")]
pub struct SettingsReport {
    pub addr: String,
    pub connections: u32,
    pub in_flight: u32,
    /// Less than `in_flight` where the server grants a closed loop less.
    pub in_flight_granted: u32,
    pub streams: u32,
    pub stream_order: StreamOrder,
    pub streams_per_append: u32,
    pub batch: u32,
    /// Loads that read.
    pub read_mode: Option<ReadMode>,
    /// Mixed load.
    pub reads_percent: Option<u32>,
    /// Loads that read.
    pub stream_events: Option<u32>,
    pub event_size_bytes: u32,
    pub duration_s: f64,
    pub warm_up_s: f64,
    pub expect: String,
    pub idempotency_keys: bool,
    pub rate_per_s: Option<u64>,
    /// Open loop.
    pub arrivals: Option<Arrivals>,
    pub threads: u32,
    pub run_id: String,
}

impl Report {
    /// Puts the workers' tallies together.
    #[must_use]
    pub fn new(settings: &Settings, tallies: &[Tally]) -> Self {
        let mut errors_by_code: BTreeMap<String, u64> = BTreeMap::new();
        for (name, count) in tallies.iter().flat_map(|tally| &tally.errors) {
            *errors_by_code.entry(name.clone()).or_default() += count;
        }
        let sum = |part: fn(&Tally) -> u64| tallies.iter().map(part).sum::<u64>();
        let merged = |part: fn(&Tally) -> &Latencies| {
            let mut all = Latencies::default();
            tallies.iter().for_each(|tally| all.merge(part(tally)));
            LatencyReport::new(&all)
        };
        let window_s = settings.duration.as_secs_f64();
        let (acked, retries) = (sum(|tally| tally.acked), sum(|tally| tally.retries));
        let errors = errors_by_code.values().sum();
        let mixed = settings.workload == Workload::Mixed;
        Self {
            workload: settings.workload.name().to_owned(),
            mode: if settings.rate_per_s.is_some() { "open" } else { "closed" }.to_owned(),
            window_s,
            throughput_per_s: tenths(acked as f64 / window_s),
            acked,
            acked_reads: sum(|tally| tally.acked_reads),
            events_per_s: tenths(sum(|tally| tally.events) as f64 / window_s),
            errors,
            errors_by_code,
            retries,
            attempts: acked + errors + retries,
            unanswered: sum(|tally| tally.unanswered),
            connections_lost: sum(|tally| tally.connections_lost),
            latency_us: merged(|tally| &tally.latencies),
            read_latency_us: mixed.then(|| merged(|tally| &tally.read_latencies)),
            append_latency_us: mixed.then(|| merged(|tally| &tally.append_latencies)),
            refusals_us: merged(|tally| &tally.refusals),
            page_bytes_per_s: (settings.workload != Workload::Append)
                .then(|| tenths(sum(|tally| tally.page_bytes) as f64 / window_s)),
            open_loop: OpenLoopReport::new(settings, tallies, acked),
            client: ClientReport::new(settings, tallies),
            settings: SettingsReport::new(settings, tallies),
        }
    }

    /// The table for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let settings = &self.settings;
        self.write_text(settings, &mut text).expect("a String takes all text");
        text
    }

    fn write_text(&self, settings: &SettingsReport, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{} {} loop: {} connections x {} in flight, {} streams, {} byte events, {:.1} s",
            self.workload,
            self.mode,
            settings.connections,
            settings.in_flight,
            settings.streams,
            settings.event_size_bytes,
            self.window_s,
        )?;
        writeln!(
            text,
            "  throughput  {:>12.1} /s   ({} acked)",
            self.throughput_per_s, self.acked
        )?;
        if let Some(rate) = self.page_bytes_per_s {
            writeln!(text, "  pages       {:>12.1} MB/s", rate / 1e6)?;
        }
        writeln!(text, "  events      {:>12.1} /s", self.events_per_s)?;
        self.latency_us.write_text("", text)?;
        for (kind, latency) in
            [("read", &self.read_latency_us), ("append", &self.append_latency_us)]
        {
            if let Some(latency) = latency {
                latency.write_text(kind, text)?;
            }
        }
        if self.retries > 0 {
            let each = self.attempts as f64 / self.acked.max(1) as f64;
            writeln!(text, "  retries     {:>12}   ({each:.2} attempts per ack)", self.retries)?;
        }
        writeln!(text, "  errors      {:>12}", self.errors)?;
        for (name, count) in &self.errors_by_code {
            writeln!(text, "    {name:<18} {count}")?;
        }
        if self.refusals_us.samples > 0 {
            self.refusals_us.write_text("refused", text)?;
        }
        if self.unanswered > 0 {
            writeln!(text, "  unanswered  {:>12}", self.unanswered)?;
        }
        if self.connections_lost > 0 {
            let (lost, all) = (self.connections_lost, settings.connections);
            writeln!(text, "  WARNING {lost} of {all} connections were lost")?;
        }
        if let Some(open) = &self.open_loop {
            open.write_text(text)?;
        }
        if settings.in_flight_granted < settings.in_flight {
            let (granted, wanted) = (settings.in_flight_granted, settings.in_flight);
            writeln!(text, "  NOTE the server grants {granted} of {wanted} in flight")?;
        }
        self.client.write_text(text)
    }
}

impl LatencyReport {
    /// One line for each percentile of all operations, one line for those of a `kind`.
    fn write_text(&self, kind: &str, text: &mut String) -> std::fmt::Result {
        let percentiles = [
            ("p50", self.p50),
            ("p90", self.p90),
            ("p99", self.p99),
            ("p99.9", self.p99_9),
            ("max", self.max),
        ];
        let shown = |value: Option<f64>| value.map_or("-".to_owned(), |us| format!("{us:.1} us"));
        if !kind.is_empty() {
            let all = percentiles.map(|(name, value)| format!("{name} {}", shown(value)));
            return writeln!(text, "  {kind:<10}  {}", all.join(", "));
        }
        for (name, value) in percentiles {
            match value {
                Some(value) => writeln!(text, "  {name:<10}  {value:>12.1} us")?,
                None => writeln!(text, "  {name:<10}  {:>12}", "-")?,
            }
        }
        Ok(())
    }

    fn new(latencies: &Latencies) -> Self {
        Self {
            samples: latencies.count(),
            min: latencies.min_us(),
            mean: latencies.mean_us(),
            p50: latencies.percentile_us(50.0),
            p90: latencies.percentile_us(90.0),
            p99: latencies.percentile_us(99.0),
            p99_9: latencies.percentile_us(99.9),
            p99_99: latencies.percentile_us(99.99),
            max: latencies.max_us(),
            over_range: latencies.over_range(),
        }
    }
}

impl OpenLoopReport {
    fn new(settings: &Settings, tallies: &[Tally], acked: u64) -> Option<Self> {
        let target_rate_per_s = settings.rate_per_s?;
        let sum = |part: fn(&Tally) -> u64| tallies.iter().map(part).sum::<u64>();
        let wanted = target_rate_per_s as f64 * settings.duration.as_secs_f64();
        let backlog = sum(|tally| tally.backlog_at_end) as f64;
        let lag_max_ns = tallies.iter().map(|tally| tally.lag_max_ns).max().unwrap_or(0);
        Some(Self {
            target_rate_per_s,
            achieved_rate_per_s: tenths(acked as f64 / settings.duration.as_secs_f64()),
            scheduled: sum(|tally| tally.scheduled),
            late: sum(|tally| tally.late),
            unsent: sum(|tally| tally.scheduled - tally.sent),
            lag_max_us: tenths(lag_max_ns as f64 / 1000.0),
            saturated: backlog > wanted * SATURATED_SHARE,
        })
    }

    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let (wanted, got) = (self.target_rate_per_s, self.achieved_rate_per_s);
        writeln!(text, "  rate        {got:>12.1} /s of {wanted} /s wanted")?;
        writeln!(
            text,
            "  schedule    {} due, {} late (> 1 ms), {} unsent, worst lag {:.1} us",
            self.scheduled, self.late, self.unsent, self.lag_max_us
        )?;
        if self.saturated {
            writeln!(
                text,
                "  SATURATED: the rate is above capacity; latencies show queueing only"
            )?;
        }
        Ok(())
    }
}

impl ClientReport {
    fn new(settings: &Settings, tallies: &[Tally]) -> Self {
        let percent = |ns: u64| tenths(ns as f64 / settings.duration.as_nanos() as f64 * 100.0);
        let uses = tallies.iter().map(|tally| tally.thread_use);
        let cpu_percent: Vec<f64> = uses.clone().map(|used| percent(used.cpu_ns)).collect();
        let cpu_wait_percent: Vec<f64> = uses.map(|used| percent(used.waited_ns)).collect();
        let busy = |(cpu, wait): (&f64, &f64)| cpu + wait > LIMITED_PERCENT;
        let client_limited = cpu_percent.iter().zip(&cpu_wait_percent).any(busy);
        Self { threads: settings.threads, cpu_percent, cpu_wait_percent, client_limited }
    }

    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let (cpu, wait) = (&self.cpu_percent, &self.cpu_wait_percent);
        writeln!(text, "  client      {cpu:?} % of a core per thread, {wait:?} % waiting for one")?;
        if self.client_limited {
            writeln!(
                text,
                "  WARNING client-limited: a generator thread was over 95 % busy; the figures may \
                 show the generator's limit. Give --threads or another machine."
            )?;
        }
        Ok(())
    }
}

impl SettingsReport {
    fn new(settings: &Settings, tallies: &[Tally]) -> Self {
        let reads = settings.workload.needs_events();
        let mixed = settings.workload == Workload::Mixed;
        let granted = tallies.iter().map(|tally| tally.in_flight_max).min();
        Self {
            addr: settings.addr.to_string(),
            connections: settings.connections,
            in_flight: settings.in_flight,
            in_flight_granted: granted.unwrap_or(settings.in_flight),
            streams: settings.streams,
            stream_order: settings.stream_order,
            streams_per_append: settings.streams_per_append,
            batch: settings.batch,
            read_mode: reads.then_some(if mixed { ReadMode::Point } else { settings.read_mode }),
            reads_percent: mixed.then_some(settings.reads_percent),
            stream_events: reads.then_some(settings.stream_events),
            event_size_bytes: settings.event_size_bytes,
            duration_s: settings.duration.as_secs_f64(),
            warm_up_s: settings.warm_up.as_secs_f64(),
            expect: settings.expectation.name().to_owned(),
            idempotency_keys: settings.with_keys,
            rate_per_s: settings.rate_per_s,
            arrivals: settings.rate_per_s.map(|_| settings.arrivals),
            threads: settings.threads,
            run_id: format!("{:016x}", settings.run_id),
        }
    }
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::clock::ThreadUse;
    use super::*;

    fn client(used_ms: &[(u64, u64)]) -> ClientReport {
        let addr = "127.0.0.1:1".parse().unwrap();
        let settings =
            Settings { threads: 2, ..Settings::appends(addr, 2, 1, Duration::from_secs(1)) };
        let tally = |&(cpu_ms, waited_ms): &(u64, u64)| Tally {
            thread_use: ThreadUse { cpu_ns: cpu_ms * 1_000_000, waited_ns: waited_ms * 1_000_000 },
            ..Tally::default()
        };
        ClientReport::new(&settings, &used_ms.iter().map(tally).collect::<Vec<_>>())
    }

    /// One thread without reserve is enough to make the figures the generator's. Broken if the
    /// threads' average decides, or if waiting for a processor does not count.
    #[test]
    fn a_generator_at_its_limit_says_so() {
        assert!(!client(&[(900, 40), (100, 0)]).client_limited);
        let limited = client(&[(100, 0), (700, 260)]);
        assert!(limited.client_limited);
        assert_eq!(limited.cpu_percent, [10.0, 70.0]);
        let mut text = String::new();
        limited.write_text(&mut text).unwrap();
        assert!(text.contains("client-limited"), "{text}");
    }

    /// A result is read back as it was written, and so are the settings and tallies that machines
    /// hand each other. Broken if a field is left out, renamed on one way, or rounded.
    #[test]
    fn results_settings_and_tallies_survive_their_json() {
        fn back<T: Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
            serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
        }
        let addr = "[::1]:7400".parse().unwrap();
        let settings = Settings {
            rate_per_s: Some(1000),
            run_id: u64::MAX,
            workload: Workload::Mixed,
            arrivals: Arrivals::Poisson,
            ..Settings::appends(addr, 2, 1, Duration::from_nanos(1_000_000_001))
        };
        let mut tally = Tally { acked: 7, scheduled: 9, sent: 8, ..Tally::default() };
        tally.latencies.record(1_234_567);
        tally.connections_lost = 3;
        tally.count_error("Busy", 3);
        tally.count_error("Busy", 2);
        let report = Report::new(&settings, &[tally.clone()]);
        assert_eq!(report.errors_by_code.get("Busy"), Some(&5));
        assert_eq!(back(&settings), settings);
        assert_eq!(back(&tally), tally);
        assert_eq!(back(&report), report);
        // Results from before there was this count are read as if none had been lost.
        let mut older = serde_json::to_value(&report).unwrap();
        assert_eq!(older.as_object_mut().unwrap().remove("connections_lost"), Some(3.into()));
        let older: Report = serde_json::from_value(older).unwrap();
        assert_eq!(older, Report { connections_lost: 0, ..report });
    }
}
