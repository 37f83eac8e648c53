//! The collector: deletes what nobody needs any more of older chains.

use duolog_engine::ids::{LeaseEpoch, Lsn, NodeId};
use duolog_engine::replica::garbage::{self, Garbage, ListedObject};

use super::store::{Ask, Asker, Key, Told};
use super::world::World;

/// The collector of a reign.
#[derive(Debug)]
pub struct Collecting {
    epoch: LeaseEpoch,
    machine: Garbage,
}

impl Collecting {
    pub const fn new(node: NodeId, epoch: LeaseEpoch, base: Lsn) -> Self {
        Self { epoch, machine: Garbage::new(node, epoch, base) }
    }
}

impl World {
    pub fn collect(&mut self, node: usize, event: garbage::Event) {
        let Some(collecting) = &mut self.process(node).collecting else { return };
        let mut actions = Vec::new();
        collecting.machine.step(event, &mut actions);
        let epoch = collecting.epoch.0;
        for action in actions {
            match action {
                garbage::Action::List { after } => {
                    self.ask(node, Ask::List(after), Asker::GarbageListed(epoch));
                }
                garbage::Action::Delete(place) => {
                    self.saw("an object is deleted");
                    let ask = Ask::Delete(Key::Object(place));
                    self.ask(node, ask, Asker::GarbageDeleted(epoch));
                }
            }
        }
    }

    /// The bucket answers the collector.
    pub fn garbage_told(&mut self, node: usize, back: &Asker, told: Told) {
        let Some(collecting) = &self.process(node).collecting else { return };
        let reign = collecting.epoch.0;
        match (back, told) {
            (Asker::GarbageListed(epoch), Told::Listed(listed)) if *epoch == reign => {
                let objects = listed.into_iter();
                let objects = objects.map(|(place, bytes)| ListedObject { place, bytes });
                self.collect(node, garbage::Event::Listed(objects.collect()));
            }
            // What stays is deleted in the next reign.
            (Asker::GarbageDeleted(epoch), _) if *epoch == reign => {
                self.collect(node, garbage::Event::Deleted);
            }
            _ => {}
        }
    }
}
