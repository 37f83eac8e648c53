//! A command that goes on while the test does other things.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::patience::until;
use super::program::{Ran, command, duolog};
use super::vitals::Vitals;

/// How long it may take to say or to end what it is waited for.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A running `duolog`, other than a server. Killed when dropped.
#[derive(Debug)]
pub struct Background {
    child: Child,
    output: Collected,
    errors: Collected,
}

/// What comes out of a pipe, line by line.
#[derive(Debug)]
struct Collected {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Collected {
    fn follow(pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let target = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let mut text = target.lock().unwrap_or_else(PoisonError::into_inner);
                text.push_str(&line);
                text.push('\n');
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn so_far(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader does not panic");
        }
        self.so_far()
    }
}

impl Background {
    /// Starts `duolog` with these arguments and these variables.
    pub fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = command(duolog());
        command.args(arguments).envs(variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = command.spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let output = Collected::follow(child.stdout.take().expect("it was piped"));
        let errors = Collected::follow(child.stderr.take().expect("it was piped"));
        Self { child, output, errors }
    }

    /// Waits until it has said `words` on standard error.
    pub fn says(&self, words: &str) {
        until(WAIT_MAX, words, || self.errors.so_far().contains(words).then_some(()));
    }

    /// What it has said on standard error.
    #[must_use]
    pub fn errors(&self) -> String {
        self.errors.so_far()
    }

    /// What the system says about it.
    #[must_use]
    pub fn vitals(&self) -> Vitals {
        Vitals::of(self.child.id())
    }

    /// Kills it (SIGKILL).
    pub fn kill(&self) {
        // It may just have ended; then there is nobody to kill.
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
    }

    /// Waits until it ends by itself.
    pub fn wait(mut self) -> Ran {
        let status = until(WAIT_MAX, "the command ends", || {
            self.child.try_wait().expect("the system tells of own children")
        });
        Ran { code: status.code(), output: self.output.whole(), errors: self.errors.whole() }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
            let _ = self.child.wait();
        }
    }
}
