//! The client: calls, their attempts and pauses.
//!
//! Promises: a conditional write is sent once, except after an answer that proves that it was not
//! looked at (expired token, wrong clock, wrong region: once each); every other call is repeated
//! with pauses until it succeeds, is refused for good, or its time is up; every attempt is signed
//! anew.

mod counts;
mod exchange;
mod lane;
mod observed;
mod swap;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;

pub use counts::{Count, Counts, Outcome};
pub use lane::Lane;
pub use observed::Observed;
pub use swap::{Recognised, Swap, Swapped};

use crate::answer::{Answer, Doubt, Kind, Written};
use crate::bucket::Bucket;
use crate::clock;
use crate::credentials::{Keeper, Source};
use crate::document::{self, ListPage, Listed};
use crate::error::Error;
use crate::etag::{ETag, IfMatchForm};
use crate::key::ObjectKey;
use crate::limits::{ERROR_BYTES_MAX, LIST_BYTES_MAX, LIST_PAGES_MAX, OBJECT_BYTES_MAX};
use crate::pace::Pace;
use crate::request::{Call, Condition, ListQuery};
use crate::transport::{Failure, Timeouts, Transport, Trust};

/// How a client is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The bucket.
    pub bucket: Bucket,
    /// Where credentials come from.
    pub source: Source,
    /// How If-Match is written; what the probe proved for the store.
    pub form: IfMatchForm,
    /// How long one attempt may take.
    pub timeouts: Timeouts,
    /// How long an idempotent call is repeated, `s3.retry_max_duration_secs`; `None` for ever.
    pub retry: Option<Duration>,
    /// Whose certificates are good.
    pub trust: Trust,
    /// Connects to this address instead of what the bucket's host name resolves to.
    pub connect_to: Option<SocketAddr>,
}

impl Settings {
    /// The usual limits for a bucket.
    #[must_use]
    pub fn new(bucket: Bucket, source: Source) -> Self {
        let trust = if bucket.endpoint().is_encrypted() { Trust::System } else { Trust::Nobody };
        let (form, timeouts) = (IfMatchForm::default(), Timeouts::default());
        Self { bucket, source, form, timeouts, retry: None, trust, connect_to: None }
    }
}

/// An object with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its content.
    pub body: Bytes,
    /// Its version.
    pub etag: ETag,
}

/// A client of one bucket. Clones share connections, credentials, counts and what was learnt. Its
/// calls must be made on a tokio runtime, one thread is enough; dropping a call cancels it (and
/// leaves a conditional write in doubt).
///
/// A new client is in [`Lane::Lease`]; [`Client::bulk`] gives the one for uploads.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    lane: Lane,
    retry: Option<Duration>,
}

#[derive(Debug)]
struct Shared {
    lanes: lane::Lanes,
    keeper: Keeper,
    form: AtomicU8,
    learnt: observed::Learnt,
    counts: counts::Counters,
}

impl Client {
    /// A client that has not connected yet.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let host = settings.bucket.host();
        let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
        let connect_to = settings.connect_to.map(|address| (name, address));
        let transport = || Transport::new(settings.timeouts, &settings.trust, connect_to);
        let shared = Shared {
            lanes: lane::Lanes::new(transport()?, transport()?),
            keeper: Keeper::new(settings.source),
            form: AtomicU8::new(settings.form.number()),
            learnt: observed::Learnt::new(settings.bucket),
            counts: counts::Counters::default(),
        };
        Ok(Self { shared: Arc::new(shared), lane: Lane::Lease, retry: settings.retry })
    }

    /// The same client for transfers: with connections of its own, and at most
    /// [`BULK_CALLS_MAX`](crate::limits::BULK_CALLS_MAX) requests under way.
    #[must_use]
    pub fn bulk(&self) -> Self {
        Self { lane: Lane::Bulk, ..self.clone() }
    }

    /// The same client for a caller that repeats by itself: every call is one attempt.
    #[must_use]
    pub fn once(&self) -> Self {
        Self { retry: Some(Duration::ZERO), ..self.clone() }
    }

    /// Requests so far, by lane, operation and outcome.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts.read()
    }

    /// The bucket, where redirects have led to.
    #[must_use]
    pub fn bucket(&self) -> Bucket {
        self.shared.learnt.bucket()
    }

    /// Where its credentials come from.
    #[must_use]
    pub fn source(&self) -> Arc<Source> {
        self.shared.keeper.source()
    }

    /// Signs with credentials of `source` from now on; nothing changes if it has none. Whether they
    /// are others than those in use.
    pub async fn change_source(&self, source: Source) -> Result<bool, Error> {
        Ok(self.shared.keeper.change_source(source, self.store_clock()).await?)
    }

    /// What was seen on the way: the clock witness, redirects, repeated attempts.
    #[must_use]
    pub fn observed(&self) -> Observed {
        self.shared.learnt.observed()
    }

    /// How If-Match is written.
    #[must_use]
    pub fn form(&self) -> IfMatchForm {
        IfMatchForm::from_number(self.shared.form.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Pins the form of If-Match that the probe proved.
    pub fn pin_form(&self, form: IfMatchForm) {
        self.shared.form.store(form.number(), Ordering::Relaxed);
    }

    /// Reads an object; `None` if there is none.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, Error> {
        let answer = match self.repeat(&Call::Get(key.clone()), OBJECT_BYTES_MAX).await {
            Ok(answer) => answer,
            Err(error) if error.kind() == Some(Kind::NoSuchKey) => return Ok(None),
            Err(error) => return Err(error),
        };
        let etag = answer.etag().ok_or_else(|| Error::NoETag { key: key.to_string() })?;
        Ok(Some(Object { body: answer.body, etag }))
    }

    /// Writes an object, whatever is there.
    pub async fn put(&self, key: &ObjectKey, body: Bytes) -> Result<ETag, Error> {
        let answer = self.repeat(&Call::Put(key.clone(), body), ERROR_BYTES_MAX).await?;
        answer.etag().ok_or_else(|| Error::NoETag { key: key.to_string() })
    }

    /// Writes an object if there is none (`If-None-Match: *`); see [`Client::put_if`].
    pub async fn put_if_absent(&self, key: &ObjectKey, body: Bytes) -> Result<Written, Error> {
        self.put_if(key, body, &Condition::Absent).await
    }

    /// Writes an object if it still has this version (`If-Match`); see [`Client::put_if`].
    pub async fn put_if_match(
        &self,
        key: &ObjectKey,
        body: Bytes,
        etag: &ETag,
    ) -> Result<Written, Error> {
        self.put_if(key, body, &Condition::Matches(etag.clone())).await
    }

    /// Writes an object if the condition holds. Sent once; an error means that it was certainly
    /// not done.
    pub async fn put_if(
        &self,
        key: &ObjectKey,
        body: Bytes,
        condition: &Condition,
    ) -> Result<Written, Error> {
        let call = Call::PutIf(key.clone(), body, condition.clone());
        let sent = self.exchange(&call, ERROR_BYTES_MAX).await?;
        self.end(&call, condition, sent)
    }

    /// The same with a body that comes as slowly as `parts` gives it out; for the conformance
    /// suite, which follows no redirects here.
    pub(crate) async fn put_if_in_parts<B>(
        &self,
        key: &ObjectKey,
        body: Bytes,
        parts: B,
        condition: &Condition,
    ) -> Result<Written, Error>
    where
        B: http_body::Body<Data = Bytes> + Send + Sync + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let call = Call::PutIf(key.clone(), body, condition.clone());
        let sent = self.exchange_parts(&call, reqwest::Body::wrap(parts)).await?;
        self.end(&call, condition, sent)
    }

    /// The end of a conditional write.
    fn end(
        &self,
        call: &Call,
        condition: &Condition,
        sent: Result<Answer, Failure>,
    ) -> Result<Written, Error> {
        match sent {
            Ok(answer) => {
                answer.written(call, condition).map_err(|refusal| self.refused(call, refusal))
            }
            Err(Failure::NoAnswer(reason)) => Ok(Written::Unknown(Doubt::NoAnswer(reason))),
            Err(failure @ Failure::NotSent(_)) => Err(self.failed(call, failure)),
        }
    }

    /// Removes an object; it need not be there.
    pub async fn delete(&self, key: &ObjectKey) -> Result<(), Error> {
        match self.repeat(&Call::Delete(key.clone()), ERROR_BYTES_MAX).await {
            Err(error) if error.kind() == Some(Kind::NoSuchKey) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// One page of a listing.
    pub async fn list_page(&self, query: &ListQuery) -> Result<ListPage, Error> {
        let call = Call::List(query.clone());
        let mut pace = Pace::new(self.retry);
        let began = clock::now();
        loop {
            // A listing that was cut or garbled in a whole answer is asked for again.
            let answer = self.repeat(&call, LIST_BYTES_MAX).await?;
            let error = match document::parse_list(&answer.body) {
                Ok(page) => return Ok(page),
                Err(error) => Error::from(error),
            };
            let pause = pace.next(began.elapsed(), None, clock::chance());
            match pause.filter(|_| error.is_passing()) {
                Some(pause) => clock::pause(pause).await,
                None => return Err(error),
            }
        }
    }

    /// A listing to its end.
    pub async fn list(&self, mut query: ListQuery) -> Result<Vec<Listed>, Error> {
        let mut objects = Vec::new();
        for _ in 0..LIST_PAGES_MAX {
            let page = self.list_page(&query).await?;
            objects.extend(page.objects);
            // The same token again would go round in a circle.
            if page.next.is_none() || page.next == query.continuation {
                return match page.next {
                    None => Ok(objects),
                    Some(_) => Err(Error::Endless { prefix: query.prefix, pages: 1 }),
                };
            }
            query.continuation = page.next;
        }
        Err(Error::Endless { prefix: query.prefix, pages: LIST_PAGES_MAX })
    }

    /// Asks whether the bucket is there and may be used.
    pub async fn head_bucket(&self) -> Result<(), Error> {
        self.repeat(&Call::HeadBucket, ERROR_BYTES_MAX).await.map(drop)
    }

    /// Whether the bucket keeps old versions: `Enabled`, `Suspended`, or `None` for never.
    pub async fn versioning(&self) -> Result<Option<String>, Error> {
        let answer = self.repeat(&Call::GetVersioning, ERROR_BYTES_MAX).await?;
        Ok(document::parse_versioning(&answer.body)?)
    }

    /// An idempotent call, as often as it takes.
    async fn repeat(&self, call: &Call, answer_bytes_max: u64) -> Result<Answer, Error> {
        assert!(call.is_idempotent(), "a conditional write is never repeated underneath");
        let (mut pace, began, mut attempts) = (Pace::new(self.retry), clock::now(), 0_u32);
        loop {
            attempts += 1;
            let error = match self.attempt(call, answer_bytes_max).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !error.is_passing() {
                return Err(error);
            }
            self.shared.learnt.count_retry();
            let asked = error.refusal().and_then(|refusal| refusal.retry_after);
            match pace.next(began.elapsed(), asked, clock::chance()) {
                Some(pause) => {
                    // Rarer and rarer, so that an outage of hours has a dozen lines.
                    if attempts >= 4 && attempts.is_power_of_two() {
                        tracing::warn!(call = call.name(), %error, attempts, "trying again");
                    } else {
                        tracing::debug!(call = call.name(), %error, ?pause, "trying again");
                    }
                    clock::pause(pause).await;
                }
                None if attempts == 1 => return Err(error),
                None => {
                    let (after, last) = (began.elapsed(), Box::new(error));
                    return Err(Error::GaveUp { attempts, after, last });
                }
            }
        }
    }

    async fn attempt(&self, call: &Call, answer_bytes_max: u64) -> Result<Answer, Error> {
        let answer = self.exchange(call, answer_bytes_max).await?;
        let answer = answer.map_err(|failure| self.failed(call, failure))?;
        answer.check(call).map_err(|refusal| self.refused(call, refusal))?;
        Ok(answer)
    }
}
