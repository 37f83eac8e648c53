//! The port for the other node, on shard 0: reads the hello of each connection and hands the
//! connection to whom it is for.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use duolog_net::peer::{PeerHello, PeerMessage, PeerReader, PeerReason, PeerRefused, Purpose};
use glommio::net::TcpListener;

use super::control::Control;
use super::heartbeat;
use super::wire::{Wire, within};
use crate::serve::cluster::message::{PeerSocket, ToShard};

/// Connections that have not said hello yet, at most: only the other node has a reason to come.
const GREETING_MAX: usize = 64;
/// How long a hello may take.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// Pause after an accept that failed for want of descriptors or memory.
const RETRY: Duration = Duration::from_millis(50);

/// Accepts for the life of the process: also while the node hands over and stops.
pub(super) async fn run(control: Rc<Control>, listener: TcpListener) {
    let greeting = Rc::new(Cell::new(0));
    loop {
        match listener.accept().await {
            Ok(_) if greeting.get() >= GREETING_MAX => {}
            Ok(stream) => {
                greeting.set(greeting.get() + 1);
                let (control, greeting) = (Rc::clone(&control), Rc::clone(&greeting));
                let wire = Wire::new(stream);
                glommio::spawn_local(async move {
                    let greeted = greet(&wire).await;
                    greeting.set(greeting.get() - 1);
                    if let Some((hello, reader)) = greeted {
                        hand_on(control, wire, hello, reader).await;
                    }
                })
                .detach();
            }
            Err(error) => {
                tracing::warn!(%error, event = "peer_accept_failed");
                glommio::timer::sleep(RETRY).await;
            }
        }
    }
}

async fn greet(wire: &Wire) -> Option<(PeerHello, PeerReader)> {
    let hello = async {
        let mut reader = PeerReader::of_accepted();
        loop {
            match reader.next_message() {
                Ok(Some(PeerMessage::Hello(hello))) => return Some((hello, reader)),
                Ok(None) => {}
                Ok(Some(_)) => return None,
                Err(error) => {
                    tracing::warn!(%error, event = "peer_hello_unreadable");
                    return None;
                }
            }
            if !wire.fill(&mut reader).await {
                return None;
            }
        }
    };
    within(HELLO_MAX, hello).await
}

async fn hand_on(control: Rc<Control>, wire: Rc<Wire>, hello: PeerHello, reader: PeerReader) {
    if let Some(refused) = objection(&control, &hello) {
        tracing::warn!(event = "peer_hello_refused", from = %hello.from, reason = refused.text);
        wire.say(|frame| refused.encode(frame));
        return;
    }
    match &hello.purpose {
        Purpose::Heartbeat => heartbeat::serve(control, wire, hello, reader).await,
        Purpose::Shard { shard, .. } | Purpose::Fetch { shard, .. } => {
            let (shard, rest) = (*shard, reader.unused().to_vec());
            let Ok(socket) = wire.duplicate() else { return };
            let hello = Box::new(hello);
            control.shard.tell_shard(shard, ToShard::Peer(PeerSocket { socket, hello, rest }));
        }
    }
}

/// What stands against any hello, whatever the lease says.
fn objection(control: &Control, hello: &PeerHello) -> Option<PeerRefused> {
    let settings = &control.settings;
    let refuse = |reason, text: String| {
        let own = settings.identity.node;
        Some(PeerRefused::new(hello.epoch, own, reason, text))
    };
    if hello.cluster != settings.identity.cluster || hello.from == settings.identity.node {
        let text = format!(
            "this is node {} of cluster {}: the address leads to another cluster or back to \
             where it came from",
            settings.identity.node, settings.identity.cluster
        );
        return refuse(PeerReason::Foreign, text);
    }
    if hello.shard_count != settings.shard_count {
        let (own, other) = (settings.shard_count, hello.shard_count);
        let text = format!("this node has {own} shards, the leader {other}: set shards.count");
        return refuse(PeerReason::ShardCount, text);
    }
    let layout = settings.layout;
    if (hello.segment_size_bytes, hello.align_bytes)
        != (layout.segment_size_bytes, layout.align_bytes)
    {
        let text = format!(
            "segments of {} bytes aligned to {} here, {} and {} at the leader: set \
             log.segment_size_bytes alike",
            layout.segment_size_bytes,
            layout.align_bytes,
            hello.segment_size_bytes,
            hello.align_bytes
        );
        return refuse(PeerReason::Layout, text);
    }
    match hello.purpose {
        Purpose::Shard { shard, .. } | Purpose::Fetch { shard, .. }
            if shard.0 >= settings.shard_count =>
        {
            refuse(PeerReason::ShardCount, format!("there is no shard {shard} here"))
        }
        _ => None,
    }
}
