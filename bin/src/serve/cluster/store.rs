//! The way from a shard to the bucket: the side thread makes the calls, answers go into the inbox
//! of the shard that asked.
//!
//! Two lanes: calls about the lease never wait behind uploads of the chain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
pub use duolog_s3client::Lane;
use duolog_s3client::answer::Written;
use duolog_s3client::etag::ETag;
use duolog_s3client::key::ObjectKey;
use duolog_s3client::request::{Condition, ListQuery};
use duolog_s3client::witness::Skew;
use duolog_s3client::{Client, Count, Error};
use tokio::sync::mpsc;

use crate::serve::cluster::message::ToShard;
use crate::serve::inbox::{Inbox, Message};

/// Calls that wait for the side thread, at most; a shard that finds it full tries again later.
const CALLS_MAX: usize = 4096;
/// How long one call about the lease may take before its outcome counts as unknown: well below the
/// time a lease lasts, so that a new attempt still helps.
const LEASE_CALL_MAX: Duration = Duration::from_secs(3);

/// What is asked of the bucket.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Read an object.
    Get(ObjectKey),
    /// Create an object; one attempt.
    Create(ObjectKey, Bytes),
    /// Replace the version with this tag; one attempt.
    Replace(ObjectKey, Bytes, ETag),
    /// Write an object, whatever is there.
    Put(ObjectKey, Bytes),
    /// Remove an object.
    Delete(ObjectKey),
    /// All keys with this prefix, behind this one.
    List(String, Option<String>),
    /// No question to the bucket: the address of `host:port`, since names take time to resolve.
    Resolve(String),
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Told {
    /// The object.
    Found(Bytes, ETag),
    /// There is none.
    Absent,
    /// Written; its tag.
    Stored(ETag),
    /// The condition did not hold.
    Conflict,
    /// Written, or not, or later.
    Unknown,
    /// The keys of a listing with their sizes in bytes, in order.
    Listed(Vec<(String, u64)>),
    /// Removed.
    Removed,
    /// The address of a name.
    Address(SocketAddr),
    /// A name has no address.
    NoAddress(String),
    /// Certainly not done.
    Failed(Arc<Error>),
}

#[derive(Debug)]
struct Call {
    ask: Ask,
    lane: Lane,
    id: u64,
    inbox: Arc<Inbox>,
}

/// The shards' end.
#[derive(Clone, Debug)]
pub struct Store {
    calls: mpsc::Sender<Call>,
    counters: Arc<Counters>,
    client: Client,
}

/// What was asked of the bucket so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Calls, whatever they were.
    pub calls: AtomicU64,
    /// How far the store's clock is ahead of this node's for certain, ms.
    pub skew_ms: AtomicI64,
}

/// The side thread's end.
#[derive(Debug)]
pub struct Runner {
    client: Client,
    calls: mpsc::Receiver<Call>,
    counters: Arc<Counters>,
}

/// Makes both ends for one bucket.
#[must_use]
pub fn channel(client: Client) -> (Store, Runner) {
    let (sender, receiver) = mpsc::channel(CALLS_MAX);
    let counters = Arc::new(Counters::default());
    let store = Store { calls: sender, counters: Arc::clone(&counters), client: client.clone() };
    (store, Runner { client, calls: receiver, counters })
}

impl Store {
    /// Asks; the answer comes as [`ToShard::Told`] with `id`. False when too many calls wait.
    pub fn ask(&self, inbox: &Arc<Inbox>, id: u64, lane: Lane, ask: Ask) -> bool {
        self.calls.try_send(Call { ask, lane, id, inbox: Arc::clone(inbox) }).is_ok()
    }

    /// Requests so far, by lane, operation and outcome; those before the node served included.
    #[must_use]
    pub fn requests(&self) -> Vec<Count> {
        self.client.counts().rows().collect()
    }

    /// How far the store's clock is ahead of this node's for certain, ms; none before it answered.
    #[must_use]
    pub fn skew_ms(&self) -> Option<i64> {
        self.client.observed().skew.map(Skew::certain_ms)
    }

    /// What was asked so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Runner {
    /// The way to the bucket.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Makes calls until every [`Store`] is gone.
    pub async fn run(mut self) {
        let lease = self.client.once();
        let bulk = self.client.bulk();
        while let Some(Call { ask, lane, id, inbox }) = self.calls.recv().await {
            let client = if lane == Lane::Lease { lease.clone() } else { bulk.clone() };
            let counters = Arc::clone(&self.counters);
            tokio::spawn(async move {
                let call = !matches!(ask, Ask::Resolve(_));
                counters.calls.fetch_add(u64::from(call), Ordering::Relaxed);
                let told = match lane {
                    Lane::Lease => in_time(&client, ask).await,
                    Lane::Bulk => make(&client, ask).await,
                };
                if let Some(skew) = client.observed().skew {
                    counters.skew_ms.store(skew.certain_ms(), Ordering::Relaxed);
                }
                inbox.send_waiting(Message::Pair(ToShard::Told { id, told }));
            });
        }
    }
}

/// A call about the lease: what takes too long is over. Whether a write landed stays unknown then.
async fn in_time(client: &Client, ask: Ask) -> Told {
    match tokio::time::timeout(LEASE_CALL_MAX, make(client, ask)).await {
        Ok(told) => told,
        Err(_) => Told::Unknown,
    }
}

async fn make(client: &Client, ask: Ask) -> Told {
    let told = match ask {
        Ask::Get(key) => client.get(&key).await.map(|found| match found {
            Some(object) => Told::Found(object.body, object.etag),
            None => Told::Absent,
        }),
        Ask::Create(key, body) => client.put_if(&key, body, &Condition::Absent).await.map(written),
        Ask::Replace(key, body, etag) => {
            client.put_if(&key, body, &Condition::Matches(etag)).await.map(written)
        }
        Ask::Put(key, body) => client.put(&key, body).await.map(Told::Stored),
        Ask::Delete(key) => client.delete(&key).await.map(|()| Told::Removed),
        Ask::Resolve(name) => return resolve(&name).await,
        Ask::List(prefix, start_after) => {
            let query = ListQuery { start_after, ..ListQuery::prefix(prefix) };
            client.list(query).await.map(|listed| {
                let listed = listed.into_iter().map(|object| (object.key, object.size_bytes));
                Told::Listed(listed.collect())
            })
        }
    };
    told.unwrap_or_else(|error| Told::Failed(Arc::new(error)))
}

async fn resolve(name: &str) -> Told {
    match tokio::net::lookup_host(name).await {
        Ok(mut found) => {
            found.next().map_or_else(|| Told::NoAddress("no address".to_owned()), Told::Address)
        }
        Err(error) => Told::NoAddress(error.to_string()),
    }
}

fn written(written: Written) -> Told {
    match written {
        Written::Stored { etag } => Told::Stored(etag),
        Written::Conflict => Told::Conflict,
        Written::Unknown(doubt) => {
            tracing::debug!(event = "s3_write_unknown", ?doubt);
            Told::Unknown
        }
    }
}
