//! Duolog's own frames.

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_engine::ids::Revision;
use duolog_net::limits::{FRAME_BODY_MAX_BYTES_DEFAULT, answer_body_max_bytes};
use duolog_net::wire::{
    AppendedView, Decoded, ErrorCode, ErrorView, Frame, FrameKind, Hello, decode_frame,
    encode_append,
};

use super::{Append, Condition, Dialect, DialectError, EVENT_TYPE, Greeting, Piece, Said};

/// See the module's text.
#[derive(Debug)]
pub struct Duolog {
    condition: Condition,
    correlation: u64,
}

impl Duolog {
    /// A connection whose appends have this condition.
    pub fn new(condition: Condition) -> Self {
        Self { condition, correlation: 0 }
    }

    fn read(&self, frame: &Frame<'_>) -> Result<Said, DialectError> {
        let unexpected = DialectError::Unexpected;
        match frame.kind {
            FrameKind::HelloAccepted => Ok(Said::Open),
            // A node of a pair tells unasked what it has become.
            FrameKind::Standing => Ok(Said::Nothing),
            FrameKind::Error if self.correlation == 0 => {
                let told = ErrorView::decode(frame.body).map(|error| error.text.to_owned());
                Err(DialectError::Refused(told.unwrap_or_default()))
            }
            FrameKind::Error => {
                let error = ErrorView::decode(frame.body).map_err(|_| unexpected("error body"))?;
                Ok(Said::Refused(name_of(error.code())))
            }
            FrameKind::Appended if frame.correlation == self.correlation => {
                let receipt =
                    AppendedView::decode(frame.body).map_err(|_| unexpected("receipt"))?;
                let span = receipt.spans().next().ok_or(unexpected("receipt without stream"))?;
                Ok(Said::Appended(span.last().0))
            }
            _ => Err(unexpected("frame kind or correlation")),
        }
    }
}

impl Dialect for Duolog {
    fn greet(&mut self, out: &mut Vec<u8>) -> Greeting {
        Hello::new(None).encode(out, 0);
        Greeting::Awaited
    }

    fn append(&mut self, out: &mut Vec<u8>, append: &Append<'_>) -> Result<(), DialectError> {
        let expect = match (self.condition, append.expected) {
            (Condition::None, _) => Expect::Any,
            (Condition::Version, None) => Expect::NoStream,
            (Condition::Version, Some(revision)) => Expect::Exact(Revision(revision)),
        };
        self.correlation += 1;
        let mut request = AppendBuilder::new();
        request
            .stream(append.stream, expect)
            .and_then(|request| request.event(append.identity, EVENT_TYPE, &[], append.data))
            .map_err(|_| DialectError::Request("name or event too long"))?;
        encode_append(out, self.correlation, &request);
        Ok(())
    }

    fn receive(&mut self, bytes: &[u8], _: &mut Vec<u8>) -> Result<Option<Piece>, DialectError> {
        let limit = answer_body_max_bytes(FRAME_BODY_MAX_BYTES_DEFAULT);
        match decode_frame(bytes, limit).map_err(|_| DialectError::Unexpected("no frame"))? {
            Decoded::NeedMore(_) => Ok(None),
            Decoded::Complete { value, used } => Ok(Some(Piece { used, said: self.read(&value)? })),
        }
    }
}

const fn name_of(code: Option<ErrorCode>) -> &'static str {
    match code {
        Some(ErrorCode::Busy) => "Busy",
        Some(ErrorCode::Conflict) => "Conflict",
        Some(ErrorCode::NotLeader) => "NotLeader",
        Some(ErrorCode::DiskFull) => "DiskFull",
        Some(ErrorCode::Unknown) => "Unknown",
        Some(ErrorCode::ShuttingDown) => "ShuttingDown",
        _ => "OtherError",
    }
}

#[cfg(test)]
mod tests {
    use duolog_engine::append::AppendView;

    use super::*;

    /// Conditional appends carry what the last receipt said, and the first of a stream that there
    /// is none. Broken if the server would be told another revision.
    #[test]
    fn conditions_are_those_of_the_last_receipt() {
        for (condition, expected, wanted) in [
            (Condition::None, Some(3), Expect::Any),
            (Condition::Version, None, Expect::NoStream),
            (Condition::Version, Some(3), Expect::Exact(Revision(3))),
        ] {
            let mut out = Vec::new();
            let append = Append { stream: "bench.7", expected, identity: 1, data: &[b'a'; 100] };
            Duolog::new(condition).append(&mut out, &append).unwrap();
            let Decoded::Complete { value, .. } = decode_frame(&out, 1 << 20).unwrap() else {
                panic!("the frame is not whole")
            };
            let view = AppendView::parse(value.body, 1 << 20).unwrap();
            assert_eq!(view.streams().next().unwrap().expect, wanted);
            assert_eq!(view.events().next().unwrap().data.len(), 100);
        }
    }
}
