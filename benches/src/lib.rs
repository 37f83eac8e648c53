//! The load generator, the bare skeleton, and the benchmarks that hold Duolog against the limits of
//! the machine, and a pair against a standalone server. [`cli`] is what the program mounts.

pub mod append_path;
pub mod cli;
pub mod comparison;
pub mod fan_out;
pub mod fleet;
pub mod generator;
pub mod limits;
pub mod pair;
pub mod prepared_file;
pub mod results;
pub mod sweep;
pub mod uring;

pub use cli::{BenchCommand, BenchError, Outcome, run};
