//! What the service manager that started this process (systemd, or whoever sets `NOTIFY_SOCKET`)
//! is told: how the start goes, that the node serves, that every shard runs, that it reloads or
//! stops. Nothing here is needed to serve: without a manager nothing is said.

mod herald;
mod pulse;
mod socket;
mod start;
mod word;

pub use herald::{Herald, attend};
pub use pulse::Event;
pub use socket::Socket;
pub use start::{Place, Start};
pub use word::Word;
