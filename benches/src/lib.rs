//! Load generator library and the limits benchmark.

pub mod frame;
pub mod generator;
pub mod limits;
pub mod prepared_file;
pub mod uring;
