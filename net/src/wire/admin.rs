//! Requests of an operator and their answers: JSON texts that this crate does not look into.

use super::body::{BodyError, text};
use super::frame::{FrameKind, OpenFrame};
use crate::limits::{ADMIN_ANSWER_MAX_BYTES, ADMIN_MAX_BYTES};

/// Appends an [`FrameKind::Admin`] frame.
///
/// # Errors
/// [`BodyError::TooLong`] above 4 KiB; nothing is written then.
pub fn encode_admin(out: &mut Vec<u8>, correlation: u64, json: &str) -> Result<(), BodyError> {
    bounded("admin request", json.as_bytes(), ADMIN_MAX_BYTES)?;
    let frame = OpenFrame::begin(out, FrameKind::Admin, correlation);
    out.extend_from_slice(json.as_bytes());
    frame.finish(out);
    Ok(())
}

/// Appends an [`FrameKind::AdminAnswer`] frame.
///
/// Panics above 256 KiB, which no answer about 512 shards has.
pub fn encode_admin_answer(out: &mut Vec<u8>, correlation: u64, json: &str) {
    assert!(json.len() <= ADMIN_ANSWER_MAX_BYTES, "an answer of {} bytes", json.len());
    let frame = OpenFrame::begin(out, FrameKind::AdminAnswer, correlation);
    out.extend_from_slice(json.as_bytes());
    frame.finish(out);
}

pub(super) fn decode_admin(body: &[u8]) -> Result<&str, BodyError> {
    bounded("admin request", body, ADMIN_MAX_BYTES)?;
    text("admin request", body)
}

pub(super) fn decode_admin_answer(body: &[u8]) -> Result<&str, BodyError> {
    bounded("admin answer", body, ADMIN_ANSWER_MAX_BYTES)?;
    text("admin answer", body)
}

const fn bounded(field: &'static str, body: &[u8], limit: usize) -> Result<(), BodyError> {
    if body.len() > limit {
        return Err(BodyError::TooLong { field, size: body.len(), limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_on_both_sides() {
        let (mut out, long) = (Vec::new(), "x".repeat(ADMIN_MAX_BYTES + 1));
        let over = BodyError::TooLong {
            field: "admin request",
            size: ADMIN_MAX_BYTES + 1,
            limit: ADMIN_MAX_BYTES,
        };
        assert_eq!(encode_admin(&mut out, 1, &long), Err(over));
        assert!(out.is_empty());
        assert_eq!(decode_admin(long.as_bytes()), Err(over));
        assert_eq!(decode_admin(&long.as_bytes()[1..]), Ok(&long[1..]));
        assert_eq!(decode_admin(&[0xff]), Err(BodyError::NotUtf8("admin request")));
        let long = "x".repeat(ADMIN_ANSWER_MAX_BYTES + 1);
        assert!(decode_admin_answer(long.as_bytes()).is_err());
    }
}
