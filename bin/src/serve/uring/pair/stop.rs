//! The end of a node of a pair: hands over first if there is somebody to hand over to.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duolog_lease::event::Event;

use super::control::Control;

/// How often is looked whether the handover is over.
const LOOK: Duration = Duration::from_millis(2);
/// How long a follower without a connection is waited for, ms: it is dialled every 200 ms.
const RETURN_MS: u64 = 500;

/// A signal asks for the end.
pub(super) fn begin(control: &Rc<Control>) {
    if control.stopping.replace(true) {
        return;
    }
    let control = Rc::clone(control);
    glommio::spawn_local(async move {
        futures_lite::future::yield_now().await;
        await_follower(&control).await;
        control.step(Event::ResignRequested);
        // The machine itself bounds draining and the wait for a successor by a heartbeat lease
        // each; with nobody to hand over to it goes on leading at once.
        let limit_ms = 3 * control.settings.timings.heartbeat_lease_ms();
        let until = control.now().mono.plus(limit_ms);
        while is_handing_over(&control) && control.now().mono < until {
            glommio::timer::sleep(LOOK).await;
        }
        control.shard.inbox().handed_over.store(true, Ordering::Release);
    })
    .detach();
}

/// Waits until there is somebody to hand over to, if somebody is just coming back: a node that was
/// restarted is dialled within a moment, and acks the next heartbeat. Without it clients would wait
/// for a lease to run out.
pub(super) async fn await_follower(control: &Control) {
    let begun = control.now().mono;
    loop {
        let leads = control.machine.borrow().reign().is_some();
        if !leads || control.shard.member().reachable.get() {
            return;
        }
        let lease_ms = control.settings.timings.heartbeat_lease_ms();
        let limit_ms = if control.outbound.is_up() { lease_ms } else { RETURN_MS };
        if control.now().mono.since(begun) >= limit_ms {
            return;
        }
        glommio::timer::sleep(LOOK).await;
    }
}

/// Whether the reign is being given away and no successor has shown itself.
fn is_handing_over(control: &Control) -> bool {
    let machine = control.machine.borrow();
    let open = machine.grant().is_some_and(|grant| grant.admits(control.shard.now().mono.ms()));
    machine.reign().is_some() && !open
}
