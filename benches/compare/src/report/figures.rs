//! Medians with their ranges, by system and number of connections.

use std::collections::BTreeMap;

use crate::results::{LoadResult, Results, SystemResult};

/// With fewer flushes per ack at one connection, whoever made them, a system does not flush before
/// it acknowledges. One flush per ack is what durability takes there; the rest is for the edges.
pub const FLUSHES_PER_ACK_MIN: f64 = 0.98;
/// With so many of its own it surely does: no system flushes for most of its acks only.
const FLUSHES_PER_ACK_PROOF: f64 = 0.9;

/// The median of the repetitions and its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; of an even number the mean of both.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// `None` without values.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let even = values.len().is_multiple_of(2);
        let median =
            if even { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] };
        Some(Self { median, min, max })
    }
}

/// All loads, ready to be asked.
#[derive(Debug)]
pub struct Figures<'a> {
    results: &'a Results,
    loads: BTreeMap<(&'a str, u32), Vec<&'a LoadResult>>,
}

/// In which table a system stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One node that flushes before it acknowledges.
    Durable,
    /// It does not.
    NotDurable,
    /// Two nodes.
    Pair,
}

impl<'a> Figures<'a> {
    /// Takes the loads apart.
    #[must_use]
    pub fn new(results: &'a Results) -> Self {
        let mut loads: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for load in &results.loads {
            loads.entry((&*load.system, load.connections)).or_default().push(load);
        }
        Self { results, loads }
    }

    /// Numbers of connections, in order.
    #[must_use]
    pub fn connections(&self) -> &'a [u32] {
        &self.results.plan.connections
    }

    /// The systems of one table.
    pub fn systems(&self, place: Place) -> impl Iterator<Item = &'a SystemResult> {
        self.results.systems.iter().filter(move |system| self.place(system) == place)
    }

    /// Where a system belongs, by what was counted.
    #[must_use]
    pub fn place(&self, system: &SystemResult) -> Place {
        if system.group == "pair" {
            return Place::Pair;
        }
        let flushes = self.flushes_of_one_client(system);
        let enough = flushes.is_some_and(|flushes| flushes >= FLUSHES_PER_ACK_MIN);
        if enough { Place::Durable } else { Place::NotDurable }
    }

    /// All flushes per ack at one connection. `None` where that was not measured: with more of
    /// them acks share flushes, and their number proves nothing.
    #[must_use]
    pub fn flushes_of_one_client(&self, system: &SystemResult) -> Option<f64> {
        let spread = self.spread(&system.id, 1, LoadResult::flushes_per_ack_at_most);
        spread.map(|spread| spread.median)
    }

    /// Whether it cannot be told if a system flushed enough: the device was flushed enough, but
    /// just before the loads it was flushed as well. `copies`: flushes that each ack needs.
    #[must_use]
    pub fn is_in_doubt(&self, system: &SystemResult, copies: f64) -> bool {
        let all = self.flushes_of_one_client(system).unwrap_or(0.0);
        let own = self.spread(&system.id, 1, LoadResult::flushes_per_ack);
        let own = own.map_or(0.0, |spread| spread.median);
        all >= copies * FLUSHES_PER_ACK_MIN && own < copies * FLUSHES_PER_ACK_PROOF
    }

    /// A figure of a system at a number of connections.
    pub fn spread(
        &self,
        system: &str,
        connections: u32,
        figure: impl Fn(&LoadResult) -> Option<f64>,
    ) -> Option<Spread> {
        let loads = self.loads.get(&(system, connections))?;
        Spread::of(loads.iter().filter_map(|load| figure(load)))
    }

    /// The best of these systems at a number of connections, by `better`.
    pub fn best(
        &self,
        systems: &[&'a SystemResult],
        connections: u32,
        figure: impl Fn(&LoadResult) -> Option<f64>,
        better: impl Fn(f64, f64) -> bool,
    ) -> Option<(&'a SystemResult, f64)> {
        let mut best: Option<(&SystemResult, f64)> = None;
        for system in systems {
            let Some(spread) = self.spread(&system.id, connections, &figure) else { continue };
            if best.is_none_or(|(_, found)| better(spread.median, found)) {
                best = Some((system, spread.median));
            }
        }
        best
    }
}

/// Acknowledged appends per second.
#[must_use]
pub fn throughput(load: &LoadResult) -> Option<f64> {
    Some(load.throughput_per_s)
}

/// Median latency, ms.
#[must_use]
pub fn p50_ms(load: &LoadResult) -> Option<f64> {
    load.latency.p50_us.map(|us| us / 1000.0)
}

/// 99th percentile of the latency, ms.
#[must_use]
pub fn p99_ms(load: &LoadResult) -> Option<f64> {
    load.latency.p99_us.map(|us| us / 1000.0)
}

/// Whether this is Duolog.
#[must_use]
pub fn is_duolog(system: &SystemResult) -> bool {
    system.id.starts_with("duolog")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[5.0, 1.0, 3.0]), Some(Spread { median: 3.0, min: 1.0, max: 5.0 }));
        assert_eq!(spread(&[4.0, 1.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(spread(&[]), None);
    }
}
