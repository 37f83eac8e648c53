//! What a frame from the server says, as far as the generator cares.

use duolog_net::wire::{AppendedView, ErrorCode, ErrorView, Frame, FrameKind};

use super::connection::ConnectionError;

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The frame's kind.
    pub kind: FrameKind,
    /// Which request it answers.
    pub correlation: u64,
    /// Its error, if it is one.
    pub refusal: Option<Refusal>,
    /// What the stream's next revision is now, if the answer tells.
    pub next_revision: Option<u64>,
    /// Length of the body, bytes.
    pub body_bytes: u64,
}

/// An error that the server reported.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The code's name in docs/WIRE.md.
    pub name: &'static str,
    /// The server is busy and the same request may be sent again.
    pub is_busy: bool,
    /// The pause that the server asks for, ns; 0 = none.
    pub pause_ns: u64,
}

impl Answer {
    /// Reads a frame.
    pub fn read(frame: Frame<'_>) -> Result<Self, ConnectionError> {
        let (mut refusal, mut next_revision) = (None, None);
        match frame.kind {
            FrameKind::Appended => {
                let receipt = AppendedView::decode(frame.body)?;
                let next = |last: u64| last.saturating_add(1);
                next_revision = receipt.spans().next().map(|span| next(span.last().0));
            }
            FrameKind::Error => {
                let error = ErrorView::decode(frame.body)?;
                let code = error.code();
                let pause_ns = u64::from(error.retry_after_ms) * 1_000_000;
                // A node that does not lead is asked again after a pause, too: it may come to lead.
                let is_busy = matches!(code, Some(ErrorCode::Busy | ErrorCode::NotLeader));
                refusal = Some(Refusal { name: name_of(code), is_busy, pause_ns });
                if code == Some(ErrorCode::Conflict) {
                    let (_, actual) = error.conflict();
                    next_revision = Some(actual.map_or(0, |last| last.0.saturating_add(1)));
                }
            }
            _ => {}
        }
        let Frame { kind, correlation, body } = frame;
        Ok(Self { kind, correlation, refusal, next_revision, body_bytes: body.len() as u64 })
    }
}

const fn name_of(code: Option<ErrorCode>) -> &'static str {
    match code {
        None => "UnknownCode",
        Some(ErrorCode::BadFrame) => "BadFrame",
        Some(ErrorCode::UnsupportedVersion) => "UnsupportedVersion",
        Some(ErrorCode::BadRequest) => "BadRequest",
        Some(ErrorCode::TooLarge) => "TooLarge",
        Some(ErrorCode::Conflict) => "Conflict",
        Some(ErrorCode::Fenced) => "Fenced",
        Some(ErrorCode::Busy) => "Busy",
        Some(ErrorCode::KeyReused) => "KeyReused",
        Some(ErrorCode::CrossShard) => "CrossShard",
        Some(ErrorCode::DiskFull) => "DiskFull",
        Some(ErrorCode::Unknown) => "Unknown",
        Some(ErrorCode::ShuttingDown) => "ShuttingDown",
        Some(ErrorCode::Damaged) => "Damaged",
        Some(ErrorCode::NotLeader) => "NotLeader",
        Some(ErrorCode::Refused) => "Refused",
    }
}
