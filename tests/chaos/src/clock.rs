//! Wall clocks of nodes that are off: a small library, compiled here, is preloaded into them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use duolog_tests::process::ServerOptions;

const SOURCE: &str = include_str!("../data/clock.c");

/// See the module.
#[derive(Clone, Debug)]
pub struct Clocks {
    library: PathBuf,
    files: Vec<PathBuf>,
}

impl Clocks {
    /// Compiles the library in `folder` and makes a clock for each of `count` nodes.
    ///
    /// # Errors
    /// In words: no C compiler, or it does not like the source.
    pub fn make(folder: &Path, count: usize) -> Result<Self, String> {
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let ran = compile.output().map_err(|error| format!("no C compiler: {error}"))?;
        if !ran.status.success() {
            return Err(String::from_utf8_lossy(&ran.stderr).into_owned());
        }
        let files = (0..count).map(|number| folder.join(format!("clock-{number}"))).collect();
        let clocks = Self { library, files };
        (0..count).for_each(|number| clocks.set(number, 0));
        Ok(clocks)
    }

    /// From now on the node's wall clock is ahead by so much; negative: behind.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set(&self, number: usize, ahead_ms: i64) {
        let path = &self.files[number];
        // In place: a file that is shorter for a moment would end whoever has it mapped.
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
        let set = file.and_then(|file| file.write_all_at(&ahead_ms.to_le_bytes(), 0));
        set.expect("the clock can be set");
    }

    /// The options of a node with such a clock.
    #[must_use]
    pub fn dress(&self, number: usize, options: ServerOptions) -> ServerOptions {
        let text = |path: &Path| path.display().to_string();
        options
            .env("LD_PRELOAD", &text(&self.library))
            .env("CHAOS_CLOCK_FILE", &text(&self.files[number]))
    }
}
