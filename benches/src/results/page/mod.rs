//! A result as one HTML page that needs nothing else: no script, no font, no network. Pure text
//! from a document.

mod axis;
mod chart;
mod facts;
mod levels;
mod pictures;
mod words;

use words::{count, escape, latency, three};

use super::document::Document;

const STYLE: &str = include_str!("style.css");

/// The page.
#[must_use]
pub fn html(document: &Document) -> String {
    let title = title(document);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n{}{}{}{}{}{}{}{}</main>\n</body>\n</html>\n",
        below(document),
        warnings(document),
        figures(document),
        pictures::distribution(document),
        pictures::curve(&document.curve),
        levels::table(document),
        pictures::course(document),
        facts::tables(document),
    )
}

fn title(document: &Document) -> String {
    let (report, settings) = (&document.report, &document.report.settings);
    let text = format!(
        "Duolog {}, {} loop, {} connections × {}",
        report.workload, report.mode, settings.connections, settings.in_flight
    );
    escape(&text)
}

fn below(document: &Document) -> String {
    let cpu = document.host.cpu_model.as_deref().unwrap_or(&document.host.architecture);
    let text = format!(
        "{} for {} s on {} ({cpu}, Linux {}), Duolog {} {}",
        document.started_at,
        three(document.report.window_s),
        document.host.name,
        document.host.kernel,
        document.program.version,
        document.program.commit,
    );
    format!("<p class=\"below\">{}</p>\n", escape(&text))
}

fn warnings(document: &Document) -> String {
    if document.warnings.is_empty() {
        return String::new();
    }
    let item = |warning: &super::warning::Warning| {
        let code = escape(&warning.code.replace('_', " "));
        format!("<li><b>{code}</b>{}</li>\n", escape(&warning.text))
    };
    let items: String = document.warnings.iter().map(item).collect();
    format!("<ul class=\"warnings\">\n{items}</ul>\n")
}

/// The few numbers that everybody looks for.
fn figures(document: &Document) -> String {
    let (report, cost) = (&document.report, &document.server_cost);
    let time = |us: Option<f64>| us.map(latency);
    let with = |value: Option<f64>, unit: &str| {
        value.map(|value| format!("{}<small>{unit}</small>", three(value)))
    };
    let throughput = count(report.throughput_per_s.round().max(0.0) as u64);
    let list = [
        ("Throughput", Some(format!("{throughput}<small>/s</small>"))),
        ("p50", time(report.latency_us.p50)),
        ("p99", time(report.latency_us.p99)),
        ("p99.9", time(report.latency_us.p99_9)),
        ("Maximum", time(report.latency_us.max)),
        ("Errors", Some(count(report.errors))),
        ("Server CPU", with(cost.cpu_s_per_million, "s per million")),
        ("Flushes", with(cost.flushes_per_append, "per append")),
    ];
    let item = |(name, value): (&str, Option<String>)| {
        let value = value.unwrap_or_else(|| "–".to_owned());
        format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n")
    };
    let items: String = list.into_iter().map(item).collect();
    format!("<dl class=\"figures\">\n{items}</dl>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;

    /// Whoever gets the file sees all of it, without a network. Broken if the page asks for
    /// anything, runs anything, or takes a text of the result for markup.
    #[test]
    fn the_page_needs_nothing_and_escapes_everything() {
        let page = html(&example::document());
        for wanting in ["http:", "https:", "<script", "<link", "<img", "src=", "url(", "@import"] {
            assert!(!page.contains(wanting), "{wanting}");
        }
        assert!(page.contains("host &amp; &lt;co&gt;") && !page.contains("host & <co>"));
        assert!(page.contains("--out &lt;x&gt;"));
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert_eq!(page.matches("<svg").count(), 8, "four charts in two sizes");
        assert!(!page.contains("NaN") && !page.contains("inf"), "a number that is none");
    }

    /// What speaks against the figures stands above them.
    #[test]
    fn warnings_come_first() {
        let mut document = example::document();
        let page = html(&document);
        let (warning, figures) = (page.find("disk changed"), page.find("class=\"figures\""));
        assert!(warning.is_some() && warning < figures, "{warning:?} {figures:?}");
        document.warnings.clear();
        assert!(!html(&document).contains("class=\"warnings\""));
    }

    /// A run in which nothing succeeded still has a page.
    #[test]
    fn a_run_without_latencies_is_shown_too() {
        let mut document = example::document();
        document.percentiles.clear();
        document.report.latency_us.p50 = None;
        for point in &mut document.time_line.points {
            *point = crate::results::document::TimePoint { at_s: point.at_s, ..Default::default() };
        }
        let page = html(&document);
        assert!(page.contains("there are no latencies") && !page.contains("NaN"), "{page}");
    }
}
