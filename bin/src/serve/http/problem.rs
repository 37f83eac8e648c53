//! Errors as `application/problem+json` (RFC 9457): what happened in words, its name, and the
//! numbers as members of their own.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

/// See the module.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The answer's status.
    pub status: StatusCode,
    /// The error's name, the same wherever it comes up.
    pub code: &'static str,
    /// What happened, with which values, and what to do.
    pub detail: String,
    members: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), members: Map::new(), headers: Vec::new() }
    }

    /// The same with another status.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The same with one more member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Says when to ask again, as a member in milliseconds and as a header in whole seconds.
    #[must_use]
    pub fn retry_after_ms(self, milliseconds: u64) -> Self {
        let seconds = HeaderValue::from(milliseconds.div_ceil(1000));
        self.with("retry_after_ms", milliseconds).header(RETRY_AFTER, seconds)
    }

    /// The document.
    #[must_use]
    pub fn document(&self) -> Value {
        let mut document = json!({
            "type": format!("urn:duolog:error:{}", self.code),
            "title": self.code.replace('_', " "),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        if let Some(members) = document.as_object_mut() {
            members.extend(self.members.clone());
        }
        document
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let kind = (CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        let mut response = (self.status, [kind], self.document().to_string()).into_response();
        response.headers_mut().extend(self.headers);
        response
    }
}
