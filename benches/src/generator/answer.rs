//! What a frame from the server says, as far as the generator cares.

use duolog_net::wire::{
    AppendedView, ErrorCode, ErrorView, Frame, FrameKind, HelloAccepted, StreamPage,
};

use super::connection::ConnectionError;
use super::requests::{Operation, OperationKind};
use super::workload::ReadMode;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The frame's kind.
    pub kind: FrameKind,
    /// Which request it answers.
    pub correlation: u64,
    /// Its error, if it is one.
    pub refusal: Option<Refusal>,
    /// What the stream's next revision is now, if the answer tells. Of a page: where the next one
    /// begins.
    pub next_revision: Option<u64>,
    /// Events of a page.
    pub page_events: u32,
    /// Nothing lies behind this page.
    pub page_end: bool,
    /// What the server grants a connection, told once.
    pub limits: Option<Box<Limits>>,
    /// Length of the body, bytes.
    pub body_bytes: u64,
}

/// The server's limits for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest frame body, bytes.
    pub frame_body_max_bytes: u64,
    /// Requests in flight.
    pub requests_max: u32,
    /// Their bytes.
    pub bytes_max: u64,
}

/// An error that the server reported.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The code's name in docs/WIRE.md.
    pub name: &'static str,
    /// The server is busy and the same request may be sent again.
    pub is_busy: bool,
    /// The stream is at another revision than expected.
    pub is_conflict: bool,
    /// The pause that the server asks for, ns; 0 = none.
    pub pause_ns: u64,
}

impl Answer {
    /// Reads a frame.
    pub fn read(frame: Frame<'_>) -> Result<Self, ConnectionError> {
        let mut answer = Self { kind: frame.kind, correlation: frame.correlation, ..NOTHING };
        answer.body_bytes = frame.body.len() as u64;
        match frame.kind {
            FrameKind::Appended => {
                let receipt = AppendedView::decode(frame.body)?;
                let next = |last: u64| last.saturating_add(1);
                answer.next_revision = receipt.spans().next().map(|span| next(span.last().0));
            }
            FrameKind::StreamPage => {
                let page = StreamPage::decode(frame.body)?;
                answer.next_revision = Some(page.tail.next.0);
                answer.page_events = page.records.announced();
                answer.page_end = page.tail.end;
            }
            FrameKind::HelloAccepted => {
                let (accepted, _) = HelloAccepted::decode(frame.body)?;
                answer.limits = Some(Box::new(Limits {
                    frame_body_max_bytes: accepted.frame_body_max_bytes.into(),
                    requests_max: accepted.requests_max,
                    bytes_max: accepted.bytes_max.into(),
                }));
            }
            FrameKind::Error => {
                let error = ErrorView::decode(frame.body)?;
                let code = error.code();
                let pause_ns = u64::from(error.retry_after_ms) * 1_000_000;
                // A node that does not lead is asked again after a pause, too: it may come to lead.
                let is_busy = matches!(code, Some(ErrorCode::Busy | ErrorCode::NotLeader));
                let is_conflict = code == Some(ErrorCode::Conflict);
                answer.refusal =
                    Some(Refusal { name: name_of(code), is_busy, is_conflict, pause_ns });
                if is_conflict {
                    let (_, actual) = error.conflict();
                    answer.next_revision = Some(actual.map_or(0, |last| last.0.saturating_add(1)));
                }
            }
            _ => {}
        }
        Ok(answer)
    }

    /// Why it is no success although it refuses nothing: the name to count it under. Every stream
    /// that is read here has events, so that a page without any is of a stream that is missing.
    /// Only a replay may end with one.
    #[must_use]
    pub fn fault(&self, operation: &Operation, mode: ReadMode) -> Option<&'static str> {
        match (operation.kind, self.kind) {
            (_, FrameKind::Error) | (OperationKind::Append, FrameKind::Appended) => None,
            (OperationKind::Read, FrameKind::StreamPage) => {
                let goes_on = mode == ReadMode::Replay && operation.from > 0;
                (self.page_events == 0 && !goes_on).then_some("EmptyPage")
            }
            _ => Some("BadAnswer"),
        }
    }
}

/// An answer that says nothing.
const NOTHING: Answer = Answer {
    kind: FrameKind::Pong,
    correlation: 0,
    refusal: None,
    next_revision: None,
    page_events: 0,
    page_end: false,
    limits: None,
    body_bytes: 0,
};

#[cfg(test)]
impl Default for Answer {
    fn default() -> Self {
        NOTHING
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
        Some(ErrorCode::CutOff) => "CutOff",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the frame that an operation asks for is a success. Broken if a page of nothing is a
    /// good read, or if the last page of a replay, which may be empty, is an error.
    #[test]
    fn an_answer_of_another_kind_or_without_events_is_a_fault() {
        let append = Operation::default();
        let read = |from| Operation { kind: OperationKind::Read, from, ..Operation::default() };
        let of_kind = |kind| Answer { kind, ..NOTHING };
        let page = |page_events| Answer { page_events, ..of_kind(FrameKind::StreamPage) };
        let (receipt, modes) = (of_kind(FrameKind::Appended), [ReadMode::Page, ReadMode::Replay]);
        for mode in modes {
            assert_eq!(receipt.fault(&append, mode), None);
            assert_eq!(of_kind(FrameKind::Error).fault(&append, mode), None, "it is a refusal");
            assert_eq!(page(1).fault(&append, mode), Some("BadAnswer"));
            assert_eq!(of_kind(FrameKind::Pong).fault(&append, mode), Some("BadAnswer"));
            assert_eq!(receipt.fault(&read(0), mode), Some("BadAnswer"));
            assert_eq!(page(1).fault(&read(0), mode), None);
            assert_eq!(page(0).fault(&read(0), mode), Some("EmptyPage"));
        }
        assert_eq!(page(0).fault(&read(9), ReadMode::Point), Some("EmptyPage"));
        assert_eq!(page(0).fault(&read(9), ReadMode::Replay), None);
    }
}
