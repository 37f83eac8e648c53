//! Where the nodes and the store live, and who reaches whom: network namespaces where they can be
//! made, else proxies on the loopback.

mod namespaces;
mod proxies;

use duolog_tests::pair::Ground;

pub use namespaces::{Namespaces, OURS, hub};
use proxies::Proxies;

/// Nodes that a scenario may have: two, and one that takes the place of another.
pub const NODES_MAX: usize = 3;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The node with this number.
    Node(usize),
    /// The bucket.
    Store,
}

/// See the module.
#[derive(Debug)]
pub enum Lab {
    /// Each node and the store in a namespace of its own.
    Namespaces(Namespaces),
    /// All on the loopback, with proxies between them.
    Proxies(Proxies),
}

impl Lab {
    /// In the namespaces that begin with `prefix`, or on the loopback; with the ground for a pair.
    ///
    /// # Panics
    /// When the store does not start.
    pub fn new(prefix: Option<&str>) -> (Self, Ground) {
        match prefix {
            Some(prefix) => {
                let (namespaces, ground) = Namespaces::enter(prefix);
                (Self::Namespaces(namespaces), ground)
            }
            None => {
                let (proxies, ground) = Proxies::new();
                (Self::Proxies(proxies), ground)
            }
        }
    }

    /// From now on what `from` sends to `to` does, or does not, arrive. Nobody is told: packets
    /// vanish, connections stay open.
    pub fn block(&self, from: Place, to: Place, blocked: bool) {
        match self {
            Self::Namespaces(namespaces) => namespaces.block(from, to, blocked),
            Self::Proxies(proxies) => proxies.block(from, to, blocked),
        }
    }
}
