//! Questions to the bucket that a task waits for.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use slab::Slab;

use crate::serve::cluster::store::{Ask, Lane, Store, Told};
use crate::serve::inbox::Inbox;

/// Pause before a call that found the queue full is tried again.
const RETRY: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
struct Slot {
    told: Option<Told>,
    waker: Option<Waker>,
}

/// The calls of one shard.
#[derive(Debug)]
pub(in crate::serve) struct Calls {
    store: Store,
    inbox: Arc<Inbox>,
    slots: RefCell<Slab<Slot>>,
}

impl Calls {
    pub fn new(store: Store, inbox: Arc<Inbox>) -> Self {
        Self { store, inbox, slots: RefCell::default() }
    }

    /// Asks and waits. The task that asks must see it through: nobody else takes the answer.
    pub async fn ask(&self, lane: Lane, ask: Ask) -> Told {
        let id = self.slots.borrow_mut().insert(Slot::default());
        while !self.store.ask(&self.inbox, id as u64, lane, ask.clone()) {
            glommio::timer::sleep(RETRY).await;
        }
        let told = poll_fn(|context| {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[id];
            match slot.told.take() {
                Some(told) => Poll::Ready(told),
                None => {
                    slot.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        let told = told.await;
        self.slots.borrow_mut().remove(id);
        told
    }

    /// An answer has come.
    pub fn told(&self, id: u64, told: Told) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = usize::try_from(id).ok().and_then(|id| slots.get_mut(id)) else { return };
        slot.told = Some(told);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }
}
