//! The wire protocol, the server's side of a connection as a pure machine, and the client library.

pub mod client;
pub mod limits;
pub mod session;
pub mod wire;
