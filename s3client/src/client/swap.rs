//! Compare-and-swap to its end: a conditional write whose doubts are resolved by reading back.
//!
//! Promises: "won" is said only when the store said so or when the object was seen with the
//! writer's own token; "lost" only when it was seen with another's; everything else is
//! "undecided", and an undecided write may still land at any time until another one has changed
//! the object.

use std::time::Duration;

use bytes::Bytes;

use crate::answer::{Doubt, Kind, Written};
use crate::client::{Client, Object};
use crate::clock;
use crate::error::Error;
use crate::etag::ETag;
use crate::key::ObjectKey;
use crate::pace::Pace;
use crate::request::Condition;

/// A write that is tried until it is decided.
#[derive(Clone, Debug)]
pub struct Swap {
    /// What is written.
    pub key: ObjectKey,
    /// Must contain a token that no other write has: equal bytes have equal ETags.
    pub body: Bytes,
    /// What must be true for it.
    pub condition: Condition,
    /// How long it may take. When it is over the swap ends as undecided or with an error.
    pub allowed: Duration,
}

/// Whose an object is, judged by its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// It is what this swap wrote.
    Mine,
    /// Another wrote it, over what this swap wrote: our token is among the earlier ones.
    OverMine,
    /// Another wrote it, and nothing speaks of us.
    Foreign,
}

/// The end of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The object is ours.
    Won {
        /// Its version.
        etag: ETag,
    },
    /// It was ours for a while; another has replaced it since.
    WonAndReplaced {
        /// What is there now.
        current: Object,
    },
    /// Another was there first.
    Lost {
        /// What is there; `None` if the object is gone.
        current: Option<Object>,
    },
    /// Time is up and nobody knows. It may land later.
    Undecided {
        /// Why.
        doubt: Doubt,
    },
}

/// What a look at the object says.
enum Look {
    Decided(Swapped),
    /// As it was before: not landed, or not yet.
    Unchanged,
}

impl Client {
    /// Tries until it is decided or the time is up. `recognise` judges the bodies that are read
    /// back. An error means that nothing was ever sent that could land.
    pub async fn swap(
        &self,
        swap: &Swap,
        recognise: impl Fn(&[u8]) -> Recognised,
    ) -> Result<Swapped, Error> {
        let (mut pace, began) = (Pace::new(Some(swap.allowed)), clock::now());
        let mut state = State { doubt: None, last: None, attempts: 0 };
        loop {
            state.attempts += 1;
            let left = swap.allowed.saturating_sub(began.elapsed());
            let sent = self.put_if(&swap.key, swap.body.clone(), &swap.condition);
            let written = tokio::time::timeout(left, sent).await;
            let written = written
                .unwrap_or_else(|_| Ok(Written::Unknown(Doubt::NoAnswer("time-out".to_owned()))));
            let look = match state.note(written)? {
                Noted::Ended(end) => return Ok(end),
                Noted::Again => None,
                Noted::Look => Some(self.look(swap, began, &recognise).await),
            };
            match look {
                Some(Ok(Look::Decided(end))) => return Ok(end),
                Some(Ok(Look::Unchanged)) => state.check_condition(swap)?,
                // Nothing is under way: the caller may as well know why it cannot be read.
                Some(Err(error)) if state.doubt.is_none() => return Err(error),
                Some(Err(_)) | None => {}
            }
            let asked = state.last.as_ref().and_then(Error::refusal);
            let asked = asked.and_then(|refusal| refusal.retry_after);
            match pace.next(began.elapsed(), asked, clock::chance()) {
                Some(pause) => clock::pause(pause).await,
                None => return state.give_up(began.elapsed()),
            }
        }
    }

    /// Reads the object back, within the time that is left (but at least one attempt's).
    async fn look(
        &self,
        swap: &Swap,
        began: std::time::Instant,
        recognise: &impl Fn(&[u8]) -> Recognised,
    ) -> Result<Look, Error> {
        let left = swap.allowed.saturating_sub(began.elapsed());
        let read = tokio::time::timeout(left, self.get(&swap.key));
        let current = match read.await {
            Ok(current) => current?,
            Err(_) => {
                return Err(Error::NoAnswer {
                    call: "GetObject",
                    endpoint: self.bucket().endpoint().to_string(),
                    reason: "time is up".to_owned(),
                });
            }
        };
        Ok(match (current, &swap.condition) {
            (None, Condition::Absent) => Look::Unchanged,
            (None, Condition::Matches(_)) => Look::Decided(Swapped::Lost { current: None }),
            (Some(object), condition) => match recognise(&object.body) {
                Recognised::Mine => Look::Decided(Swapped::Won { etag: object.etag }),
                Recognised::OverMine => Look::Decided(Swapped::WonAndReplaced { current: object }),
                Recognised::Foreign if *condition == Condition::Matches(object.etag.clone()) => {
                    Look::Unchanged
                }
                Recognised::Foreign => Look::Decided(Swapped::Lost { current: Some(object) }),
            },
        })
    }
}

/// What to do after a sending.
enum Noted {
    Ended(Swapped),
    /// Read the object.
    Look,
    /// Nothing was sent, or nothing was looked at.
    Again,
}

/// What a swap knows between its sendings.
struct State {
    /// Something was sent that may land.
    doubt: Option<Doubt>,
    /// The last sending certainly did nothing, because of this.
    last: Option<Error>,
    /// Sendings so far.
    attempts: u32,
}

impl State {
    fn note(&mut self, written: Result<Written, Error>) -> Result<Noted, Error> {
        self.last = None;
        match written {
            Ok(Written::Stored { etag }) => Ok(Noted::Ended(Swapped::Won { etag })),
            // If this was the first sending, another was there first; else the conflict may be
            // with ourselves. The object tells.
            Ok(Written::Conflict) => Ok(Noted::Look),
            Ok(Written::Unknown(doubt)) => {
                self.doubt = Some(doubt);
                Ok(Noted::Look)
            }
            Err(error) if error.is_passing() => {
                // 409: another write may have been decided at this moment.
                let look = error.kind() == Some(Kind::TryAgain);
                self.last = Some(error);
                Ok(if look { Noted::Look } else { Noted::Again })
            }
            // What was sent before may still land, whatever this error is.
            Err(error) => match self.doubt.take() {
                Some(doubt) => Ok(Noted::Ended(Swapped::Undecided { doubt })),
                None => Err(error),
            },
        }
    }

    /// The object is as the condition wants it. After a conflict with nothing under way, the
    /// store does not do with If-Match what it should. (On If-None-Match the object may have been
    /// removed in between.)
    fn check_condition(&self, swap: &Swap) -> Result<(), Error> {
        match &swap.condition {
            Condition::Matches(etag) if self.doubt.is_none() && self.last.is_none() => {
                Err(Error::ConditionNotHonoured {
                    key: swap.key.to_string(),
                    etag: etag.to_string(),
                })
            }
            _ => Ok(()),
        }
    }

    fn give_up(self, after: Duration) -> Result<Swapped, Error> {
        match (self.doubt, self.last) {
            (Some(doubt), _) => Ok(Swapped::Undecided { doubt }),
            (None, Some(last)) => {
                Err(Error::GaveUp { attempts: self.attempts, after, last: Box::new(last) })
            }
            (None, None) => {
                let doubt = Doubt::NoAnswer("time is up".to_owned());
                Ok(Swapped::Undecided { doubt })
            }
        }
    }
}
