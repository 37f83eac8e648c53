//! What can go wrong with a call, and what can be done about it.

use std::time::Duration;

use crate::answer::{Kind, Refusal};
use crate::bucket::BucketError;
use crate::credentials::CredentialsError;
use crate::document::DocumentError;
use crate::etag::ETagError;
use crate::key::KeyError;
use crate::request::RequestError;
use crate::sign::SignError;
use crate::transport::TransportError;

/// A call that certainly did not do what was asked, or (for calls that may be repeated) that was
/// given up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server could not be reached; nothing was sent.
    #[error("cannot reach {endpoint}: {reason}{advice}")]
    NotReached {
        /// The endpoint.
        endpoint: String,
        /// Why.
        reason: String,
        /// What to do about a failure of TLS; starts with a separator, or is empty.
        advice: &'static str,
    },
    /// No answer, or only a part.
    #[error("{call} at {endpoint}: no answer: {reason}")]
    NoAnswer {
        /// What was asked.
        call: &'static str,
        /// The endpoint.
        endpoint: String,
        /// Why.
        reason: String,
    },
    /// The store said no.
    #[error("{call} on bucket {bucket:?} at {endpoint}: {refusal}{advice}")]
    Refused {
        /// What was asked.
        call: &'static str,
        /// The bucket.
        bucket: String,
        /// The endpoint.
        endpoint: String,
        /// What the store said.
        refusal: Box<Refusal>,
        /// What to do; starts with a separator, or is empty.
        advice: String,
    },
    /// The answer is no listing.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A listing that has no end.
    #[error("the listing of {prefix:?} has more than {pages} pages")]
    Endless {
        /// Listed.
        prefix: String,
        /// Read so far.
        pages: u32,
    },
    /// An object without a version.
    #[error("the store gave the object {key:?} without a usable ETag")]
    NoETag {
        /// Its key.
        key: String,
    },
    /// Attempts went on for as long as allowed.
    #[error(
        "given up after {attempts} attempts in {} ms (s3.retry_max_duration_secs): {last}",
        after.as_millis()
    )]
    GaveUp {
        /// How many.
        attempts: u32,
        /// How long.
        after: Duration,
        /// The last one's end.
        last: Box<Error>,
    },
    /// The store refuses a condition although it holds.
    #[error(
        "the store refused If-Match {etag} on {key:?} although the object has this very ETag; \
         it wants another form or does not do compare-and-swap: run `duolog s3 probe`"
    )]
    ConditionNotHonoured {
        /// The object.
        key: String,
        /// Its version.
        etag: String,
    },
    /// No credentials.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The signer.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// The transport.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The place of the bucket.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// A key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// An ETag.
    #[error(transparent)]
    ETag(#[from] ETagError),
    /// The request.
    #[error(transparent)]
    Request(RequestError),
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::ETag(error) => Self::ETag(error),
            other => Self::Request(other),
        }
    }
}

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Wait and ask again.
    Retry,
    /// Correct this setting.
    FixConfig(&'static str),
    /// Correct something at the store: bucket, permission, proxy.
    FixStore,
    /// Correct this machine's clock.
    FixClock,
    /// Correct the call.
    FixRequest,
}

impl Error {
    /// What the store said, also behind a [`Error::GaveUp`].
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            Self::GaveUp { last, .. } => last.refusal(),
            _ => None,
        }
    }

    /// Its kind, if the store refused.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        self.refusal().map(|refusal| refusal.kind)
    }

    /// Whether an idempotent call may be sent again.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::NotReached { .. } | Self::NoAnswer { .. } => true,
            Self::Refused { refusal, .. } => refusal.kind.is_passing(),
            // The source of credentials may come back; a broken file may be written again.
            Self::Credentials(error) => {
                matches!(error, CredentialsError::Fetch { .. } | CredentialsError::Expired { .. })
            }
            Self::Document(DocumentError::Malformed { .. }) => true,
            _ => false,
        }
    }

    /// What to do.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::GaveUp { last, .. } => last.remedy(),
            Self::NotReached { advice, .. } if !advice.is_empty() => {
                Remedy::FixConfig("s3.endpoint or s3.ca_file")
            }
            Self::NotReached { .. } | Self::NoAnswer { .. } => Remedy::Retry,
            Self::Refused { refusal, .. } => match refusal.kind {
                Kind::Elsewhere => Remedy::FixConfig("s3.region"),
                Kind::NoSuchBucket => Remedy::FixConfig("s3.bucket"),
                Kind::BadSignature | Kind::UnknownAccessKey | Kind::ExpiredToken => {
                    Remedy::FixConfig("s3 credentials")
                }
                Kind::ClockSkew => Remedy::FixClock,
                Kind::AccessDenied | Kind::NotImplemented => Remedy::FixStore,
                Kind::NoSuchKey | Kind::PreconditionFailed | Kind::Other => Remedy::FixRequest,
                _ => Remedy::Retry,
            },
            Self::Document(_) | Self::Endless { .. } | Self::NoETag { .. } | Self::ETag(_) => {
                Remedy::FixStore
            }
            Self::ConditionNotHonoured { .. } => Remedy::FixStore,
            Self::Credentials(_) => Remedy::FixConfig("s3 credentials"),
            Self::Bucket(_) => Remedy::FixConfig("s3.endpoint"),
            Self::Transport(_) => Remedy::FixConfig("s3.ca_file"),
            Self::Key(_) | Self::Request(_) | Self::Sign(_) => Remedy::FixRequest,
        }
    }
}

/// What to do about a failure of TLS, as the end of its message. `reason` is in the words of the
/// TLS library.
pub(crate) fn tls_advice(reason: &str) -> &'static str {
    const ADVICE: [(&str, &str); 5] = [
        ("not valid for name", "; the certificate is another host's: correct s3.endpoint"),
        ("UnknownIssuer", "; nobody here knows its authority: set s3.ca_file to its certificate"),
        ("certificate expired", "; renew the server's certificate, or correct this clock"),
        ("certificate not valid yet", "; correct this machine's clock"),
        ("corrupt message", "; the server speaks no TLS there: correct s3.endpoint"),
    ];
    let known = ADVICE.iter().find(|(words, _)| reason.contains(words));
    known.map_or("", |(_, advice)| advice)
}

/// What to do about a refusal, as the end of its message.
pub(crate) fn advice(refusal: &Refusal, call: &crate::request::Call, skew_ms: i64) -> String {
    match refusal.kind {
        Kind::AccessDenied => format!(
            "; the policy of these credentials must allow {} on this bucket{}",
            call.permission(),
            if call.key().is_some() { " and s3:ListBucket beside it" } else { "" }
        ),
        Kind::BadSignature => "; the secret access key is wrong, or a proxy changes requests on \
                               the way"
            .to_owned(),
        Kind::UnknownAccessKey => "; the store does not know this access key id".to_owned(),
        Kind::ExpiredToken => "; the source gave expired credentials again".to_owned(),
        Kind::NoSuchBucket => "; create it, or correct s3.bucket and s3.endpoint".to_owned(),
        Kind::ClockSkew => format!(
            "; this machine's clock is {skew_ms} ms behind the store's: correct it (NTP, chrony)"
        ),
        Kind::Elsewhere => match &refusal.region {
            Some(region) => format!("; the bucket is in region {region:?}: set s3.region to it"),
            None => "; the bucket is elsewhere: correct s3.region or s3.endpoint".to_owned(),
        },
        Kind::NotImplemented => "; this store lacks something that Duolog needs".to_owned(),
        _ => String::new(),
    }
}
