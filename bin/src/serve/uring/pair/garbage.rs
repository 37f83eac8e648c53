//! Deletes what nobody can need any more of the older chains of one shard (rules G1 and G2).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use duolog_engine::ids::{LeaseEpoch, Lsn};
use duolog_engine::replica::chain::{ObjectPlace, shard_prefix};
use duolog_engine::replica::garbage::{Action, Event, Garbage, ListedObject};

use crate::serve::cluster::store::{Ask, Lane, Told};
use crate::serve::uring::shard_loop::ShardLoop;

/// Pause after a listing that failed.
const RETRY: Duration = Duration::from_secs(10);

/// The machine of the running reign.
#[derive(Debug, Default)]
pub(in crate::serve) struct Collector {
    machine: RefCell<Option<(LeaseEpoch, Garbage)>>,
}

impl Collector {
    /// A reign has begun; its Open has this base.
    pub fn begin(&self, shard: &Rc<ShardLoop>, epoch: LeaseEpoch, base: Lsn) {
        let node = shard.member().settings.identity.node;
        self.machine.replace(Some((epoch, Garbage::new(node, epoch, base))));
        if let Some((in_sync, proposal)) = shard.member().members.get() {
            self.step(shard, Event::Members { in_sync, proposal });
        }
    }

    /// The reign is over.
    pub fn end(&self) {
        self.machine.replace(None);
    }

    /// Hands the machine an event and does what it asks for.
    pub fn step(&self, shard: &Rc<ShardLoop>, event: Event) {
        let mut actions = Vec::new();
        let epoch = {
            let mut machine = self.machine.borrow_mut();
            let Some((epoch, machine)) = &mut *machine else { return };
            if machine.is_done() {
                return;
            }
            machine.step(event, &mut actions);
            *epoch
        };
        for action in actions {
            let shard = Rc::clone(shard);
            glommio::spawn_local(async move {
                futures_lite::future::yield_now().await;
                let event = perform(&shard, epoch, action).await;
                let collector = &shard.member().collector;
                let current = collector.machine.borrow().as_ref().map(|(epoch, _)| *epoch);
                if let (Some(event), true) = (event, current == Some(epoch)) {
                    collector.step(&shard, event);
                }
            })
            .detach();
        }
    }
}

async fn perform(shard: &Rc<ShardLoop>, epoch: LeaseEpoch, action: Action) -> Option<Event> {
    let member = shard.member();
    let keys = &member.settings.keys;
    match action {
        Action::Delete(place) => {
            let ask = Ask::Delete(keys.key(&place.key()));
            if let Told::Failed(error) = member.calls.ask(Lane::Bulk, ask).await {
                tracing::warn!(event = "not_deleted", %place, %error);
            }
            Some(Event::Deleted)
        }
        Action::List { after } => {
            let prefix = keys.under(&shard_prefix(shard.id()));
            let after = after.map(|place| keys.under(&place.key()));
            let folder = keys.under("");
            while member.reign.get() == Some(epoch) {
                let ask = Ask::List(prefix.clone(), after.clone());
                if let Told::Listed(listed) = member.calls.ask(Lane::Bulk, ask).await {
                    let objects = listed.iter().filter_map(|(key, bytes)| {
                        let place = ObjectPlace::parse(key.strip_prefix(&folder)?)?;
                        Some(ListedObject { place, bytes: *bytes })
                    });
                    return Some(Event::Listed(objects.collect()));
                }
                glommio::timer::sleep(RETRY).await;
            }
            None
        }
    }
}
