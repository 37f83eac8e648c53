//! The threads of a run, or those of one process's share of it: they open their connections, wait
//! for the word, apply the load and hand in what they counted.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::clock::Clock;
use super::failure::RunError;
use super::observer::{self, Observer};
use super::settings::Settings;
use super::tally::{Measured, Tally, Window};
use super::time_line::Live;
use super::worker::Worker;

/// Ends a run early, from any thread: within a tenth of a second nothing more is sent. What was
/// counted by then is no result.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// See the module's text.
#[derive(Debug)]
pub struct Crew {
    warm_up: Duration,
    duration: Duration,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    handle: JoinHandle<Option<Tally>>,
    go: SyncSender<Window>,
    live: Arc<Live>,
}

impl Stop {
    /// Stops every run that has this value or a clone of it, now or later.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it has been called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Crew {
    /// Starts the threads with these numbers of the run, which are below `settings.threads`, and
    /// returns when all their connections are ready for load. If one cannot be opened, the others
    /// are stopped.
    pub fn open(
        settings: &Settings,
        threads: Range<u32>,
        clock: Clock,
        stop: &Stop,
    ) -> Result<Self, RunError> {
        settings.check()?;
        let mut members = Vec::new();
        let mut waits = Vec::new();
        for index in threads {
            let (settings, stop) = (settings.clone(), stop.clone());
            let live = Arc::<Live>::default();
            let told = Arc::clone(&live);
            let (opened, wait_opened) = mpsc::sync_channel(1);
            let (go, wait_go) = mpsc::sync_channel::<Window>(1);
            let work = move || -> Option<Tally> {
                let worker = match Worker::open(&settings, index, clock, stop) {
                    Ok(worker) => worker,
                    Err(error) => {
                        let _ = opened.send(Err(error));
                        return None;
                    }
                };
                opened.send(Ok(())).ok()?;
                Some(worker.run(wait_go.recv().ok()?, told))
            };
            let name = format!("bench-{index}");
            let handle = thread::Builder::new().name(name).spawn(work).map_err(RunError::Thread)?;
            members.push(Member { handle, go, live });
            waits.push(wait_opened);
        }
        for wait_opened in waits {
            let opened = wait_opened.recv().expect("a worker reports once before it ends");
            opened.inspect_err(|_| stop.stop())?;
        }
        Ok(Self { warm_up: settings.warm_up, duration: settings.duration, members })
    }

    /// Applies load from `load_ns` (on the clock given to [`Crew::open`]) for warm-up and window,
    /// and waits up to the settings' drain for answers. One tally of each thread.
    #[must_use]
    pub fn run(self, load_ns: u64) -> Vec<Tally> {
        self.begin(load_ns);
        self.hand_in()
    }

    /// The same; `observer` is told of the window on this thread. `clock`: the one given to
    /// [`Crew::open`].
    #[must_use]
    pub fn run_watched(self, load_ns: u64, clock: Clock, observer: &mut dyn Observer) -> Measured {
        let window = self.begin(load_ns);
        let lives: Vec<&Live> = self.members.iter().map(|member| &*member.live).collect();
        let over = || self.members.iter().all(|member| member.handle.is_finished());
        observer::attend(observer, clock, window, &lives, over);
        Measured { window, tallies: self.hand_in() }
    }

    /// What each thread publishes of its course.
    #[must_use]
    pub fn lives(&self) -> Vec<Arc<Live>> {
        self.members.iter().map(|member| Arc::clone(&member.live)).collect()
    }

    fn begin(&self, load_ns: u64) -> Window {
        let nanoseconds = |duration: Duration| {
            u64::try_from(duration.as_nanos()).expect("settings bound durations by a day")
        };
        let start_ns = load_ns + nanoseconds(self.warm_up);
        let window = Window { load_ns, start_ns, end_ns: start_ns + nanoseconds(self.duration) };
        for member in &self.members {
            // A worker that is gone shows when tallies are handed in.
            let _ = member.go.send(window);
        }
        window
    }

    fn hand_in(self) -> Vec<Tally> {
        let handles = self.members.into_iter().map(|member| member.handle);
        handles.filter_map(|handle| handle.join().ok().flatten()).collect()
    }
}
