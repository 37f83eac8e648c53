//! `duolog bench append-path`: its options, and what it prints.

use clap::Args;

use crate::append_path::{AppendPathReport, AppendPathSettings, GROUP_MAX};

/// `duolog bench append-path`.
#[derive(Args, Clone, Debug)]
pub struct AppendPathArgs {
    /// Appends
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub appends: u32,
    /// Appends in one block, each from a connection of its own
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = group())]
    pub group: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

fn group() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(GROUP_MAX))
}

impl AppendPathArgs {
    pub(super) const fn settings(&self) -> AppendPathSettings {
        AppendPathSettings { appends: self.appends, group: self.group }
    }
}

pub(super) fn to_text(report: &AppendPathReport) -> String {
    let AppendPathReport { appends, blocks, block_bytes, answer_bytes } = report;
    format!(
        "{appends} appends in {blocks} blocks of {block_bytes} bytes, {answer_bytes} bytes of \
         answers\n"
    )
}
