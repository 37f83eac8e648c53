//! What the node is, as it shows it to other threads and to operators.

use duolog_lease::ids::Now;
use duolog_lease::in_sync::InSync;
use duolog_lease::machine::Machine;

use super::control::Control;
use crate::serve::cluster::gauges::Role;
use crate::serve::metrics::Standing;

/// The nodes that have everything that was acknowledged, as far as this one knows.
pub(super) fn in_sync(machine: &Machine) -> Option<InSync> {
    let members = machine.members().map(|(in_sync, _)| in_sync);
    members.or_else(|| machine.lease().map(|version| version.document.in_sync))
}

impl Control {
    /// Whether the connection to the other node is up.
    pub(super) fn peer_connected(&self, leads: bool) -> bool {
        if leads { self.outbound.is_up() } else { self.inbound.borrow().is_some() }
    }

    /// Shows it to whoever reads metrics.
    pub(super) fn show_standing(&self, now: Now) {
        let machine = self.machine.borrow();
        let (role, epoch) = Role::of(machine.status(now));
        let members = in_sync(&machine).iter().flat_map(InSync::members).count();
        self.settings.metrics.show(&Standing {
            epoch: epoch.unwrap_or(machine.promised().0).0,
            serve_until_ms: machine.grant().map_or(0, |grant| grant.serve_until.0),
            in_sync: members as u64,
            peer_connected: self.peer_connected(role == Role::Leader),
            peer_skew_ms: self.outbound.skew_ms.get(),
        });
    }
}
