//! The real program under test: built, started, killed, watched, talked to byte by byte.
//!
//! Everything here lives in real time and on real disks; every wait has a limit and every process
//! that is started is ended by its own number. A test that cannot run on a machine (no root, no
//! loop device) says so on standard error ([`skip`]) and passes.
//!
//! Scratch directories lie in the target folder, because temporary folders are often file systems
//! in memory, which the program refuses. `DUOLOG_TEST_DIR` names another place.

mod background;
mod crowd;
mod held_thread;
mod http;
mod ledger;
pub mod log_files;
mod loop_disk;
mod moment;
mod namespace;
mod notified;
mod patience;
mod program;
mod request;
mod server;
mod vitals;
mod wire;

pub use background::Background;
pub use crowd::{Crowd, CrowdPlan};
pub use held_thread::HeldThread;
pub use http::{Http, HttpAnswer};
pub use ledger::{Entry, Fate, Ledger, Operation, StreamPart, check_streams};
pub use loop_disk::LoopDisk;
pub use moment::{Span, moment_us};
pub use namespace::{enter, within};
pub use notified::Manager;
pub use patience::{Stopwatch, pause, quiet, skip, until};
pub use program::{Ran, duolog, run, scratch};
pub use request::{block_on, end_of, one_event, raw_append};
pub use server::{Ended, Server, ServerOptions, free_port};
pub use vitals::Vitals;
pub use wire::{Answer, OwnedFrame, Page, Receipt, Refused, Wire};
