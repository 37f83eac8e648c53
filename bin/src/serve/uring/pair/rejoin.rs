//! Two nodes with empty directories that start at the same moment each make a cluster; the lease
//! decides which one there is. The other joins it: with nothing in its log, its identity is made
//! anew.

use std::os::unix::process::CommandExt;
use std::rc::Rc;

use duolog_lease::document::DocumentError;
use duolog_lease::ids::LeaseEpoch;

use super::control::Control;
use crate::serve::cluster::join;

/// The lease cannot be used, perhaps because another cluster was founded first.
pub(super) fn consider(control: &Rc<Control>, error: &DocumentError) {
    let DocumentError::Foreign { found, .. } = error else { return };
    let settings = &control.settings;
    let empty = control.shard.inboxes.iter().all(|inbox| inbox.gauge.read().end.0 == 0);
    let unpromised = control.machine.borrow().promised().0 == LeaseEpoch::NONE;
    if !(settings.is_new && empty && unpromised) {
        return;
    }
    tracing::warn!(
        event = "rejoin", cluster = %found,
        "another node founded the cluster first; this one starts again as its second node",
    );
    if let Err(error) = join::forget(&settings.data_dir) {
        tracing::error!(event = "rejoin_failed", %error, "remove the data directory by hand");
        return;
    }
    control.shard.journal.stop(crate::exit::Exit::Ok, "it starts again as the second node");
    let Ok(program) = std::env::current_exe() else { return };
    // On success this process is the new one: files, rings and sockets close with the old image.
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
    tracing::error!(event = "rejoin_failed", %error, "start the node again");
    std::process::exit(i32::from(crate::exit::Exit::Internal.code()));
}
