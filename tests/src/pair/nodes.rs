//! The nodes of a pair as processes: their command lines, their ends.

use rustix::process::Signal;

use serde_json::Value as Json;

use super::cluster::Pair;
use super::status::{Status, ask};
use crate::process::{Answer, Ended, Server, free_port};

impl Pair {
    /// A running node.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn node(&self, number: usize) -> &Server {
        self.running[number].as_ref().unwrap_or_else(|| panic!("node {number} does not run"))
    }

    /// Whether a node is running as far as the test knows.
    #[must_use]
    pub fn runs(&self, number: usize) -> bool {
        self.running[number].is_some()
    }

    /// A node's status; nothing if it does not answer.
    #[must_use]
    pub fn status(&self, number: usize) -> Option<Status> {
        self.running[number].as_ref()?;
        Status::of(self.options[number].address)
    }

    /// Starts a node and waits until it serves clients in whatever role.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&mut self, number: usize) {
        assert!(self.running[number].is_none(), "node {number} runs");
        match self.options[number].try_start() {
            Ok(server) => self.running[number] = Some(server),
            Err(ended) => panic!("node {number} did not start: {ended:#?}"),
        }
    }

    /// Starts a node without waiting.
    pub fn launch(&mut self, number: usize) {
        assert!(self.running[number].is_none(), "node {number} runs");
        self.running[number] = Some(self.options[number].launch());
    }

    fn take(&mut self, number: usize) -> Server {
        self.running[number].take().unwrap_or_else(|| panic!("node {number} does not run"))
    }

    /// Kills a node (SIGKILL).
    pub fn kill(&mut self, number: usize) {
        let server = self.take(number);
        self.past_logs[number].extend(server.log());
        let _ = server.kill();
    }

    /// Asks a node to stop (SIGTERM) and waits for its end.
    ///
    /// # Panics
    /// When it ends otherwise than with exit code 0.
    pub fn stop(&mut self, number: usize) -> Ended {
        let ended = self.take(number).stop();
        self.past_logs[number].extend(ended.log.iter().cloned());
        assert_eq!(ended.code, Some(0), "a clean stop of node {number}: {ended:#?}");
        ended
    }

    /// Waits until a node has ended by itself; how it ended.
    pub fn bury(&mut self, number: usize) -> Ended {
        let ended = self.take(number).wait();
        self.past_logs[number].extend(ended.log.iter().cloned());
        ended
    }

    /// Whether a node's process has ended by itself.
    pub fn has_ended(&mut self, number: usize) -> bool {
        self.running[number].as_mut().is_some_and(|server| !server.is_running())
    }

    /// Stops a node's process in its tracks (SIGSTOP), or lets it go on (SIGCONT).
    pub fn freeze(&self, number: usize, frozen: bool) {
        self.node(number).signal(if frozen { Signal::STOP } else { Signal::CONT });
    }

    /// All lines that a node has logged since the pair was founded.
    #[must_use]
    pub fn log_of(&self, number: usize) -> Vec<String> {
        let mut lines = self.past_logs[number].clone();
        lines.extend(self.running[number].iter().flat_map(Server::log));
        lines
    }

    /// How many lines with this `event` a node has logged since the pair was founded.
    #[must_use]
    pub fn logged(&self, number: usize, event: &str) -> usize {
        let needle = format!("\"event\":\"{event}\"");
        self.log_of(number).iter().filter(|line| line.contains(&needle)).count()
    }

    /// Whether a node has logged a line with these words since the pair was founded.
    #[must_use]
    pub fn has_logged(&self, number: usize, words: &str) -> bool {
        self.log_of(number).iter().any(|line| line.contains(words))
    }

    /// Asks a node what operators ask.
    ///
    /// # Errors
    /// Its refusal, or that it does not answer.
    pub fn order(&self, number: usize, request: &Json) -> Result<String, String> {
        match ask(self.options[number].address, request) {
            Some(Answer::Admin(text)) => Ok(text),
            Some(Answer::Refused(refused)) => Err(refused.text),
            other => Err(format!("{other:?}")),
        }
    }

    /// Orders a handover as soon as there is somebody to hand over to.
    pub fn hand_over(&self, leader: usize) {
        let handoff = serde_json::json!({ "command": "handoff" });
        self.until("the handover is accepted", |pair| pair.order(leader, &handoff).ok());
    }

    /// A blank third node with its own directory; its number. It does not run yet.
    pub fn add(&mut self) -> usize {
        let number = self.options.len();
        let options = self.blank(number);
        self.options.push(options);
        self.running.push(None);
        self.past_logs.push(Vec::new());
        number
    }

    /// Gives a node that does not run other ports: an old connection cannot lead to it.
    pub fn move_away(&mut self, number: usize) {
        assert!(self.running[number].is_none(), "node {number} runs");
        let peer = free_port().to_string();
        self.options[number] = self.options[number].clone().flag("listen-peer", &peer);
    }
}
