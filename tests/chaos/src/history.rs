//! What clients did and were told, as a file for whoever wants to check it in another way, and its
//! rhythm for the report.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use duolog_tests::process::{Fate, Ledger};
use serde_json::json;

/// A shorter time without an acknowledgement is none.
const PAUSE_MIN_MS: u64 = 100;
/// Width of the report's columns.
const COLUMN_MS: u64 = 100;

/// Writes one JSON document per operation, in the order in which they were sent.
///
/// # Panics
/// When the file cannot be written.
pub fn write(path: &Path, ledger: &Ledger) {
    let mut entries: Vec<_> = ledger.entries().iter().collect();
    entries.sort_by_key(|entry| entry.span.map(|span| span.sent_us));
    let mut file = BufWriter::new(File::create(path).expect("the history can be made"));
    for entry in entries {
        let streams: Vec<_> = (entry.operation.parts.iter())
            .map(|part| {
                let expects = format!("{:?}", part.expect);
                json!({ "name": part.name, "expects": expects, "events": part.events.len() })
            })
            .collect();
        let mut line = json!({
            "key": format!("{:032x}", entry.operation.key),
            "streams": streams,
            "sent_us": entry.span.map(|span| span.sent_us),
            "answered_us": entry.span.map(|span| span.answered_us),
        });
        match &entry.fate {
            Fate::Acked(receipt) => {
                line["fate"] = json!("acked");
                line["shard"] = json!(receipt.head.shard.0);
                line["lsns"] = json!([receipt.head.first_lsn.0, receipt.head.last_lsn.0]);
                line["copies"] = json!(format!("{:?}", receipt.head.copies));
            }
            Fate::Refused(code) => line["fate"] = json!(format!("refused: {code:?}")),
            Fate::Unknown => line["fate"] = json!("unknown"),
        }
        writeln!(file, "{line}").expect("the history can be written");
    }
    file.flush().expect("the history can be written");
}

/// When appends were acknowledged.
#[derive(Debug)]
pub struct Rhythm {
    /// Acknowledged appends in each column of 100 ms.
    pub acks_per_100ms: Vec<u64>,
    /// When, ms, nothing was acknowledged for how long, ms.
    pub pauses: Vec<[u64; 2]>,
}

impl Rhythm {
    /// The rhythm between two moments, ms.
    #[must_use]
    pub fn of(ledger: &Ledger, begun_ms: u64, ended_ms: u64) -> Self {
        let mut at: Vec<u64> = (ledger.entries().iter())
            .filter(|entry| matches!(entry.fate, Fate::Acked(_)))
            .filter_map(|entry| Some(entry.span?.answered_us / 1000))
            .filter(|ms| (begun_ms..ended_ms).contains(ms))
            .collect();
        at.sort_unstable();
        let mut acks_per_100ms = vec![0; ((ended_ms - begun_ms) / COLUMN_MS + 1) as usize];
        for ms in &at {
            acks_per_100ms[((ms - begun_ms) / COLUMN_MS) as usize] += 1;
        }
        at.push(ended_ms);
        let gaps = at.windows(2).map(|two| [two[0], two[1] - two[0]]);
        Self { acks_per_100ms, pauses: gaps.filter(|[_, ms]| *ms >= PAUSE_MIN_MS).collect() }
    }

    /// The longest.
    #[must_use]
    pub fn pause_ms_max(&self) -> u64 {
        self.pauses.iter().map(|[_, ms]| *ms).max().unwrap_or_default()
    }
}
