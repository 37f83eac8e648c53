//! Log output: to standard error, as sentences on a terminal and as JSON lines elsewhere. Level and
//! form can be changed while the program runs.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// The form a log line takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Human,
    Json,
}

type LevelLayer = reload::Layer<LevelFilter, Registry>;
type Filtered = Layered<LevelLayer, Registry>;
type Output = Box<dyn Layer<Filtered> + Send + Sync>;

/// The log of this process.
pub struct Log {
    level: reload::Handle<LevelFilter, Registry>,
    output: reload::Handle<Output, Filtered>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Log")
    }
}

impl Log {
    /// Starts logging for this process. `level` and `format` are the settings `logging.level` and
    /// `logging.format`; of several starts only the first one's output counts.
    #[must_use]
    pub fn start(level: &str, format: &str) -> Self {
        let (filter, level) = reload::Layer::new(filter(level));
        let (written, output) = reload::Layer::new(output(format));
        // A second start (in tests) leaves the first one's output in place.
        let _ = tracing_subscriber::registry().with(filter).with(written).try_init();
        Self { level, output }
    }

    /// Goes on with this level and format.
    pub fn change(&self, level: &str, format: &str) {
        // Fails only when the output is gone, that is never: it lives as long as the process.
        let _ = self.level.reload(filter(level));
        let _ = self.output.reload(output(format));
    }
}

fn filter(level: &str) -> LevelFilter {
    level.parse().unwrap_or(LevelFilter::INFO)
}

fn output(format: &str) -> Output {
    let terminal = std::io::stderr().is_terminal();
    let base = fmt::layer().with_writer(std::io::stderr).with_target(false);
    match form(format, terminal) {
        Form::Human => base.with_ansi(terminal).boxed(),
        Form::Json => base.json().flatten_event(true).boxed(),
    }
}

fn form(format: &str, terminal: bool) -> Form {
    match (format, terminal) {
        ("human", _) | ("auto", true) => Form::Human,
        _ => Form::Json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_human_on_a_terminal_and_json_elsewhere() {
        assert_eq!(form("auto", true), Form::Human);
        assert_eq!(form("auto", false), Form::Json);
        assert_eq!(form("human", false), Form::Human);
        assert_eq!(form("json", true), Form::Json);
    }
}
