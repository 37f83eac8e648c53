//! The shard thread's own file access: direct I/O on the executor's ring.

mod log_file;
pub mod mapped;
mod read_ahead;

pub use log_file::{LogFile, LogFiles};
pub use read_ahead::ReadAhead;
