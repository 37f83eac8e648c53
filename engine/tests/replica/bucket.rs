//! The bucket: create-only objects, PUTs and DELETEs that land whenever they like.

use std::collections::BTreeMap;

use duolog_engine::replica::BlockEnd;
use duolog_engine::replica::chain::ObjectPlace;

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub node: usize,
    /// Which life of the node, and which reign in it.
    pub life: u32,
    pub reign: u64,
}

/// A PUT under way.
#[derive(Clone, Debug)]
pub struct Put {
    pub place: ObjectPlace,
    pub bytes: Vec<u8>,
    /// Nobody, if the answer was given up or the request is a late copy.
    pub caller: Option<Caller>,
    /// An Open: the whole log that it opens.
    pub opens: Option<Vec<BlockEnd>>,
}

#[derive(Debug, Default)]
pub struct Bucket {
    pub objects: BTreeMap<ObjectPlace, Vec<u8>>,
    pub puts: Vec<Put>,
    pub deletes: Vec<ObjectPlace>,
}
