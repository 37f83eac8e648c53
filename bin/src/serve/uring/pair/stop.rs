//! The end of a node of a pair: hands over first if there is somebody to hand over to.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duolog_lease::event::Event;

use super::control::Control;

/// How often is looked whether the handover is over.
const LOOK: Duration = Duration::from_millis(2);

/// A signal asks for the end.
pub(super) fn begin(control: &Rc<Control>) {
    if control.stopping.replace(true) {
        return;
    }
    let control = Rc::clone(control);
    glommio::spawn_local(async move {
        futures_lite::future::yield_now().await;
        await_heartbeat(&control).await;
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

/// A follower that has just come back acks the next heartbeat. Without that there would be nobody
/// to hand over to, and clients would wait for a lease to run out.
async fn await_heartbeat(control: &Control) {
    let until = control.now().mono.plus(control.settings.timings.heartbeat_lease_ms());
    let awaited = || {
        let leads = control.machine.borrow().reign().is_some();
        leads && control.outbound.is_up() && !control.shard.member().reachable.get()
    };
    while awaited() && control.now().mono < until {
        glommio::timer::sleep(LOOK).await;
    }
}

/// Whether the reign is being given away and no successor has shown itself.
fn is_handing_over(control: &Control) -> bool {
    let machine = control.machine.borrow();
    let open = machine.grant().is_some_and(|grant| grant.admits(control.shard.now().mono.ms()));
    machine.reign().is_some() && !open
}
