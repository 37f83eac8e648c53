//! What this program is: its version, and the commit it was built from.

use duolog_benches::results::Program;

/// The version of the release.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit, `-modified` behind it if a source differed; `unknown` where no git was there to ask.
pub const COMMIT: &str = env!("BUILT_FROM_COMMIT");

/// Both, for what is written down.
pub const PROGRAM: Program = Program { version: VERSION, commit: COMMIT };
