//! Errors as `application/problem+json` (RFC 9457): what happened in words, and its name.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

/// See the module.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The answer's status.
    pub status: StatusCode,
    /// The error's name, the same wherever it comes up.
    pub code: &'static str,
    /// What happened, with which values, and what to do.
    pub detail: String,
}

impl Problem {
    /// A problem.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into() }
    }

    /// The document.
    #[must_use]
    pub fn document(&self) -> Value {
        json!({
            "type": format!("urn:duolog:error:{}", self.code),
            "title": self.code.replace('_', " "),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        })
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let kind = (CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        (self.status, [kind], self.document().to_string()).into_response()
    }
}
