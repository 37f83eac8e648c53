//! Support for tests that look at Duolog from outside.

pub mod pair;
pub mod process;
pub mod sim;
pub mod simulator;
