//! The thread that keeps the node's event log. It may block; whoever notes something may not, and
//! what finds its queue full is lost and counted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded};
use duolog_engine::ids::Now;
use duolog_net::limits::ADMIN_ANSWER_MAX_BYTES;
use serde_json::json;

use super::clock::Clock;
use super::visit::Asker;
use crate::exit::{Exit, Failure};
use crate::journal::{self, Entry, JournalFile, Note};
use crate::version::{COMMIT, VERSION};

/// Jobs that wait, at most. A node has a few a minute.
const JOBS_MAX: usize = 1024;
/// Room in an answer for what is not an entry, bytes.
const ANSWER_REST_BYTES: usize = 1024;
/// How long the end of the process waits for its last line.
const LAST_LINE: Duration = Duration::from_millis(500);

/// The way to the thread.
#[derive(Clone, Debug)]
pub struct Journal {
    jobs: Sender<Job>,
    boot: Arc<str>,
    /// Entries that found the queue full.
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Job {
    Keep(Entry),
    Answer(Asker, usize),
    /// Told when everything before is written.
    Flush(Sender<()>),
}

impl Journal {
    /// Opens the log in the data directory, notes that the process has started, and starts the
    /// thread. It ends with the process.
    ///
    /// # Errors
    /// Of the thread. A log that cannot be opened is a warning: the node serves without it.
    pub fn start(dir: &Path) -> io::Result<Self> {
        let (jobs, receiver) = bounded(JOBS_MAX);
        let file = JournalFile::open(dir).inspect_err(|error| {
            tracing::warn!(event = "events_not_kept", %error, "the event log stays as it is");
        });
        let file = file.ok();
        let boot = boot_id();
        let lost = Arc::new(AtomicU64::new(0));
        let journal = Self { jobs, boot, lost: Arc::clone(&lost) };
        journal.note(Clock.now(), started(file.as_ref(), &journal.boot));
        let keeper = Keeper { dir: dir.to_owned(), file, lost, failing: false };
        let thread = std::thread::Builder::new().name("journal".to_owned());
        thread.spawn(move || keeper.run(&receiver))?;
        Ok(journal)
    }

    /// Notes something. Never waits.
    pub fn note(&self, at: Now, note: Note) {
        let entry = Entry::new(note, at, &self.boot);
        if self.jobs.try_send(Job::Keep(entry)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has the newest `last` entries sent to a client; whether that was accepted. Never waits.
    pub fn answer(&self, asker: Asker, last: usize) -> bool {
        self.jobs.try_send(Job::Answer(asker, last)).is_ok()
    }

    /// Notes why the process ends, and waits a moment for the line to be written: only for a
    /// process that ends now.
    pub fn stop(&self, exit: Exit, reason: &str) {
        self.end(i32::from(exit.code()), reason);
    }

    /// The same for an end that is no [`Exit`].
    pub fn end(&self, code: i32, reason: &str) {
        let note = Note::new("process_stop").because(reason).with("exit", code);
        self.note(Clock.now(), note);
        let (done, waits) = bounded(1);
        if self.jobs.try_send(Job::Flush(done)).is_ok() {
            // A disk that hangs must not keep the process from ending.
            let _ = waits.recv_timeout(LAST_LINE);
        }
    }

    /// The same for the end of [`super::run`].
    pub fn stop_with(&self, result: &Result<Exit, Failure>) {
        match result {
            Ok(exit) => self.stop(*exit, "it was asked to"),
            Err(failure) => self.stop(failure.exit, &failure.text),
        }
    }
}

/// The machine's run, as the kernel names it.
fn boot_id() -> Arc<str> {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map_or_else(|_| "unknown".into(), |text| text.trim().into())
}

/// What is known of the process before this one.
fn started(file: Option<&JournalFile>, boot: &str) -> Note {
    let note = Note::new("process_start")
        .with("pid", std::process::id())
        .with("version", VERSION)
        .with("commit", COMMIT);
    let Some(before) = file.and_then(JournalFile::last) else { return note };
    let clean = before.event == "process_stop";
    let reason = match (clean, before.boot == boot) {
        (true, _) => "the process before this one said why it ended",
        (false, true) => "the process before this one ended without a word: killed or crashed",
        (false, false) => "the machine was restarted while the process before this one ran",
    };
    let note = note.because(reason).with("clean", clean).with("before_ms", before.at_ms);
    note.with("same_boot", before.boot == boot)
}

struct Keeper {
    dir: PathBuf,
    file: Option<JournalFile>,
    lost: Arc<AtomicU64>,
    /// The last write failed: it is told once.
    failing: bool,
}

impl Keeper {
    fn run(mut self, jobs: &Receiver<Job>) {
        for job in jobs {
            match job {
                Job::Keep(entry) => self.keep(entry),
                Job::Answer(asker, last) => self.answer(&asker, last),
                // Whoever asked may have given up.
                Job::Flush(done) => drop(done.send(())),
            }
        }
    }

    fn keep(&mut self, mut entry: Entry) {
        let Some(file) = &mut self.file else { return };
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            entry.facts.insert("lost_before".to_owned(), lost.into());
        }
        match file.append(entry) {
            Ok(()) => self.failing = false,
            Err(error) => {
                self.lost.fetch_add(lost + 1, Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(event = "events_not_kept", %error);
                }
            }
        }
    }

    fn answer(&self, asker: &Asker, last: usize) {
        let room = ADMIN_ANSWER_MAX_BYTES - ANSWER_REST_BYTES;
        let (page, error) = match journal::read(&self.dir, last, room) {
            Ok(page) => (page, None),
            Err(error) => (journal::Page::default(), Some(error.to_string())),
        };
        let now = Clock.now();
        let answer = json!({
            "node": asker.node,
            "at_ms": now.wall.0,
            "entries": page.entries,
            "left_out": page.left_out,
            "error": error,
        });
        asker.answer(&answer);
    }
}
