//! Requests put together by hand.

use duolog_engine::append::{AppendBuilder, Expect};
use duolog_net::wire::{Direction, ReadStream};

/// The body of an append, put together without any check: fixed part, one stream, its events as
/// (type, metadata, data).
#[must_use]
pub fn raw_append(name: &[u8], events: &[(&[u8], &[u8], &[u8])]) -> Vec<u8> {
    let count = events.len() as u32;
    let mut out = Vec::new();
    out.extend_from_slice(&[0, 0, 1, 0]);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&[0; 24]);
    out.extend_from_slice(&[0, name.len() as u8, 0, 0]);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(name);
    for (kind, metadata, data) in events {
        out.extend_from_slice(&1_u128.to_le_bytes());
        out.extend_from_slice(&[kind.len() as u8, 0, 0, 0]);
        out.extend_from_slice(&(metadata.len() as u32).to_le_bytes());
        out.extend_from_slice(&(data.len() as u32).to_le_bytes());
        for part in [kind, metadata, data] {
            out.extend_from_slice(part);
        }
    }
    out
}

/// An append of one event that expects nothing.
///
/// # Panics
/// When a name does not fit.
#[must_use]
pub fn one_event(stream: &str, kind: &str, metadata: &[u8], data: &[u8]) -> AppendBuilder {
    let mut append = AppendBuilder::new();
    append.stream(stream, Expect::Any).expect("the name fits");
    append.event(1, kind, metadata, data).expect("the event fits");
    append
}

/// A read of a stream's end: its last event, and how many there are.
#[must_use]
pub const fn end_of(stream: &str) -> ReadStream<'_> {
    let mut read = ReadStream::new(stream);
    (read.from, read.events_max, read.direction) = (ReadStream::END, 1, Direction::Backwards);
    read
}

/// Runs what the client library does.
///
/// # Panics
/// When the system gives no runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(future)
}
