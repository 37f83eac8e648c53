//! The load generator, the bare skeleton, and the benchmark that holds Duolog against the limits of
//! the machine. [`cli`] is what the program mounts.

pub mod cli;
pub mod generator;
pub mod limits;
pub mod prepared_file;
pub mod uring;

pub use cli::{BenchCommand, BenchError, run};
