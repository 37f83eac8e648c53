//! Making a client.

use std::sync::Arc;
use std::time::Duration;

use duolog_engine::ids::ShardId;
use tokio::sync::{mpsc, watch};

use super::call::Lane;
use super::connection::{Connection, Dialer, Status};
use super::dial::Link;
use super::error::Error;
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
        }
    }

    /// Adds addresses, separated by commas: `host`, `host:port`, `[::1]:port`. The port is 7400
    /// when not named. They are the nodes of one cluster; the client uses one at a time.
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

    /// Connections at one time, 1 to 64. Calls for one stream always share one, so that they are
    /// applied in the order in which they were started. Default: 1.
    pub fn connections(mut self, count: usize) -> Self {
        self.connections = count.clamp(1, CLIENT_CONNECTIONS_MAX);
        self
    }

    /// Connects to the first address that answers. Needs a tokio runtime, which also runs the
    /// client's background tasks; they end when the last clone of the client is dropped.
    ///
    /// # Errors
    /// [`Error::Connect`] when no address answers, [`Error::Protocol`] when what answers is no
    /// Duolog server of this version, [`Error::BadRequest`] when there is no such shard.
    pub async fn connect(self) -> Result<Client, Error> {
        let mut dialer = Dialer {
            addresses: self.addresses.into(),
            next: 0,
            shard: self.shard,
            timeout: self.connect_timeout,
            cluster: None,
        };
        let first = dial_any(&mut dialer).await?;
        let info = first.info.clone();
        let mut first = Some(first);
        let mut lanes = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            let (calls, queue) = mpsc::channel(CLIENT_QUEUE_LEN_MAX);
            let told = Status { info: info.clone(), down: None };
            let (status, watched) = watch::channel(told);
            let connection = Connection {
                dialer: dialer.clone(),
                silence: self.silence,
                queue,
                status,
                waiting: None,
                next_correlation: 1,
            };
            tokio::spawn(connection.run(first.take()));
            let addresses = Arc::clone(&dialer.addresses);
            lanes.push(Lane { queue: calls, status: watched, addresses });
        }
        Ok(Client { inner: Arc::new(Inner { lanes, deadline: self.deadline }) })
    }
}

/// Tries every address once.
async fn dial_any(dialer: &mut Dialer) -> Result<Link, Error> {
    let mut reasons = Vec::new();
    let mut worse = None;
    for _ in 0..dialer.addresses.len() {
        match dialer.dial_next().await {
            Ok(link) => return Ok(link),
            Err(Error::Connect { addresses, text }) => reasons.push((addresses, text)),
            Err(error) => worse = worse.or(Some(error)),
        }
    }
    if let Some(error) = worse {
        return Err(error);
    }
    let text = match &reasons[..] {
        [] => "no address was given".to_owned(),
        [(_, text)] => text.clone(),
        several => {
            let each = several.iter().map(|(address, text)| format!("{address}: {text}"));
            each.collect::<Vec<_>>().join("; ")
        }
    };
    Err(Error::Connect { addresses: dialer.addresses.join(","), text })
}
