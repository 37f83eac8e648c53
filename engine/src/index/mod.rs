//! Where the events of each stream lie: the stream index of one shard.
//!
//! Events of the unsealed segment are indexed in memory ([`tail`]); when a segment is sealed its
//! tail is frozen into an immutable sorted run file, and adjacent runs are merged. Nothing here
//! reads a file or a clock: files are produced as bytes and read page by page through machines
//! that name the page they need. Everything here is derived from the log and never vetoes it: a
//! damaged file is a typed error whose remedy is to rebuild it from the segments.

pub mod catalog;
pub mod filter;
pub mod heads;
pub mod key_file;
mod key_table;
pub mod keys;
pub mod lookup;
pub mod manifest;
pub mod merge;
pub mod page;
mod posting_chain;
pub mod run;
pub mod run_view;
pub mod run_writer;
pub mod span;
pub mod tail;
