//! From any state: when all faults stop, the pair must come to serve again.

use duolog_lease::event::{Event, Heartbeat};
use duolog_lease::status::Status;

use super::bounds::Bounds;
use super::network::Message;
use super::world::{CLUSTER, Choice, World, node_id};

/// Units of time. The longest road: a lease written just now runs out (6), a challenger whose
/// answer was lost starts over (4), and the other must notice (6); twice that, for good measure.
const UNITS_MAX: usize = 32;
/// Steps within one unit; an endless exchange of messages would exceed it.
const STEPS_MAX: usize = 400;

/// What is wrong after everything went well for a while.
pub fn broken(bounds: &Bounds, world: &World) -> Option<String> {
    let bounds = Bounds {
        timed: true,
        offset: 0,
        crashes_max: 0,
        lazy: false,
        reads_fail: false,
        ..*bounds
    };
    let mut world = world.clone();
    for _ in 0..UNITS_MAX {
        if !settle(&bounds, &mut world) {
            return Some("the nodes never come to rest within one moment".into());
        }
        if let Some(violation) = world.violation {
            return Some(format!("while healing: {violation}"));
        }
        world.take(&bounds, Choice::Pass);
    }
    settle(&bounds, &mut world);
    let serving =
        (0..2).filter(|node| matches!(status(&bounds, &world, *node), Some(Status::Leader { .. })));
    match serving.collect::<Vec<_>>()[..] {
        [leader] => {
            let follower = world.nodes[1 - leader].machine.as_ref()?;
            let follows = follower.following().is_some_and(|(node, _)| node == node_id(leader));
            (!follows).then(|| "the other node does not follow after all faults stopped".into())
        }
        [] => Some("nobody serves after all faults stopped".into()),
        _ => Some("both serve after all faults stopped".into()),
    }
}

/// Starts the nodes, the first one first, and lets everything go well until the first leads and the
/// second follows and has acked a heartbeat.
pub fn warm_up(bounds: &Bounds, world: &mut World) {
    for node in 0..2 {
        world.take(bounds, Choice::Start(node));
        settle(bounds, world);
    }
    if bounds.timed {
        world.take(bounds, Choice::Pass);
    } else {
        world.take(bounds, Choice::Late(0));
    }
    settle(bounds, world);
    let follows = world.nodes[1].machine.as_ref().and_then(|machine| machine.following());
    assert!(follows.is_some(), "the second node follows");
}

fn status(bounds: &Bounds, world: &World, node: usize) -> Option<Status> {
    let now = world.now(bounds, node, 0);
    world.nodes[node].machine.as_ref().map(|machine| machine.status(now))
}

/// Lets everything happen that is under way, well and in order.
fn settle(bounds: &Bounds, world: &mut World) -> bool {
    for _ in 0..STEPS_MAX {
        let mut choices = Vec::new();
        world.choices(bounds, &mut choices);
        let good = |choice: &&Choice| {
            matches!(
                choice,
                Choice::Tick(_)
                    | Choice::Start(_)
                    | Choice::Read(_)
                    | Choice::Persisted(_)
                    | Choice::Stopped(_)
                    | Choice::Covered(_)
                    | Choice::Promoted(_)
                    | Choice::Drained(_)
                    | Choice::Land(..)
                    | Choice::Answer(_)
            )
        };
        if let Some(choice) = choices.iter().find(good) {
            world.take(bounds, *choice);
        } else if !deliver(bounds, world) {
            return true;
        }
    }
    false
}

/// Delivers one message, once.
fn deliver(bounds: &Bounds, world: &mut World) -> bool {
    for from in 0..2 {
        if world.links[from].messages.is_empty() {
            continue;
        }
        let message = world.links[from].messages.remove(0);
        let sender = node_id(from);
        let event = match message {
            Message::Heartbeat { epoch, sent, wall } => Event::HeartbeatReceived(Heartbeat {
                from: sender,
                cluster: CLUSTER,
                epoch,
                sent,
                wall,
            }),
            Message::Ack { epoch, sent } => Event::HeartbeatAcked { from: sender, epoch, sent },
            Message::Refusal { epoch, refusal } => Event::Refused { from: sender, epoch, refusal },
            Message::Resign { epoch } => Event::ResignReceived { from: sender, epoch },
        };
        world.give(bounds, 1 - from, 0, event);
        world.canonicalize(bounds);
        return true;
    }
    false
}
