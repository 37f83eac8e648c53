//! The smallest S3 client that has compare-and-swap: build, sign, send, classify.
//!
//! Pure parts: [`bucket`], [`key`], [`request`], [`sign`], [`answer`], [`document`], [`etag`],
//! [`date`], [`witness`]. They decide; nothing in them reads a clock or a socket. The edge is
//! [`transport`], [`credentials`] and [`Client`], which run on a tokio runtime.
//!
//! What the client promises about conditional writes stands in [`Client::put_if`] (one sending,
//! three ends) and [`Client::swap`] (doubts resolved by reading back). [`conformance`] finds out
//! whether a store can be trusted with a lease at all.

pub mod answer;
pub mod bucket;
mod client;
mod clock;
pub mod conformance;
pub mod credentials;
pub mod date;
pub mod document;
mod error;
pub mod etag;
pub mod key;
pub mod limits;
mod pace;
pub mod request;
pub mod sign;
pub mod transport;
pub mod witness;

pub use client::{
    Client, Count, Counts, Lane, Object, Observed, Outcome, Recognised, Settings, Swap, Swapped,
};
pub use error::{Error, Remedy};
