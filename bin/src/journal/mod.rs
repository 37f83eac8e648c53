//! The node's event log: what happened to its lead, in a few lines a day, kept over restarts.
//!
//! Two files of the data directory, each of at most 1 MiB, one JSON document per line. Nobody
//! decides by them: the newest lines may be lost in a power cut, a torn line is skipped.

pub mod entry;
pub mod file;

pub use entry::{Entry, Note};
pub use file::{JournalFile, Page, read};
