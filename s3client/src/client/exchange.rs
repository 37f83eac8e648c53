//! One attempt: sign, send, read; and the three answers after which the same request is signed
//! and sent once more, because they prove that nothing was done with it.

use std::sync::Arc;

use bytes::Bytes;

use crate::answer::{Answer, Kind, Refusal};
use crate::client::Client;
use crate::client::counts::Outcome;
use crate::client::observed::Learnt;
use crate::clock;
use crate::credentials::Credentials;
use crate::error::{self, Error};
use crate::limits::{ERROR_BYTES_MAX, HASH_INLINE_BYTES_MAX};
use crate::request::Call;
use crate::sign::{PayloadHash, sign};
use crate::transport::Failure;
use crate::witness::Skew;

/// What has been tried in one attempt already.
#[derive(Default)]
struct Tried {
    refreshed: bool,
    corrected: bool,
    followed: bool,
}

impl Client {
    /// Sends `call`; the outer error is before anything was sent.
    pub(super) async fn exchange(
        &self,
        call: &Call,
        answer_bytes_max: u64,
    ) -> Result<Result<Answer, Failure>, Error> {
        let mut tried = Tried::default();
        // Before the signature: who waits here must not send an old one.
        let _turn = self.shared.lanes.turn(self.lane).await;
        let mut credentials = self.credentials().await?;
        let hash = hash(call.body()).await;
        loop {
            let bucket = self.bucket();
            let mut request = call.request(&bucket, self.form())?;
            let sent_ms = clock::wall_ms();
            let offset_ms = self.shared.learnt.signing_offset_ms();
            let signed_ms = sent_ms.saturating_add(offset_ms);
            sign(&mut request, hash.clone(), &credentials, bucket.region(), signed_ms)?;
            let tally = self.shared.counts.begin(self.lane, call.operation());
            let transport = self.shared.lanes.transport(self.lane);
            let answer = match transport.send(request, answer_bytes_max).await {
                Ok(answer) => answer,
                Err(failure) => {
                    tally.end(Outcome::of_failure(&failure));
                    return Ok(Err(failure));
                }
            };
            let server_ms = answer.server_time_ms();
            let skew = server_ms.map(|at| Skew::new(sent_ms, clock::wall_ms(), at));
            if let Some(skew) = skew {
                self.shared.learnt.witness(skew);
            }
            let checked = answer.check(call);
            tally.end(Outcome::of_answer(checked.as_ref().map_err(|refusal| refusal.kind)));
            let Err(refusal) = checked else { return Ok(Ok(answer)) };
            match refusal.kind {
                Kind::ExpiredToken if !tried.refreshed => {
                    tried.refreshed = true;
                    self.shared.learnt.count_expired_token();
                    let now_ms = self.store_clock();
                    credentials = self.shared.keeper.replace(&credentials, now_ms).await?;
                }
                Kind::ClockSkew if !tried.corrected && skew.is_some() => {
                    tried.corrected = true;
                    skew.into_iter().for_each(|skew| self.shared.learnt.correct_clock(skew));
                }
                // HEAD has no body and so no code: the time is the likeliest reason.
                Kind::AccessDenied if !tried.corrected && refusal.code.is_none() => {
                    match skew.filter(|skew| far_off(*skew, offset_ms)) {
                        Some(skew) => self.shared.learnt.correct_clock(skew),
                        None => return Ok(Ok(answer)),
                    }
                    tried.corrected = true;
                }
                Kind::Elsewhere if !tried.followed && self.follow(&refusal) => {
                    tried.followed = true;
                }
                _ => return Ok(Ok(answer)),
            }
        }
    }

    /// Sends `call` once, with its body in parts.
    pub(super) async fn exchange_parts(
        &self,
        call: &Call,
        parts: reqwest::Body,
    ) -> Result<Result<Answer, Failure>, Error> {
        let (credentials, bucket) = (self.credentials().await?, self.bucket());
        let mut request = call.request(&bucket, self.form())?;
        let offset_ms = self.shared.learnt.signing_offset_ms();
        let signed_ms = clock::wall_ms().saturating_add(offset_ms);
        let hash = hash(call.body()).await;
        sign(&mut request, hash, &credentials, bucket.region(), signed_ms)?;
        let (head, body) = request.into_parts();
        let request = http::Request::from_parts(head, parts);
        let size_bytes = body.len() as u64;
        let tally = self.shared.counts.begin(self.lane, call.operation());
        let transport = self.shared.lanes.transport(self.lane);
        let sent = transport.send_body(request, size_bytes, ERROR_BYTES_MAX).await;
        tally.end(match &sent {
            Ok(answer) => Outcome::of_answer(answer.check(call).map_err(|refusal| refusal.kind)),
            Err(failure) => Outcome::of_failure(failure),
        });
        Ok(sent)
    }

    async fn credentials(&self) -> Result<Credentials, Error> {
        Ok(self.shared.keeper.credentials(self.store_clock()).await?)
    }

    /// Our clock, corrected if the store has refused it. Expiries are by the platform's clock,
    /// which is nearer to the store's than ours may be.
    pub(super) fn store_clock(&self) -> impl Fn() -> i64 + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || clock::wall_ms().saturating_add(Learnt::signing_offset_ms(&shared.learnt))
    }

    /// Goes where the refusal points; `false` if it points nowhere new.
    fn follow(&self, refusal: &Refusal) -> bool {
        let old = self.bucket();
        let at_location = refusal.location.as_deref().and_then(|at| old.at_location(at));
        let moved = match (at_location, &refusal.region) {
            (Some(moved), Some(region)) if region != moved.region() => {
                // The host of the redirect with the region of the redirect.
                moved.signed_for(region).unwrap_or(moved)
            }
            (Some(moved), _) => moved,
            (None, Some(region)) if region != old.region() => match old.in_region(region) {
                Ok(moved) => moved,
                Err(_) => return false,
            },
            (None, _) => return false,
        };
        if moved == old {
            return false;
        }
        self.shared.learnt.follow(moved);
        true
    }

    /// A failure of the transport as an error.
    pub(super) fn failed(&self, call: &Call, failure: Failure) -> Error {
        let endpoint = self.bucket().endpoint().to_string();
        match failure {
            Failure::NotSent(reason) => {
                let advice = error::tls_advice(&reason);
                Error::NotReached { endpoint, reason, advice }
            }
            Failure::NoAnswer(reason) => Error::NoAnswer { call: call.name(), endpoint, reason },
        }
    }

    /// A refusal as an error, with advice.
    pub(super) fn refused(&self, call: &Call, refusal: Box<Refusal>) -> Error {
        let bucket = self.bucket();
        let skew_ms = self.observed().skew.map_or(0, Skew::middle_ms);
        Error::Refused {
            call: call.name(),
            bucket: bucket.name().to_owned(),
            endpoint: bucket.endpoint().to_string(),
            advice: error::advice(&refusal, call, skew_ms),
            refusal,
        }
    }
}

/// Hashes a body; a large one on a thread of the blocking pool.
async fn hash(body: Bytes) -> PayloadHash {
    if body.len() <= HASH_INLINE_BYTES_MAX {
        return PayloadHash::of(&body);
    }
    let inline = body.clone();
    let apart = tokio::task::spawn_blocking(move || PayloadHash::of(&body)).await;
    // The pool refuses only when the runtime ends.
    apart.unwrap_or_else(|_| PayloadHash::of(&inline))
}

/// Stores allow 15 minutes; beyond 5 from the time we signed with, time is what we suspect.
fn far_off(skew: Skew, offset_ms: i64) -> bool {
    const SUSPECT_MS: i64 = 300_000;
    skew.middle_ms().saturating_sub(offset_ms).saturating_abs() > SUSPECT_MS
}
