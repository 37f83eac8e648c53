//! C1: what is put into the chain can be read and is whole. Notes which blocks it has held.

use duolog_engine::replica::chain::header::ObjectHeader;
use duolog_engine::replica::chain::object::Object;
use duolog_engine::replica::chain::{ObjectPlace, Seq};

use crate::simulator::store::{Ask, Key};
use crate::simulator::uploading::id_of;
use crate::simulator::world::World;

impl World {
    /// Something was stored in the bucket.
    pub fn check_stored(&mut self, ask: &Ask) {
        let (Ask::Create(key, body) | Ask::Replace(key, body, _)) = ask else { return };
        match key {
            Key::Lease => self.check_lease_grows(body),
            Key::Object(place) => self.check_object(*place, body),
        }
    }

    fn check_object(&mut self, place: ObjectPlace, body: &[u8]) {
        let header = ObjectHeader::decode(body).expect("C1: objects can be read");
        if header.reign != place.epoch {
            return self.saw("a Seal is stored");
        }
        let mut room = Vec::new();
        let object = Object::decode(body, id_of(place), &mut room).expect("C1: objects are whole");
        for end in object.ends() {
            self.ledger.stored.entry(end.lsn).or_default().push(end.hash);
        }
        if place.seq != Seq::OPEN {
            self.saw("a Batch is stored");
        }
    }
}
