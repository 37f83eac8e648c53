//! The tables of a page: what was asked for, on what, and how the disk behaved around it.

use serde_json::Value;

use super::words::{bytes, count, escape, latency, three};
use crate::results::document::Document;
use crate::results::probe::{BeforeAfter, Probe};

type Row = (String, Option<String>);

type Fact = (&'static str, Option<String>);

fn named(facts: Vec<Fact>) -> Vec<Row> {
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// All tables, and the command line.
#[must_use]
pub fn tables(document: &Document) -> String {
    let mut sections = String::new();
    for (title, rows) in [
        ("Load", load(document)),
        ("Counted", named(counted(document))),
        ("Server", named(server(document))),
        ("Machine of the generator", named(machine(document))),
        ("Disk of the data", named(storage(document))),
        ("Before and after", named(probes(document))),
    ] {
        sections += &section(title, rows);
    }
    let command = document.command.join(" ");
    format!(
        "<h2>Where this comes from</h2>\n<div class=\"tables\">\n{sections}</div>\n\
         <pre>{}</pre>\n",
        escape(&command)
    )
}

fn section(title: &str, rows: Vec<Row>) -> String {
    let row = |(name, value): Row| {
        let value = value?;
        Some(format!("<tr><th>{}</th><td>{}</td></tr>\n", escape(&name), escape(&value)))
    };
    let rows: String = rows.into_iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("<section><h3>{title}</h3>\n<table>\n{rows}</table></section>\n")
}

/// The settings as they are in the document, so that none is forgotten when one is added.
fn load(document: &Document) -> Vec<Row> {
    let settings = serde_json::to_value(&document.report.settings);
    let Ok(Value::Object(settings)) = settings else { return Vec::new() };
    let word = |value: &Value| match value {
        Value::Null => None,
        Value::Bool(flag) => Some(if *flag { "yes" } else { "no" }.to_owned()),
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.as_u64().map_or(number.to_string(), count)),
        other => Some(other.to_string()),
    };
    let names = settings.iter().map(|(name, value)| (name.replace('_', " "), word(value)));
    let first = [
        ("workload".to_owned(), Some(document.report.workload.clone())),
        ("loop".to_owned(), Some(document.report.mode.clone())),
    ];
    first.into_iter().chain(names).collect()
}

fn counted(document: &Document) -> Vec<Fact> {
    let (report, cost) = (&document.report, &document.server_cost);
    let percent = |list: &[f64]| {
        let texts: Vec<String> = list.iter().map(|value| format!("{} %", three(*value))).collect();
        texts.join(", ")
    };
    let open = report.open_loop.as_ref();
    vec![
        ("successful", Some(count(report.acked))),
        ("failed", Some(count(report.errors))),
        ("unanswered", Some(count(report.unanswered))),
        ("latencies", Some(count(report.latency_us.samples))),
        ("mean", report.latency_us.mean.map(latency)),
        ("late, unsent", open.map(|open| format!("{}, {}", count(open.late), count(open.unsent)))),
        ("generator CPU", Some(percent(&report.client.cpu_percent))),
        ("waiting for a CPU", Some(percent(&report.client.cpu_wait_percent))),
        ("server CPU", cost.cpu_percent.map(|value| format!("{} % of a core", three(value)))),
        ("flushes", cost.flushes_per_s.map(|rate| format!("{} per second", three(rate)))),
        (
            "written",
            cost.written_bytes_per_append.map(|value| format!("{} B per append", three(value))),
        ),
        ("server memory", cost.resident_bytes.map(bytes)),
    ]
}

fn server(document: &Document) -> Vec<Fact> {
    let Some(server) = &document.server else {
        return vec![("status", Some("the server did not tell".to_owned()))];
    };
    vec![
        ("role", server.role.clone()),
        ("shards", Some(count(server.shards as u64))),
        ("version", server.version.clone()),
        ("commit", server.commit.clone()),
        ("node", server.node.clone()),
    ]
}

fn machine(document: &Document) -> Vec<Fact> {
    let host = &document.host;
    vec![
        ("name", Some(host.name.clone())),
        ("kernel", Some(format!("{} ({})", host.kernel, host.architecture))),
        ("processor", host.cpu_model.clone()),
        ("online", host.cpus_online.clone()),
        ("generator may use", Some(host.affinity.clone())),
        ("sockets", host.sockets.map(|count| count.to_string())),
        ("threads per core", host.threads_per_core.map(|count| count.to_string())),
        ("governor", host.governor.clone()),
        ("memory", host.memory_bytes.map(bytes)),
        ("huge pages", host.transparent_huge_pages.clone()),
        ("virtualisation", host.virtualisation.clone()),
        ("load before", host.load_average_1m.map(three)),
    ]
}

fn storage(document: &Document) -> Vec<Fact> {
    let Some(storage) = &document.storage else { return Vec::new() };
    let flag = |flag: Option<bool>| flag.map(|flag| if flag { "yes" } else { "no" }.to_owned());
    vec![
        ("directory", Some(storage.dir.clone())),
        ("mount", storage.mount_point.clone()),
        ("file system", storage.file_system.clone()),
        ("options", storage.mount_options.clone()),
        ("device", storage.device.clone().or_else(|| storage.source.clone())),
        ("model", storage.device_model.clone()),
        ("size", storage.device_size_bytes.map(bytes)),
        ("write cache", storage.write_cache.clone()),
        ("FUA", flag(storage.fua)),
        ("scheduler", storage.scheduler.clone()),
        ("rotational", flag(storage.rotational)),
        ("logical block", storage.logical_block_bytes.map(bytes)),
        ("queue", storage.queue_requests_max.map(|count| format!("{count} requests"))),
    ]
}

fn probes(document: &Document) -> Vec<Fact> {
    let look = |probe: Option<Probe>| match probe {
        Some(probe) => format!("{} (p99 {})", latency(probe.p50_us), latency(probe.p99_us)),
        None => "no answer".to_owned(),
    };
    let before = |looks: &BeforeAfter| Some(look(looks.before));
    let after = |looks: &BeforeAfter| Some(look(looks.after));
    let disk = document.probes.disk_write.as_ref();
    vec![
        ("raw 4 KiB write before", disk.and_then(before)),
        ("raw 4 KiB write after", disk.and_then(after)),
        ("round trip before", before(&document.probes.round_trip)),
        ("round trip after", after(&document.probes.round_trip)),
    ]
}
