//! Errors that a session has put out, by code, until its driver takes the counts away.

use crate::limits::FRAME_HEADER_BYTES;
use crate::wire::{ErrorCode, FrameKind};

/// Place of the kind in a frame's header (docs/WIRE.md, "Frame").
const KIND: std::ops::Range<usize> = 8..10;
/// Place of the code in an error frame.
const CODE: std::ops::Range<usize> = FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + 2;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct ErrorCounts {
    counts: [u32; ErrorCode::ALL.len()],
    any: bool,
}

impl ErrorCounts {
    /// Looks at a whole frame of this server, and counts it if it is an error.
    pub(super) fn look_at(&mut self, frame: &[u8]) {
        if frame.get(KIND) == Some(&FrameKind::Error.code().to_le_bytes()) {
            self.count(frame);
        }
    }

    #[cold]
    fn count(&mut self, frame: &[u8]) {
        let code = frame.get(CODE).and_then(|code| code.try_into().ok()).map(u16::from_le_bytes);
        if let Some(code) = code.and_then(ErrorCode::from_code) {
            self.counts[usize::from(code.code()) - 1] += 1;
            self.any = true;
        }
    }

    /// Whether there are any.
    pub(super) const fn any(&self) -> bool {
        self.any
    }

    /// Gives them away, each code that came up with its number.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (ErrorCode, u32)> + use<> {
        let Self { counts, .. } = std::mem::take(self);
        ErrorCode::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0)
    }
}
