//! `duolog bench`: runs the load generator and prints what it found.

use duolog_benches::BenchCommand;

use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Runs `command`.
pub fn run(command: &BenchCommand, mut output: Output) -> Result<Exit, Failure> {
    let text = duolog_benches::run(command).map_err(|error| {
        let exit = match &error {
            error if error.is_usage() => Exit::Usage,
            error if error.is_unreachable() => Exit::Unreachable,
            _ => Exit::LocalIo,
        };
        Failure::new(exit, error.to_string())
    })?;
    output.text(&text)?;
    output.flush()?;
    Ok(Exit::Ok)
}
