//! `duolog completions`: what a shell needs to complete commands and flags, made from the tree of
//! commands.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Shown below the arguments.
pub const HELP: &str = "\
Examples:
  duolog completions bash > /usr/share/bash-completion/completions/duolog
  duolog completions zsh > \"${fpath[1]}/_duolog\"
  duolog completions fish > ~/.config/fish/completions/duolog.fish
  source <(duolog completions bash)             for this shell only

The Debian package installs those of bash, zsh and fish.";

/// `duolog completions`
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// For which shell.
    pub shell: Shell,
}

/// Prints the script.
pub fn run(arguments: &CompletionsArgs, mut output: Output) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "duolog", &mut script);
    output.text(&String::from_utf8_lossy(&script))?;
    output.flush()?;
    Ok(Exit::Ok)
}
