//! What this machine can do at best, and how near Duolog comes.
pub mod raw;
