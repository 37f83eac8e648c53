//! The page's charts: latency by percentile, latency over throughput, and the course of the run.

use super::axis::Axis;
use super::chart::{Chart, NARROW, Size, WIDE};
use super::words::{count, latency, rate, seconds};
use crate::results::document::{CurvePoint, Document, TimePoint};

type Value = fn(&CurvePoint) -> Option<f64>;

/// One chart in both sizes, in a figure.
fn figure(title: &str, legend: &[(&str, &str)], draw: impl Fn(Size) -> String) -> String {
    let legend: String = legend
        .iter()
        .map(|(class, text)| format!("<span class=\"key {class}\">{text}</span>"))
        .collect();
    format!(
        "<figure><figcaption>{title}<span class=\"keys\">{legend}</span></figcaption>\n{}\n{}\n\
         </figure>\n",
        draw(WIDE),
        draw(NARROW)
    )
}

/// How many of the operations took how long.
#[must_use]
pub fn distribution(document: &Document) -> String {
    let rows = &document.percentiles;
    if rows.is_empty() {
        return "<p class=\"none\">No operation succeeded: there are no latencies.</p>\n"
            .to_owned();
    }
    let samples = document.report.latency_us.samples;
    let draw = |size| {
        let up = Axis::log(rows.iter().map(|row| row.latency_us), latency);
        let mut chart = Chart::new(size, Axis::nines(samples), up);
        chart.line("p50", rows.iter().map(|row| (row.percent, Some(row.latency_us))));
        for percent in [50.0, 90.0, 99.0, 99.9, 99.99, 100.0] {
            if let Some(row) = rows.iter().find(|row| row.percent == percent) {
                let name = if percent == 100.0 { "max".to_owned() } else { format!("p{percent}") };
                let text = format!("{name}: {}", latency(row.latency_us));
                chart.dot("p50", row.percent, row.latency_us, &text);
            }
        }
        chart.finish("Latency by percentile: each further nine takes the same room")
    };
    let title = "Latency by percentile <small>both axes logarithmic; the last point is the \
                 maximum</small>";
    figure(title, &[], draw)
}

/// Latency over throughput.
#[must_use]
pub fn curve(points: &[CurvePoint]) -> String {
    let draw = |size: Size| {
        let all = points.iter().flat_map(|point| [point.p50_us, point.p99_us, point.p99_9_us]);
        let most = points.iter().map(|point| point.throughput_per_s).fold(0.0, f64::max);
        let across = Axis::linear(most, size.marks.1.min(6), rate);
        let mut chart = Chart::new(size, across, Axis::log(all.flatten(), latency));
        let percentiles: [(&str, &str, Value); 3] = [
            ("p999", "p99.9", |point| point.p99_9_us),
            ("p99", "p99", |point| point.p99_us),
            ("p50", "p50", |point| point.p50_us),
        ];
        for (class, name, of) in percentiles {
            chart.line(class, points.iter().map(|point| (point.throughput_per_s, of(point))));
            for point in points {
                let Some(value) = of(point) else { continue };
                let text = explained(point, name, value);
                let class = if point.saturated || point.client_limited {
                    format!("{class} doubtful")
                } else {
                    class.to_owned()
                };
                chart.dot(&class, point.throughput_per_s, value, &text);
            }
        }
        // Words beside every point of a long sweep would lie on each other.
        if points.len() <= 8 && size.class == WIDE.class {
            for point in points {
                if let Some(value) = point.p99_9_us.or(point.p99_us) {
                    chart.word(point.throughput_per_s, value, &point.label);
                }
            }
        }
        chart.finish("Latency over throughput")
    };
    let title = "Latency over throughput <small>per second; hollow: saturated, or limited by \
                 the generator</small>";
    figure(title, &[("p50", "p50"), ("p99", "p99"), ("p999", "p99.9")], draw)
}

fn explained(point: &CurvePoint, name: &str, value: f64) -> String {
    let wanted = point.rate_per_s.map_or(String::new(), |rate| format!(" of {rate} wanted"));
    format!(
        "{}: {} /s{wanted}, {name} {}, {} errors",
        point.label,
        rate(point.throughput_per_s),
        latency(value),
        point.errors
    )
}

/// Throughput and latencies over the time of the run.
#[must_use]
pub fn course(document: &Document) -> String {
    let line = &document.time_line;
    let end_s = document.report.window_s;
    let middle = |point: &TimePoint| (point.at_s + line.interval_s / 2.0).min(end_s);
    let throughput = |size: Size| {
        let most = line.points.iter().map(|point| point.throughput_per_s).fold(0.0, f64::max);
        let across = Axis::exact(end_s, size.marks.1, seconds);
        let mut chart = Chart::new(size, across, Axis::linear(most, size.marks.0, rate));
        let points = line.points.iter().map(|point| (middle(point), point.throughput_per_s));
        chart.area("rate", &points.collect::<Vec<_>>());
        for point in line.points.iter().filter(|point| point.errors > 0) {
            let text = format!("{} errors at {} s", count(point.errors), point.at_s);
            chart.fault(middle(point), &text);
        }
        chart.finish("Throughput over time")
    };
    let latencies = |size: Size| {
        let all = line.points.iter().flat_map(|point| [point.p50_us, point.max_us]).flatten();
        let across = Axis::exact(end_s, size.marks.1, seconds);
        let mut chart = Chart::new(size, across, Axis::log(all, latency));
        chart.line("max", line.points.iter().map(|point| (middle(point), point.max_us)));
        chart.line("p99", line.points.iter().map(|point| (middle(point), point.p99_us)));
        chart.line("p50", line.points.iter().map(|point| (middle(point), point.p50_us)));
        chart.finish("Latencies over time")
    };
    let each = seconds(line.interval_s);
    let errors = document.report.errors > 0;
    let keys: &[(&str, &str)] = if errors { &[("fault", "errors")] } else { &[] };
    let mut text = figure(
        &format!("Throughput over time <small>operations per second, in steps of {each}</small>"),
        keys,
        throughput,
    );
    text += &figure(
        "Latency over time <small>by the time of the answer, logarithmic</small>",
        &[("p50", "p50"), ("p99", "p99"), ("max", "max")],
        latencies,
    );
    text
}
