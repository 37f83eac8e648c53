//! What a load costs the server: the difference of what it tells about itself at the two ends of
//! the window, per append. Work that other clients cause in the meantime is counted too.

use serde::{Deserialize, Serialize};

use super::line::ServerStatus;

/// What the server told, and when it did.
#[derive(Clone, Debug)]
pub struct Told {
    /// When the answer came, ns on the run's clock.
    pub at_ns: u64,
    /// The answer.
    pub status: ServerStatus,
}

/// The cost of a run. `null`: the server does not tell, or there were no appends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerCost {
    /// Time between the two answers, seconds.
    pub between_s: f64,
    /// Processor time of the server's process over that time, percent of one core.
    pub cpu_percent: Option<f64>,
    /// Processor time for a million operations, seconds.
    pub cpu_s_per_million: Option<f64>,
    /// Durable writes for each operation: well below 1 when many share one.
    pub flushes_per_append: Option<f64>,
    /// Durable writes per second.
    pub flushes_per_s: Option<f64>,
    /// Bytes written into the log for each operation, with padding.
    pub written_bytes_per_append: Option<f64>,
    /// Memory in use at the end.
    pub resident_bytes: Option<u64>,
}

impl ServerCost {
    /// From the two answers. The window may differ by a little from the time between them, so rates
    /// are compared: `operations_per_s`, and `appends_per_s` among them, which alone cause writes.
    #[must_use]
    pub fn between(before: &Told, after: &Told, operations_per_s: f64, appends_per_s: f64) -> Self {
        let between_s = after.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
        if between_s <= 0.0 || before.status.node != after.status.node {
            return Self::default();
        }
        let per_s = |first: Option<u64>, last: Option<u64>| {
            // A server that was started anew in between counts from zero.
            let difference = last?.checked_sub(first?)?;
            Some(difference as f64 / between_s)
        };
        let each = |rate: Option<f64>, of: f64| {
            let each = rate? / of;
            each.is_finite().then(|| digits(each))
        };
        let (first, last) = (&before.status, &after.status);
        let cpu_us_per_s = per_s(first.cpu_us, last.cpu_us);
        let flushes_per_s = per_s(writes(first), writes(last));
        let bytes_per_s = per_s(written_bytes(first), written_bytes(last));
        Self {
            between_s: digits(between_s),
            cpu_percent: cpu_us_per_s.map(|us| digits(us / 1e4)),
            // Microseconds for one are seconds for a million.
            cpu_s_per_million: each(cpu_us_per_s, operations_per_s),
            flushes_per_append: each(flushes_per_s, appends_per_s),
            flushes_per_s: flushes_per_s.map(digits),
            written_bytes_per_append: each(bytes_per_s, appends_per_s),
            resident_bytes: last.resident_bytes,
        }
    }

    /// Lines of the table for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        if let (Some(cpu), Some(percent)) = (self.cpu_s_per_million, self.cpu_percent) {
            text += &format!(
                "  server CPU  {cpu:>12.2} s for a million   ({percent:.1} % of a core)\n"
            );
        }
        if let (Some(flushes), Some(rate)) = (self.flushes_per_append, self.flushes_per_s) {
            text += &format!("  flushes     {flushes:>12.4} per append   ({rate:.1} /s)\n");
        }
        text
    }
}

/// All shards' durable writes; `None` unless each tells.
fn writes(status: &ServerStatus) -> Option<u64> {
    let told = (!status.shards.is_empty()).then_some(&status.shards)?;
    told.iter().map(|shard| shard.writes).sum()
}

fn written_bytes(status: &ServerStatus) -> Option<u64> {
    let told = (!status.shards.is_empty()).then_some(&status.shards)?;
    told.iter().map(|shard| shard.written_bytes).sum()
}

/// Six significant digits: more is noise in a file.
pub(crate) fn digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powi(5 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::super::line::ShardStatus;
    use super::*;

    fn told(at_s: u64, cpu_us: u64, writes: u64) -> Told {
        let shard =
            ShardStatus { writes: Some(writes / 2), written_bytes: Some(writes / 2 * 4096) };
        let status = ServerStatus {
            node: Some("n".to_owned()),
            cpu_us: Some(cpu_us),
            resident_bytes: Some(77),
            shards: vec![shard; 2],
            ..ServerStatus::default()
        };
        Told { at_ns: at_s * 1_000_000_000, status }
    }

    /// 10 s in which 200,000 operations took 4 s of processor time and 20,000 writes.
    #[test]
    fn cost_is_the_difference_per_operation() {
        let (before, after) = (told(5, 1_000_000, 100), told(15, 5_000_000, 20_100));
        let cost = ServerCost::between(&before, &after, 20_000.0, 20_000.0);
        let expected = ServerCost {
            between_s: 10.0,
            cpu_percent: Some(40.0),
            cpu_s_per_million: Some(20.0),
            flushes_per_append: Some(0.1),
            flushes_per_s: Some(2000.0),
            written_bytes_per_append: Some(409.6),
            resident_bytes: Some(77),
        };
        assert_eq!(cost, expected);
        let read = ServerCost::between(&before, &after, 20_000.0, 0.0);
        assert_eq!((read.flushes_per_append, read.cpu_s_per_million), (None, Some(20.0)));
        assert!(cost.to_text().contains("0.1000 per append"), "{}", cost.to_text());
    }

    /// Broken if something that is not known is shown as a number.
    #[test]
    fn what_is_not_told_is_null() {
        let nothing = |at_ns| Told { at_ns, status: ServerStatus::default() };
        let cost = ServerCost::between(&nothing(0), &nothing(1_000_000_000), 5.0, 5.0);
        assert_eq!(cost, ServerCost { between_s: 1.0, ..ServerCost::default() });
        assert_eq!(cost.to_text(), "");
        let idle = ServerCost::between(&told(0, 0, 0), &told(1, 9, 4), 0.0, 0.0);
        assert_eq!((idle.cpu_s_per_million, idle.flushes_per_append), (None, None));
        let restarted = ServerCost::between(&told(0, 900, 40), &told(1, 9, 4), 5.0, 5.0);
        assert_eq!((restarted.cpu_s_per_million, restarted.flushes_per_append), (None, None));
        let mut other = told(1, 9, 4);
        other.status.node = Some("m".to_owned());
        assert_eq!(ServerCost::between(&told(0, 0, 0), &other, 5.0, 5.0), ServerCost::default());
    }

    #[test]
    fn numbers_keep_six_digits() {
        assert_eq!(digits(0.000_123_456_789), 0.000_123_457);
        assert_eq!(digits(1_234_567.8), 1_234_570.0);
        assert_eq!(digits(0.0), 0.0);
    }
}
