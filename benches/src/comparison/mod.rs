//! Two sets of results beside each other, pair by pair: is the second one better, worse, or is no
//! difference shown?

pub mod interval;
pub mod likeness;

use std::fmt::Write as _;

use interval::Ratio;
use likeness::unlike;
use serde::Serialize;

use crate::results::Document;
use crate::results::cost::digits;

/// Why results were not compared.
#[derive(Debug, thiserror::Error)]
pub enum ComparisonError {
    /// Pairs need two of each.
    #[error("{base} results on one side, {with} on the other: they are paired by their order")]
    Count {
        /// Results of the base.
        base: usize,
        /// Results of the other side.
        with: usize,
    },
    /// Their figures differ for other reasons.
    #[error("the results are not of the same load or machine (--force compares them all the \
             same):\n{}", .0.join("\n"))]
    Unlike(Vec<String>),
}

/// What a figure has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval lies on the good side of 1.
    Better,
    /// It lies on the bad side.
    Worse,
    /// It contains 1.
    NoDifferenceShown,
    /// There is one pair, which shows no difference between runs.
    OnePair,
    /// A result does not have the figure.
    NotTold,
    /// The base has the figure in a pair in which the other side has none, which says that nothing
    /// was answered there.
    Failed,
}

/// One figure of both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// `higher` or `lower` is better.
    pub better: &'static str,
    /// Geometric mean of the base; of the share of failures the median.
    pub base: Option<f64>,
    /// The same of the other side.
    pub with: Option<f64>,
    /// The second over the first.
    pub ratio: Option<f64>,
    /// Where the ratio lies with 95 % confidence.
    pub interval: Option<(f64, f64)>,
    /// What follows.
    pub verdict: Verdict,
    /// Worse by more than the tolerance, with 95 % confidence. Also one pair is enough for a figure
    /// that is gone, and for more failures: those are not scatter.
    pub regressed: bool,
}

/// The whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Number of pairs.
    pub pairs: usize,
    /// The share by which a figure may be worse.
    pub tolerance: f64,
    /// Server version and commit of each side.
    pub sides: [String; 2],
    /// What a reader should know: differences that were let pass, warnings of the results.
    pub notes: Vec<String>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Whether one of them regressed.
    pub regressed: bool,
}

type Value = fn(&Document) -> Option<f64>;

/// What it means that a result lacks a figure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// Nothing was answered.
    Failure,
    /// The server does not tell it.
    Untold,
}

/// Name, whether higher is better, what its lack means, and the value.
const FIGURES: [(&str, bool, Lack, Value); 5] = [
    ("throughput_per_s", true, Lack::Failure, |it| Some(it.report.throughput_per_s)),
    ("p50_us", false, Lack::Failure, |it| it.report.latency_us.p50),
    ("p99_us", false, Lack::Failure, |it| it.report.latency_us.p99),
    ("cpu_s_per_million", false, Lack::Untold, |it| it.server_cost.cpu_s_per_million),
    ("flushes_per_append", false, Lack::Untold, |it| it.server_cost.flushes_per_append),
];
/// By how much the share of failed operations may rise in the median of the pairs, percentage
/// points. A ratio would make a regression of the second error of a million operations.
const FAILED_RISE_MAX_POINTS: f64 = 0.1;

/// Compares the results in their order. `tolerance`: the share by which a figure may be worse.
/// `force`: differences of load and machine are noted only.
///
/// # Errors
/// See [`ComparisonError`].
pub fn compare(
    base: &[Document],
    with: &[Document],
    tolerance: f64,
    force: bool,
) -> Result<Comparison, ComparisonError> {
    if base.len() != with.len() || base.is_empty() {
        return Err(ComparisonError::Count { base: base.len(), with: with.len() });
    }
    let mut notes = Vec::new();
    let mut refused = Vec::new();
    for other in base.iter().chain(with).skip(1) {
        let found = unlike(&base[0], other);
        extend_new(if force { &mut notes } else { &mut refused }, found.refused);
        extend_new(&mut notes, found.noted);
    }
    if !refused.is_empty() {
        return Err(ComparisonError::Unlike(refused));
    }
    for (side, documents) in [("base", base), ("with", with)] {
        for (number, document) in (1..).zip(documents) {
            let codes = document.warnings.iter().map(|warning| warning.code.as_str());
            let codes: Vec<&str> = codes.collect();
            if !codes.is_empty() {
                notes.push(format!("{side} {number} has warnings: {}", codes.join(", ")));
            }
        }
    }
    let pairs = || base.iter().zip(with);
    let mut figures: Vec<Figure> = FIGURES
        .iter()
        .map(|(name, higher, lack, value)| {
            let values = pairs().map(|(one, other)| (value(one), value(other)));
            let values: Vec<(Option<f64>, Option<f64>)> = values.collect();
            Figure::new(name, *higher, *lack, &values, tolerance)
        })
        .collect();
    let failed = pairs().map(|(one, other)| (failed_percent(one), failed_percent(other)));
    figures.push(Figure::of_failures(&failed.collect::<Vec<_>>()));
    let regressed = figures.iter().any(|figure| figure.regressed);
    let sides = [side(&base[0]), side(&with[0])];
    Ok(Comparison { pairs: base.len(), tolerance, sides, notes, figures, regressed })
}

fn extend_new(list: &mut Vec<String>, more: Vec<String>) {
    for text in more {
        if !list.contains(&text) {
            list.push(text);
        }
    }
}

fn side(document: &Document) -> String {
    let known = document.server.as_ref();
    let word = |text: Option<&String>| text.map_or("unknown", String::as_str).to_owned();
    let version = word(known.and_then(|server| server.version.as_ref()));
    format!("{version} ({})", word(known.and_then(|server| server.commit.as_ref())))
}

/// Errors and operations without an answer as a share of all that were tried.
fn failed_percent(document: &Document) -> f64 {
    let report = &document.report;
    let all = report.attempts + report.unanswered;
    (report.errors + report.unanswered) as f64 * 100.0 / all.max(1) as f64
}

/// The middle one, or the mean of the two in the middle; 0 of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.iter().skip(sorted.len().saturating_sub(1) / 2);
    let middle: Vec<f64> = middle.take(2 - sorted.len() % 2).copied().collect();
    middle.iter().sum::<f64>() / middle.len().max(1) as f64
}

impl Figure {
    fn new(
        name: &'static str,
        higher: bool,
        lack: Lack,
        values: &[(Option<f64>, Option<f64>)],
        tolerance: f64,
    ) -> Self {
        let pairs: Option<Vec<(f64, f64)>> =
            values.iter().map(|(base, with)| Some(((*base)?, (*with)?))).collect();
        let ratio = pairs.as_deref().and_then(Ratio::of);
        let good = |value: Option<f64>| value.is_some_and(|value| value > 0.0);
        let failed =
            lack == Lack::Failure && values.iter().any(|(base, with)| good(*base) && !good(*with));
        let interval = ratio.and_then(|ratio| ratio.interval);
        // Seen so that below 1 is better.
        let (good, bad) = match interval {
            Some((low, high)) if higher => (low > 1.0, high < 1.0),
            Some((low, high)) => (high < 1.0, low > 1.0),
            None => (false, false),
        };
        let beyond = interval.is_some_and(|(low, high)| {
            if higher { high < 1.0 - tolerance } else { low > 1.0 + tolerance }
        });
        let verdict = match (ratio, interval) {
            (None, _) if failed => Verdict::Failed,
            (None, _) => Verdict::NotTold,
            (Some(_), None) => Verdict::OnePair,
            _ if good => Verdict::Better,
            _ if bad => Verdict::Worse,
            _ => Verdict::NoDifferenceShown,
        };
        Self {
            name,
            better: if higher { "higher" } else { "lower" },
            base: ratio.map(|ratio| digits(ratio.base)),
            with: ratio.map(|ratio| digits(ratio.with)),
            ratio: ratio.map(|ratio| digits(ratio.ratio)),
            interval: interval.map(|(low, high)| (digits(low), digits(high))),
            verdict,
            regressed: beyond || failed,
        }
    }

    /// Of the shares of failed operations, percent.
    fn of_failures(pairs: &[(f64, f64)]) -> Self {
        let rise = median(pairs.iter().map(|(base, with)| with - base));
        let regressed = rise > FAILED_RISE_MAX_POINTS;
        let verdict = if regressed {
            Verdict::Worse
        } else if rise < -FAILED_RISE_MAX_POINTS {
            Verdict::Better
        } else {
            Verdict::NoDifferenceShown
        };
        Self {
            name: "failed_percent",
            better: "lower",
            base: Some(digits(median(pairs.iter().map(|pair| pair.0)))),
            with: Some(digits(median(pairs.iter().map(|pair| pair.1)))),
            ratio: None,
            interval: None,
            verdict,
            regressed,
        }
    }
}

impl Verdict {
    const fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifferenceShown => "no difference shown",
            Self::OnePair => "one pair: no interval",
            Self::NotTold => "not told",
            Self::Failed => "failed: base has it",
        }
    }
}

impl Comparison {
    /// The table for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write_text(&mut text).expect("a String takes all text");
        text
    }

    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let pairs = if self.pairs == 1 { "pair" } else { "pairs" };
        writeln!(text, "{} {pairs}: base {}, with {}", self.pairs, self.sides[0], self.sides[1])?;
        writeln!(
            text,
            "{:<20} {:>12} {:>12} {:>7}  {:<16}  verdict",
            "", "base", "with", "ratio", "95 % interval"
        )?;
        for figure in &self.figures {
            let number = |value: Option<f64>| value.map_or("-".to_owned(), |it| format!("{it}"));
            let ratio = figure.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
            let interval = figure
                .interval
                .map_or("-".to_owned(), |(low, high)| format!("{low:.3} to {high:.3}"));
            let regressed = match (figure.regressed, figure.verdict) {
                (true, Verdict::Failed) | (false, _) => "",
                (true, _) => ", beyond the tolerance",
            };
            writeln!(
                text,
                "{:<20} {:>12} {:>12} {ratio:>7}  {interval:<16}  {}{regressed}",
                figure.name,
                number(figure.base),
                number(figure.with),
                figure.verdict.words()
            )?;
        }
        for note in &self.notes {
            writeln!(text, "note: {note}")?;
        }
        if self.pairs == 1 {
            writeln!(
                text,
                "note: one pair cannot tell a difference from the scatter between runs; run both \
                 sides several times, in turn"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;

    fn document(throughput: f64, p99: f64) -> Document {
        let mut document = example::document();
        document.warnings.clear();
        document.report.throughput_per_s = throughput;
        document.report.latency_us.p99 = Some(p99);
        document
    }

    fn three(throughput: f64, p99: f64) -> Vec<Document> {
        [0.99, 1.0, 1.01].map(|noise| document(throughput * noise, p99 / noise)).to_vec()
    }

    fn verdicts(comparison: &Comparison) -> Vec<(Verdict, bool)> {
        let figures = comparison.figures.iter();
        figures.map(|figure| (figure.verdict, figure.regressed)).collect()
    }

    /// A rate that fell is worse as much as a latency that rose, and only what is beyond the
    /// tolerance with certainty is a regression.
    #[test]
    fn worse_is_told_by_the_interval_and_a_regression_by_the_tolerance() {
        let base = three(1000.0, 500.0);
        let same = compare(&base, &base, 0.1, false).unwrap();
        assert!(!same.regressed);
        assert_eq!(verdicts(&same)[0], (Verdict::NoDifferenceShown, false));
        let mut scattered = three(1200.0, 500.0);
        scattered[1].report.throughput_per_s = 700.0;
        scattered[0].report.latency_us.p99 = Some(400.0);
        let slower = compare(&base, &three(950.0, 500.0 * 1.3), 0.1, false).unwrap();
        assert_eq!(verdicts(&slower)[0], (Verdict::Worse, false), "5 % lie within the tolerance");
        assert_eq!(verdicts(&slower)[2], (Verdict::Worse, true));
        assert!(slower.regressed);
        let faster = compare(&base, &three(1500.0, 200.0), 0.1, false).unwrap();
        assert_eq!(verdicts(&faster)[0], (Verdict::Better, false));
        assert_eq!(verdicts(&faster)[2], (Verdict::Better, false));
        let unclear = compare(&base, &scattered, 0.1, false).unwrap();
        assert_eq!(verdicts(&unclear)[0], (Verdict::NoDifferenceShown, false));
        let text = slower.to_text();
        assert!(text.contains("beyond the tolerance"), "{text}");
    }

    /// Broken if a single pair, however far apart, makes a verdict, or a figure that one side lacks
    /// is compared.
    #[test]
    fn one_pair_and_missing_figures_decide_nothing() {
        let mut other = document(10.0, 9e9);
        other.server_cost.flushes_per_append = None;
        let one = compare(&[document(1000.0, 500.0)], &[other], 0.1, false).unwrap();
        assert!(!one.regressed);
        assert_eq!(verdicts(&one)[0], (Verdict::OnePair, false));
        assert_eq!(verdicts(&one)[4], (Verdict::NotTold, false));
        assert!(one.to_text().contains("one pair cannot tell"), "{}", one.to_text());
    }

    /// A side that answers nothing has no ratio, and fails all the same. Broken if it passes as
    /// there is nothing to compare, or if a base that failed is held against the other side.
    #[test]
    fn a_total_failure_is_a_regression() {
        let base = three(1000.0, 500.0);
        let mut with = three(1000.0, 500.0);
        with[1].report.throughput_per_s = 0.0;
        with[1].report.latency_us.p50 = None;
        with[1].report.latency_us.p99 = None;
        let failed = compare(&base, &with, 0.1, false).unwrap();
        assert!(failed.regressed);
        assert_eq!(verdicts(&failed)[..3], [(Verdict::Failed, true); 3]);
        assert!(failed.to_text().contains("failed: base has it"), "{}", failed.to_text());
        let one = compare(&base[1..2], &with[1..2], 0.1, false).unwrap();
        assert!(one.regressed, "one pair is enough");
        let mended = compare(&with, &base, 0.1, false).unwrap();
        assert_eq!(verdicts(&mended)[..3], [(Verdict::NotTold, false); 3]);
        assert!(!mended.regressed);
    }

    /// Failures that are left out of throughput and latencies count by their share. Broken if a
    /// server that loses every hundredth request passes as quick, or if one bad pair decides.
    #[test]
    fn more_failures_are_a_regression() {
        let failing = |unanswered: [u64; 3]| {
            let mut side = three(1000.0, 500.0);
            for (document, count) in side.iter_mut().zip(unanswered) {
                document.report.unanswered = count;
            }
            side
        };
        let told = |base: [u64; 3], with: [u64; 3]| {
            let compared = compare(&failing(base), &failing(with), 0.1, false).unwrap();
            assert_eq!(compared.figures[5].name, "failed_percent");
            assert_eq!(compared.regressed, compared.figures[5].regressed);
            verdicts(&compared)[5]
        };
        // Of about 10,000 operations.
        assert_eq!(told([0; 3], [5, 5, 900]), (Verdict::NoDifferenceShown, false));
        assert_eq!(told([0; 3], [5, 20, 900]), (Verdict::Worse, true));
        assert_eq!(told([100; 3], [105; 3]), (Verdict::NoDifferenceShown, false));
        assert_eq!(told([100; 3], [0; 3]), (Verdict::Better, false));
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }

    #[test]
    fn results_of_other_loads_are_compared_by_force_only() {
        let (base, mut with) = (three(1.0, 1.0), three(1.0, 1.0));
        with[2].report.settings.connections = 1;
        let refused = compare(&base, &with, 0.1, false).unwrap_err().to_string();
        assert!(refused.contains("connections: 64, 1"), "{refused}");
        let forced = compare(&base, &with, 0.1, true).unwrap();
        assert_eq!(forced.notes, ["connections: 64, 1"]);
        let count = compare(&base, &with[..1], 0.1, true).unwrap_err().to_string();
        assert!(count.contains("3 results on one side, 1 on the other"), "{count}");
    }
}
