//! What a session refuses by itself, and how it says so.

use duolog_engine::ids::ShardId;

use super::{Phase, Session, Settings};
use crate::limits::BUSY_RETRY_AFTER_MS;
use crate::wire::{BodyError, ErrorCode, ErrorFrame, Frame, FrameError};

impl Session {
    pub(super) fn refuse_busy(&mut self, correlation: u64, cost_bytes: u32) {
        self.answers.refused_over_limit();
        let (requests, bytes) = (self.answers.requests_in_flight(), self.answers.bytes_in_flight());
        let Settings { requests_max, bytes_max, .. } = self.settings;
        self.answers.error(
            &ErrorFrame::new(ErrorCode::Busy).retry_after_ms(BUSY_RETRY_AFTER_MS),
            correlation,
            format_args!(
                "{requests} requests with {bytes} bytes are in flight on this connection, and \
                 this one has {cost_bytes} bytes; the limits are {requests_max} requests \
                 (limits.connection_in_flight) and {bytes_max} bytes \
                 of them: wait for answers first"
            ),
        );
    }

    pub(super) fn refuse_shard(&mut self, correlation: u64, shard: ShardId) {
        let count = self.settings.shard_count;
        self.answers.error(
            &ErrorFrame::new(ErrorCode::BadRequest),
            correlation,
            format_args!("there is no shard {shard}: the cluster has {count}, counted from 0"),
        );
    }

    pub(super) fn refuse_foreign(&mut self, correlation: u64, shard: ShardId) {
        if shard.0 >= self.settings.shard_count {
            return self.refuse_shard(correlation, shard);
        }
        let own = self.settings.shard;
        self.answers.error(
            &ErrorFrame::new(ErrorCode::BadRequest),
            correlation,
            format_args!(
                "shard {own} serves this connection: name shard {shard} in the hello of a \
                 connection that subscribes to its events"
            ),
        );
    }

    pub(super) fn refuse_body(&mut self, frame: &Frame<'_>, error: &BodyError) {
        let greeting = self.phase == Phase::Greeting;
        let code = if greeting { ErrorCode::BadFrame } else { ErrorCode::BadRequest };
        self.answers.error(&ErrorFrame::new(code), frame.correlation, error);
        if greeting {
            self.close();
        }
    }

    pub(super) fn refuse_kind(&mut self, frame: &Frame<'_>) {
        let bad = ErrorFrame::new(ErrorCode::BadFrame);
        let kind = frame.kind;
        if self.phase == Phase::Greeting {
            let text = format_args!("the first frame must be a Hello, not {kind:?}");
            self.answers.error(&bad, frame.correlation, text);
        } else {
            let text = format_args!("a client does not send {kind:?} here");
            self.answers.error(&bad, frame.correlation, text);
        }
        self.close();
    }

    pub(super) fn refuse_frame(&mut self, error: &FrameError) {
        let correlation = error.correlation();
        if let FrameError::TooLong { length, limit, .. } = *error {
            let too_large = ErrorFrame::new(ErrorCode::TooLarge).numbers(length, limit);
            let text = format_args!(
                "{error} (limits.event_max_bytes + 1 MiB): split the append or raise the limit"
            );
            self.answers.error(&too_large, correlation, text);
        } else {
            self.answers.error(&ErrorFrame::new(ErrorCode::BadFrame), correlation, error);
        }
        self.close();
    }
}
