//! Duolog beside the best durable peer, and where the targets are missed.

use super::figures::{Figures, is_duolog, p99_ms, throughput};
use super::table::{Table, number};
use crate::results::{LoadResult, SystemResult};

/// Throughput over that of the best peer, at least.
const THROUGHPUT_RATIO_MIN: f64 = 2.0;
/// 99th percentile over that of the best peer, at most.
const P99_RATIO_MAX: f64 = 0.5;

/// One comparison with the best peer.
#[derive(Clone, Copy, Debug)]
struct Target {
    name: &'static str,
    heading: &'static str,
    figure: fn(&LoadResult) -> Option<f64>,
    better: fn(f64, f64) -> bool,
    is_met: fn(f64) -> bool,
    words: &'static str,
}

const TARGETS: [Target; 2] = [
    Target {
        name: "throughput",
        heading: "Throughput, appends per second: target at least 2 x the best peer",
        figure: throughput,
        better: |value, other| value > other,
        is_met: |ratio| ratio >= THROUGHPUT_RATIO_MIN,
        words: "at least 2",
    },
    Target {
        name: "p99",
        heading: "99th percentile, ms: target at most 0.5 x the best peer",
        figure: p99_ms,
        better: |value, other| value < other,
        is_met: |ratio| ratio <= P99_RATIO_MAX,
        words: "at most 0.5",
    },
];

/// Both comparisons for these systems, Duolog among them, and what is missed in plain words.
#[must_use]
pub fn text(figures: &Figures<'_>, systems: &[&SystemResult]) -> String {
    let duologs: Vec<_> = systems.iter().copied().filter(|system| is_duolog(system)).collect();
    let peers: Vec<_> = systems.iter().copied().filter(|system| !is_duolog(system)).collect();
    let mut text = String::new();
    let mut missed = Vec::new();
    let (mut met, mut unmeasured) = (0, 0);
    for target in TARGETS {
        let mut table = Table::new(headings(&duologs));
        for connections in figures.connections() {
            let best = figures.best(&peers, *connections, target.figure, target.better);
            let Some((peer, best)) = best else {
                unmeasured += duologs.len();
                continue;
            };
            let mut cells =
                vec![connections.to_string(), format!("{} ({})", number(best), peer.title)];
            for duolog in &duologs {
                let own = figures.spread(&duolog.id, *connections, target.figure);
                let Some(own) = own.filter(|_| best > 0.0) else {
                    cells.push("not measured".to_owned());
                    unmeasured += 1;
                    continue;
                };
                let ratio = own.median / best;
                let is_met = (target.is_met)(ratio);
                let mark = if is_met { "met" } else { "missed" };
                cells.push(format!("{} x, {mark}", number(ratio)));
                met += usize::from(is_met);
                if !is_met {
                    let (title, name, words) = (&duolog.title, target.name, target.words);
                    let ratio = number(ratio);
                    missed.push(format!(
                        "* {title} at {connections}: {name} is {ratio} x that of {} \
                         (target {words}).\n",
                        peer.title
                    ));
                }
            }
            table.row(cells);
        }
        text += &format!("{}:\n\n{}\n", target.heading, table.text());
    }
    text + &verdict(met, unmeasured, &missed)
}

fn headings(duologs: &[&SystemResult]) -> Vec<String> {
    let fixed = ["connections", "best peer"].map(str::to_owned);
    fixed.into_iter().chain(duologs.iter().map(|duolog| duolog.title.clone())).collect()
}

fn verdict(met: usize, unmeasured: usize, missed: &[String]) -> String {
    let all = met + unmeasured + missed.len();
    let unmeasured = match unmeasured {
        0 => String::new(),
        count => format!("{count} of {all} targets were not measured.\n"),
    };
    if missed.is_empty() && met == all && all > 0 {
        return format!("All {all} targets are met.\n");
    }
    let missed = match missed.len() {
        0 => String::new(),
        count => format!("{count} of {all} targets are missed:\n\n{}", missed.concat()),
    };
    format!("{unmeasured}{missed}")
}
