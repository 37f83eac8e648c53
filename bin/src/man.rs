//! `duolog man`: a manual page per command, made from the tree of commands.

use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::Cli;
use crate::exit::{Exit, Failure};
use crate::version::VERSION;

/// Shown below the arguments.
pub const HELP: &str = "\
Examples:
  duolog man --dir /usr/local/share/man/man1
  duolog man --dir . && man -l duolog-read.1

One page per command: duolog.1, duolog-append.1 and so on. The Debian package installs them.";

/// `duolog man`
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write the pages into this directory, which must be there.
    #[arg(long)]
    pub dir: PathBuf,
}

/// Writes the pages.
pub fn run(arguments: &ManArgs) -> Result<Exit, Failure> {
    let mut tree = Cli::command().disable_help_subcommand(true);
    tree.build();
    write(&tree, &arguments.dir)?;
    Ok(Exit::Ok)
}

fn write(command: &Command, dir: &Path) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let page = Man::new(command.clone().name(name.clone()))
        .title(name.to_uppercase())
        .section("1")
        .source(format!("duolog {VERSION}"))
        .manual("Duolog");
    let path = dir.join(page.get_filename());
    let mut text = Vec::new();
    let written = page.render(&mut text).and_then(|()| std::fs::write(&path, text));
    written.map_err(|error| {
        Failure::new(Exit::LocalIo, format!("cannot write the page {}: {error}", path.display()))
    })?;
    command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
        .try_for_each(|inner| write(inner, dir))
}
