//! The same loads on a standalone server and on the pair's leader, one after the other, in rounds.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::nodes::Nodes;
use super::{Measured, PairError, PairSettings};
use crate::generator::{self, Settings};
use crate::limits::child::Server;
use crate::limits::noise::Noise;

/// One client for the latency, many for the throughput.
pub const CONNECTIONS: [u32; 2] = [1, 256];
/// Payload of each event.
pub const EVENT_SIZE_BYTES: u32 = 100;
const WARM_UP: Duration = Duration::from_millis(300);

/// One server under one load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Appends per second.
    pub throughput_per_s: f64,
    /// Median latency, us.
    pub p50_us: Option<f64>,
    /// Processor time of the server, or of both nodes, per append, us.
    pub cpu_per_append_us: Option<f64>,
    /// Refusals and losses.
    pub errors: u64,
    /// Other programs' use of the processor meanwhile, percent of one core.
    pub noise_percent: Option<f64>,
}

/// One round: both servers under both loads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    /// By position in [`CONNECTIONS`].
    pub standalone: [Sample; 2],
    /// Likewise.
    pub pair: [Sample; 2],
    /// Appends that the pair acknowledged within the measured windows.
    pub pair_acked: u64,
}

/// What is measured: where clients connect, and whose processor time counts.
#[derive(Clone, Debug)]
struct Target {
    addr: SocketAddr,
    process_ids: Vec<u32>,
}

/// Measures all rounds. The standalone server lives as long as they last.
pub fn run(
    settings: &PairSettings,
    dir: &Path,
    nodes: &Nodes,
    measured: &mut Measured,
    progress: &mut impl FnMut(&str),
) -> Result<(), PairError> {
    if settings.rounds == 0 {
        return Ok(());
    }
    let server = Server::standalone("standalone", dir, &dir.join("standalone"), &[])?;
    let standalone = Target { addr: server.addr, process_ids: vec![server.process_id()] };
    for number in 0..settings.rounds {
        progress(&format!("round {} of {}", number + 1, settings.rounds));
        let leader = nodes.wait_until_healthy()?;
        let addr = nodes.nodes[leader].client;
        let pair = Target { addr, process_ids: nodes.process_ids() };
        let mut round = Round::default();
        for (index, connections) in CONNECTIONS.into_iter().enumerate() {
            let alone = |round: &mut Round| -> Result<(), PairError> {
                round.standalone[index] = load(settings, nodes, &standalone, connections)?.0;
                Ok(())
            };
            // Who comes first alternates: the second of two finds a warmer machine.
            if number.is_multiple_of(2) {
                alone(&mut round)?;
            }
            let (sample, acked) = load(settings, nodes, &pair, connections)?;
            round.pair[index] = sample;
            round.pair_acked += acked;
            if !number.is_multiple_of(2) {
                alone(&mut round)?;
            }
        }
        measured.rounds.push(round);
    }
    Ok(())
}

fn load(
    pair: &PairSettings,
    nodes: &Nodes,
    target: &Target,
    connections: u32,
) -> Result<(Sample, u64), PairError> {
    let committed = || {
        let status = nodes.status_at(target.addr)?;
        status["shards"][0]["committed"].as_u64()
    };
    let noise = Noise::watch(target.process_ids.clone());
    let (cpu_before, committed_before) = (cpu_us(&target.process_ids), committed());
    let report = generator::run(&Settings {
        warm_up: WARM_UP,
        ..Settings::appends(target.addr, connections, EVENT_SIZE_BYTES, pair.duration)
    })?;
    // Warm-up and window alike: the log tells how many appends both were.
    let (cpu_after, committed_after) = (cpu_us(&target.process_ids), committed());
    let appends = committed_after.zip(committed_before).map(|(after, before)| after - before);
    let cpu = cpu_after.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    let sample = Sample {
        throughput_per_s: report.throughput_per_s,
        p50_us: report.latency_us.p50,
        cpu_per_append_us: per_append(cpu, appends),
        errors: report.errors,
        noise_percent: noise.percent(),
    };
    Ok((sample, report.acked))
}

fn per_append(cpu_us: Option<u64>, appends: Option<u64>) -> Option<f64> {
    let appends = appends.filter(|appends| *appends > 0)?;
    Some(cpu_us? as f64 / appends as f64)
}

/// Processor time of all threads of these processes so far, us. `None` where the system does not
/// tell.
fn cpu_us(process_ids: &[u32]) -> Option<u64> {
    let mut sum = 0;
    for id in process_ids {
        let threads = std::fs::read_dir(format!("/proc/{id}/task")).ok()?;
        for thread in threads {
            let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            sum += text.split_whitespace().next()?.parse::<u64>().ok()? / 1000;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_per_append_needs_both_numbers() {
        assert_eq!(per_append(Some(600), Some(4)), Some(150.0));
        assert_eq!(per_append(Some(600), Some(0)), None);
        assert_eq!(per_append(None, Some(4)), None);
    }

    /// Broken if the time of a process that has worked were zero, or of one that is gone a number.
    #[test]
    fn processor_time_of_this_process_grows() {
        let own = [std::process::id()];
        let Some(before) = cpu_us(&own) else { return };
        let mut mixer = crate::generator::clock::Mixer::new(1);
        let sum = (0..20_000_000).fold(0_u64, |sum, _| sum ^ mixer.next_number());
        std::hint::black_box(sum);
        assert!(cpu_us(&own).unwrap() > before);
        assert_eq!(cpu_us(&[u32::MAX]), None);
    }
}
