//! The loads of a sweep as a table, and what came after the last one.

use super::words::{count, escape, latency, three};
use crate::results::document::{CurvePoint, Document};
use crate::results::sweep_note::SweepNote;

const HEAD: [&str; 8] = ["", "offered", "answered", "p50", "p99", "p99.9", "errors", ""];

/// Empty without a sweep.
#[must_use]
pub fn table(document: &Document) -> String {
    let Some(sweep) = &document.sweep else { return String::new() };
    let head: String = HEAD.iter().map(|name| format!("<th>{name}</th>")).collect();
    let levels = sweep.levels.iter().map(|level| row(&level.point, &level.verdict));
    let rows: String = levels.chain([row(&sweep.overload.point, "")]).collect();
    let words: String =
        words(sweep).iter().map(|text| format!("<p>{}</p>\n", escape(text))).collect();
    format!(
        "<h2>The sweep</h2>\n<div class=\"tables levels\">\n<section>\n<table>\n\
         <tr>{head}</tr>\n{rows}</table>\n{words}</section>\n</div>\n"
    )
}

fn row(point: &CurvePoint, verdict: &str) -> String {
    let rate = |per_s: f64| format!("{} /s", count(per_s.round().max(0.0) as u64));
    let time = |us: Option<f64>| us.map_or_else(|| "–".to_owned(), latency);
    let cells = [
        point.rate_per_s.map_or_else(|| "–".to_owned(), |per_s| rate(per_s as f64)),
        rate(point.throughput_per_s),
        time(point.p50_us),
        time(point.p99_us),
        time(point.p99_9_us),
        count(point.errors),
        verdict.to_owned(),
    ];
    let cells: String = cells.iter().map(|text| format!("<td>{}</td>", escape(text))).collect();
    format!("<tr><th>{}</th>{cells}</tr>\n", escape(&point.label))
}

fn words(sweep: &SweepNote) -> Vec<String> {
    let over = &sweep.overload;
    let limit = match &*sweep.limit {
        "server" => "the server's limit",
        "generator" => "the generator's limit, not the server's",
        "rate" => "the highest rate that can be asked for",
        _ => "where the search ran out of steps or time",
    };
    let mut list = vec![
        format!(
            "The knee is {} requests per second, {limit}. Kept means: p99 up to {}, 98 % answered, \
             no errors.",
            count(sweep.knee_per_s),
            latency(sweep.bound_p99_us),
        ),
        format!(
            "At {} %: {} of the knee's throughput, {} % of the answers Busy. A light load behind \
             it {}.",
            over.percent,
            three(over.throughput_over_knee),
            three(over.busy_share * 100.0),
            over.recovery_words(),
        ),
    ];
    if sweep.disturbed {
        list.push(
            "Disturbed: 100 % of the knee was not kept when measured again, or 120 % was. Repeat \
             the sweep on a quiet machine."
                .to_owned(),
        );
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;

    /// Every load of a sweep has its row, and what cannot be known says why. A run without a sweep
    /// has no table.
    #[test]
    fn a_sweep_has_a_row_for_each_load() {
        let mut document = example::document();
        let text = table(&document);
        assert_eq!(text.matches("<tr>").count(), 3, "a head, a level and the overload: {text}");
        assert!(text.contains("within 300 ms") && !text.contains("Disturbed"), "{text}");
        if let Some(sweep) = &mut document.sweep {
            sweep.disturbed = true;
            sweep.overload.recovery_failed = Some("<gone>".to_owned());
        }
        let text = table(&document);
        assert!(text.contains("could not be measured: &lt;gone&gt;"), "{text}");
        assert!(text.contains("Disturbed"), "{text}");
        document.sweep = None;
        assert_eq!(table(&document), "");
    }
}
