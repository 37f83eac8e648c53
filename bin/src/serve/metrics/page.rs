//! The text of `/metrics` (OpenMetrics 1.0), metric by metric: names and help in one place each,
//! escapes and suffixes by the crate of the Prometheus project.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::histogram::HistogramReading;

/// Labels of one sample: names with values.
pub(super) type Labels<const N: usize> = [(&'static str, String); N];

/// What a metric measures in, as a part of its name.
#[derive(Clone, Copy, Debug)]
pub(super) enum In {
    /// A bare number.
    Count,
    Seconds,
    Bytes,
    /// A thing of our own that is counted.
    Of(&'static str),
}

impl In {
    fn unit(self) -> Option<Unit> {
        match self {
            Self::Count => None,
            Self::Seconds => Some(Unit::Seconds),
            Self::Bytes => Some(Unit::Bytes),
            Self::Of(what) => Some(Unit::Other(what.to_owned())),
        }
    }
}

/// See the module.
pub(super) struct Page<'a>(pub DescriptorEncoder<'a>);

impl Page<'_> {
    /// A metric: `name` without unit and suffix; `write` adds its samples.
    fn metric(
        &mut self,
        (name, unit): (&str, In),
        help: &str,
        kind: MetricType,
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let unit = unit.unit();
        write(&mut self.0.encode_descriptor(name, help, unit.as_ref(), kind)?)
    }

    /// Counters that differ by labels.
    pub(super) fn counters<const N: usize, V: EncodeCounterValue>(
        &mut self,
        name: (&str, In),
        help: &str,
        rows: impl IntoIterator<Item = (Labels<N>, V)>,
    ) -> fmt::Result {
        self.metric(name, help, MetricType::Counter, |metric| {
            for (labels, value) in rows {
                let mut row = metric.encode_family(&labels)?;
                row.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
            Ok(())
        })
    }

    /// One counter.
    pub(super) fn counter(
        &mut self,
        name: (&str, In),
        help: &str,
        value: impl EncodeCounterValue,
    ) -> fmt::Result {
        self.metric(name, help, MetricType::Counter, |metric| {
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    /// Gauges that differ by labels.
    pub(super) fn gauges<const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: (&str, In),
        help: &str,
        rows: impl IntoIterator<Item = (Labels<N>, V)>,
    ) -> fmt::Result {
        self.metric(name, help, MetricType::Gauge, |metric| {
            for (labels, value) in rows {
                metric.encode_family(&labels)?.encode_gauge(&value)?;
            }
            Ok(())
        })
    }

    /// One gauge.
    pub(super) fn gauge(
        &mut self,
        name: (&str, In),
        help: &str,
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        self.metric(name, help, MetricType::Gauge, |metric| metric.encode_gauge(&value))
    }

    /// A histogram of durations.
    pub(super) fn durations(
        &mut self,
        name: &str,
        help: &str,
        reading: &HistogramReading,
    ) -> fmt::Result {
        let buckets = reading.buckets().map(|(bound_us, count)| {
            (bound_us.map_or(f64::INFINITY, |bound| f64::from(bound) / 1e6), count)
        });
        let buckets: Vec<(f64, u64)> = buckets.collect();
        let sum = reading.sum_us as f64 / 1e6;
        self.metric((name, In::Seconds), help, MetricType::Histogram, |metric| {
            metric.encode_histogram::<NoLabelSet>(sum, reading.count(), &buckets, None)
        })
    }

    /// Facts as labels of a 1.
    pub(super) fn info<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        facts: Labels<N>,
    ) -> fmt::Result {
        self.metric((name, In::Count), help, MetricType::Info, |metric| metric.encode_info(&facts))
    }
}
