//! One line of the event log.

use duolog_engine::ids::Now;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Members of an entry that only some kinds of events have.
pub type Facts = Map<String, Value>;

/// What happened, without when.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The word for it.
    pub event: &'static str,
    /// The reign that it concerns.
    pub epoch: Option<u64>,
    /// As a sentence.
    pub reason: Option<String>,
    /// Numbers and names.
    pub facts: Facts,
}

impl Note {
    /// Something without a reign.
    #[must_use]
    pub fn new(event: &'static str) -> Self {
        Self { event, epoch: None, reason: None, facts: Facts::new() }
    }

    /// The same with its reign.
    #[must_use]
    pub fn at_epoch(self, epoch: u64) -> Self {
        Self { epoch: Some(epoch), ..self }
    }

    /// The same with a sentence.
    #[must_use]
    pub fn because(self, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }

    /// The same with a fact; none if the value is null.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.facts.insert(name.to_owned(), value);
        }
        self
    }
}

/// A line: a note, its number, and two clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Counts the entries of this directory, from 1, over restarts. A gap: lines were lost.
    pub number: u64,
    /// The node's wall clock, ms since 1970.
    pub at_ms: u64,
    /// `CLOCK_BOOTTIME`, us: comparable within one `boot`.
    pub mono_us: u64,
    /// The machine's run that `mono_us` belongs to.
    pub boot: String,
    /// The word for what happened.
    pub event: String,
    /// The reign that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// As a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What only this kind of event has.
    #[serde(flatten)]
    pub facts: Facts,
}

impl Entry {
    /// The line for a note.
    #[must_use]
    pub fn new(note: Note, at: Now, boot: &str) -> Self {
        let Note { event, epoch, reason, facts } = note;
        Self {
            number: 0,
            at_ms: at.wall.0,
            mono_us: at.mono.0,
            boot: boot.to_owned(),
            event: event.to_owned(),
            epoch,
            reason,
            facts,
        }
    }
}
