//! A blank node takes the place of a dead one and copies the whole log: how fast, beside the disk's
//! own sequential rate, and how much memory that costs the leader.

use std::path::Path;
use std::time::Duration;

use super::nodes::Nodes;
use super::{PairError, PairSettings};
use crate::generator::clock::{Clock, pause};
use crate::generator::{self, Settings};
use crate::limits::sequence::Rates;

pub(super) const MIB: f64 = (1 << 20) as f64;
/// Payload of each event of the log that is copied.
const EVENT_SIZE_BYTES: u32 = 32 << 10;
const FILL_CONNECTIONS: u32 = 16;
/// The log is filled in steps of this length.
const FILL_STEP: Duration = Duration::from_millis(500);
/// Steps at most: a disk that needs more writes below 2 MiB/s for the default size.
const FILL_STEPS_MAX: u32 = 240;
/// The copy is done after this at the latest.
const COPY_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The result.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    /// The log that was copied, with everything around the events, as far as the leader had to
    /// read it from its disk, MiB.
    pub size_mib: f64,
    /// From the moment that the leader has found the newcomer until that has everything, seconds.
    pub took_s: f64,
    /// What the disk does by itself, the mean of before and after.
    pub disk: Rates,
    /// Largest growth of the leader's resident memory meanwhile, MiB.
    pub leader_memory_mib: Option<f64>,
}

/// Fills the log, kills the follower, and lets a blank node take its place.
pub fn run(pair: &PairSettings, dir: &Path, nodes: &mut Nodes) -> Result<Copied, PairError> {
    let leader = nodes.wait_until_healthy()?;
    let filled_mib = fill(pair, nodes, leader)?;
    nodes.wait_until_equal()?;
    let follower = 1 - leader;
    let id = |nodes: &Nodes, index| {
        let id = nodes.status(index).and_then(|status| Some(status["node"].as_str()?.to_owned()));
        id.ok_or_else(|| PairError::Store("a node does not tell its id".to_owned()))
    };
    let dead = id(nodes, follower)?;
    nodes.kill(follower);
    let rates = || {
        let refused = |source| PairError::Dir { dir: pair.dir.clone(), source };
        Rates::measure(dir, u64::from(pair.copy_mib) << 20).map_err(refused)
    };
    let before = rates()?;
    let blank = nodes.add("node-3")?;
    let newcomer = id(nodes, blank)?;
    let memory = |nodes: &Nodes| nodes.process_id(leader).and_then(resident_mib);
    let (memory_before, mut memory_max) = (memory(nodes), memory(nodes));
    let read = |nodes: &Nodes| nodes.process_id(leader).and_then(read_mib);
    let read_before = read(nodes);
    let request = serde_json::json!({"command": "replace", "dead": dead, "newcomer": newcomer});
    nodes.command(&request.to_string())?;
    let mut clock = Clock::start();
    let mut linked = false;
    loop {
        if !linked && is_linked(nodes, blank) {
            (linked, clock) = (true, Clock::start());
        }
        let now = memory(nodes);
        memory_max = memory_max.zip(now).map(|(one, other): (f64, f64)| one.max(other));
        if has_everything(nodes, leader, blank) {
            break;
        }
        if u128::from(clock.now_ns()) > COPY_MAX.as_nanos() {
            let last = nodes.status(blank).map_or_else(String::new, |told| told.to_string());
            let (what, after_s) = ("the blank node to have everything", COPY_MAX.as_secs());
            return Err(PairError::Waited { what, after_s, last });
        }
        pause(LOOK_EVERY);
    }
    let took_s = clock.now_ns() as f64 / 1e9;
    let size_mib = read(nodes).zip(read_before).map(|(after, before)| after - before);
    let after = rates()?;
    Ok(Copied {
        // A system that does not count gets the payload of what was written last: less.
        size_mib: size_mib.unwrap_or(filled_mib),
        took_s,
        disk: before.mean(&after),
        leader_memory_mib: memory_max.zip(memory_before).map(|(max, before)| max - before),
    })
}

/// Appends until the log has grown by the size wanted; how much was acknowledged, MiB.
fn fill(pair: &PairSettings, nodes: &Nodes, leader: usize) -> Result<f64, PairError> {
    let mut filled_mib = 0.0;
    for _ in 0..FILL_STEPS_MAX {
        let addr = nodes.nodes[leader].client;
        let report = generator::run(&Settings {
            in_flight: 2,
            streams: 1000,
            ..Settings::appends(addr, FILL_CONNECTIONS, EVENT_SIZE_BYTES, FILL_STEP)
        })?;
        filled_mib += report.acked as f64 * f64::from(EVENT_SIZE_BYTES) / MIB;
        if filled_mib >= f64::from(pair.copy_mib) {
            break;
        }
    }
    Ok(filled_mib)
}

fn is_linked(nodes: &Nodes, blank: usize) -> bool {
    nodes.status(blank).is_some_and(|status| status["peer"]["connected"] == true)
}

fn has_everything(nodes: &Nodes, leader: usize, blank: usize) -> bool {
    let durable = |index: usize| nodes.status(index)?["shards"][0]["durable"].as_u64();
    let (there, here) = (durable(blank), durable(leader));
    here.is_some() && there >= here
}

/// Resident memory of a process. `None` where the system does not tell.
fn resident_mib(process_id: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process_id}/status")).ok()?;
    number_behind("VmRSS:", &text).map(|kib| kib as f64 / 1024.0)
}

/// What a process has read from disks so far, MiB. `None` where the system does not tell.
fn read_mib(process_id: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process_id}/io")).ok()?;
    number_behind("read_bytes:", &text).map(|bytes| bytes as f64 / MIB)
}

fn number_behind(name: &str, text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_counts_is_read_from_its_line() {
        let status = "Name:\tx\nVmHWM:\t 9 kB\nVmRSS:\t  2048 kB\n";
        assert_eq!(number_behind("VmRSS:", status), Some(2048));
        assert_eq!(number_behind("VmRSS:", "Name:\tx\n"), None);
        assert_eq!(number_behind("read_bytes:", "rchar: 1\nread_bytes: 77\n"), Some(77));
        assert!(resident_mib(std::process::id()).is_none_or(|mib| mib > 0.0));
    }
}
