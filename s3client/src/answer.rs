//! What an answer means. Pure: status, headers and body in, meaning out.
//!
//! Promises: an answer to a conditional write is read as one of stored, conflict, unknown, or
//! certainly not done; nothing that is not certain becomes certain. A success with an error
//! document in it is no success.

use std::time::Duration;

use bytes::Bytes;
use http::header::{DATE, ETAG, LOCATION, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

use crate::date;
use crate::document::{self, ErrorDocument};
use crate::etag::ETag;
use crate::limits::RETRY_AFTER_MS_MAX;
use crate::request::{Call, Condition};

/// An answer, whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body; its length has been checked.
    pub body: Bytes,
}

/// The end of a conditional write that may have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The condition held and the object is stored.
    Stored {
        /// Its version.
        etag: ETag,
    },
    /// The condition did not hold. On the first sending it means that another writer was there
    /// first; on any later one, that the object must be read.
    Conflict,
    /// Stored, or not, or later: read back and compare the token.
    Unknown(Doubt),
}

/// Why nobody can say what became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// No answer, or a part of one.
    NoAnswer(String),
    /// An answer that leaves it open: a server error, or a success that is none.
    Answer {
        /// Status.
        status: u16,
        /// The S3 error code, or what was wrong with the answer.
        reason: String,
    },
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoAnswer(reason) => write!(f, "no answer: {reason}"),
            Self::Answer { status, reason } => write!(f, "the answer was {status} ({reason})"),
        }
    }
}

/// Why a store refused a call, sorted by what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Another write to the key was under way and nothing was decided (409): try again.
    TryAgain,
    /// Too many requests (429, 503 SlowDown): try again later.
    Throttled,
    /// The server failed (5xx): try again.
    Server,
    /// The server did not get the whole request in its time (400 RequestTimeout, 408).
    Slow,
    /// No such object.
    NoSuchKey,
    /// No such bucket.
    NoSuchBucket,
    /// The signature is right but the policy forbids it.
    AccessDenied,
    /// The secret key or the signature is wrong.
    BadSignature,
    /// The access key is unknown to the server.
    UnknownAccessKey,
    /// The session token has expired.
    ExpiredToken,
    /// Client and server disagree about the time.
    ClockSkew,
    /// The bucket is elsewhere (301, 307, or signed for the wrong region).
    Elsewhere,
    /// The store does not know something that was asked of it (501).
    NotImplemented,
    /// The condition of a write did not hold (412).
    PreconditionFailed,
    /// A success that is none: an error document, or a broken one.
    Malformed,
    /// Anything else.
    Other,
}

impl Kind {
    /// Whether an idempotent call may be sent again after it.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        matches!(
            self,
            Self::TryAgain | Self::Throttled | Self::Server | Self::Slow | Self::Malformed
        )
    }
}

/// A refusal with what the server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Sorted.
    pub kind: Kind,
    /// HTTP status.
    pub status: u16,
    /// S3 error code, if there was one.
    pub code: Option<String>,
    /// The server's own words, if any.
    pub message: Option<String>,
    /// The server's number of the request, for asking its operator.
    pub request_id: Option<String>,
    /// The region it named.
    pub region: Option<String>,
    /// The address it named.
    pub location: Option<String>,
    /// How long it asked to wait.
    pub retry_after: Option<Duration>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.status)?;
        if let Some(code) = &self.code {
            write!(f, " {code}")?;
        }
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        if let Some(request_id) = &self.request_id {
            write!(f, " (request {request_id})")?;
        }
        Ok(())
    }
}

impl Answer {
    fn text(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The server's clock, milliseconds since 1970, whole seconds.
    #[must_use]
    pub fn server_time_ms(&self) -> Option<i64> {
        date::parse_http(self.text(DATE.as_str())?)
    }

    /// The version the answer speaks of.
    #[must_use]
    pub fn etag(&self) -> Option<ETag> {
        ETag::new(self.text(ETAG.as_str())?).ok()
    }

    /// How long the server asks to wait, at most [`RETRY_AFTER_MS_MAX`].
    fn retry_after(&self) -> Option<Duration> {
        let text = self.text(RETRY_AFTER.as_str())?.trim();
        let seconds_ms = text.parse::<u64>().ok().map(|seconds| seconds.saturating_mul(1000));
        let until_ms = || {
            let ahead = date::parse_http(text)?.saturating_sub(self.server_time_ms()?);
            u64::try_from(ahead).ok()
        };
        Some(Duration::from_millis(seconds_ms.or_else(until_ms)?.min(RETRY_AFTER_MS_MAX)))
    }

    /// `Ok` for a success that is one; else why not.
    pub fn check(&self, call: &Call) -> Result<(), Box<Refusal>> {
        let document = document::parse_error(&self.body);
        if !self.status.is_success() {
            return Err(self.refusal(call, document));
        }
        // Objects may be anything, an error document too; nothing else may.
        if !matches!(call, Call::Get(_)) && document.is_some() {
            let refusal = self.refusal(call, document);
            return Err(Box::new(Refusal { kind: Kind::Malformed, ..*refusal }));
        }
        Ok(())
    }

    fn refusal(&self, call: &Call, document: Option<ErrorDocument>) -> Box<Refusal> {
        let document = document.unwrap_or_default();
        let code = document.code.as_deref();
        let request_id = self.text("x-amz-request-id").map(str::to_owned);
        Box::new(Refusal {
            kind: kind(self.status, code, call),
            status: self.status.as_u16(),
            request_id: request_id.or(document.request_id),
            region: self.text("x-amz-bucket-region").map(str::to_owned).or(document.region),
            location: self.text(LOCATION.as_str()).map(str::to_owned),
            retry_after: self.retry_after(),
            code: document.code,
            message: document.message,
        })
    }

    /// The end of a conditional write: `Err` only if it was certainly not done.
    pub fn written(&self, call: &Call, condition: &Condition) -> Result<Written, Box<Refusal>> {
        let doubt = |reason: &str| {
            let (status, reason) = (self.status.as_u16(), reason.to_owned());
            Ok(Written::Unknown(Doubt::Answer { status, reason }))
        };
        let refusal = match self.check(call) {
            Ok(()) => {
                return match self.etag() {
                    Some(etag) => Ok(Written::Stored { etag }),
                    None => doubt("stored, but without a usable ETag"),
                };
            }
            Err(refusal) => refusal,
        };
        match (refusal.kind, condition) {
            (Kind::PreconditionFailed, _) => Ok(Written::Conflict),
            (Kind::NoSuchKey, Condition::Matches(_)) => Ok(Written::Conflict),
            // A throttled request was not looked at (429); a 503 may come from a proxy behind
            // which the request went on.
            (Kind::Throttled, _) if self.status == StatusCode::TOO_MANY_REQUESTS => Err(refusal),
            (Kind::Throttled | Kind::Server | Kind::Slow | Kind::Malformed, _) => {
                doubt(refusal.code.as_deref().unwrap_or("no code"))
            }
            _ => Err(refusal),
        }
    }
}

/// Status first: not every server, and no proxy, sends a code.
fn kind(status: StatusCode, code: Option<&str>, call: &Call) -> Kind {
    match (status.as_u16(), code) {
        (_, Some("RequestTimeTooSkewed")) => Kind::ClockSkew,
        (_, Some("ExpiredToken" | "TokenRefreshRequired")) => Kind::ExpiredToken,
        (400, Some("AuthorizationHeaderMalformed")) | (301 | 302 | 307 | 308, _) => Kind::Elsewhere,
        (408, _) | (400, Some("RequestTimeout")) => Kind::Slow,
        (429, _) | (503, _) | (_, Some("SlowDown")) => Kind::Throttled,
        (501, _) => Kind::NotImplemented,
        (500..=599, _) => Kind::Server,
        (409, _) => Kind::TryAgain,
        (412, _) => Kind::PreconditionFailed,
        (404, Some("NoSuchBucket")) => Kind::NoSuchBucket,
        (404, Some("NoSuchKey")) => Kind::NoSuchKey,
        (404, _) if call.key().is_none() => Kind::NoSuchBucket,
        (404, _) => Kind::NoSuchKey,
        (_, Some("SignatureDoesNotMatch")) => Kind::BadSignature,
        (_, Some("InvalidAccessKeyId")) => Kind::UnknownAccessKey,
        (401 | 403, _) => Kind::AccessDenied,
        (200..=299, _) => Kind::Malformed,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests;
