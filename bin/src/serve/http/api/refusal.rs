//! The client library's errors as problems: a status, the error's name, its numbers by name.

use duolog_net::client::{Error, Expect};
use http::StatusCode;

use super::super::problem::Problem;

/// How soon to ask again where the node promises nothing, milliseconds: a failover takes about as
/// long as the heartbeat's lease.
const RETRY_MS: u64 = 1000;

/// The problem that the error is. `conditional`: the request named a condition in its headers.
#[must_use]
pub fn problem(error: &Error, conditional: bool) -> Problem {
    let text = error.to_string();
    let with = |status, code| Problem::new(status, code, text.clone());
    match error {
        Error::Conflict { stream, expected, actual } => {
            let status =
                if conditional { StatusCode::PRECONDITION_FAILED } else { StatusCode::CONFLICT };
            with(status, "conflict")
                .with("stream", stream.as_str())
                .with("expected_revision", expected_revision(*expected))
                .with("actual_revision", actual.map(|revision| revision.0))
        }
        Error::Fenced { stream, given, highest } => with(StatusCode::CONFLICT, "fenced")
            .with("stream", stream.as_str())
            .with("given_token", *given)
            .with("highest_token", *highest),
        Error::Busy { retry_after, .. } => {
            let ms = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
            with(StatusCode::TOO_MANY_REQUESTS, "busy").retry_after_ms(ms)
        }
        Error::Unknown { idempotency_key, .. } => with(StatusCode::GATEWAY_TIMEOUT, "unknown")
            .with("idempotency_key", idempotency_key.map(|key| key.to_string())),
        Error::TooLarge { size, limit, .. } => with(StatusCode::PAYLOAD_TOO_LARGE, "too_large")
            .with("size_bytes", *size)
            .with("limit_bytes", *limit),
        Error::KeyReused { idempotency_key, .. } => {
            with(StatusCode::UNPROCESSABLE_ENTITY, "key_reused")
                .with("idempotency_key", idempotency_key.map(|key| key.to_string()))
        }
        Error::CrossShard { first, other, .. } => with(StatusCode::BAD_REQUEST, "cross_shard")
            .with("first_shard", first.0)
            .with("other_shard", other.0),
        Error::DiskFull { .. } => with(StatusCode::INSUFFICIENT_STORAGE, "disk_full"),
        Error::ShuttingDown { .. } => {
            with(StatusCode::SERVICE_UNAVAILABLE, "shutting_down").retry_after_ms(RETRY_MS)
        }
        Error::NotLeader { leader, .. } => with(StatusCode::SERVICE_UNAVAILABLE, "not_leader")
            .with("leader", leader.clone())
            .retry_after_ms(RETRY_MS),
        Error::Damaged { first, last, .. } => with(StatusCode::INTERNAL_SERVER_ERROR, "damaged")
            .with("first_lsn", first.0)
            .with("last_lsn", last.0),
        Error::BadRequest { .. } => with(StatusCode::BAD_REQUEST, "bad_request"),
        Error::Refused { .. } => with(StatusCode::CONFLICT, "refused"),
        Error::CommandUnknown { .. } => with(StatusCode::GATEWAY_TIMEOUT, "command_unknown"),
        Error::Connect { .. } | Error::Deadline { .. } => {
            with(StatusCode::SERVICE_UNAVAILABLE, "no_answer").retry_after_ms(RETRY_MS)
        }
        _ => with(StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    }
}

/// A number, or the word for what is no number.
fn expected_revision(expected: Expect) -> serde_json::Value {
    match expected {
        Expect::Any => "any".into(),
        Expect::NoStream => "no_stream".into(),
        Expect::StreamExists => "stream_exists".into(),
        Expect::Exact(revision) => revision.0.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duolog_net::client::Revision;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn numbers_have_names() {
        let conflict = Error::Conflict {
            stream: "s".to_owned(),
            expected: Expect::Exact(Revision(4)),
            actual: None,
        };
        let document = problem(&conflict, true).document();
        assert_eq!(
            (&document["status"], &document["code"], &document["type"]),
            (&json!(412), &json!("conflict"), &json!("urn:duolog:error:conflict"))
        );
        assert_eq!(
            (&document["expected_revision"], &document["actual_revision"], &document["stream"]),
            (&json!(4), &json!(null), &json!("s"))
        );
        assert_eq!(problem(&conflict, false).status, StatusCode::CONFLICT);
        let busy = Error::Busy { retry_after: Duration::from_millis(10), text: String::new() };
        assert_eq!(problem(&busy, false).document()["retry_after_ms"], 10);
        let unknown = Error::Unknown { idempotency_key: None, text: String::new() };
        let unknown = problem(&unknown, false);
        assert_eq!(unknown.status, StatusCode::GATEWAY_TIMEOUT);
        assert!(unknown.detail.contains("idempotency key"), "{}", unknown.detail);
    }
}
