//! What a pair does, to the millisecond, with the default timings.

mod boot;
mod handover;
mod members;
mod pair;
mod purity;
mod single;
mod store_down;
mod timing;
mod writes;
