//! `duolog bench skeleton` and `duolog bench plain`: their options.

use std::path::PathBuf;

use clap::Args;

use crate::limits::plain::PlainSettings;
use crate::uring::skeleton::SkeletonSettings;

/// `duolog bench skeleton`.
#[derive(Args, Clone, Debug)]
pub struct SkeletonArgs {
    /// Address to listen on
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: String,
    /// Directory for its file
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Groups being written at one time, 1 to 8
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub writes_in_flight: usize,
}

impl SkeletonArgs {
    pub(super) fn settings(&self) -> SkeletonSettings {
        SkeletonSettings {
            listen: self.listen.clone(),
            dir: self.dir.clone(),
            writes_in_flight: self.writes_in_flight,
        }
    }
}

/// `duolog bench plain`.
#[derive(Args, Clone, Debug)]
pub struct PlainArgs {
    /// Address to listen on
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: String,
    /// Directory for its file
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

impl PlainArgs {
    pub(super) fn settings(&self) -> PlainSettings {
        PlainSettings { listen: self.listen.clone(), dir: self.dir.clone() }
    }
}
