//! The way back: answers of one connection in one buffer, and the count of what is in flight.

use std::fmt;

use super::errors::ErrorCounts;
use crate::limits::IDLE_BUFFER_MAX_BYTES;
use crate::wire::{Appended, ErrorCode, ErrorFrame, StreamSpan};

/// A request in flight. Its answer gives it back ([`Answers::answer`]); a connection that ends
/// takes its tickets with it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request without an answer stays in flight for ever"]
pub struct Ticket {
    correlation: u64,
    cost_bytes: u32,
}

impl Ticket {
    /// The client's number for this request.
    #[must_use]
    pub const fn correlation(&self) -> u64 {
        self.correlation
    }

    /// What the request counts among the connection's bytes in flight.
    #[must_use]
    pub const fn cost_bytes(&self) -> u32 {
        self.cost_bytes
    }
}

/// Answers on their way to the socket.
///
/// A driver sends in one of two ways: [`Answers::unsent`] straight to a socket call, or
/// [`Answers::take_unsent`] when the call has to own its buffer. Either way [`Answers::sent`]
/// tells what the socket took, in order.
#[derive(Debug)]
pub struct Answers {
    out: Vec<u8>,
    /// Bytes at the front of `out` that the socket took.
    sent_bytes: usize,
    /// Bytes given away by `take_unsent` that the socket has not taken.
    taken_bytes: usize,
    unsent_max_bytes: usize,
    requests_in_flight: u32,
    bytes_in_flight: u32,
    /// Requests refused over a limit, less one for each answer since, and how many may be.
    refusals: u32,
    refusals_max: u32,
    errors: ErrorCounts,
}

impl Answers {
    pub(super) fn new(unsent_max_bytes: usize, refusals_max: u32) -> Self {
        Self {
            out: Vec::new(),
            sent_bytes: 0,
            taken_bytes: 0,
            unsent_max_bytes,
            requests_in_flight: 0,
            bytes_in_flight: 0,
            refusals: 0,
            refusals_max,
            errors: ErrorCounts::default(),
        }
    }

    /// Counts a request. The caller has checked the limits.
    pub(super) fn open(&mut self, correlation: u64, cost_bytes: u32) -> Ticket {
        self.requests_in_flight += 1;
        self.bytes_in_flight += cost_bytes;
        Ticket { correlation, cost_bytes }
    }

    /// Counts a request that was refused over a limit.
    pub(super) const fn refused_over_limit(&mut self) {
        self.refusals += 1;
    }

    /// Where the session writes frames that answer no ticket and are no errors.
    pub(super) const fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Queues an error that answers no ticket.
    pub(super) fn error(&mut self, error: &ErrorFrame, correlation: u64, text: impl fmt::Display) {
        let before = self.out.len();
        error.encode(&mut self.out, correlation, text);
        self.errors.look_at(&self.out[before..]);
    }

    /// Whether [`Answers::take_errors`] has something to give.
    #[must_use]
    pub const fn has_errors(&self) -> bool {
        self.errors.any()
    }

    /// The errors queued since the last call: each code that came up, and how often.
    pub fn take_errors(&mut self) -> impl Iterator<Item = (ErrorCode, u32)> + use<> {
        self.errors.take()
    }

    /// Queues the answer to `ticket`: `encode` appends exactly one frame with the given
    /// correlation to the buffer (which holds earlier answers).
    pub fn answer(&mut self, ticket: Ticket, encode: impl FnOnce(&mut Vec<u8>, u64)) {
        let Ticket { correlation, cost_bytes } = ticket;
        let released = self.requests_in_flight.checked_sub(1);
        self.requests_in_flight = released.expect("a ticket is a request in flight");
        let released = self.bytes_in_flight.checked_sub(cost_bytes);
        self.bytes_in_flight = released.expect("a ticket's bytes are in flight");
        self.refusals = self.refusals.saturating_sub(1);
        let before = self.out.len();
        encode(&mut self.out, correlation);
        debug_assert!(self.out.len() > before, "an answer is a frame");
        self.errors.look_at(&self.out[before..]);
    }

    /// Queues a frame that answers no request: a piece of a subscription, or its end.
    pub fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let before = self.out.len();
        encode(&mut self.out);
        debug_assert!(self.out.len() > before, "what is pushed is a frame");
        self.errors.look_at(&self.out[before..]);
    }

    /// Queues a receipt; see [`Appended::encode`].
    pub fn appended(
        &mut self,
        ticket: Ticket,
        receipt: &Appended,
        spans: impl IntoIterator<Item = StreamSpan>,
    ) {
        self.answer(ticket, |out, correlation| receipt.encode(out, correlation, spans));
    }

    /// Queues a refusal; see [`ErrorFrame::encode`].
    pub fn refuse(&mut self, ticket: Ticket, error: &ErrorFrame, text: impl fmt::Display) {
        self.answer(ticket, |out, correlation| error.encode(out, correlation, text));
    }

    /// What the socket can be given, oldest first.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        &self.out[self.sent_bytes..]
    }

    /// Moves what is unsent into `spare`, which must be empty and whose memory is used for the
    /// answers that follow: two buffers take turns. Everything taken earlier must have been sent.
    pub fn take_unsent(&mut self, spare: &mut Vec<u8>) {
        assert!(spare.is_empty(), "the spare buffer is empty");
        assert_eq!(self.taken_bytes, 0, "one buffer is on its way at a time");
        self.out.drain(..self.sent_bytes);
        self.sent_bytes = 0;
        self.taken_bytes = self.out.len();
        std::mem::swap(&mut self.out, spare);
    }

    /// Says that the socket took `count` bytes more.
    ///
    /// Panics when there were not so many.
    pub fn sent(&mut self, count: usize) {
        let of_taken = count.min(self.taken_bytes);
        self.taken_bytes -= of_taken;
        self.sent_bytes += count - of_taken;
        assert!(self.sent_bytes <= self.out.len(), "only what is unsent can be sent");
        if self.sent_bytes == self.out.len() {
            self.sent_bytes = 0;
            self.out.clear();
            if self.out.capacity() > IDLE_BUFFER_MAX_BYTES {
                self.out = Vec::new();
            }
        }
    }

    /// Answers that the socket has not taken, bytes.
    #[must_use]
    pub const fn unsent_bytes(&self) -> usize {
        self.out.len() - self.sent_bytes + self.taken_bytes
    }

    /// Requests without an answer.
    #[must_use]
    pub const fn requests_in_flight(&self) -> u32 {
        self.requests_in_flight
    }

    /// What they count.
    #[must_use]
    pub const fn bytes_in_flight(&self) -> u32 {
        self.bytes_in_flight
    }

    /// Whether no further request is taken: so much is unsent, or the client was refused so often
    /// over its limit and an answer is still to come.
    pub(super) const fn is_full(&self) -> bool {
        let refused_enough = self.refusals >= self.refusals_max && self.requests_in_flight > 0;
        refused_enough || !self.is_read()
    }

    /// Whether the client takes its answers.
    pub(super) const fn is_read(&self) -> bool {
        self.unsent_bytes() <= self.unsent_max_bytes
    }

    pub(super) fn check(&self) {
        assert!(self.sent_bytes <= self.out.len());
        assert!(self.sent_bytes == 0 || self.sent_bytes < self.out.len());
        assert!(self.requests_in_flight > 0 || self.bytes_in_flight == 0);
    }
}
