//! What happened when: one JSON document per line, written as it happens, so that a run that dies
//! has told everything before.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use duolog_tests::process::moment_us;
use serde_json::{Value as Json, json};

/// See the module. Clones write into the same file.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Mutex<File>>);

impl Journal {
    /// A new file.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn create(path: &Path) -> Self {
        Self(Arc::new(Mutex::new(File::create(path).expect("the journal can be made"))))
    }

    /// Adds a line with the time, `ms`, and the kind, `what`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn note(&self, what: &str, mut more: Json) {
        more["ms"] = json!(moment_us() / 1000);
        more["what"] = json!(what);
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "{more}").expect("the journal can be written");
    }
}
