//! The client library against a server that does what each test says, over real sockets.

mod calls;
mod connections;
mod failover;
mod fake;
mod loopback;
mod reads;
mod this_node;
