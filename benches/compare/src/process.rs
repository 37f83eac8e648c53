//! Servers as child processes: started on one core, awaited, and ended by their process ids.
//!
//! Every one is started through `setpriv --pdeathsig KILL`, so that none outlives the benchmark,
//! however that ends.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::{Clock, pause};

/// A server that was asked to end has this long before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// A command that sets something up has this long.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Of a program's messages, so much is shown when it failed, bytes.
const MESSAGES_MAX_BYTES: usize = 1500;

/// Why a program did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The system refused to start it.
    #[error("cannot start {program}: {source}")]
    Start {
        /// Its name.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// It ended, or failed.
    #[error("{program} ended with {status}; it said: {messages}")]
    Ended {
        /// Its name.
        program: String,
        /// How.
        status: ExitStatus,
        /// The end of its messages.
        messages: String,
    },
    /// It did not end in time.
    #[error("{program} took longer than {after_s} s")]
    Slow {
        /// Its name.
        program: String,
        /// The limit.
        after_s: u64,
    },
}

/// A program to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Its name in messages and of the file that takes its own.
    pub name: &'static str,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Variables of its environment.
    pub variables: Vec<(&'static str, String)>,
    /// Who runs it; `None`: who runs the benchmark.
    pub user: Option<&'static str>,
    /// The core it is pinned to.
    pub cpu: u32,
    /// What asks it to end in order.
    pub end_with: Signal,
}

impl Launch {
    /// A program that ends in order on SIGTERM.
    pub fn new<const N: usize>(name: &'static str, cpu: u32, words: [&str; N]) -> Self {
        let words = words.map(str::to_owned).to_vec();
        Self { name, words, variables: Vec::new(), user: None, cpu, end_with: Signal::TERM }
    }

    /// More arguments.
    #[must_use]
    pub fn with<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Self {
        self.words.extend(words.into_iter().map(str::to_owned));
        self
    }

    /// As another user.
    #[must_use]
    pub fn run_by(mut self, user: &'static str) -> Self {
        self.user = Some(user);
        self
    }

    /// The command line, as somebody would type it who ends the server by hand.
    #[must_use]
    pub fn line(&self) -> String {
        let quoted = |word: &str| {
            let plain = !word.is_empty() && !word.contains([' ', '\'', '"', '{', '*', '\\']);
            if plain { word.to_owned() } else { format!("'{word}'") }
        };
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value}"));
        let user =
            self.user.map(|user| format!("setpriv --reuid {user} --regid {user} --init-groups"));
        let pinned = format!("taskset -c {}", self.cpu);
        let words = self.words.iter().map(|word| quoted(word));
        let all: Vec<String> =
            user.into_iter().chain(variables).chain([pinned]).chain(words).collect();
        all.join(" ")
    }

    /// Starts it; its messages go behind earlier ones in a file in `dir`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn start(&self, dir: &Path) -> Result<Process, ProcessError> {
        let refused = |source| ProcessError::Start { program: self.name.to_owned(), source };
        let log = dir.join(format!("{}.messages", self.name));
        let messages = File::options().create(true).append(true).open(&log).map_err(refused)?;
        let spoken = messages.try_clone().map_err(refused)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(user) = self.user {
            command.args(["--reuid", user, "--regid", user, "--init-groups"]);
        }
        command.args(["taskset", "-c", &self.cpu.to_string()]).args(&self.words);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir("/").stdin(Stdio::null()).stdout(spoken).stderr(messages);
        let child = command.spawn().map_err(refused)?;
        Ok(Process { name: self.name, child, log, end_with: self.end_with })
    }

    /// Runs it to its end; what it printed.
    ///
    /// # Errors
    /// It fails or takes too long.
    pub fn run(&self, dir: &Path) -> Result<String, ProcessError> {
        let clock = Clock::start();
        let mut process = self.start(dir)?;
        let begins_at = process.said_bytes();
        loop {
            if let Some(status) = process.ended() {
                let said = fs::read(&process.log).unwrap_or_default();
                let said = String::from_utf8_lossy(said.get(begins_at..).unwrap_or_default());
                let said = said.into_owned();
                return if status.success() { Ok(said) } else { Err(process.error(status)) };
            }
            if clock.is_past(COMMAND_TIMEOUT) {
                let after_s = COMMAND_TIMEOUT.as_secs();
                return Err(ProcessError::Slow { program: self.name.to_owned(), after_s });
            }
            pause(LOOK_EVERY);
        }
    }
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
    end_with: Signal,
}

impl Process {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// What is said when it has ended and should not have.
    #[must_use]
    pub fn error(&self, status: ExitStatus) -> ProcessError {
        let messages = fs::read(&self.log).unwrap_or_default();
        let tail = &messages[messages.len().saturating_sub(MESSAGES_MAX_BYTES)..];
        let messages = String::from_utf8_lossy(tail).trim().to_owned();
        ProcessError::Ended { program: self.name.to_owned(), status, messages }
    }

    /// Asks it to end.
    pub fn ask_to_end(&self) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            // It may have ended by itself.
            let _ = kill_process(id, self.end_with);
        }
    }

    /// Waits for the end, for a minute at the longest; then it is killed.
    ///
    /// # Errors
    /// It had to be killed.
    pub fn wait_for_end(mut self) -> Result<(), ProcessError> {
        let clock = Clock::start();
        while self.ended().is_none() {
            if clock.is_past(END_TIMEOUT) {
                let after_s = END_TIMEOUT.as_secs();
                return Err(ProcessError::Slow { program: self.name.to_owned(), after_s });
            }
            pause(LOOK_EVERY);
        }
        Ok(())
    }

    fn said_bytes(&self) -> usize {
        let bytes = fs::metadata(&self.log).map_or(0, |metadata| metadata.len());
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program's words arrive as they are, its failure is told with what it said, and a running
    /// one ends when it is asked to. Broken if a failure passes, or if a process stays.
    #[test]
    fn programs_run_fail_and_end() {
        let dir = tempfile::tempdir().unwrap();
        let said = Launch::new("echo", 0, ["echo", "a b"]).with(["c"]).run(dir.path()).unwrap();
        assert_eq!(said, "a b c\n");
        let failing = Launch::new("sh", 0, ["sh", "-c", "echo went wrong; exit 3"]);
        let error = failing.run(dir.path()).unwrap_err().to_string();
        assert!(error.contains("went wrong"), "{error}");
        let process = Launch::new("sleep", 0, ["sleep", "1000"]).start(dir.path()).unwrap();
        process.ask_to_end();
        assert!(process.wait_for_end().is_ok());
    }

    #[test]
    fn the_line_is_what_somebody_would_type() {
        let launch = Launch::new("x", 0, ["postgres", "-c", "a=b c"]).run_by("postgres");
        let user = "setpriv --reuid postgres --regid postgres --init-groups";
        assert_eq!(launch.line(), format!("{user} taskset -c 0 postgres -c 'a=b c'"));
    }
}
