//! How the program ends: one enum, one number each, the same list as in `docs/OPERATIONS.md`
//! (a test compares them). Owns the numbers and [`Failure`], the one error that reaches `main`.

use std::fmt;
use std::process::ExitCode;

/// The program's exit codes. Numbers are for ever; a retired one stays listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok,
    /// A check found something wrong: `verify` found damage, `doctor` a failing point.
    CheckFailed,
    /// The command line or the configuration is wrong.
    Usage,
    /// No server could be reached, or the connection broke before anything was sent.
    Unreachable,
    /// The server refused: conflict, fenced, busy, too large, disk full. Nothing was done.
    Refused,
    /// The outcome is unknown: ask again with the same idempotency key.
    Unknown,
    /// A local file or stream could not be read or written.
    LocalIo,
    /// Another process holds the data directory.
    DataDirInUse,
    /// The data directory belongs to another cluster, node, shard count or format.
    DataDirMismatch,
    /// The data directory's file system does not really do direct I/O.
    DirectIoUnavailable,
    /// The kernel or the container does not allow `io_uring`.
    IoUringUnavailable,
    /// The locked-memory limit is too low for the shards.
    MemlockTooLow,
    /// Another program listens on the port.
    PortInUse,
    /// The log is damaged before its end.
    LogDamaged,
    /// A write or sync failed while serving; the shard is poisoned.
    WriteFailed,
    /// No space for the first segments.
    DiskFull,
    /// The data directory cannot be created, opened or written.
    DataDirUnusable,
    /// A part of the program broke its own rule.
    Internal,
    /// The bucket's store cannot hold a lease.
    StoreUnsafe,
}

impl Exit {
    /// Every code, in order.
    pub const ALL: [Self; 19] = [
        Self::Ok,
        Self::CheckFailed,
        Self::Usage,
        Self::Unreachable,
        Self::Refused,
        Self::Unknown,
        Self::LocalIo,
        Self::DataDirInUse,
        Self::DataDirMismatch,
        Self::DirectIoUnavailable,
        Self::IoUringUnavailable,
        Self::MemlockTooLow,
        Self::PortInUse,
        Self::LogDamaged,
        Self::WriteFailed,
        Self::DiskFull,
        Self::DataDirUnusable,
        Self::Internal,
        Self::StoreUnsafe,
    ];

    /// The number the process ends with.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::CheckFailed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Refused => 4,
            Self::Unknown => 5,
            Self::LocalIo => 6,
            Self::DataDirInUse => 10,
            Self::DataDirMismatch => 11,
            Self::DirectIoUnavailable => 12,
            Self::IoUringUnavailable => 13,
            Self::MemlockTooLow => 14,
            Self::PortInUse => 15,
            Self::LogDamaged => 16,
            Self::WriteFailed => 17,
            Self::DiskFull => 18,
            Self::DataDirUnusable => 19,
            Self::Internal => 20,
            Self::StoreUnsafe => 21,
        }
    }

    /// The name used in documents and JSON.
    #[must_use]
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command ended badly: the exit code and one text that says what happened, with which
/// values, and what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// The text; one line per problem.
    pub text: String,
    /// The numbers in the text, for machines; null if there are none.
    pub details: serde_json::Value,
}

impl Failure {
    /// A failure with its text.
    #[must_use]
    pub fn new(exit: Exit, text: impl fmt::Display) -> Self {
        Self { exit, text: text.to_string(), details: serde_json::Value::Null }
    }

    /// The same with numbers for machines.
    #[must_use]
    pub fn with_details(self, details: serde_json::Value) -> Self {
        Self { details, ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/OPERATIONS.md` has one row `| code | Name | …` per exit code and no other.
    #[test]
    fn operations_document_lists_exactly_these_codes() {
        let document = include_str!("../../docs/OPERATIONS.md");
        let rows: Vec<(u8, String)> = document
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| ")?.split(" | ");
                let code = cells.next()?.trim().parse().ok()?;
                Some((code, cells.next()?.trim_matches('`').to_owned()))
            })
            .collect();
        let codes: Vec<(u8, String)> =
            Exit::ALL.iter().map(|exit| (exit.code(), exit.name())).collect();
        assert_eq!(rows, codes);
    }

    #[test]
    fn codes_differ_and_grow() {
        assert!(Exit::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }
}
