//! The wire protocols of clients and of the pair, the server's side of a connection as a pure
//! machine, and the client library.

pub mod client;
pub mod limits;
pub mod peer;
mod received;
pub mod session;
pub mod wire;
