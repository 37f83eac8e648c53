//! The course of a run: every system is set up once, then they take turns, A B C ... C B A. In its
//! turn a system is started with the data it has, takes the loads one after the other, and is
//! ended: nothing that is not measured runs meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::{Clock, pause, unix_seconds};
use crate::driver::{Driver, EVENT_SIZE_BYTES, Tally};
use crate::machine;
use crate::probe::{Consumption, Device, memory_mib};
use crate::results::{Failure, LoadResult, Plan, Results, SCHEMA, SystemResult};
use crate::streams::{STREAM_COUNT, Streams};
use crate::systems::{Group, Programs, Running, Site, System, SystemError};

/// Connections of the filling.
const FILL_CONNECTIONS: u32 = 64;
/// The share of the window from which on the generator itself was the limit, percent.
const LIMITED_PERCENT: f64 = 95.0;
/// Between opened connections and their load: what opening them set off comes to rest.
const SETTLE: Duration = Duration::from_millis(200);
/// Then the flushes of the idle machine are counted for so long.
const IDLE: Duration = Duration::from_millis(400);

/// What to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where all data lies, on the device to measure: an absolute path, there and empty.
    pub dir: PathBuf,
    /// Which systems.
    pub systems: Vec<&'static System>,
    /// Turns of each.
    pub repetitions: u32,
    /// Loads of a turn.
    pub connections: Vec<u32>,
    /// Measured time of each load.
    pub duration: Duration,
    /// Load before it.
    pub warm_up: Duration,
    /// How long flushes are counted with nothing running.
    pub idle: Duration,
    /// The servers' core.
    pub server_cpu: u32,
    /// The generator's core.
    pub generator_cpu: u32,
    /// The programs.
    pub programs: Programs,
    /// The commit of the measured Duolog.
    pub commit: String,
    /// Only tries everything once.
    pub quick: bool,
}

/// Why a run gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum CourseError {
    /// The directory, its device or a core.
    #[error("cannot measure in {dir} on cores {server_cpu} and {generator_cpu}: {source}")]
    Place {
        /// The directory.
        dir: PathBuf,
        /// The servers' core.
        server_cpu: u32,
        /// The generator's core.
        generator_cpu: u32,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Data of another run would be taken for this one's.
    #[error("{0} is not empty: give a directory that is new or empty")]
    NotEmpty(PathBuf),
}

/// A system that could be set up.
#[derive(Debug)]
struct Contender {
    system: &'static System,
    site: Site,
    streams: Streams,
}

/// Runs everything. `keep` is called with what there is after each turn.
///
/// # Errors
/// Nothing can be measured at all. What goes wrong with one system is in the results.
pub fn run(
    settings: &Settings,
    mut tell: impl FnMut(&str),
    mut keep: impl FnMut(&Results),
) -> Result<Results, CourseError> {
    let &Settings { server_cpu, generator_cpu, .. } = settings;
    let refused = |source| {
        let dir = settings.dir.clone();
        CourseError::Place { dir, server_cpu, generator_cpu, source }
    };
    let entries = fs::read_dir(&settings.dir).map_err(refused)?;
    if entries.count() > 0 {
        return Err(CourseError::NotEmpty(settings.dir.clone()));
    }
    let device = Device::of(&settings.dir).map_err(refused)?;
    let mut results = empty(settings, &device);
    machine::pin(generator_cpu).map_err(refused)?;
    let clock = Clock::start();
    let mut contenders = Vec::new();
    for system in &settings.systems {
        tell(&format!("setting up {}", system.id));
        match set_up(system, settings, &mut results) {
            Ok(contender) => contenders.push(contender),
            Err(error) => {
                tell(&format!("  left out: {error}"));
                results.failures.push(failure(system, None, &error, &settings.dir));
            }
        }
    }
    let before = device.flushes().map_err(refused)?;
    pause(settings.idle);
    let idle = device.flushes().map_err(refused)? - before;
    results.idle_flushes_per_s = idle as f64 / settings.idle.as_secs_f64();
    for repetition in 0..settings.repetitions {
        for number in order(repetition, contenders.len()) {
            let contender = &mut contenders[number];
            let name = contender.system.id;
            tell(&format!("turn {} of {}: {name}", repetition + 1, settings.repetitions));
            if let Err(error) = turn(contender, repetition, settings, &device, &mut results) {
                tell(&format!("  failed: {error}"));
                let failed = failure(contender.system, Some(repetition), &error, &settings.dir);
                results.failures.push(failed);
            }
            results.took_s = clock.now_ns() / 1_000_000_000;
            keep(&results);
        }
    }
    Ok(results)
}

fn failure(system: &System, repetition: Option<u32>, error: &SystemError, dir: &Path) -> Failure {
    let reason = without(&error.to_string(), dir);
    Failure { system: system.id.to_owned(), repetition, reason }
}

/// Forwards in even repetitions, backwards in odd ones: who comes behind whom changes.
fn order(repetition: u32, count: usize) -> Vec<usize> {
    let forwards = 0..count;
    if repetition.is_multiple_of(2) { forwards.collect() } else { forwards.rev().collect() }
}

fn empty(settings: &Settings, device: &Device) -> Results {
    let plan = Plan {
        repetitions: settings.repetitions,
        connections: settings.connections.clone(),
        duration_s: settings.duration.as_secs_f64(),
        warm_up_s: settings.warm_up.as_secs_f64(),
        event_size_bytes: EVENT_SIZE_BYTES,
        streams: STREAM_COUNT,
        server_cpu: settings.server_cpu,
        generator_cpu: settings.generator_cpu,
    };
    Results {
        schema: SCHEMA,
        began_unix_s: unix_seconds(),
        took_s: 0,
        commit: settings.commit.clone(),
        quick: settings.quick,
        machine: machine::describe(&settings.dir, device),
        plan,
        idle_flushes_per_s: 0.0,
        systems: Vec::new(),
        loads: Vec::new(),
        failures: Vec::new(),
    }
}

/// Starts a system for the first time and gives every stream its first event.
fn set_up(
    system: &'static System,
    settings: &Settings,
    results: &mut Results,
) -> Result<Contender, SystemError> {
    let site = system.site(&settings.dir, settings.server_cpu, &settings.programs)?;
    let version = system.version(&site)?;
    let mut streams = Streams::new(STREAM_COUNT, u64::from(site.port));
    let running = system.start(&site)?;
    let commands = running.lines.iter().map(|line| without(line, &settings.dir)).collect();
    let filled = Driver::open(running.addr, system.language, FILL_CONNECTIONS)
        .and_then(|mut driver| driver.fill(&mut streams));
    running.end()?;
    filled?;
    let group = match system.group {
        Group::Single => "single",
        Group::Pair => "pair",
        Group::Relaxed => "relaxed",
    };
    results.systems.push(SystemResult {
        id: system.id.to_owned(),
        title: system.title.to_owned(),
        group: group.to_owned(),
        version,
        settings: system.settings.to_owned(),
        commands,
    });
    Ok(Contender { system, site, streams })
}

/// A command line without what is only true here: the directory, and where a program lies.
fn without(line: &str, dir: &Path) -> String {
    let line = line.replace(&*dir.to_string_lossy(), "DIR");
    let short = |word: &str| match word.rsplit_once('/') {
        Some((folder, name)) if folder.starts_with('/') => name.to_owned(),
        _ => word.to_owned(),
    };
    line.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

fn turn(
    contender: &mut Contender,
    repetition: u32,
    settings: &Settings,
    device: &Device,
    results: &mut Results,
) -> Result<(), SystemError> {
    let running = contender.system.start(&contender.site)?;
    let mut measured = Ok(());
    for connections in &settings.connections {
        let load = Load { settings, device, repetition };
        match load.apply(contender, &running, *connections) {
            Ok(result) => results.loads.push(result),
            Err(error) => {
                measured = Err(error);
                break;
            }
        }
    }
    running.end()?;
    measured
}

/// One load, and what is looked at around it.
#[derive(Debug)]
struct Load<'a> {
    settings: &'a Settings,
    device: &'a Device,
    repetition: u32,
}

impl Load<'_> {
    fn apply(
        &self,
        contender: &mut Contender,
        running: &Running,
        connections: u32,
    ) -> Result<LoadResult, SystemError> {
        let settings = self.settings;
        let mut driver = Driver::open(running.addr, contender.system.language, connections)?;
        driver.prime(&mut contender.streams)?;
        pause(SETTLE);
        let process_ids = running.process_ids();
        let flushes = || self.device.flushes().unwrap_or(0);
        let before_idle = flushes();
        pause(IDLE);
        let idle_per_s = (flushes() - before_idle) as f64 / IDLE.as_secs_f64();
        // Before the first append and behind the last answer: what the servers did in between is
        // theirs, and all of it.
        let (flushes_before, before) = (flushes(), Consumption::now(&process_ids));
        let clock = Clock::start();
        let tally = driver.measure(&mut contender.streams, settings.warm_up, settings.duration);
        let elapsed_s = clock.now_ns() as f64 / 1e9;
        let (flushes_after, after) = (flushes(), Consumption::now(&process_ids));
        let memory_mib = memory_mib(&process_ids);
        let counted = flushes_after.saturating_sub(flushes_before) as f64;
        let foreign = after.foreign_seconds_since(&before) / elapsed_s * 100.0;
        let result = LoadResult {
            system: contender.system.id.to_owned(),
            repetition: self.repetition,
            connections,
            flushes_counted: counted,
            flushes_idle: tenths(idle_per_s * elapsed_s),
            server_cpu_s: after.server_seconds_since(&before),
            server_memory_mib: memory_mib,
            foreign_cpu_percent: tenths(foreign),
            ..counted_by(&tally, settings.duration)
        };
        Ok(result)
    }
}

/// What the generator itself counted.
fn counted_by(tally: &Tally, duration: Duration) -> LoadResult {
    let percent = |ns: u64| tenths(ns as f64 / duration.as_nanos() as f64 * 100.0);
    let client_cpu_percent = percent(tally.thread_use.cpu_ns);
    let client_wait_percent = percent(tally.thread_use.waited_ns);
    LoadResult {
        system: String::new(),
        repetition: 0,
        connections: 0,
        throughput_per_s: tenths(tally.acked as f64 / duration.as_secs_f64()),
        acked: tally.acked,
        acked_in_all: tally.acked_in_all,
        latency: tally.latencies.figures(),
        errors: tally.errors.clone(),
        unanswered: tally.unanswered,
        flushes_counted: 0.0,
        flushes_idle: 0.0,
        server_cpu_s: 0.0,
        server_memory_mib: 0.0,
        client_cpu_percent,
        client_wait_percent,
        client_limited: client_cpu_percent + client_wait_percent > LIMITED_PERCENT,
        foreign_cpu_percent: 0.0,
    }
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ThreadUse;

    /// Every second repetition runs backwards. Broken if somebody always comes first.
    #[test]
    fn the_order_turns_round() {
        assert_eq!(order(0, 3), [0, 1, 2]);
        assert_eq!(order(1, 3), [2, 1, 0]);
    }

    /// Results name no place of one machine.
    #[test]
    fn commands_are_told_without_this_machines_folders() {
        let line =
            without("taskset -c 0 /usr/x/bin/prog --dir /var/tmp/c/data", "/var/tmp/c".as_ref());
        assert_eq!(line, "taskset -c 0 prog --dir DIR/data");
    }

    /// A generator that was busy or waiting nearly all the time says so. Broken if waiting for
    /// its core does not count.
    #[test]
    fn a_generator_at_its_limit_says_so() {
        let tally = |cpu_ms: u64, waited_ms: u64| Tally {
            thread_use: ThreadUse { cpu_ns: cpu_ms * 1_000_000, waited_ns: waited_ms * 1_000_000 },
            ..Tally::default()
        };
        let limited = |tally: &Tally| counted_by(tally, Duration::from_secs(1)).client_limited;
        assert!(limited(&tally(700, 260)));
        assert!(!limited(&tally(900, 40)));
    }
}
