//! The shard thread's own file access: direct I/O on the executor's ring.

mod log_file;
pub mod mapped;

pub use log_file::{LogFile, LogFiles};
