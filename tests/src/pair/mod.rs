//! Two real nodes and the embedded S3 under test: founded, broken in every way, healed, and in the
//! end held against what clients were told.
//!
//! Node numbers are 0 and 1 in the order of founding, 2 for a newcomer; who leads is asked, never
//! assumed.

mod cluster;
mod crowd;
mod nodes;
mod status;

pub use cluster::{Dress, Ground, Pair, PairOptions, Timing};
pub use status::{Role, Status};
