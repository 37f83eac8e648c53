//! A result as files in one directory: for programs (JSON, CSV), for the HdrHistogram tools, and
//! for people (HTML).

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use super::document::{Document, SCHEMA_VERSION};
use super::recording::Recorded;
use super::{ResultError, page};
use crate::generator::latency::Latencies;

/// The document's name in its directory.
pub const DOCUMENT: &str = "result.json";
/// Interval logs tell maxima in milliseconds; latencies are counted in nanoseconds.
const NS_PER_MS: f64 = 1e6;

/// Writes all files into `out`, which is made if it is not there: `result.json`, `latency.hlog`,
/// `timeline.csv`, `percentiles.csv`, `report.html`. Files of an earlier result are replaced.
///
/// # Errors
/// [`ResultError::File`].
pub fn write(out: &Path, result: &Recorded) -> Result<(), ResultError> {
    let Recorded { document, latencies, started } = result;
    let failed = |path: &Path, error| ResultError::File { path: path.to_path_buf(), error };
    std::fs::create_dir_all(out).map_err(|error| failed(out, error))?;
    let put = |name: &str, content: &[u8]| {
        let path = out.join(name);
        std::fs::write(&path, content).map_err(|error| failed(&path, error))
    };
    let json = serde_json::to_string_pretty(document);
    let json = json.map_err(|error| failed(&out.join(DOCUMENT), error.into()))?;
    put("latency.hlog", &interval_log(document, latencies, *started))?;
    put("timeline.csv", time_line_csv(document).as_bytes())?;
    put("percentiles.csv", percentiles_csv(document).as_bytes())?;
    put("report.html", page::html(document).as_bytes())?;
    // Last: whoever sees it finds the others.
    put(DOCUMENT, (json + "\n").as_bytes())
}

/// Reads the document of a result, named by its file or by its directory.
///
/// # Errors
/// [`ResultError::File`], [`ResultError::Form`].
pub fn read(path: &Path) -> Result<Document, ResultError> {
    let path = if path.is_dir() { path.join(DOCUMENT) } else { path.to_path_buf() };
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| ResultError::File { path: path.clone(), error })?;
    let form = |reason: String| ResultError::Form { path: path.clone(), reason };
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| form(error.to_string()))?;
    match value["schema_version"].as_u64() {
        Some(version) if version == u64::from(SCHEMA_VERSION) => {}
        Some(version) => {
            return Err(form(format!("schema_version is {version}, not {SCHEMA_VERSION}")));
        }
        None => return Err(form("it has no schema_version".to_owned())),
    }
    serde_json::from_value(value).map_err(|error| form(error.to_string()))
}

/// One interval, the whole window, in ns.
fn interval_log(document: &Document, latencies: &Latencies, started: SystemTime) -> Vec<u8> {
    let (mut log, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let comment = format!(
        "duolog bench {}, latencies in ns of operations that started in the window, {}",
        document.report.workload, document.started_at
    );
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment(&comment).with_start_time(started).with_base_time(started);
    builder.with_max_value_divisor(NS_PER_MS);
    let mut writer =
        builder.begin_log_with(&mut log, &mut serializer).expect("memory takes all bytes");
    let (start, length) =
        (Duration::ZERO, Duration::from_secs_f64(document.report.window_s.max(0.0)));
    writer
        .write_histogram(latencies.histogram(), start, length, None)
        .expect("memory takes all bytes, and a histogram of 64-bit counts is encodable");
    log
}

fn time_line_csv(document: &Document) -> String {
    let mut text = String::from("at_s,acked,throughput_per_s,errors,p50_us,p99_us,max_us\n");
    for point in &document.time_line.points {
        let cell = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let (p50, p99, max) = (cell(point.p50_us), cell(point.p99_us), cell(point.max_us));
        let (at_s, acked, errors) = (point.at_s, point.acked, point.errors);
        let throughput = point.throughput_per_s;
        writeln!(text, "{at_s},{acked},{throughput},{errors},{p50},{p99},{max}")
            .expect("a String takes all text");
    }
    text
}

fn percentiles_csv(document: &Document) -> String {
    let mut text = String::from("percent,latency_us\n");
    for row in &document.percentiles {
        writeln!(text, "{},{}", row.percent, row.latency_us).expect("a String takes all text");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::UNIX_EPOCH;

    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use serde_json::Value;

    use super::*;
    use crate::results::example;

    fn recorded() -> Recorded {
        let started = UNIX_EPOCH + Duration::from_secs(1_785_000_000);
        let latencies = example::tally().latencies;
        Recorded { document: example::document(), latencies, started }
    }

    /// Paths of all members; what is named after a code counts once.
    fn members(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(of) => {
                for (name, inner) in of {
                    let name = if path.ends_with("errors_by_code") { "*" } else { name };
                    let path = format!("{path}.{name}");
                    members(inner, &path, found);
                    found.insert(path);
                }
            }
            Value::Array(list) => {
                for inner in list {
                    members(inner, &format!("{path}[]"), found);
                }
            }
            _ => {}
        }
    }

    /// Programs rely on the members of a result. Broken if one vanishes or is renamed without a new
    /// schema version; a new one is added to the list.
    #[test]
    fn the_members_of_a_result_are_those_of_its_schema() {
        let mut found = BTreeSet::new();
        members(&serde_json::to_value(example::document()).unwrap(), "", &mut found);
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        let listed: Vec<&str> = include_str!("../../tests/golden/result_v1.txt").lines().collect();
        assert_eq!(found, listed, "result_v1.txt should be:\n{}\n", found.join("\n"));
    }

    /// Broken if a file is missing, is not what the others say, or the histogram has lost anything.
    #[test]
    fn every_file_tells_the_same_result() {
        let dir = tempfile::tempdir().unwrap();
        let recorded = recorded();
        let out = dir.path().join("a/b");
        write(&out, &recorded).unwrap();
        let back = read(&out).unwrap();
        let [one, other] = [&back, &recorded.document].map(|it| serde_json::to_value(it).unwrap());
        assert_eq!(one, other);
        let log = std::fs::read(out.join("latency.hlog")).unwrap();
        let mut histograms = Vec::new();
        for entry in IntervalLogIterator::new(&log) {
            if let LogEntry::Interval(interval) = entry.unwrap() {
                assert_eq!(interval.duration(), Duration::from_secs(1));
                let bytes = base64::Engine::decode(
                    &base64::engine::general_purpose::STANDARD,
                    interval.encoded_histogram(),
                );
                let read = Deserializer::new().deserialize(&mut bytes.unwrap().as_slice());
                let read: Histogram<u64> = read.unwrap();
                histograms.push(read);
            }
        }
        assert_eq!(histograms, [recorded.latencies.histogram().clone()]);
        let rows = |name: &str| {
            let text = std::fs::read_to_string(out.join(name)).unwrap();
            let commas = text.lines().map(|line| line.matches(',').count());
            assert_eq!(commas.collect::<BTreeSet<_>>().len(), 1, "{name}: {text}");
            text.lines().count() - 1
        };
        assert_eq!(rows("timeline.csv"), back.time_line.points.len());
        assert_eq!(rows("percentiles.csv"), back.percentiles.len());
        assert!(std::fs::read_to_string(out.join("report.html")).unwrap().ends_with("</html>\n"));
    }

    #[test]
    fn what_is_no_result_of_this_version_is_refused_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        let refused = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("x.json"), "{error}");
            error
        };
        assert!(refused("{").contains("no result"));
        assert!(refused("{}").contains("no schema_version"));
        assert!(refused(r#"{"schema_version": 2}"#).contains("schema_version is 2"));
        assert!(refused(r#"{"schema_version": 1}"#).contains("missing field"));
        let gone = read(&dir.path().join("gone")).unwrap_err().to_string();
        assert!(gone.contains("gone"), "{gone}");
    }
}
