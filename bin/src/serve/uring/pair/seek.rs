//! As leader: finds the other node and keeps a heartbeat connection to it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use duolog_engine::ids::{LeaseEpoch, MonoMs, NodeId};
use duolog_s3client::key::ObjectKey;

use super::control::Control;
use super::heartbeat;
use crate::serve::cluster::message::Target;
use crate::serve::cluster::objects::NodeDocument;
use crate::serve::cluster::store::{Ask, Lane, Told};

/// Pause between two attempts to reach the other node.
const RETRY: Duration = Duration::from_millis(200);
/// How old what the bucket told may be, ms. Counted in time, not in attempts: one to reach a host
/// that is gone takes seconds, and meanwhile an operator may have put another node in its place.
const KNOWN_MAX_MS: u64 = 2_000;
/// Nodes that are not members and are tried, newest first.
const NEWCOMERS_MAX: usize = 4;

/// Runs for the life of the process. The bucket is asked only while nobody answers.
pub(super) async fn run(control: Rc<Control>) {
    let known = Rc::new(Known::default());
    loop {
        glommio::timer::sleep(RETRY).await;
        let Some(epoch) = leading(&control) else {
            control.outbound.close();
            known.looked_at.set(None);
            continue;
        };
        if control.outbound.is_up() {
            known.looked_at.set(None);
            continue;
        }
        let fresh = |at: MonoMs| control.now().mono.since(at) < KNOWN_MAX_MS;
        if known.targets.borrow().is_empty() || !known.looked_at.get().is_some_and(fresh) {
            known.look_again(&control);
        }
        let targets = known.targets.borrow().clone();
        for target in &targets {
            if leading(&control) == Some(epoch) && heartbeat::dial(&control, epoch, target).await {
                tracing::info!(
                    event = "follower_connected", node = %target.node, address = %target.address,
                );
                control.set_target(Some(target.clone()));
                break;
            }
        }
    }
}

/// The nodes to try, as the bucket last told.
#[derive(Debug, Default)]
struct Known {
    targets: RefCell<Vec<Target>>,
    /// When the bucket was asked; not yet, since somebody was reached last.
    looked_at: Cell<Option<MonoMs>>,
    looking: Cell<bool>,
}

impl Known {
    /// Asks the bucket in a task of its own: while the bucket is away an answer may take as long as
    /// the outage, and the node that is known already may come back meanwhile.
    fn look_again(self: &Rc<Self>, control: &Rc<Control>) {
        if self.looking.replace(true) {
            return;
        }
        self.looked_at.set(Some(control.now().mono));
        let (known, control) = (Rc::clone(self), Rc::clone(control));
        glommio::spawn_local(async move {
            let found = look(&control).await;
            if !found.is_empty() {
                known.targets.replace(found);
            }
            known.looking.set(false);
        })
        .detach();
    }
}

fn leading(control: &Control) -> Option<LeaseEpoch> {
    let machine = control.machine.borrow();
    machine.grant().and_then(|_| machine.reign())
}

/// The node that is no member and started last, if the bucket names one; never `dead`, and none
/// that started before `dead`: those are what it replaced.
pub(super) async fn newest_stranger(control: &Control, dead: NodeId) -> Option<NodeId> {
    let identity = &control.settings.identity;
    let ask = Ask::List(control.settings.keys.nodes(), None);
    let Told::Listed(listed) = control.calls.ask(Lane::Bulk, ask).await else { return None };
    let mut newest: Option<(u64, NodeId)> = None;
    let mut dead_started_ms = 0;
    for key in listed.into_iter().filter_map(|(key, _)| ObjectKey::new(key).ok()) {
        let Told::Found(body, _) = control.calls.ask(Lane::Bulk, Ask::Get(key)).await else {
            continue;
        };
        let Some(document) = NodeDocument::decode(&body) else { continue };
        let Some(node) = document.other(identity) else { continue };
        if node == dead {
            dead_started_ms = document.started_ms;
            continue;
        }
        let members = control.machine.borrow().members();
        let member = members.is_some_and(|(in_sync, _)| in_sync.contains(node));
        if !member && newest.is_none_or(|(started, _)| document.started_ms > started) {
            newest = Some((document.started_ms, node));
        }
    }
    newest.filter(|(started, _)| *started > dead_started_ms).map(|(_, node)| node)
}

/// The nodes to try: the other member, and whoever may become one.
async fn look(control: &Rc<Control>) -> Vec<Target> {
    let own = control.settings.identity.node;
    let members = control.machine.borrow().members();
    let other = members.and_then(|(in_sync, _)| in_sync.other(own));
    let keys = &control.settings.keys;
    let mut objects: Vec<ObjectKey> = other.map(|node| keys.node(node)).into_iter().collect();
    // With a complete pair the others are of interest only when an operator has named one.
    if let Told::Listed(listed) = control.calls.ask(Lane::Bulk, Ask::List(keys.nodes(), None)).await
    {
        let strangers = listed.into_iter().filter_map(|(key, _)| ObjectKey::new(key).ok());
        objects.extend(strangers.filter(|key| *key != keys.node(own)));
    }
    let mut found: Vec<(u64, Target)> = Vec::new();
    for key in objects {
        let Told::Found(body, _) = control.calls.ask(Lane::Bulk, Ask::Get(key)).await else {
            continue;
        };
        let Some(document) = NodeDocument::decode(&body) else { continue };
        let wanted = |node: &NodeId| control.machine.borrow().admits(*node).is_ok();
        let Some(node) = document.other(&control.settings.identity).filter(wanted) else {
            continue;
        };
        if found.iter().any(|(_, target)| target.node == node) {
            continue;
        }
        match control.calls.ask(Lane::Bulk, Ask::Resolve(document.peer.clone())).await {
            Told::Address(address) => {
                let target = Target { node, address, client: document.client };
                found.push((document.started_ms, target));
            }
            Told::NoAddress(error) => {
                let address = document.peer;
                tracing::warn!(event = "peer_unresolved", %node, address, error);
            }
            _ => {}
        }
    }
    // The member first, then the newest.
    found.sort_by_key(|(started, target)| (Some(target.node) != other, u64::MAX - started));
    found.truncate(NEWCOMERS_MAX);
    found.into_iter().map(|(_, target)| target).collect()
}
