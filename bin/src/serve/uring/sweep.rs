//! Hot connections: sockets that are read by sweeps instead of armed polls.
//!
//! An armed poll makes every arriving packet interrupt the core that is busy with the packets
//! before it: more than half of a shard's capacity with hundreds of clients (docs/adr/0003). So a
//! reader whose append waits in a block lets go of its socket; when the block is durable and its
//! answers are sent, one sweep reads all such sockets without waiting, straight into the next
//! block. A hot connection is always in one of two states: it has a request in flight, whose answer
//! puts it into the list, or it is in the list. The list is emptied, and every reader armed again,
//! before a shard with everything committed has no write in flight and nothing to write (invariant
//! Q4): also the readers whose requests wait for something else than a block, a segment or another
//! shard. Where that does not come, because the shard is busy or waits for its second copy, a tick
//! finds those that no sweep has looked at.
//!
//! With `shards.spin_us` a shard does the same for few clients, and lingers: it goes on looking at
//! their sockets for that long before it sleeps, so that no core has to be woken for the next
//! request (docs/adr/0010).

use std::io;
use std::rc::Rc;

use duolog_net::session::Flow;

use super::connection::Connection;
use super::shard_loop::ShardLoop;

/// A commit that answered at least this many connections keeps them hot; with fewer, the next
/// request is better waited for.
const GROUP_MIN: usize = 4;
/// Lingering is for at most this many clients: with more, the next request is there already.
const LINGER_MAX: usize = 4;
/// Sweeps without a find before a hot connection is waited for again.
const MISSES_MAX: u32 = 2;

impl ShardLoop {
    /// Lets a reader leave its socket to the sweeps, when the shard is busy enough.
    pub(super) fn heat(&self, connection: &Rc<Connection>, flow: Flow) {
        let shard = self.shard.borrow();
        // A write is under way or sure to come, and with its end a sweep.
        let busy = shard.is_writing() || shard.wants_flush();
        if busy
            && self.answered.get() >= self.group_min()
            && flow == Flow::Read
            && connection.has_requests()
        {
            connection.heat();
            if !connection.warm.replace(true) {
                self.warm.borrow_mut().push(Rc::clone(connection));
            }
        }
    }

    /// Reads from every connection in the list without waiting.
    pub(super) fn sweep(self: &Rc<Self>) {
        self.sweeping.set(true);
        let mut hot = self.hot.take();
        hot.retain(|connection| self.sweep_one(connection));
        // Connections that were answered meanwhile were put into the new list.
        hot.append(&mut self.hot.borrow_mut());
        self.hot.replace(hot);
        self.sweeping.set(false);
    }

    /// The fewest answered connections that stay hot.
    const fn group_min(&self) -> usize {
        if self.spin_us > 0 { 1 } else { GROUP_MIN }
    }

    /// Before the shard sleeps: looks for the next requests of the clients that the last commit
    /// answered, for `shards.spin_us` at most. Nothing else of the shard runs meanwhile.
    pub(super) fn linger(self: &Rc<Self>) {
        if self.spin_us == 0 || self.answered.get() > LINGER_MAX {
            return;
        }
        self.look_at_the_clock();
        let until_us = self.now_us().0 + self.spin_us;
        while self.is_idle() && !self.hot.borrow().is_empty() && self.now_us().0 < until_us {
            // The kernel's workers for this core come first: what they do may be a write's end.
            rustix::thread::sched_yield();
            // A miss is what is to be expected here.
            self.hot.borrow().iter().for_each(|connection| connection.found());
            self.sweep();
            self.look_at_the_clock();
        }
    }

    /// Whether the connection stays in the list.
    fn sweep_one(self: &Rc<Self>, connection: &Rc<Connection>) -> bool {
        connection.listed.set(false);
        if !connection.is_hot() {
            // Its own reader waits for it again.
            return false;
        }
        match connection.receive_now(self) {
            Ok(Flow::Read) if connection.has_requests() => {
                // Its answer puts it back, if it has not come already.
                connection.found();
                return false;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if connection.missed() <= MISSES_MAX {
                    connection.listed.set(true);
                    return true;
                }
            }
            Ok(_) | Err(_) => {}
        }
        connection.cool();
        false
    }

    /// Before the shard has nothing to do: every reader waits for its socket again.
    // Q4: called before the shard goes idle.
    pub(super) fn cool_all(&self) {
        self.hot.take().iter().for_each(|connection| connection.listed.set(false));
        for connection in self.warm.take() {
            connection.warm.set(false);
            connection.cool();
        }
    }

    /// Gives back the sockets of hot connections that no sweep has looked at since the last tick:
    /// their requests wait long, and a client must be able to ask for a sign of life.
    pub(super) fn cool_waiting(&self) {
        let mut warm = self.warm.take();
        warm.retain(|connection| {
            if connection.waits_long() {
                connection.cool();
            }
            connection.warm.set(connection.is_hot());
            connection.is_hot()
        });
        // Cooling only wakes readers: none was added meanwhile.
        self.warm.replace(warm);
    }

    /// An answered connection goes into the list if it is hot and a sweep is sure to come.
    pub(super) fn list(&self, connection: &Rc<Connection>) {
        if !connection.is_hot() {
            return;
        }
        let shard = self.shard.borrow();
        if !shard.is_writing() && !shard.wants_flush() && !self.sweeping.get() {
            return connection.cool();
        }
        if !connection.listed.replace(true) {
            self.hot.borrow_mut().push(Rc::clone(connection));
        }
    }
}
