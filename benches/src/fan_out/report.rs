//! What a run of subscribers found.

use serde::Serialize;

use super::publisher::Published;
use super::subscriber::Heard;
use super::{FanOutSettings, Followed};
use crate::generator::latency::Latencies;

/// Times, microseconds; none when nothing was counted.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// Half are shorter.
    pub p50_us: Option<f64>,
    /// 99 % are shorter.
    pub p99_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
}

impl Times {
    fn of(latencies: &Latencies) -> Self {
        let percentile = |percent| latencies.percentile_us(percent);
        Self { p50_us: percentile(50.0), p99_us: percentile(99.0), max_us: latencies.max_us() }
    }

    fn to_text(self) -> String {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |us| format!("{us:.0} us"));
        format!(
            "p50 {}, p99 {}, max {}",
            number(self.p50_us),
            number(self.p99_us),
            number(self.max_us)
        )
    }
}

/// Events to subscribers.
#[derive(Clone, Debug, Serialize)]
pub struct FanOutReport {
    /// Subscribers that got every event.
    pub subscribers: u32,
    /// Subscribers that waited for other streams.
    pub idle: u32,
    /// What the former followed.
    pub followed: Followed,
    /// Events a second, as asked for.
    pub rate_per_s: u32,
    /// Events that were acknowledged.
    pub events: u64,
    /// Appends that failed.
    pub errors: u64,
    /// From the moment an append was due until its receipt.
    pub append: Times,
    /// From that moment until a subscriber had the event.
    pub receive: Times,
    /// The medians of the two, one over the other.
    pub receive_over_append_p50: Option<f64>,
    /// Events given to subscribers, a second.
    pub deliveries_per_s: f64,
    /// Events that did not come to a subscriber.
    pub missing: u64,
    /// Times that a subscriber was too slow.
    pub cut_offs: u64,
    /// Processor time of the server for each event published, microseconds.
    pub server_cpu_us_per_event: Option<f64>,
}

impl FanOutReport {
    pub(super) fn of(settings: &FanOutSettings, published: &Published, heard: &Heard) -> Self {
        let (append, receive) = (Times::of(&published.latencies), Times::of(&heard.latencies));
        let events = published.latencies.count();
        let ratio = receive.p50_us.zip(append.p50_us).map(|(receive, append)| receive / append);
        Self {
            subscribers: settings.subscribers,
            idle: settings.idle,
            followed: settings.followed,
            rate_per_s: settings.rate_per_s,
            events,
            errors: published.errors,
            append,
            receive,
            receive_over_append_p50: ratio,
            deliveries_per_s: heard.latencies.count() as f64 / published.seconds.max(1e-9),
            missing: heard.missing,
            cut_offs: heard.cut_offs,
            server_cpu_us_per_event: published
                .server_cpu_us
                .map(|cpu_us| cpu_us as f64 / events.max(1) as f64),
        }
    }

    /// Whether every subscriber got everything.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// For people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let ratio = self
            .receive_over_append_p50
            .map_or(String::new(), |ratio| format!("receive p50 is {ratio:.2} times append p50\n"));
        let cpu = self.server_cpu_us_per_event.map_or(String::new(), |us| {
            format!("server           {us:.1} us of processor time for each event\n")
        });
        format!(
            "events           {} at {}/s, {} errors; {} subscribers, {} idle ones\n\
             append           {}\n\
             receive          {}\n{ratio}\
             deliveries       {:.0}/s, {} missing, {} cut-offs\n{cpu}",
            self.events,
            self.rate_per_s,
            self.errors,
            self.subscribers,
            self.idle,
            self.append.to_text(),
            self.receive.to_text(),
            self.deliveries_per_s,
            self.missing,
            self.cut_offs,
        )
    }
}

/// A replay of everything.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// Events that came.
    pub events: u64,
    /// Bytes of their data.
    pub data_bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Events a second.
    pub events_per_s: f64,
    /// Events for each second of the server's processor time.
    pub events_per_server_cpu_s: Option<f64>,
}

impl ReplayReport {
    pub(super) fn new(
        events: u64,
        data_bytes: u64,
        seconds: f64,
        server_cpu_us: Option<u64>,
    ) -> Self {
        let per_cpu = |cpu_us: u64| events as f64 / (cpu_us.max(1) as f64 / 1e6);
        Self {
            events,
            data_bytes,
            seconds,
            events_per_s: events as f64 / seconds.max(1e-9),
            events_per_server_cpu_s: server_cpu_us.map(per_cpu),
        }
    }

    /// For people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let per_cpu = self.events_per_server_cpu_s.map_or(String::new(), |events| {
            format!("server  {events:.0} events for each second of its processor time\n")
        });
        format!(
            "replay  {} events, {} MiB of data in {:.2} s: {:.0} events/s\n{per_cpu}",
            self.events,
            self.data_bytes >> 20,
            self.seconds,
            self.events_per_s
        )
    }
}
