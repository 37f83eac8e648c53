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
}

/// One figure of both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// `higher` or `lower` is better.
    pub better: &'static str,
    /// Geometric mean of the base.
    pub base: Option<f64>,
    /// Geometric mean of the other side.
    pub with: Option<f64>,
    /// The second over the first.
    pub ratio: Option<f64>,
    /// Where the ratio lies with 95 % confidence.
    pub interval: Option<(f64, f64)>,
    /// What follows.
    pub verdict: Verdict,
    /// Worse by more than the tolerance, with 95 % confidence.
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

/// Name, whether higher is better, and the value.
const FIGURES: [(&str, bool, Value); 5] = [
    ("throughput_per_s", true, |it| Some(it.report.throughput_per_s)),
    ("p50_us", false, |it| it.report.latency_us.p50),
    ("p99_us", false, |it| it.report.latency_us.p99),
    ("cpu_s_per_million", false, |it| it.server_cost.cpu_s_per_million),
    ("flushes_per_append", false, |it| it.server_cost.flushes_per_append),
];

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
    let figures: Vec<Figure> = FIGURES
        .iter()
        .map(|(name, higher, value)| {
            let pairs =
                base.iter().zip(with).map(|(one, other)| Some((value(one)?, value(other)?)));
            let pairs: Option<Vec<(f64, f64)>> = pairs.collect();
            Figure::new(name, *higher, pairs.as_deref().and_then(Ratio::of), tolerance)
        })
        .collect();
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

impl Figure {
    fn new(name: &'static str, higher: bool, ratio: Option<Ratio>, tolerance: f64) -> Self {
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
            regressed: beyond,
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
            let regressed = if figure.regressed { ", beyond the tolerance" } else { "" };
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
