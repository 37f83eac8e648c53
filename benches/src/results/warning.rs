//! What speaks against a result's figures, in words.

use serde::{Deserialize, Serialize};

use super::probe::Probes;
use crate::generator::report::Report;

/// One reason for doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Which, for programs: `client_limited`, `saturated`, `errors`, `unanswered`,
    /// `connections_lost`, `disk_changed`, `network_changed`.
    pub code: String,
    /// The same for people.
    pub text: String,
}

/// All reasons that a run gives.
#[must_use]
pub fn warnings(report: &Report, probes: &Probes) -> Vec<Warning> {
    let mut list = Vec::new();
    let mut warn = |code: &str, text: String| list.push(Warning { code: code.to_owned(), text });
    if report.client.client_limited {
        let text = "a generator thread was over 95 % busy: the figures may show the generator's \
                    limit; give --threads or another machine";
        warn("client_limited", text.to_owned());
    }
    if report.open_loop.as_ref().is_some_and(|open| open.saturated) {
        let text = "the rate is above what server or generator can do: latencies show how long \
                    the queue grew";
        warn("saturated", text.to_owned());
    }
    if report.errors > 0 {
        let kinds = report.errors_by_code.iter().map(|(name, count)| format!("{name} {count}"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        warn("errors", format!("{} requests failed: {kinds}", report.errors));
    }
    if report.unanswered > 0 {
        warn("unanswered", format!("{} requests got no answer", report.unanswered));
    }
    if report.connections_lost > 0 {
        let (lost, all) = (report.connections_lost, report.settings.connections);
        let text = format!("{lost} of {all} connections were lost: the load was that of fewer");
        warn("connections_lost", text);
    }
    let mut compare = |code: &str, what: &str, looks: Option<(f64, f64)>| {
        if let Some((before, after)) = looks {
            warn(
                code,
                format!(
                    "{what} took {before} us before the run and {after} us after it (medians): \
                     repeat the measurement"
                ),
            );
        }
    };
    compare("disk_changed", "a raw write", probes.disk_write.and_then(|looks| looks.changed()));
    compare("network_changed", "a round trip", probes.round_trip.changed());
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;

    #[test]
    fn what_went_wrong_is_named() {
        let mut document = example::document();
        let codes = |list: &[Warning]| -> Vec<String> {
            list.iter().map(|warning| warning.code.clone()).collect()
        };
        assert_eq!(codes(&document.warnings), ["errors", "disk_changed"]);
        assert!(document.warnings[0].text.contains("Busy 3"), "{:?}", document.warnings);
        assert!(document.warnings[1].text.contains("60 us before"), "{:?}", document.warnings);
        document.report.client.client_limited = true;
        document.report.unanswered = 5;
        document.report.connections_lost = 60;
        let list = warnings(&document.report, &Probes::default());
        assert_eq!(codes(&list), ["client_limited", "errors", "unanswered", "connections_lost"]);
        assert!(list[3].text.starts_with("60 of 64 connections"), "{list:?}");
    }
}
