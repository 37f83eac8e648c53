//! The document made from results: `docs/BENCHMARKS.md`.

mod figures;
mod prose;
mod table;
mod targets;

use std::fmt::Write as _;

use crate::clock::date_text;
use crate::results::{LoadResult, Results, SystemResult};
use figures::{FLUSHES_PER_ACK_MIN, Figures, Place, p50_ms, p99_ms, throughput};
use table::{Table, by_connections, number};

/// Other programs' use of the processor above which a load is named, percent of a core.
const FOREIGN_PERCENT_MAX: f64 = 10.0;

/// Writes the document.
#[must_use]
pub fn document(results: &Results) -> String {
    let figures = Figures::new(results);
    let durable: Vec<&SystemResult> = figures.systems(Place::Durable).collect();
    let pairs: Vec<&SystemResult> = figures.systems(Place::Pair).collect();
    let mut text = String::from("# Duolog and its peers\n\n");
    if results.quick {
        text += "**A short run that only tries everything once: its figures say nothing.**\n\n";
    }
    text += prose::INTRODUCTION;
    section(&mut text, "The machine", &machine(results));
    section(&mut text, "What was compared", &systems(results));
    section(&mut text, "How it was measured", prose::METHOD);
    section(&mut text, "One node, durable", &loads(&figures, &durable));
    section(&mut text, "Duolog and the best peer", &targets::text(&figures, &durable));
    if !prose::FINDINGS.trim().is_empty() {
        section(&mut text, "Why", prose::FINDINGS);
    }
    section(&mut text, "What an append costs", &costs(&figures, &durable));
    section(&mut text, "Those that do not flush first", &relaxed(&figures));
    section(&mut text, "Two nodes", &two_nodes(&figures, &pairs));
    section(&mut text, "What to make of it", prose::FAIRNESS);
    section(&mut text, "Where the figures are weak", &weak(&figures, results));
    section(&mut text, "Left out", &left_out(results));
    section(&mut text, "Commands", &commands(results));
    text
}

fn section(text: &mut String, title: &str, body: &str) {
    *text += &format!("\n## {title}\n\n{}\n", body.trim_end());
}

fn machine(results: &Results) -> String {
    let machine = &results.machine;
    let plan = &results.plan;
    let connections: Vec<String> = plan.connections.iter().map(u32::to_string).collect();
    let mut table = Table::new(["".to_owned(), "".to_owned()]);
    let rows = [
        ("processor", format!("{}, {} cores", machine.processor, machine.cores)),
        ("memory", format!("{} GiB", machine.memory_gib)),
        ("kernel", machine.kernel.clone()),
        ("file system", format!("{} on {}", machine.file_system, machine.device)),
        ("write cache", machine.write_cache.clone()),
        ("idle flushes", format!("{} per second", number(results.idle_flushes_per_s))),
        ("date", format!("{}, {} min", date_text(results.began_unix_s), results.took_s / 60)),
        ("Duolog", format!("commit {}", results.commit)),
        (
            "loads",
            format!("{} connections, {} times each", connections.join(", "), plan.repetitions),
        ),
        ("each load", format!("{} s after {} s of warm-up", plan.duration_s, plan.warm_up_s)),
        ("events", format!("{} bytes in {} streams", plan.event_size_bytes, plan.streams)),
        ("cores", format!("servers {}, generator {}", plan.server_cpu, plan.generator_cpu)),
    ];
    rows.into_iter().for_each(|(name, value)| table.row([name.to_owned(), value]));
    // Everything in words: both columns to the left.
    table.text().replace("---:", "---")
}

fn systems(results: &Results) -> String {
    let mut table = Table::new(["system", "version", "settings"].map(str::to_owned));
    for system in &results.systems {
        table.row([system.title.clone(), system.version.clone(), system.settings.clone()]);
    }
    table.text().replace("---:", "---")
}

fn loads(figures: &Figures<'_>, systems: &[&SystemResult]) -> String {
    let table = |figure: fn(&LoadResult) -> Option<f64>| {
        by_connections(figures, systems.iter().copied(), figure)
    };
    format!(
        "Acknowledged appends per second:\n\n{}\nMedian latency, ms:\n\n{}\n\
         99th percentile of the latency, ms:\n\n{}",
        table(throughput),
        table(p50_ms),
        table(p99_ms),
    )
}

fn costs(figures: &Figures<'_>, systems: &[&SystemResult]) -> String {
    let table = |figure: fn(&LoadResult) -> Option<f64>| {
        by_connections(figures, systems.iter().copied(), figure)
    };
    format!(
        "Flushes of the device per acknowledged append. At one connection 1 is the least that is \
         durable:\n\n{}\nAcknowledged appends per flush:\n\n{}\nProcessor time of the servers, \
         seconds per million appends:\n\n{}\nMemory of the servers, MiB:\n\n{}",
        table(LoadResult::flushes_per_ack),
        table(LoadResult::acks_per_flush),
        table(LoadResult::cpu_s_per_million),
        table(|load| Some(load.server_memory_mib)),
    )
}

fn relaxed(figures: &Figures<'_>) -> String {
    let systems: Vec<&SystemResult> = figures.systems(Place::NotDurable).collect();
    let table = |figure: fn(&LoadResult) -> Option<f64>| {
        by_connections(figures, systems.iter().copied(), figure)
    };
    format!(
        "These had less than {FLUSHES_PER_ACK_MIN} flushes per ack at one connection (or were not \
         measured there): a power cut takes acknowledged appends with it. They are no part of the \
         comparison above.\n\n\
         Flushes per acknowledged append:\n\n{}\n\
         Acknowledged appends per second:\n\n{}\n99th percentile of the latency, ms:\n\n{}",
        table(LoadResult::flushes_per_ack),
        table(throughput),
        table(p99_ms),
    )
}

fn two_nodes(figures: &Figures<'_>, systems: &[&SystemResult]) -> String {
    format!(
        "{}\n{}\n{}\n{}\nFlushes per acknowledged append:\n\n{}\n\
         Processor time of the servers, seconds per million appends:\n\n{}",
        prose::TWO_NODES,
        both_disks(figures, systems),
        loads(figures, systems),
        targets::text(figures, systems),
        by_connections(figures, systems.iter().copied(), LoadResult::flushes_per_ack),
        by_connections(figures, systems.iter().copied(), LoadResult::cpu_s_per_million),
    )
}

/// Whether every pair flushed on both nodes before it acknowledged.
fn both_disks(figures: &Figures<'_>, systems: &[&SystemResult]) -> String {
    let least = 2.0 * FLUSHES_PER_ACK_MIN;
    let fewer = systems.iter().filter(|system| {
        let flushes = figures.flushes_of_one_client(system);
        flushes.is_none_or(|flushes| flushes < least)
    });
    let fewer: Vec<&str> = fewer.map(|system| &*system.title).collect();
    if fewer.is_empty() {
        return format!("All had at least {least} flushes per ack at one connection.\n");
    }
    let fewer = fewer.join(", ");
    format!(
        "**Less than {least} flushes per ack at one connection, so not on both disks: {fewer}.**\n"
    )
}

/// Loads whose figures may be the generator's or somebody else's, and answers that were no acks.
fn weak(figures: &Figures<'_>, results: &Results) -> String {
    let mut text = String::new();
    let named = |choose: &dyn Fn(&LoadResult) -> bool| {
        let mut count = std::collections::BTreeMap::new();
        for load in results.loads.iter().filter(|load| choose(load)) {
            *count.entry((&load.system, load.connections)).or_insert(0_u32) += 1;
        }
        let words = count
            .iter()
            .map(|((system, connections), loads)| format!("{system} at {connections} ({loads})"));
        let words: Vec<String> = words.collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    };
    let lines = [
        (
            "Loads during which the generator's thread ran or waited for its core for more than \
             95 % of the window, so that they may show its limit",
            named(&|load| load.client_limited),
        ),
        (
            "Loads during which other programs used more than 10 % of a core",
            named(&|load| load.foreign_cpu_percent > FOREIGN_PERCENT_MAX),
        ),
        (
            "Loads with refusals, lost connections or appends without an answer",
            named(&|load| !load.errors.is_empty() || load.unanswered > 0),
        ),
    ];
    let in_doubt = results.systems.iter().filter(|system| {
        let copies = if figures.place(system) == Place::Pair { 2.0 } else { 1.0 };
        figures.is_in_doubt(system, copies)
    });
    let in_doubt: Vec<&str> = in_doubt.map(|system| &*system.id).collect();
    let in_doubt = if in_doubt.is_empty() { "none".to_owned() } else { in_doubt.join(", ") };
    let doubt = "Systems of which this run does not prove that they flush first, because something \
        else flushed the device as often";
    let lines = lines.into_iter().chain([(doubt, in_doubt)]);
    for (name, loads) in lines {
        writeln!(text, "* {name}: {loads}.").expect("a String takes all text");
    }
    text
}

fn left_out(results: &Results) -> String {
    let mut text = prose::LEFT_OUT.to_owned();
    for failure in &results.failures {
        let turn = failure.repetition.map_or_else(
            || "was not measured".to_owned(),
            |repetition| format!("failed in turn {}", repetition + 1),
        );
        let reason = failure.reason.lines().next().unwrap_or_default();
        writeln!(text, "* **{}** {turn}: {reason}", failure.system).expect("a String takes text");
    }
    text
}

fn commands(results: &Results) -> String {
    let mut text = format!("{}\n```sh\n", prose::COMMANDS);
    for system in &results.systems {
        writeln!(text, "# {}", system.title).expect("a String takes all text");
        for command in &system.commands {
            writeln!(text, "{command}").expect("a String takes all text");
        }
    }
    text + "```\n"
}

#[cfg(test)]
mod tests;
