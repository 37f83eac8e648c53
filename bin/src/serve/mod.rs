//! The server: boot, shards on their executors, background threads, the way down.

mod admin;
mod background;
mod boot;
pub mod clock;
pub mod cluster;
mod http;
mod inbox;
mod index;
mod journal;
mod life;
mod metrics;
mod progress;
mod rebuild;
mod recover;
mod refusal;
mod reload;
mod repair;
mod signals;
mod stamps;
mod supervisor;
mod uring;
pub mod visit;
mod vitals;
mod watchdog;

pub use boot::run;
pub use reload::Reload;
