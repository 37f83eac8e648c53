//! A local alarm between two tasks of one executor: rings may come before the wait, many rings
//! count once.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

#[derive(Debug, Default)]
pub(super) struct Notify {
    rung: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Notify {
    pub(super) fn ring(&self) {
        if !self.rung.replace(true)
            && let Some(waker) = self.waiting.borrow_mut().take()
        {
            waker.wake();
        }
    }

    /// Waits for a ring since the last wait. One task waits at a time.
    pub(super) async fn wait(&self) {
        poll_fn(|context| {
            if self.rung.replace(false) {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
