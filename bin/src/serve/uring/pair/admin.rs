//! What operators ask of a node of a pair: JSON in, JSON out. The members of an answer are
//! described in docs/OPERATIONS.md, "Status".

use std::rc::Rc;
use std::sync::atomic::Ordering;

use duolog_engine::ids::{NodeId, ShardId};
use duolog_engine::shard::RequestId;
use duolog_lease::event::{Event, Force, Replace};
use duolog_lease::ids::parse_uuid;
use duolog_lease::status::Status;
use duolog_net::wire::{ErrorCode, ErrorFrame, encode_admin_answer};
use serde::Deserialize;
use serde_json::{Value, json};

use super::control::Control;
use super::standing::in_sync;
use crate::serve::admin::events_asked;
use crate::serve::cluster::gauges::{Role, ShardReading};
use crate::serve::inbox::Message;
use crate::serve::{metrics, vitals};

/// A request, as `{"command": ...}`.
#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
enum Command {
    /// What the node is.
    Status,
    /// The newest entries of its event log.
    Events {
        /// How many, at most.
        #[serde(default = "events_asked")]
        last: usize,
    },
    /// What its process and machine are like, and whether it reaches these addresses.
    Doctor {
        /// `host:port`.
        #[serde(default)]
        reach: Vec<String>,
    },
    /// Give the lead to the other node.
    Handoff,
    /// Change the members.
    Replace {
        dead: String,
        /// Without one: the node that is no member and started last.
        newcomer: Option<String>,
        #[serde(default)]
        force: bool,
    },
}

enum Refused {
    NotLeader,
    Bad(String),
}

/// Answers a request; the shard that has the connection sends it on.
pub(super) fn answer(
    control: &Rc<Control>,
    from: ShardId,
    id: RequestId,
    correlation: u64,
    body: &[u8],
) {
    let to = Asker { from, id, correlation };
    let command = serde_json::from_slice(body)
        .map_err(|error| Refused::Bad(format!("the admin request is not understood: {error}")));
    match command {
        Ok(Command::Events { last }) => {
            let asker = control.asker(from, id, correlation);
            busy_unless(control, to, control.shard.journal.answer(asker, last));
        }
        Ok(Command::Doctor { reach }) => {
            let asker = control.asker(from, id, correlation);
            busy_unless(control, to, control.shard.visits.ask(asker, reach));
        }
        Ok(command) => {
            let control = Rc::clone(control);
            glommio::spawn_local(async move {
                futures_lite::future::yield_now().await;
                send(&control, to, carry_out(&control, command).await);
            })
            .detach();
        }
        Err(refused) => send(control, to, Err(refused)),
    }
}

/// A request that another thread was to answer.
fn busy_unless(control: &Rc<Control>, to: Asker, accepted: bool) {
    if !accepted {
        let text = "the thread that answers this has much to do: ask again";
        send(control, to, Err(Refused::Bad(text.to_owned())));
    }
}

/// Where an answer goes.
#[derive(Clone, Copy)]
struct Asker {
    from: ShardId,
    id: RequestId,
    correlation: u64,
}

fn send(control: &Rc<Control>, to: Asker, judged: Result<Value, Refused>) {
    let Asker { from, id, correlation } = to;
    let mut frame = Vec::new();
    match judged {
        Ok(value) => encode_admin_answer(&mut frame, correlation, &value.to_string()),
        Err(Refused::NotLeader) => {
            let text = "the node does not lead: ask the leader";
            control.shard.refuse_as_follower(&mut frame, correlation, text);
        }
        Err(Refused::Bad(text)) => {
            ErrorFrame::new(ErrorCode::Refused).encode(&mut frame, correlation, text);
        }
    }
    let inbox = &control.shard.inboxes[from.0 as usize];
    if let Err(message) = inbox.send(Message::Answer { id, frame }) {
        control.shard.send_late(from, message);
    }
}

fn leads(control: &Control) -> bool {
    matches!(control.machine.borrow().status(control.now()), Status::Leader { .. })
}

async fn carry_out(control: &Rc<Control>, command: Command) -> Result<Value, Refused> {
    let (event, named) = match command {
        // Answered by other threads.
        Command::Events { .. } | Command::Doctor { .. } => return Ok(Value::Null),
        Command::Status => return Ok(status(control)),
        _ if !leads(control) => return Err(Refused::NotLeader),
        Command::Handoff => {
            super::stop::await_follower(control).await;
            (Event::ResignRequested, None)
        }
        Command::Replace { dead, newcomer, force } => {
            let dead = node(&dead)?;
            let newcomer = match newcomer {
                Some(newcomer) => node(&newcomer)?,
                None => stranger(control, dead).await?,
            };
            let force = if force { Force::Yes } else { Force::No };
            (Event::ReplaceRequested(Replace { dead, newcomer, force }), Some(newcomer))
        }
    };
    // It may have ended while something was waited for.
    if !leads(control) {
        return Err(Refused::NotLeader);
    }
    let before = control.history.borrow().count();
    control.step(event);
    // The lease machine says by a report why it does not do what was asked.
    let history = control.history.borrow();
    if let Some(reason) = history.since(before, &["handover_refused", "member_refused"]) {
        return Err(Refused::Bad(reason.to_owned()));
    }
    if named.is_some() {
        // Whoever is named is looked for from now on.
        control.outbound.close();
    }
    let mut answer = json!({ "accepted": true, "epoch": control.promised().0 });
    if let Some(node) = named {
        answer["newcomer"] = json!(node.to_string());
    }
    Ok(answer)
}

/// The node that can only be meant when an operator names none.
async fn stranger(control: &Control, dead: NodeId) -> Result<NodeId, Refused> {
    let found = super::seek::newest_stranger(control, dead).await;
    found.ok_or_else(|| {
        let text = "the bucket names no node that could take its place: start a blank one with \
                    the settings of the dead one, or name the newcomer";
        Refused::Bad(text.to_owned())
    })
}

fn node(text: &str) -> Result<NodeId, Refused> {
    let refused = || Refused::Bad(format!("{text:?} is no node id: see `duolog status`"));
    parse_uuid(text).map(NodeId).ok_or_else(refused)
}

fn status(control: &Control) -> Value {
    let now = control.now();
    let machine = control.machine.borrow();
    let (status, settings) = (machine.status(now), &control.settings);
    let history = control.history.borrow();
    let (role, epoch) = Role::of(status);
    let epoch = epoch.unwrap_or(machine.promised().0);
    let leads = role == Role::Leader;
    let members: Vec<String> = in_sync(&machine)
        .iter()
        .flat_map(|set| set.members())
        .map(|node| node.to_string())
        .collect();
    let readings = control.readings();
    let shards: Vec<Value> =
        readings.iter().enumerate().map(|(index, reading)| shard(index, reading, leads)).collect();
    let rescues = control.shard.inboxes.iter();
    let rescues: u64 = rescues.map(|inbox| inbox.rescues.get()).sum();
    let mut told = json!({
        "node": settings.identity.node.to_string(),
        "cluster": settings.identity.cluster.to_string(),
        "role": role.name(),
        "status": status.to_string(),
        "http": control.shard.inboxes[0].node.http(),
        "reason": history.newest(),
        "epoch": epoch.0,
        "lease_remaining_ms": machine.grant().map(|grant| grant.serve_until.since(now.mono)),
        "in_sync": members,
        "peer": peer(control, leads),
        "acks_go_to": leads.then(|| second_copy(&readings)),
        "shards": shards,
        "failovers": history.json(),
        "skew_ms": {
            "peer": control.outbound.skew_ms.get(),
            "s3": settings.store.counters().skew_ms.load(Ordering::Relaxed),
        },
        "s3_requests": settings.store.counters().calls.load(Ordering::Relaxed),
        "rescues": rescues,
    });
    metrics::status::tell(&mut told, &control.shard.inboxes);
    vitals::tell(&mut told);
    told
}

/// Where the second copies go. A connection that is up proves little when packets vanish: whoever
/// is ahead, the follower or the chain, is what appends are acknowledged by.
pub(super) fn second_copy(readings: &[ShardReading]) -> &'static str {
    let by_peer = |reading: &ShardReading| reading.linked && reading.acked >= reading.chain;
    if readings.iter().all(by_peer) { "peer" } else { "s3" }
}

fn shard(index: usize, reading: &ShardReading, leads: bool) -> Value {
    let ShardReading { end, durable, committed, acked, chain, writes, written_bytes, .. } =
        *reading;
    json!({
        "shard": index,
        "lsn": end.0,
        "durable": durable.0,
        "committed": committed.0,
        "acked": leads.then_some(acked.0),
        "chain": leads.then_some(chain.0),
        "lag": reading.lag(leads),
        "writes": writes,
        "written_bytes": written_bytes,
    })
}

fn peer(control: &Control, leads: bool) -> Value {
    if leads {
        let target = control.target.borrow();
        return target.as_ref().map_or(Value::Null, |target| {
            json!({
                "node": target.node.to_string(),
                "address": target.address.to_string(),
                "client": target.client,
                "connected": control.peer_connected(leads),
            })
        });
    }
    let following = control.machine.borrow().following();
    following.map_or(Value::Null, |(leader, epoch)| {
        let known = control.leader_address.borrow();
        let address = (known.0 == epoch).then(|| known.1.clone());
        let connected = control.peer_connected(leads);
        json!({
            "node": leader.to_string(),
            "address": address,
            "client": address,
            "connected": connected,
        })
    })
}

#[cfg(test)]
mod tests {
    use duolog_engine::ids::Lsn;

    use super::*;

    #[test]
    fn the_second_copy_is_where_acks_come_from() {
        let reading = |acked, chain, linked| {
            let (end, acked, chain) = (Lsn(9), Lsn(acked), Lsn(chain));
            let (durable, committed) = (end, end);
            ShardReading { end, durable, committed, acked, chain, linked, ..Default::default() }
        };
        let well = reading(9, 3, true);
        assert_eq!(second_copy(&[well, well]), "peer");
        assert_eq!(second_copy(&[well, reading(9, 3, false)]), "s3", "no connection");
        assert_eq!(second_copy(&[reading(5, 9, true), well]), "s3", "connected, and silent");
    }
}
