//! `duolog bench`: hands its arguments to the load generator.

use crate::exit::{Exit, Failure};

/// Runs the load generator with `arguments`.
pub fn run(_arguments: &[String]) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Internal, "the load generator is not built yet"))
}
