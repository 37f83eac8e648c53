//! The wire protocol's bytes (docs/WIRE.md): frames and the messages in their bodies.
//!
//! Decoding borrows from the caller's slice; encoding appends to the caller's buffer, so that many
//! answers of one connection lie in one buffer and leave in one send. Nothing here allocates,
//! waits or knows a socket.
//!
//! ```
//! use duolog_engine::append::{AppendBuilder, Expect};
//! use duolog_net::limits::FRAME_BODY_MAX_BYTES_DEFAULT;
//! use duolog_net::wire::{self, Decoded, FrameKind};
//!
//! let mut append = AppendBuilder::new();
//! append.stream("order-1", Expect::NoStream)?.event(7, "placed", b"", b"{}")?;
//! let mut buffer = Vec::new();
//! wire::encode_append(&mut buffer, 1, &append);
//!
//! let Decoded::Complete { value: frame, used } =
//!     wire::decode_frame(&buffer, FRAME_BODY_MAX_BYTES_DEFAULT)?
//! else {
//!     unreachable!("the frame is whole");
//! };
//! assert_eq!((frame.kind, frame.correlation, used), (FrameKind::Append, 1, buffer.len()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admin;
mod appended;
pub(crate) mod body;
mod buffer;
mod error;
mod events;
mod frame;
mod fuzz;
mod hello;
mod message;
mod page;
mod read;
mod refused;
mod standing;
mod subscribe;

pub use admin::{encode_admin, encode_admin_answer};
pub use appended::{Appended, AppendedView, Copies, StreamSpan};
pub use body::BodyError;
pub use buffer::FrameBuffer;
pub use error::{ErrorCode, ErrorFrame, ErrorView};
pub use events::{Events, EventsTail};
pub use frame::{
    Decoded, Frame, FrameError, FrameHeader, FrameKind, OpenFrame, decode_frame, decode_header,
    encode_append, encode_frame,
};
pub use fuzz::fuzz_frame;
pub use hello::{Hello, HelloAccepted};
pub use message::Message;
pub use page::{LogPage, LogTail, OpenPage, RecordsView, StreamPage, StreamTail};
pub use read::{Consistency, Direction, ReadLog, ReadStream};
pub use standing::{NodeRole, Standing};
pub use subscribe::{Origin, Position, SYSTEM_PREFIX, Scope, Subscribe, SubscriptionAsk};
