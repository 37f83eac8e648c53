//! The server: boot, shards on their executors, background threads, the way down.

mod background;
mod boot;
pub mod clock;
mod inbox;
mod index;
mod recover;
mod refusal;
mod signals;
mod uring;
mod watchdog;

pub use boot::run;
