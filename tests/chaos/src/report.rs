//! The report: a line per run, one JSON document, and a page that needs nothing but itself.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value as Json;

use crate::supervise::run_folder;

/// Width of a time line, in its own units.
const WIDTH: f64 = 1000.0;
/// Height of a node's bar and of the throughput.
const ROW: f64 = 18.0;
const GRAPH: f64 = 60.0;
/// Height of the line with the seconds.
const SCALE: f64 = 12.0;

const HEAD: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">
<title>Duolog chaos report</title><style>
body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:1100px;color:#222}
table{border-collapse:collapse}td,th{padding:2px 10px;text-align:left}
.failed{color:#b00;font-weight:bold}.passed{color:#070}.skipped{color:#777}
svg{width:100%;background:#fafafa;border:1px solid #ddd}text{font-size:11px}
details{margin:.3em 0 1.5em}pre{white-space:pre-wrap;background:#f4f4f4;padding:.5em}
.key span{display:inline-block;padding:0 .6em;margin-right:.5em;color:#fff}
</style><h1>Duolog chaos report</h1><p class=\"key\"><span style=\"background:#2a7\">leader</span>
<span style=\"background:#d90\">leader, second copy in the bucket</span>
<span style=\"background:#58c\">follower</span><span style=\"background:#999\">between</span>
<span style=\"background:#444\">silent</span> Below: appends acknowledged per 100 ms; lines: steps.
</p>
";

/// What is told of a run at once.
#[must_use]
pub fn line(result: &Json) -> String {
    let text = |name: &str| result[name].as_str().unwrap_or("").to_owned();
    let (verdict, name, seed) = (text("verdict"), text("scenario"), &result["seed"]);
    let seconds = result["seconds"].as_f64().unwrap_or_default();
    let told = match verdict.as_str() {
        "passed" => format!(
            "{} elections, longest pause {} ms, {} appends, {} reads",
            result["elections"], result["pause_ms_max"], result["acked"], result["reads"]
        ),
        _ => text("why").lines().next().unwrap_or("").chars().take(200).collect(),
    };
    format!("{verdict:<8} {name:<32} seed {seed:<6} {seconds:>5.1} s  {told}")
}

/// Writes report.json and report.html.
///
/// # Errors
/// The folder cannot be written.
pub fn write(folder: &Path, document: &Json) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("report.json"), format!("{document:#}\n"))?;
    let mut page = HEAD.to_owned();
    let runs = document["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [passed, failed, skipped] = ["passed", "failed", "skipped"].map(|name| &document[name]);
    let _ = write!(page, "<p>{passed} passed, {failed} failed, {skipped} skipped</p><table>");
    page.push_str("<tr><th>scenario<th>seed<th>verdict<th>elections<th>S3 requests");
    page.push_str("<th>longest pause, ms<th>appends<th>without answer<th>reads");
    for run in runs {
        row(&mut page, run);
    }
    page.push_str("</table>");
    for run in runs {
        section(&mut page, folder, run);
    }
    fs::write(folder.join("report.html"), page)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

fn cell(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => escaped(text),
        other => other.to_string(),
    }
}

fn row(page: &mut String, run: &Json) {
    let [name, seed, verdict] = ["scenario", "seed", "verdict"].map(|name| cell(&run[name]));
    let _ = write!(page, "<tr><td><a href=\"#{name}-{seed}\">{name}</a><td>{seed}");
    let _ = write!(page, "<td class=\"{verdict}\">{verdict}");
    for name in ["elections", "s3_requests", "pause_ms_max", "acked", "unknown", "reads"] {
        let _ = write!(page, "<td>{}", cell(&run[name]));
    }
}

fn section(page: &mut String, folder: &Path, run: &Json) {
    let [name, seed, verdict] = ["scenario", "seed", "verdict"].map(|name| cell(&run[name]));
    let _ = write!(page, "<h2 id=\"{name}-{seed}\">{name}, seed {seed}: ");
    let _ = write!(page, "<span class=\"{verdict}\">{verdict}</span></h2>");
    if let Some(why) = run["why"].as_str() {
        let _ = write!(page, "<pre>{}</pre>", escaped(why));
    }
    let path = run_folder(folder, run["scenario"].as_str().unwrap_or(""), &run["seed"]);
    let told = fs::read_to_string(path.join("events.jsonl")).unwrap_or_default();
    let events: Vec<Json> =
        told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if events.is_empty() {
        return;
    }
    Timeline::of(&events, run).draw(page);
    page.push_str("<details><summary>what happened</summary><table>");
    for event in &events {
        let told = match event["what"].as_str() {
            Some("role") => {
                let [node, role, epoch] = ["node", "role", "epoch"].map(|name| cell(&event[name]));
                format!("node {node}: {role}, epoch {epoch}")
            }
            _ => cell(&event["text"]),
        };
        let _ = write!(page, "<tr><td>{} ms<td>{told}", event["ms"]);
    }
    page.push_str("</table></details>");
}

struct Timeline<'a> {
    events: &'a [Json],
    acks: Vec<f64>,
    begin_ms: f64,
    end_ms: f64,
}

impl<'a> Timeline<'a> {
    fn of(events: &'a [Json], run: &Json) -> Self {
        let ms = |event: &Json| event["ms"].as_f64().unwrap_or_default();
        let acks = run["acks_per_100ms"].as_array().map(Vec::as_slice).unwrap_or_default();
        let begin_ms = run["begun_ms"].as_f64().unwrap_or_else(|| ms(&events[0]));
        let end_ms = events.last().map(ms).unwrap_or_default().max(begin_ms + 1.0);
        let acks = acks.iter().filter_map(Json::as_f64).collect();
        Self { events, acks, begin_ms, end_ms }
    }

    fn x(&self, ms: f64) -> f64 {
        ((ms - self.begin_ms) / (self.end_ms - self.begin_ms)).clamp(0.0, 1.0) * WIDTH
    }

    fn draw(&self, page: &mut String) {
        let roles = |event: &&Json| event["what"] == "role";
        let nodes = self.events.iter().filter(roles).filter_map(|event| event["node"].as_u64());
        let nodes = nodes.max().map_or(0, |node| node + 1);
        let height = nodes as f64 * ROW + GRAPH;
        let _ = write!(page, "<svg viewBox=\"0 0 {WIDTH} {}\">", height + SCALE);
        self.draw_scale(page, height + SCALE);
        for node in 0..nodes {
            self.draw_node(page, node);
        }
        self.draw_acks(page, height);
        for step in self.events.iter().filter(|event| event["what"] == "step") {
            let x = self.x(step["ms"].as_f64().unwrap_or_default());
            let _ = write!(page, "<g><line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{height}\" ");
            let title = cell(&step["text"]);
            let _ = write!(page, "stroke=\"#0006\"/><title>{title}</title></g>");
        }
        page.push_str("</svg>");
    }

    /// Seconds, at most ten of them.
    fn draw_scale(&self, page: &mut String, bottom: f64) {
        let seconds = (self.end_ms - self.begin_ms) / 1000.0;
        let step = (seconds / 10.0).ceil().max(1.0);
        let mut second = 0.0;
        while second < seconds {
            let x = self.x(self.begin_ms + second * 1000.0);
            let y = bottom - 2.0;
            let _ = write!(page, "<text x=\"{x:.1}\" y=\"{y}\">{second} s</text>");
            second += step;
        }
    }

    fn draw_node(&self, page: &mut String, node: u64) {
        let own: Vec<&Json> = self.events.iter().filter(|event| event["node"] == node).collect();
        let y = node as f64 * ROW;
        for (index, event) in own.iter().enumerate() {
            let ms = |event: &&&Json| event["ms"].as_f64();
            let begin = self.x(ms(&event).unwrap_or_default());
            let end = self.x(own.get(index + 1).as_ref().and_then(ms).unwrap_or(self.end_ms));
            let role = event["role"].as_str().unwrap_or("");
            let color = match role {
                "leader" => "#2a7",
                "follower" => "#58c",
                "between" => "#999",
                "silent" => "#444",
                _ => "#d90",
            };
            let (width, height) = (end - begin, ROW - 2.0);
            let _ = write!(page, "<rect x=\"{begin:.1}\" y=\"{y}\" width=\"{width:.1}\" ");
            let _ = write!(page, "height=\"{height}\" fill=\"{color}\">");
            let epoch = cell(&event["epoch"]);
            let _ = write!(page, "<title>node {node}: {role}, epoch {epoch}</title></rect>");
        }
    }

    fn draw_acks(&self, page: &mut String, bottom: f64) {
        let most = self.acks.iter().copied().fold(1.0, f64::max);
        let mut points = format!("0,{bottom} ");
        for (column, acks) in self.acks.iter().enumerate() {
            let x = self.x(self.begin_ms + column as f64 * 100.0);
            let y = bottom - acks / most * (GRAPH - 4.0);
            let _ = write!(points, "{x:.1},{y:.1} ");
        }
        let end = self.x(self.begin_ms + self.acks.len() as f64 * 100.0);
        let _ = write!(points, "{end:.1},{bottom}");
        let _ = write!(page, "<polygon points=\"{points}\" fill=\"#b9d\"/>");
    }
}
