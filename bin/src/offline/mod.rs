//! Tools that read a data directory without a server: `verify` and `inspect`.

pub mod chain;
pub mod compare;
pub mod inspect;
pub mod shard;
pub mod verify;
pub mod walk;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
