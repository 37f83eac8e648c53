//! The nodes that have everything that was ever acknowledged: `in_sync` of the lease.

use core::fmt;

use crate::ids::NodeId;

/// One or two nodes. Only they may challenge (L3), only their acks count (M1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InSync {
    first: NodeId,
    second: Option<NodeId>,
}

impl InSync {
    /// A single node.
    #[must_use]
    pub const fn alone(node: NodeId) -> Self {
        Self { first: node, second: None }
    }

    /// A pair; a single node if both are the same.
    #[must_use]
    pub fn pair(first: NodeId, second: NodeId) -> Self {
        Self { first, second: (first != second).then_some(second) }
    }

    /// Whether `node` is a member.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.first == node || self.second == Some(node)
    }

    /// The member that is not `node`, if there is one.
    #[must_use]
    pub fn other(&self, node: NodeId) -> Option<NodeId> {
        self.members().find(|member| *member != node)
    }

    /// All members.
    pub fn members(&self) -> impl Iterator<Item = NodeId> + use<> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// Whether there is no second member.
    #[must_use]
    pub const fn is_alone(&self) -> bool {
        self.second.is_none()
    }
}

impl fmt::Display for InSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}", self.first)?;
        if let Some(second) = self.second {
            write!(f, ", {second}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_one_node_is_that_node_alone() {
        let (a, b) = (NodeId(1), NodeId(2));
        assert_eq!(InSync::pair(a, a), InSync::alone(a));
        assert!(InSync::alone(a).is_alone() && !InSync::pair(a, b).is_alone());
        assert_eq!(InSync::pair(a, b).other(a), Some(b));
        assert_eq!(InSync::pair(a, b).other(b), Some(a));
        assert_eq!(InSync::alone(a).other(a), None);
        assert_eq!(InSync::pair(a, b).members().count(), 2);
        assert!(InSync::pair(a, b).contains(b) && !InSync::alone(a).contains(b));
    }
}
