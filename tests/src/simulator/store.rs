//! The bucket: conditional writes, and everything that may become of a call. A request may land
//! late, land without an answer, or be refused before it decided anything.

use std::collections::BTreeMap;

use duolog_engine::replica::chain::ObjectPlace;

use super::node::ToNode;
use super::world::{Due, World};

/// After this the caller gives up, us.
const CALL_MAX_US: u64 = 2_000_000;
/// How late a request may still land, us.
const LATE_MAX_US: u64 = 15_000_000;
/// Objects of one page of a listing.
const PAGE: usize = 7;

/// A name in the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The lease.
    Lease,
    /// An object of the chain.
    Object(ObjectPlace),
}

/// A request.
#[derive(Clone, Debug)]
pub enum Ask {
    Get(Key),
    Create(Key, Vec<u8>),
    Replace(Key, Vec<u8>, u64),
    Delete(Key),
    /// A page of chain objects behind this one, with their sizes.
    List(Option<ObjectPlace>),
}

/// An answer.
#[derive(Clone, Debug)]
pub enum Told {
    Found(Vec<u8>, u64),
    Absent,
    Stored(u64),
    Conflict,
    Listed(Vec<(ObjectPlace, u64)>),
    Deleted,
    /// It may have been done, or may yet be.
    Unknown,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Bucket {
    objects: BTreeMap<Key, (Vec<u8>, u64)>,
    tags: u64,
    /// Nobody reaches it.
    pub outage: bool,
    /// This node does not reach it.
    pub cut_off: [bool; 2],
    /// Answers to this node take nearly as long as it waits.
    pub sluggish: [bool; 2],
    /// So many times slower than usual.
    pub slowness: u64,
}

impl Bucket {
    /// What is under a name.
    pub fn get(&self, key: Key) -> Option<&[u8]> {
        self.objects.get(&key).map(|(bytes, _)| bytes.as_slice())
    }

    fn store(&mut self, key: Key, bytes: &[u8]) -> Told {
        self.tags += 1;
        self.objects.insert(key, (bytes.to_vec(), self.tags));
        Told::Stored(self.tags)
    }

    fn perform(&mut self, ask: &Ask) -> Told {
        match ask {
            Ask::Get(key) => match self.objects.get(key) {
                Some((bytes, tag)) => Told::Found(bytes.clone(), *tag),
                None => Told::Absent,
            },
            Ask::Create(key, _) if self.objects.contains_key(key) => Told::Conflict,
            Ask::Create(key, bytes) => self.store(*key, bytes),
            Ask::Replace(key, bytes, tag) => match self.objects.get(key) {
                Some((_, found)) if found == tag => self.store(*key, bytes),
                _ => Told::Conflict,
            },
            Ask::Delete(key) => {
                self.objects.remove(key);
                Told::Deleted
            }
            Ask::List(after) => {
                let behind = self.objects.iter().filter_map(|(key, (bytes, _))| match key {
                    Key::Object(place) => Some((*place, bytes.len() as u64)),
                    Key::Lease => None,
                });
                let behind = behind.filter(|(place, _)| after.is_none_or(|after| *place > after));
                Told::Listed(behind.take(PAGE).collect())
            }
        }
    }
}

/// What becomes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Well,
    /// Refused before anything was decided: 503, or 409 for a conditional write.
    Refused,
    /// Done, and the answer is lost.
    AnswerLost,
    /// Never arrives.
    Lost,
    /// The caller gives up, and then it lands.
    Late,
    /// The answer comes when the caller nearly gives up.
    Slow,
}

impl World {
    /// Makes a call; `back` makes of its answer what the node is told.
    pub fn ask(&mut self, node: usize, ask: Ask, back: Asker) {
        let slowness = self.bucket.slowness.max(1);
        let usual = self.plan.store_us * slowness;
        let (there, home) = (self.chance.between(usual / 4, usual), self.chance.below(usual + 1));
        let faulty = self.plan.store_fault_percent * u64::from(!self.healing);
        let fate = if self.bucket.outage || self.bucket.cut_off[node] {
            Fate::Lost
        } else if self.chance.percent(faulty) {
            let fates = [Fate::Refused, Fate::AnswerLost, Fate::Lost, Fate::Late, Fate::Slow];
            self.chance.pick(&fates)
        } else if self.bucket.sluggish[node] && self.chance.percent(70) {
            Fate::Slow
        } else {
            Fate::Well
        };
        let caller = (node, self.nodes[node].life);
        match fate {
            Fate::Well => {
                let due = Due::Land { ask, caller: Some((caller, back, home)), late: false };
                self.after(there, due);
            }
            Fate::Slow => {
                self.saw("an answer comes at the last moment");
                let all = self.chance.between(CALL_MAX_US / 2, CALL_MAX_US - 1);
                let there = self.chance.between(1, all);
                let caller = Some((caller, back, all - there));
                self.after(there, Due::Land { ask, caller, late: false });
            }
            Fate::Refused => self.answer_later(there + home, caller, back, Told::Unknown),
            Fate::AnswerLost => {
                self.after(there, Due::Land { ask, caller: None, late: false });
                self.answer_later(CALL_MAX_US, caller, back, Told::Unknown);
            }
            Fate::Lost => self.answer_later(CALL_MAX_US, caller, back, Told::Unknown),
            Fate::Late => {
                let late = self.chance.between(CALL_MAX_US, LATE_MAX_US);
                self.after(late, Due::Land { ask, caller: None, late: true });
                self.answer_later(CALL_MAX_US, caller, back, Told::Unknown);
            }
        }
    }

    fn answer_later(&mut self, us: u64, caller: (usize, u32), back: Asker, told: Told) {
        let ((node, life), what) = (caller, ToNode::Told(back, told));
        self.after(us, Due::Node { node, life, what });
    }

    /// A request arrives at the bucket.
    pub fn land(&mut self, ask: &Ask, caller: Option<((usize, u32), Asker, u64)>, late: bool) {
        let told = self.bucket.perform(ask);
        let stored = matches!(told, Told::Stored(_));
        if late && stored {
            self.saw("a PUT landed after its caller had given it up");
        }
        if late && matches!(told, Told::Conflict) {
            self.saw("a late PUT met what took its place");
        }
        self.trace.note(self.now_us, "s3", || format!("{} -> {}", ask.name(), told.name()));
        if stored {
            self.check_stored(ask);
        }
        if let Some((caller, back, home)) = caller {
            self.answer_later(home, caller, back, told);
        }
    }
}

/// Who waits for an answer.
#[derive(Clone, Debug)]
pub enum Asker {
    LeaseRead(duolog_lease::ids::CallId),
    LeaseWritten(duolog_lease::ids::CallId),
    PromotionGot(u64, ObjectPlace),
    PromotionPut(u64, ObjectPlace),
    PromotionListed(u64),
    BatchPut(u64, ObjectPlace),
    BatchRead(u64, ObjectPlace),
    GarbageListed(u64),
    GarbageDeleted(u64),
}

impl Ask {
    fn name(&self) -> String {
        match self {
            Self::Get(key) => format!("GET {}", key.name()),
            Self::Create(key, bytes) => format!("CREATE {} ({} bytes)", key.name(), bytes.len()),
            Self::Replace(key, ..) => format!("REPLACE {}", key.name()),
            Self::Delete(key) => format!("DELETE {}", key.name()),
            Self::List(after) => format!("LIST behind {after:?}"),
        }
    }
}

impl Key {
    fn name(self) -> String {
        match self {
            Self::Lease => "lease".to_owned(),
            Self::Object(place) => place.key(),
        }
    }
}

impl Told {
    fn name(&self) -> String {
        match self {
            Self::Found(bytes, tag) => format!("{} bytes, tag {tag}", bytes.len()),
            Self::Listed(listed) => format!("{} objects", listed.len()),
            told => format!("{told:?}"),
        }
    }
}
