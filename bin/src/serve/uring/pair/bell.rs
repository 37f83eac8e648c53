//! A local alarm that any number of tasks of one executor may wait for. A task looks at its
//! condition, and waits if it does not hold: nothing runs between, so no ring is missed.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

#[derive(Debug, Default)]
pub(in crate::serve) struct Bell {
    rings: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Bell {
    /// Wakes everybody who waits.
    pub fn ring(&self) {
        self.rings.set(self.rings.get() + 1);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Waits for the next ring.
    pub async fn wait(&self) {
        let heard = self.rings.get();
        poll_fn(|context| {
            if self.rings.get() != heard {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_ring_wakes_every_task_that_waits() {
        let bell = Rc::new(Bell::default());
        let both = async {
            let wait = futures_lite::future::zip(bell.wait(), bell.wait());
            let ring = async {
                futures_lite::future::yield_now().await;
                bell.ring();
            };
            futures_lite::future::zip(wait, ring).await;
        };
        futures_lite::future::block_on(both);
    }
}
