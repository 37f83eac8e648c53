//! Changes of the lead under the writer's load, and how long it waited for an ack around each.

use std::time::Duration;

use super::nodes::Nodes;
use super::writer::Writer;
use super::{PairError, S3_LEASE};
use crate::generator::clock::pause;

/// Load before and behind a change: what is not part of the pause.
const AROUND: Duration = Duration::from_millis(300);
/// Appends go on after this at the latest.
const ACK_MAX: Duration = Duration::from_secs(60);

/// One planned handover: the longest time without an ack, ms.
pub fn hand_over(nodes: &Nodes, writer: &Writer) -> Result<f64, PairError> {
    let before = nodes.wait_until_healthy()?;
    pause(AROUND);
    let from_ns = writer.now_ns();
    nodes.command(r#"{"command":"handoff"}"#)?;
    writer.wait_for_ack(writer.now_ns(), ACK_MAX)?;
    let mut after = nodes.wait_until_healthy()?;
    // The command is taken before the lead moves.
    for _ in 0..200 {
        if after != before {
            break;
        }
        pause(Duration::from_millis(10));
        after = nodes.wait_until_healthy()?;
    }
    if after == before {
        let (what, last) = ("the lead to move", "the node that was asked still leads".to_owned());
        return Err(PairError::Waited { what, after_s: 2, last });
    }
    pause(AROUND);
    writer.wait_for_ack(writer.now_ns(), ACK_MAX)?;
    writer.longest_pause_ms(from_ns).ok_or(PairError::NoAck { after_s: ACK_MAX.as_secs() })
}

/// Waits until the follower may take over by heartbeats alone, kills the leader, and starts it
/// again when the other one leads: the longest time without an ack, ms.
pub fn kill(nodes: &mut Nodes, writer: &Writer) -> Result<f64, PairError> {
    nodes.wait_until_healthy()?;
    // The reign that the follower found when it began to follow holds a lease by the store; only
    // when that has run out do heartbeats alone decide.
    pause(S3_LEASE + AROUND);
    let leader = nodes.leader()?;
    let from_ns = writer.now_ns();
    nodes.kill(leader);
    // An ack that was under way may still be told; the pause begins behind it.
    pause(Duration::from_millis(50));
    writer.wait_for_ack(writer.now_ns(), ACK_MAX)?;
    pause(AROUND);
    let paused_ms = writer.longest_pause_ms(from_ns);
    nodes.restart(leader)?;
    nodes.wait_until_healthy()?;
    paused_ms.ok_or(PairError::NoAck { after_s: ACK_MAX.as_secs() })
}
