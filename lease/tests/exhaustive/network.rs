//! Messages between the two nodes: each may be delivered any number of times while it is under way.

use duolog_lease::event::Refusal;
use duolog_lease::ids::{LeaseEpoch, MonoMs, WallMs};

/// A message, apart from who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    Heartbeat { epoch: LeaseEpoch, sent: MonoMs, wall: WallMs },
    Ack { epoch: LeaseEpoch, sent: MonoMs },
    Refusal { epoch: LeaseEpoch, refusal: Refusal },
    Resign { epoch: LeaseEpoch },
}

/// What one node has sent to the other and may yet arrive, oldest first within each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link {
    pub messages: Vec<Message>,
}

impl Link {
    pub fn send(&mut self, message: Message, max: usize) {
        if self.messages.contains(&message) {
            return;
        }
        let kind = std::mem::discriminant(&message);
        let same = |other: &Message| std::mem::discriminant(other) == kind;
        if self.messages.iter().filter(|other| same(other)).count() >= max
            && let Some(oldest) = self.messages.iter().position(same)
        {
            self.messages.remove(oldest);
        }
        let at = self.messages.partition_point(|other| rank(other) <= rank(&message));
        self.messages.insert(at, message);
    }
}

fn rank(message: &Message) -> u8 {
    match message {
        Message::Heartbeat { .. } => 0,
        Message::Ack { .. } => 1,
        Message::Refusal { .. } => 2,
        Message::Resign { .. } => 3,
    }
}
