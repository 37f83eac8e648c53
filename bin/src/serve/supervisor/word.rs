//! The words of the protocol between a service and its manager (sd_notify(3)), as text.

use std::fmt::Write as _;
use std::time::Duration;

/// One assignment of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The node serves, or has finished a reload.
    Ready,
    /// What it does, for people; one line.
    Status(String),
    /// The start may take so much longer from now on.
    ExtendTimeout(Duration),
    /// Every shard has run since this was said last.
    Alive,
    /// The settings are being read again; microseconds of `CLOCK_MONOTONIC`.
    Reloading {
        /// Now.
        monotonic_us: u64,
    },
    /// The node is on its way down.
    Stopping,
}

impl Word {
    /// Whether the manager waits for it: such a word is said again when it could not be sent. The
    /// others are said often.
    #[must_use]
    pub const fn is_awaited(&self) -> bool {
        matches!(self, Self::Ready | Self::Reloading { .. } | Self::Stopping)
    }

    /// Appends the word to a message.
    pub fn encode(&self, message: &mut String) {
        let written = match self {
            Self::Ready => writeln!(message, "READY=1"),
            Self::Status(text) => writeln!(message, "STATUS={}", text.replace('\n', "; ")),
            Self::ExtendTimeout(by) => {
                writeln!(message, "EXTEND_TIMEOUT_USEC={}", by.as_micros())
            }
            Self::Alive => writeln!(message, "WATCHDOG=1"),
            Self::Reloading { monotonic_us } => {
                writeln!(message, "RELOADING=1\nMONOTONIC_USEC={monotonic_us}")
            }
            Self::Stopping => writeln!(message, "STOPPING=1"),
        };
        written.expect("a String takes all text");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_lines_and_a_status_is_one_line() {
        let mut message = String::new();
        let words = [
            Word::Reloading { monotonic_us: 5 },
            Word::Ready,
            Word::Status("a\nb".to_owned()),
            Word::ExtendTimeout(Duration::from_secs(2)),
            Word::Alive,
            Word::Stopping,
        ];
        for word in words {
            word.encode(&mut message);
        }
        assert_eq!(
            message,
            "RELOADING=1\nMONOTONIC_USEC=5\nREADY=1\nSTATUS=a; b\nEXTEND_TIMEOUT_USEC=2000000\n\
             WATCHDOG=1\nSTOPPING=1\n"
        );
    }
}
