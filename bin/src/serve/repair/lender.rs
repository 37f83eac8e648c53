//! The other node as a source of blocks: found in the bucket, asked at its peer port.

use std::sync::Arc;
use std::time::Duration;

use duolog_engine::ids::{LeaseEpoch, Lsn, ShardId};
use duolog_net::peer::{PeerError, PeerHello, PeerMessage, PeerReader, Purpose};
use duolog_s3client::Client;
use duolog_s3client::key::ObjectKey;
use duolog_s3client::request::ListQuery;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::course::{Gap, Misfit};
use crate::serve::cluster::PairSettings;
use crate::serve::cluster::objects::NodeDocument;

/// How long the bucket may take to name the nodes.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// How long a connection may take to come up.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Silence that ends a connection: longer than a leader waits for what it has under way.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// Nodes that are asked, the one that started last first. There is one, and those it replaced.
const NODES_MAX: usize = 4;

/// Why there are no blocks.
#[derive(Debug, thiserror::Error)]
pub enum LendError {
    /// The bucket does not answer.
    #[error("the bucket does not tell where the other node is: {0}")]
    Bucket(String),
    /// There is no other.
    #[error("no other node of the cluster is known in the bucket")]
    Nobody,
    /// It does not answer.
    #[error("the other node does not answer at {address}: {text}")]
    Unreachable {
        /// Where.
        address: String,
        /// What happened.
        text: String,
    },
    /// It sends something else.
    #[error("the other node at {address} does not speak this protocol: {error}")]
    Protocol {
        /// Where.
        address: String,
        /// What is wrong.
        error: PeerError,
    },
    /// It gives none.
    #[error("the other node at {address} has none to give: {text}")]
    Refused {
        /// Where.
        address: String,
        /// Its words.
        text: String,
    },
    /// It has fewer than are missing.
    #[error("the other node at {address} has nothing committed behind LSN {end}")]
    Lacks {
        /// Where.
        address: String,
        /// The last LSN that it gave.
        end: Lsn,
    },
    /// They do not fit.
    #[error("the log of the other node at {address} does not fit: {misfit}")]
    Misfit {
        /// Where.
        address: String,
        /// Why.
        misfit: Misfit,
    },
    /// There was no time to wait for it.
    #[error("the other node did not give them within {limit:?}")]
    Late {
        /// How long it had.
        limit: Duration,
    },
    /// The own disk failed.
    #[error("writing the blocks back: {0}")]
    Io(#[from] std::io::Error),
}

impl LendError {
    /// Whether the other node may answer otherwise a moment later.
    #[must_use]
    pub const fn passes(&self) -> bool {
        !matches!(self, Self::Misfit { .. } | Self::Late { .. } | Self::Io(_))
    }
}

/// Who takes the blocks.
pub trait Borrower {
    /// The next block; true when no more is needed.
    fn block(&mut self, address: &str, block: &[u8]) -> Result<bool, LendError>;

    /// Everything up to `lsn` has been sent.
    fn no_more(&mut self, address: &str, lsn: Lsn) -> Result<(), LendError>;
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Lender {
    /// Who asks.
    pub settings: Arc<PairSettings>,
    /// The bucket.
    pub client: Client,
    /// The epoch on disk.
    pub promised: LeaseEpoch,
}

impl Lender {
    /// Addresses of the other nodes of the cluster, the one that started last first.
    pub async fn nodes(&self) -> Result<Vec<String>, LendError> {
        let late = |_| LendError::Bucket(format!("no answer within {LOOK_MAX:?}"));
        timeout(LOOK_MAX, self.look()).await.map_err(late)?
    }

    async fn look(&self) -> Result<Vec<String>, LendError> {
        let failed = |error: duolog_s3client::Error| LendError::Bucket(error.to_string());
        let keys = &self.settings.keys;
        let listed = self.client.list(ListQuery::prefix(keys.nodes())).await.map_err(failed)?;
        let mut found: Vec<(u64, String)> = Vec::new();
        for object in listed {
            let Ok(key) = ObjectKey::new(object.key) else { continue };
            let Some(object) = self.client.get(&key).await.map_err(failed)? else { continue };
            let Some(document) = NodeDocument::decode(&object.body) else { continue };
            if document.other(&self.settings.identity).is_some() {
                found.push((document.started_ms, document.peer));
            }
        }
        found.sort_by_key(|(started, _)| u64::MAX - started);
        found.truncate(NODES_MAX);
        if found.is_empty() {
            return Err(LendError::Nobody);
        }
        Ok(found.into_iter().map(|(_, peer)| peer).collect())
    }

    /// Asks one node for what fills the gap.
    pub async fn borrow(
        &self,
        address: &str,
        shard: ShardId,
        gap: &Gap,
        borrower: &mut dyn Borrower,
    ) -> Result<(), LendError> {
        let unreachable = |text: String| {
            let address = address.to_owned();
            LendError::Unreachable { address, text }
        };
        let last = gap.known.filter(|_| gap.joins).map_or(Lsn(u64::MAX), |(lsn, _)| lsn);
        let purpose = Purpose::Fetch { shard, end: gap.end, last };
        let mut frame = Vec::with_capacity(512);
        self.hello(purpose).encode(&mut frame);
        let connected = timeout(CONNECT_MAX, TcpStream::connect(address)).await;
        let connected = connected.map_err(|_| unreachable(format!("none in {CONNECT_MAX:?}")))?;
        let mut stream = connected.map_err(|error| unreachable(error.to_string()))?;
        stream.write_all(&frame).await.map_err(|error| unreachable(error.to_string()))?;
        let mut reader = PeerReader::of_dialled();
        loop {
            while let Some(message) = reader.next_message().map_err(|error| {
                let address = address.to_owned();
                LendError::Protocol { address, error }
            })? {
                match message {
                    PeerMessage::Block { block, .. } => {
                        let enough = borrower.block(address, block)?;
                        if enough {
                            return Ok(());
                        }
                    }
                    PeerMessage::Commit(commit) => return borrower.no_more(address, commit.lsn),
                    PeerMessage::Refused(refused) => {
                        let (address, text) = (address.to_owned(), refused.to_string());
                        return Err(LendError::Refused { address, text });
                    }
                    _ => {}
                }
            }
            let read = timeout(SILENCE_MAX, stream.read(reader.space())).await;
            let read = read.map_err(|_| unreachable(format!("silent for {SILENCE_MAX:?}")))?;
            match read.map_err(|error| unreachable(error.to_string()))? {
                0 => return Err(unreachable("it ended the connection".to_owned())),
                count => reader.filled(count),
            }
        }
    }

    fn hello(&self, purpose: Purpose) -> PeerHello {
        self.settings.hello(self.promised, purpose)
    }
}
