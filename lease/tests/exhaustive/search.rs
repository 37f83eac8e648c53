//! Breadth-first search over fingerprints, with parents, so that the shortest trace can be told.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use duolog_lease::rules::Mistake;

use super::bounds::Bounds;
use super::heal;
use super::world::{Choice, World};

/// A search that sees more has bounds that are too wide for a test.
pub const STATES_MAX: usize = 20_000_000;
/// One of so many states is healed, by its fingerprint; that takes as long as hundreds of steps.
const HEAL_EVERY: u64 = 1021;

/// What a search found.
#[derive(Debug)]
pub enum Outcome {
    Holds { states: usize, transitions: usize, depth: usize },
    Broken { what: String, states: usize, trace: Vec<String> },
    TooLarge { states: usize, depth: usize },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds { states, transitions, depth } => {
                write!(f, "holds in all {states} states ({transitions} steps, depth {depth})")
            }
            Self::Broken { what, trace, .. } => {
                writeln!(f, "{what}, after {} steps:", trace.len())?;
                trace
                    .iter()
                    .enumerate()
                    .try_for_each(|(index, step)| writeln!(f, "  {:2}. {step}", index + 1))
            }
            Self::TooLarge { states, depth } => write!(f, "{states} states at depth {depth}"),
        }
    }
}

/// A quick mix; the search compares 64 bits of it.
#[derive(Clone, Default)]
struct Mix(u64, u64);

impl Mix {
    fn add(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ self.1.rotate_left(23);
        self.1 = self.1.wrapping_add(word ^ 0x2545_f491_4f6c_dd1d).rotate_left(29) ^ self.0;
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.add(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_u128(&mut self, value: u128) {
        self.add(value as u64);
        self.add((value >> 64) as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.add(value as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    fn finish(&self) -> u64 {
        let mut last = self.clone();
        last.add(self.1);
        last.0
    }
}

#[derive(Clone, Default)]
struct Same(u64);

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are fingerprints");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Seen = HashMap<u64, u64, BuildHasherDefault<Same>>;

fn fingerprint(world: &World) -> u64 {
    let mut mix = Mix::default();
    world.hash(&mut mix);
    mix.finish()
}

/// Visits everything within the bounds, or up to `states_max`, or up to the first broken promise.
pub fn search(bounds: &Bounds, mistake: Option<Mistake>, states_max: usize) -> Outcome {
    let first = World::new(bounds, mistake);
    let mut seen = Seen::default();
    let print = fingerprint(&first);
    seen.insert(print, 0);
    let mut frontier = vec![(print, Box::new(first))];
    let (mut transitions, mut depth) = (0, 0);
    let mut choices = Vec::new();
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (from, world) in frontier {
            choices.clear();
            world.choices(bounds, &mut choices);
            for &choice in &choices {
                let mut after = World::clone(&world);
                after.take(bounds, choice);
                if after.is_beyond(bounds) {
                    continue;
                }
                transitions += 1;
                let print = fingerprint(&after);
                match seen.entry(print) {
                    Entry::Occupied(_) => continue,
                    Entry::Vacant(entry) => entry.insert(from),
                };
                if let Some(what) = broken(bounds, mistake, print, &after) {
                    let trace = trace(bounds, mistake, &seen, print);
                    return Outcome::Broken { what, states: seen.len(), trace };
                }
                next.push((print, Box::new(after)));
            }
        }
        if seen.len() > states_max {
            return Outcome::TooLarge { states: seen.len(), depth };
        }
        depth += 1;
        frontier = next;
    }
    Outcome::Holds { states: seen.len(), transitions, depth }
}

/// The promise that is broken in this state, or, for a sample of states, on the way back to health.
fn broken(bounds: &Bounds, mistake: Option<Mistake>, print: u64, world: &World) -> Option<String> {
    // What breaks safety is to be found as such, at its shortest trace.
    let about_health = mistake.is_none_or(|mistake| mistake == Mistake::StopForgotten);
    let heals = about_health && print.is_multiple_of(HEAL_EVERY);
    world.broken(bounds).or_else(|| heals.then(|| heal::broken(bounds, world)).flatten())
}

fn trace(bounds: &Bounds, mistake: Option<Mistake>, seen: &Seen, last: u64) -> Vec<String> {
    let mut path = vec![last];
    while let Some(&before) = path.last().and_then(|print| seen.get(print))
        && before != 0
    {
        path.push(before);
    }
    let mut world = World::new(bounds, mistake);
    world.tells = true;
    let mut steps = Vec::new();
    for print in path.iter().rev().skip(1) {
        let mut choices: Vec<Choice> = Vec::new();
        world.choices(bounds, &mut choices);
        let step = choices.into_iter().find_map(|choice| {
            let mut after = world.clone();
            after.take(bounds, choice);
            (fingerprint(&after) == *print).then_some((choice, after))
        });
        let (choice, mut after) = step.expect("the search came this way");
        steps.push(after.tell(choice));
        after.told.clear();
        world = after;
    }
    steps
}
