//! What a client learns while it works: the way to the bucket, the store's clock, and counts.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::bucket::Bucket;
use crate::witness::Skew;

/// A look at what was learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// How far the store's clock is ahead of ours, by its newest answer.
    pub skew: Option<Skew>,
    /// What is added to our clock for signing, milliseconds; 0 until the store refused our time.
    pub signing_offset_ms: i64,
    /// Region redirects followed.
    pub redirects: u64,
    /// Attempts of idempotent calls that were followed by another.
    pub retries: u64,
    /// Credentials renewed because the store said that they had expired.
    pub expired_tokens: u64,
}

#[derive(Debug)]
pub(super) struct Learnt {
    place: Mutex<Place>,
    signing_offset_ms: AtomicI64,
    redirects: AtomicU64,
    retries: AtomicU64,
    expired_tokens: AtomicU64,
}

#[derive(Debug)]
struct Place {
    bucket: Bucket,
    skew: Option<Skew>,
    alarmed: bool,
}

impl Learnt {
    pub(super) fn new(bucket: Bucket) -> Self {
        Self {
            place: Mutex::new(Place { bucket, skew: None, alarmed: false }),
            signing_offset_ms: AtomicI64::new(0),
            redirects: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            expired_tokens: AtomicU64::new(0),
        }
    }

    fn place(&self) -> std::sync::MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bucket(&self) -> Bucket {
        self.place().bucket.clone()
    }

    pub(super) fn observed(&self) -> Observed {
        Observed {
            skew: self.place().skew,
            signing_offset_ms: self.signing_offset_ms(),
            redirects: self.redirects.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            expired_tokens: self.expired_tokens.load(Ordering::Relaxed),
        }
    }

    pub(super) fn signing_offset_ms(&self) -> i64 {
        self.signing_offset_ms.load(Ordering::Relaxed)
    }

    /// Notes what an answer's `Date` says; warns when the clocks begin to differ.
    pub(super) fn witness(&self, skew: Skew) {
        let mut place = self.place();
        place.skew = Some(skew);
        if skew.is_alarming() && !place.alarmed {
            tracing::warn!(
                skew_ms = skew.middle_ms(),
                "this machine's clock and the store's differ: check NTP on this machine; \
                 followers refuse heartbeats beyond max-clock-drift-ms"
            );
        }
        place.alarmed = skew.is_alarming();
    }

    /// Signs by the store's clock from now on.
    pub(super) fn correct_clock(&self, skew: Skew) {
        self.signing_offset_ms.store(skew.middle_ms(), Ordering::Relaxed);
        tracing::warn!(
            offset_ms = skew.middle_ms(),
            "the store refuses this machine's time; requests are signed with the store's time \
             from now on. Correct this machine's clock"
        );
    }

    /// Uses another way to the bucket from now on.
    pub(super) fn follow(&self, bucket: Bucket) {
        self.redirects.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            host = %bucket.host(), region = bucket.region(),
            "the bucket is elsewhere; following. Set s3.region to save the detour"
        );
        self.place().bucket = bucket;
    }

    pub(super) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_expired_token(&self) {
        self.expired_tokens.fetch_add(1, Ordering::Relaxed);
    }
}
