//! Who may serve. A pure machine: it is told the time, the answers of the object store, the peer's
//! messages and what became durable; it says what to do next. It has no standard library, so it
//! cannot read a clock, a file, a socket or a random source even by mistake.
//!
//! The rules are numbered in `docs/PROTOCOL.md` (L: lease, M: membership); the code cites them.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod action;
pub mod document;
pub mod event;
pub mod grant;
pub mod ids;
pub mod in_sync;
pub mod limits;
pub mod machine;
pub mod report;
#[doc(hidden)]
pub mod rules;
pub mod status;
pub mod timings;
