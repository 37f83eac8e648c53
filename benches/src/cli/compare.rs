//! `duolog bench compare`: two sets of results beside each other.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{BenchError, Outcome, json};
use crate::comparison;
use crate::results::{self, DOCUMENT, Document, ResultError};

pub(super) const HELP: &str = "\
Examples:
  duolog bench compare before/ after/
  duolog bench compare --base a1 a2 a3 --with b1 b2 b3 --tolerance 5%

Each side is a result (a file or the directory that --out made), a directory with several of them,
taken in the order of their names, or a list. Results are paired by their order: measure the two
sides in turn, so that a pair shares what the machine did at that time. Of each figure the ratio is
printed with its 95 % confidence interval (Student, over the logarithms of the ratios). One pair has
no interval and decides nothing, unless it shows a failure.

Exit code 0: no regression is shown; 1: a figure is worse by more than the tolerance, and its whole
interval lies beyond it, or throughput or latencies are missing where the base has them, or errors
and requests without an answer rose by more than 0.1 percentage points of all (median); 2: the
results are not of the same load and machine, or cannot be read.";

/// `duolog bench compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The base, and what is held against it
    #[arg(num_args = 2, value_names = ["BASE", "WITH"])]
    #[arg(required_unless_present_any = ["base", "with"])]
    pub sides: Vec<PathBuf>,
    /// The base as a list
    #[arg(long, num_args = 1.., value_name = "PATH", conflicts_with = "sides", requires = "with")]
    pub base: Vec<PathBuf>,
    /// What is held against it
    #[arg(long, num_args = 1.., value_name = "PATH", conflicts_with = "sides", requires = "base")]
    pub with: Vec<PathBuf>,
    /// How much worse a figure may be: `10%`
    #[arg(long, default_value = "10%", value_parser = parse_share, value_name = "SHARE")]
    pub tolerance: f64,
    /// Compare even if load or machine differ
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Reads, compares and says what it came to.
pub(super) fn run(arguments: &CompareArgs) -> Result<Outcome, BenchError> {
    let (base, with) = match arguments.sides.as_slice() {
        [base, with] => (results_at(base)?, results_at(with)?),
        _ => (all_at(&arguments.base)?, all_at(&arguments.with)?),
    };
    let compared = comparison::compare(&base, &with, arguments.tolerance, arguments.force)?;
    let text = if arguments.json { json(&compared)? } else { compared.to_text() };
    Ok(Outcome { text, passed: !compared.regressed })
}

fn all_at(paths: &[PathBuf]) -> Result<Vec<Document>, ResultError> {
    let sets = paths.iter().map(|path| results_at(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(sets.into_iter().flatten().collect())
}

/// The result at a path, or those in a directory, by name.
fn results_at(path: &Path) -> Result<Vec<Document>, ResultError> {
    if !path.is_dir() || path.join(DOCUMENT).exists() {
        return Ok(vec![results::read(path)?]);
    }
    let failed = |error| ResultError::File { path: path.to_path_buf(), error };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let inside = entry.map_err(failed)?.path();
        let is_file = inside.extension().is_some_and(|ending| ending == "json");
        if is_file || inside.join(DOCUMENT).exists() {
            found.push(inside);
        }
    }
    found.sort();
    if found.is_empty() {
        let reason = format!("it contains no {DOCUMENT} and no directory with one");
        return Err(ResultError::Form { path: path.to_path_buf(), reason });
    }
    found.iter().map(|path| results::read(path)).collect()
}

/// `10%`, `2.5%`; a plain number is refused, since 10 could be meant as either.
fn parse_share(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is no share: write 10%");
    let number: f64 = text.strip_suffix('%').ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
    if (0.0..100.0).contains(&number) { Ok(number / 100.0) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_is_written_in_percent() {
        assert_eq!(parse_share("10%"), Ok(0.1));
        for wrong in ["10", "0.1", "-1%", "100%", "x%", ""] {
            assert!(parse_share(wrong).is_err(), "{wrong:?}");
        }
    }
}
