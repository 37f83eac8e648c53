//! Log output: to standard error, as sentences on a terminal and as JSON lines elsewhere.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt;

/// The form a log line takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Human,
    Json,
}

/// Starts logging for this process. `level` and `format` are the settings `logging.level` and
/// `logging.format`; only the first call counts.
pub fn start(level: &str, format: &str) {
    let level: LevelFilter = level.parse().unwrap_or(LevelFilter::INFO);
    let terminal = std::io::stderr().is_terminal();
    let base = fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    // A second start (in tests) leaves the first one's output in place.
    let _ = match form(format, terminal) {
        Form::Human => base.with_ansi(terminal).try_init(),
        Form::Json => base.json().flatten_event(true).try_init(),
    };
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
