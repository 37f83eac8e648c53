//! One call to the store, as data: method, key, query, condition and body; and the HTTP request
//! made from it, not signed yet.
//!
//! Promise: a request has a fixed Content-Length and carries nothing that a store could refuse as
//! unknown (no checksum headers, no Expect, no chunks).

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderValue, Method};

use crate::bucket::Bucket;
use crate::etag::{ETag, ETagError, IfMatchForm};
use crate::key::{ObjectKey, Place, encode};
use crate::limits::LIST_PAGE_KEYS_MAX;

/// What must be true of the object for a write to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is no object: `If-None-Match: *`.
    Absent,
    /// The object has this version: `If-Match`.
    Matches(ETag),
}

/// Where a listing starts and what it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only keys that begin with it.
    pub prefix: String,
    /// Only keys behind this one.
    pub start_after: Option<String>,
    /// The page behind an earlier one.
    pub continuation: Option<String>,
    /// Keys per page, 1..=1000; `None` for 1000.
    pub page_keys: Option<u32>,
    /// How keys are written in the answer.
    pub encoding: ListEncoding,
}

/// How keys are written in the answer to a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListEncoding {
    /// As XML text. Every server can do it, but XML cannot hold control characters.
    #[default]
    Plain,
    /// Percent-encoded (`encoding-type=url`), for any key.
    Url,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Read an object.
    Get(ObjectKey),
    /// Write an object, whatever is there.
    Put(ObjectKey, Bytes),
    /// Write an object if the condition holds.
    PutIf(ObjectKey, Bytes, Condition),
    /// Remove an object; it need not be there.
    Delete(ObjectKey),
    /// One page of a listing.
    List(ListQuery),
    /// Is the bucket there, and may we use it?
    HeadBucket,
    /// Does the bucket keep old versions?
    GetVersioning,
}

/// What a call does, without its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Read an object.
    Get,
    /// Write an object, whatever is there.
    Put,
    /// Write an object if there is none.
    PutIfAbsent,
    /// Write an object if it has a version.
    PutIfMatch,
    /// Remove an object.
    Delete,
    /// One page of a listing.
    List,
    /// Is the bucket there?
    HeadBucket,
    /// Does it keep old versions?
    GetVersioning,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Get,
        Self::Put,
        Self::PutIfAbsent,
        Self::PutIfMatch,
        Self::Delete,
        Self::List,
        Self::HeadBucket,
        Self::GetVersioning,
    ];

    /// Name for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GetObject",
            Self::Put => "PutObject",
            Self::PutIfAbsent => "PutObject (If-None-Match)",
            Self::PutIfMatch => "PutObject (If-Match)",
            Self::Delete => "DeleteObject",
            Self::List => "ListObjectsV2",
            Self::HeadBucket => "HeadBucket",
            Self::GetVersioning => "GetBucketVersioning",
        }
    }

    /// Name for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::PutIfAbsent => "put_if_absent",
            Self::PutIfMatch => "put_if_match",
            Self::Delete => "delete",
            Self::List => "list",
            Self::HeadBucket => "head_bucket",
            Self::GetVersioning => "get_versioning",
        }
    }
}

impl Call {
    /// What it does.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Get(_) => Operation::Get,
            Self::Put(..) => Operation::Put,
            Self::PutIf(_, _, Condition::Absent) => Operation::PutIfAbsent,
            Self::PutIf(_, _, Condition::Matches(_)) => Operation::PutIfMatch,
            Self::Delete(_) => Operation::Delete,
            Self::List(_) => Operation::List,
            Self::HeadBucket => Operation::HeadBucket,
            Self::GetVersioning => Operation::GetVersioning,
        }
    }

    /// Name for messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.operation().name()
    }

    /// The permission a policy must grant for it.
    #[must_use]
    pub const fn permission(&self) -> &'static str {
        match self {
            Self::Get(_) => "s3:GetObject",
            Self::Put(..) | Self::PutIf(_, _, Condition::Absent) => "s3:PutObject",
            Self::PutIf(_, _, Condition::Matches(_)) => "s3:PutObject and s3:GetObject",
            Self::Delete(_) => "s3:DeleteObject",
            Self::List(_) | Self::HeadBucket => "s3:ListBucket",
            Self::GetVersioning => "s3:GetBucketVersioning",
        }
    }

    /// The object it is about.
    #[must_use]
    pub const fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Get(key) | Self::Put(key, _) | Self::PutIf(key, ..) | Self::Delete(key) => {
                Some(key)
            }
            Self::List(_) | Self::HeadBucket | Self::GetVersioning => None,
        }
    }

    /// Whether sending it twice is the same as sending it once.
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        !matches!(self, Self::PutIf(..))
    }

    /// What is sent.
    #[must_use]
    pub fn body(&self) -> Bytes {
        match self {
            Self::Put(_, body) | Self::PutIf(_, body, _) => body.clone(),
            _ => Bytes::new(),
        }
    }

    fn method(&self) -> Method {
        match self {
            Self::Get(_) | Self::List(_) | Self::GetVersioning => Method::GET,
            Self::Put(..) | Self::PutIf(..) => Method::PUT,
            Self::Delete(_) => Method::DELETE,
            Self::HeadBucket => Method::HEAD,
        }
    }

    /// The query, encoded, ordered by name.
    fn query(&self) -> String {
        match self {
            Self::List(list) => list.query(),
            Self::GetVersioning => "versioning=".to_owned(),
            _ => String::new(),
        }
    }

    /// The request, complete but for date and signature.
    pub fn request(
        &self,
        bucket: &Bucket,
        form: IfMatchForm,
    ) -> Result<http::Request<Bytes>, RequestError> {
        let body = self.body();
        let mut request = http::Request::builder()
            .method(self.method())
            .uri(bucket.url(self.key(), &self.query()))
            .header(HOST, bucket.host());
        if self.method() == Method::PUT {
            request = request
                .header(CONTENT_LENGTH, body.len())
                .header(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        }
        request = match self {
            Self::PutIf(_, _, Condition::Absent) => request.header(IF_NONE_MATCH, "*"),
            Self::PutIf(_, _, Condition::Matches(etag)) => {
                request.header(IF_MATCH, form.write(etag)?)
            }
            _ => request,
        };
        Ok(request.body(body)?)
    }
}

/// Why a call cannot be made into a request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The condition's ETag is weak.
    #[error(transparent)]
    ETag(#[from] ETagError),
    /// The parts make no request.
    #[error("the request could not be built: {0}")]
    Http(#[from] http::Error),
}

impl ListQuery {
    /// All keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }

    fn query(&self) -> String {
        let page_keys = self.page_keys.unwrap_or(LIST_PAGE_KEYS_MAX).clamp(1, LIST_PAGE_KEYS_MAX);
        let mut pairs = Vec::with_capacity(6);
        if let Some(token) = &self.continuation {
            pairs.push(("continuation-token", token.clone()));
        }
        if self.encoding == ListEncoding::Url {
            pairs.push(("encoding-type", "url".to_owned()));
        }
        pairs.push(("list-type", "2".to_owned()));
        pairs.push(("max-keys", page_keys.to_string()));
        if !self.prefix.is_empty() {
            pairs.push(("prefix", self.prefix.clone()));
        }
        // Behind a continuation token it means nothing, and some servers trip over both.
        if let (Some(key), None) = (&self.start_after, &self.continuation) {
            pairs.push(("start-after", key.clone()));
        }
        let pairs =
            pairs.iter().map(|(name, value)| format!("{name}={}", encode(value, Place::Query)));
        pairs.collect::<Vec<_>>().join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::{Endpoint, PlainHttp};

    fn bucket() -> Bucket {
        let endpoint = Endpoint::parse("http://h:9000", PlainHttp::Allowed).unwrap();
        Bucket::new("events", Some(endpoint), None, None).unwrap()
    }

    fn build(call: &Call, form: IfMatchForm) -> http::Request<Bytes> {
        call.request(&bucket(), form).unwrap()
    }

    fn key() -> ObjectKey {
        ObjectKey::new("a/b c").unwrap()
    }

    #[test]
    fn a_write_has_a_length_a_host_and_exactly_its_condition() {
        let etag = ETag::new("\"e\"").unwrap();
        let create = Call::PutIf(key(), Bytes::from_static(b"xyz"), Condition::Absent);
        let request = build(&create, IfMatchForm::Unquoted);
        assert_eq!(request.uri(), "http://h:9000/events/a/b%20c");
        let headers: Vec<_> = request.headers().iter().map(|(n, v)| (n.as_str(), v)).collect();
        assert_eq!(
            headers,
            [
                ("host", &HeaderValue::from_static("h:9000")),
                ("content-length", &HeaderValue::from_static("3")),
                ("content-type", &HeaderValue::from_static("application/octet-stream")),
                ("if-none-match", &HeaderValue::from_static("*")),
            ]
        );
        let swap = Call::PutIf(key(), Bytes::new(), Condition::Matches(etag));
        let request = build(&swap, IfMatchForm::Unquoted);
        assert_eq!(request.headers()[IF_MATCH], "e");
        assert_eq!(request.headers()[CONTENT_LENGTH], "0");
        assert!(!request.headers().contains_key(IF_NONE_MATCH));
        assert_eq!(build(&swap, IfMatchForm::AsGiven).headers()[IF_MATCH], "\"e\"");
        let plain = build(&Call::Put(key(), Bytes::new()), IfMatchForm::AsGiven);
        assert!(!plain.headers().contains_key(IF_MATCH));
        assert!(!plain.headers().contains_key(IF_NONE_MATCH));
    }

    #[test]
    fn a_weak_etag_is_refused_before_anything_is_sent() {
        let etag = ETag::new("W/\"e\"").unwrap();
        let swap = Call::PutIf(key(), Bytes::new(), Condition::Matches(etag));
        let refused = swap.request(&bucket(), IfMatchForm::AsGiven);
        assert!(matches!(refused, Err(RequestError::ETag(ETagError::Weak { .. }))));
    }

    #[test]
    fn a_listing_asks_for_version_2_with_each_value_encoded() {
        let mut list = ListQuery {
            prefix: "a+b/%&=".to_owned(),
            start_after: Some("k \u{e9}".to_owned()),
            page_keys: Some(5_000),
            encoding: ListEncoding::Url,
            ..ListQuery::default()
        };
        let request = build(&Call::List(list.clone()), IfMatchForm::AsGiven);
        assert_eq!(
            request.uri(),
            "http://h:9000/events?encoding-type=url&list-type=2&max-keys=1000\
             &prefix=a%2Bb%2F%25%26%3D&start-after=k%20%C3%A9"
        );
        list.continuation = Some("t=/+".to_owned());
        let uri = build(&Call::List(list), IfMatchForm::AsGiven).uri().to_string();
        assert!(uri.contains("?continuation-token=t%3D%2F%2B&"), "{uri}");
        assert!(!uri.contains("start-after"), "{uri}");
    }

    #[test]
    fn only_conditional_writes_may_not_be_repeated() {
        let calls = [
            Call::Get(key()),
            Call::Put(key(), Bytes::new()),
            Call::Delete(key()),
            Call::List(ListQuery::default()),
            Call::HeadBucket,
            Call::GetVersioning,
        ];
        assert!(calls.iter().all(Call::is_idempotent));
        assert!(!Call::PutIf(key(), Bytes::new(), Condition::Absent).is_idempotent());
    }
}
