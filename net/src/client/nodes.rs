//! What a client knows about its cluster's nodes, shared by all its connections.

use std::sync::Arc;
use std::time::Duration;

use duolog_engine::ids::{ClusterId, LeaseEpoch, ShardId};
use tokio::sync::watch;

use super::dial::{ServerInfo, with_port};
use super::error::Error;
use super::search::Aim;

/// What the nodes have said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The cluster, from the first node that answered on.
    cluster: Option<ClusterId>,
    /// The newest reign that any node spoke of.
    pub(super) epoch: LeaseEpoch,
    /// Where its leader is, if any node said so.
    pub(super) leader: Option<Arc<str>>,
}

/// The nodes, and how to greet them. Clones share what is known.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    /// As given to the client, never empty.
    pub(super) addresses: Arc<[String]>,
    pub(super) shard: Option<ShardId>,
    /// For reaching one address, hello included.
    pub(super) timeout: Duration,
    known: Arc<watch::Sender<Known>>,
}

impl Nodes {
    pub(super) fn new(addresses: Vec<String>, shard: Option<ShardId>, timeout: Duration) -> Self {
        let known = Arc::new(watch::Sender::new(Known::default()));
        Self { addresses: addresses.into(), shard, timeout, known }
    }

    /// The same nodes, greeted for this shard's thread.
    pub(super) fn for_shard(&self, shard: ShardId) -> Self {
        Self { shard: Some(shard), ..self.clone() }
    }

    pub(super) fn known(&self) -> Known {
        self.known.borrow().clone()
    }

    /// Hears of every change.
    pub(super) fn watch(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// A node has said which reign it knows, and where its leader is (empty: it does not know).
    /// Older news than what is known is no news.
    pub(super) fn learn(&self, epoch: LeaseEpoch, leader: &str) {
        self.known.send_if_modified(|known| {
            let leader = (!leader.is_empty()).then(|| Arc::from(leader));
            let news = epoch > known.epoch
                || epoch == known.epoch && leader.is_some() && leader != known.leader;
            if news {
                (known.epoch, known.leader) = (epoch, leader);
            }
            news
        });
    }

    /// Notes what a greeted node said; refuses one of another cluster.
    pub(super) fn greeted(&self, info: &ServerInfo) -> Result<(), Error> {
        let mut same = true;
        self.known.send_if_modified(|known| {
            same = *known.cluster.get_or_insert(info.cluster) == info.cluster;
            false
        });
        if !same {
            let text = "another cluster than before answers".to_owned();
            return Err(Error::Connect { addresses: info.address.clone(), text });
        }
        self.learn(info.epoch, &info.leader);
        Ok(())
    }

    /// Whether there is an address beside `address` to go to.
    pub(super) fn has_other(&self, address: &str) -> bool {
        let other = |known: &str| with_port(known) != with_port(address);
        let leader = self.known.borrow().leader.clone();
        leader.is_some_and(|leader| other(&leader))
            || self.addresses.iter().any(|known| other(known))
    }

    /// Everything there is to try: the addresses given, beginning with number `first`; before them
    /// the leader as far as known, if that is `wanted`. Each once.
    pub(super) fn candidates(&self, first: usize, wanted: Aim) -> Vec<String> {
        let count = self.addresses.len();
        let given = (0..count).map(|index| self.addresses[(first + index) % count].clone());
        let leader = self.known.borrow().leader.as_deref().map(str::to_owned);
        let leader = leader.filter(|_| wanted == Aim::Leader);
        let mut all: Vec<String> = Vec::new();
        for address in leader.into_iter().chain(given) {
            if !all.iter().any(|known| with_port(known) == with_port(&address)) {
                all.push(address);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_reigns_replace_older_ones_and_never_the_other_way() {
        let list = vec!["a".to_owned(), "b:7400".to_owned()];
        let nodes = Nodes::new(list, None, Duration::from_secs(1));
        assert_eq!(nodes.candidates(1, Aim::Leader), ["b:7400", "a"]);
        nodes.learn(LeaseEpoch(4), "c:1");
        assert_eq!(nodes.candidates(0, Aim::Leader), ["c:1", "a", "b:7400"]);
        assert_eq!(nodes.candidates(0, Aim::Anyone), ["a", "b:7400"]);
        nodes.learn(LeaseEpoch(3), "a");
        assert_eq!(nodes.known().leader.as_deref(), Some("c:1"));
        nodes.learn(LeaseEpoch(5), "");
        assert_eq!((nodes.known().epoch, nodes.known().leader), (LeaseEpoch(5), None));
        nodes.learn(LeaseEpoch(5), "b");
        let all = nodes.candidates(0, Aim::Leader);
        assert_eq!(all, ["b", "a"], "b and b:7400 are one address");
        assert!(nodes.has_other("b:7400"));
    }
}
