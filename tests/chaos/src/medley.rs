//! Faults by chance.

use crate::play::Play;
use crate::scenario::End::{self, Node};
use crate::scenario::Manner::{Away, Mute, Slow, Storm, Well};
use crate::scenario::Step;
use crate::scenario::Who::{Either, Follower, Leader};

const L: End = Node(Leader);
const F: End = Node(Follower);
const S: End = End::Store;

/// What may begin; [`Step::Mend`] ends all of it.
const FAULTS: &[&[Step]] = &[
    &[Step::Kill(Leader)],
    &[Step::Kill(Follower)],
    &[Step::Kill(Either), Step::Wait(0, 1_000), Step::Launch(Either)],
    &[Step::Stop(Either)],
    &[Step::Freeze(Leader)],
    &[Step::Freeze(Follower)],
    &[Step::Freeze(Either), Step::Wait(50, 3_000), Step::Thaw(Leader), Step::Thaw(Follower)],
    &[Step::Part(L, F)],
    &[Step::Part(L, F), Step::Wait(50, 3_000), Step::Join(L, F)],
    &[Step::Cut(L, F)],
    &[Step::Cut(F, L)],
    &[Step::Part(L, S)],
    &[Step::Part(F, S)],
    &[Step::Part(L, F), Step::Part(L, S)],
    &[Step::Store(Away)],
    &[Step::Store(Away), Step::Wait(50, 3_000), Step::Store(Well)],
    &[Step::Store(Slow(400))],
    &[Step::Store(Storm)],
    &[Step::Store(Mute(4))],
];

/// Something begins to be wrong, with `more` to choose from.
pub fn begin_one(play: &mut Play, more: &[&'static [Step]]) {
    let faults = [FAULTS, more].concat();
    let fault = play.chance.pick(&faults);
    play.act(fault);
}
