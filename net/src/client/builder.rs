//! Making a client.

use std::sync::Arc;
use std::time::Duration;

use duolog_engine::ids::ShardId;
use tokio::sync::{mpsc, watch};

use super::call::Lane;
use super::connection::{Connection, Status};
use super::dial::Link;
use super::error::Error;
use super::nodes::Nodes;
use super::search::{Aim, Down, Search};
use super::{Client, Inner, bounded};
use crate::limits::{
    CALL_DEADLINE_MS_DEFAULT, CLIENT_CONNECTIONS_MAX, CLIENT_QUEUE_LEN_MAX,
    CONNECT_TIMEOUT_MS_DEFAULT, SILENCE_MS_DEFAULT,
};

/// Options of a client. Every time limit is finite, at least 1 ms and at most a day.
#[derive(Clone, Debug)]
#[must_use = "connect() makes the client"]
pub struct ClientBuilder {
    addresses: Vec<String>,
    deadline: Duration,
    connect_timeout: Duration,
    silence: Duration,
    shard: Option<ShardId>,
    connections: usize,
    aim: Aim,
}

impl ClientBuilder {
    pub(super) const fn new() -> Self {
        Self {
            addresses: Vec::new(),
            deadline: Duration::from_millis(CALL_DEADLINE_MS_DEFAULT),
            connect_timeout: Duration::from_millis(CONNECT_TIMEOUT_MS_DEFAULT),
            silence: Duration::from_millis(SILENCE_MS_DEFAULT),
            shard: None,
            connections: 1,
            aim: Aim::Leader,
        }
    }

    /// Adds addresses, separated by commas: `host`, `host:port`, `[::1]:port`. The port is 7400
    /// when not named. They are the nodes of one cluster: the client finds out which
    /// one leads.
    pub fn addresses(mut self, addresses: &str) -> Self {
        let named = addresses.split(',').map(str::trim).filter(|address| !address.is_empty());
        self.addresses.extend(named.map(str::to_owned));
        self
    }

    /// How long a call may take, retries included. Default: 5 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = bounded(deadline);
        self
    }

    /// How long reaching one address may take. Default: 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = bounded(timeout);
        self
    }

    /// After how long without a sign of life a server that owes answers is given up. Default: 2 s.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = bounded(silence);
        self
    }

    /// The shard whose thread shall serve the connections: saves a hop when all streams live there.
    pub const fn bind_shard(mut self, shard: ShardId) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Connects to any node that answers instead of the one that leads: for reads that may be stale
    /// and for [`Client::status`]. Other calls still search for the leader.
    pub const fn any_node(mut self) -> Self {
        self.aim = Aim::Anyone;
        self
    }

    /// Stays with the one address given, whatever its node is: nobody else is searched for, and a
    /// node that does not lead is heard: its refusal is [`Error::NotLeader`], with the leader's
    /// address if it knows it.
    pub const fn this_node(mut self) -> Self {
        self.aim = Aim::This;
        self
    }

    /// Connections at one time, 1 to 64. Calls for one stream always share one, so that they are
    /// applied in the order in which they were started. Default: 1.
    pub fn connections(mut self, count: usize) -> Self {
        self.connections = count.clamp(1, CLIENT_CONNECTIONS_MAX);
        self
    }

    /// Connects to the node that leads; if none does, to one that answers. Needs a tokio runtime,
    /// which also runs the client's background tasks; they end when the last clone of the client
    /// is dropped.
    ///
    /// # Errors
    /// [`Error::Connect`] when no address answers, [`Error::Protocol`] when what answers is no
    /// Duolog server of this version, [`Error::BadRequest`] when there is no such shard.
    pub async fn connect(self) -> Result<Client, Error> {
        let nodes = Nodes::new(self.addresses, self.shard, self.connect_timeout);
        let mut search = Search::new(nodes.clone(), self.aim);
        let found = match search.round().await {
            Ok(link) => Some(link),
            Err(Down::Unreachable(error)) => return Err(error),
            Err(_) => None,
        };
        // A node that does not lead serves reads that may be stale; appends search for the leader.
        let (mut first, standby) = match self.aim {
            Aim::Leader => (found, search.take_standby()),
            Aim::Anyone => (None, found),
            Aim::This => (found, None),
        };
        let Some(info) = first.as_ref().or(standby.as_ref()).map(|link| link.info.clone()) else {
            let text = "the only node that answered closed the connection".to_owned();
            return Err(Error::Connect { addresses: nodes.addresses.join(","), text });
        };
        let lane = |search: Search, link: Option<Link>| {
            let aim = search.aim;
            let (calls, queue) = mpsc::channel(CLIENT_QUEUE_LEN_MAX);
            let told = Status { info: info.clone(), down: None };
            let (status, watched) = watch::channel(told);
            let silence = self.silence;
            let connection =
                Connection { search, silence, queue, status, waiting: None, next_correlation: 1 };
            tokio::spawn(connection.run(link));
            Lane { queue: calls, status: watched, nodes: nodes.clone(), aim }
        };
        // Of two kinds, unless both are to stay where they are.
        let (appends, reads) = match self.aim {
            Aim::Leader | Aim::Anyone => (Aim::Leader, Aim::Anyone),
            Aim::This => (Aim::This, Aim::This),
        };
        let lanes = (0..self.connections)
            .map(|_| lane(Search::new(nodes.clone(), appends), first.take()))
            .collect();
        let anyone = lane(Search::new(nodes.clone(), reads), standby);
        Ok(Client { inner: Arc::new(Inner { lanes, anyone, deadline: self.deadline }) })
    }
}
