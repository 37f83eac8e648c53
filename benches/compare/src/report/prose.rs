//! What the document says besides its numbers.

/// What is measured.
pub const INTRODUCTION: &str = include_str!("prose/introduction.md");
/// How it is measured.
pub const METHOD: &str = include_str!("prose/method.md");
/// Why Duolog is where it is, from profiles; written by hand behind a run, empty before.
pub const FINDINGS: &str = include_str!("prose/findings.md");
/// What the pairs' figures are of.
pub const TWO_NODES: &str = include_str!("prose/two_nodes.md");
/// What a reader should know of the others.
pub const FAIRNESS: &str = include_str!("prose/fairness.md");
/// What is not in the tables.
pub const LEFT_OUT: &str = include_str!("prose/left_out.md");
/// How the run is repeated; a list of command lines follows.
pub const COMMANDS: &str = include_str!("prose/commands.md");
