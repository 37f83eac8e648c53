//! What a sweep has found, as it stands in a [`super::Document`]: one load of it, the one at the
//! knee, is the document's own run.

use serde::{Deserialize, Serialize};

use super::cost::ServerCost;
use super::document::CurvePoint;

/// See the module's text. The names of verdicts, limits and origins are those of the sweep's
/// `--json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepNote {
    /// The highest rate that was kept, per second.
    pub knee_per_s: u64,
    /// Whose limit it is: `server`, `generator`, `rate` or `budget`.
    pub limit: String,
    /// A rate was kept only with a p99 up to this, us.
    pub bound_p99_us: f64,
    /// Where that comes from: `given` or `light_load`.
    pub bound_origin: String,
    /// The knee was not kept when it was measured again, or 120 % of it was: repeat the sweep.
    pub disturbed: bool,
    /// What a short closed loop reached, per second.
    pub closed_loop_per_s: f64,
    /// Steps of the search.
    pub steps: usize,
    /// Time of everything, seconds.
    pub took_s: f64,
    /// Loads at shares of the knee, in ascending order.
    pub levels: Vec<LevelNote>,
    /// Past the knee.
    pub overload: OverloadNote,
}

/// A load at a share of the knee.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelNote {
    /// Of the knee.
    pub percent: u64,
    /// `kept`, `behind`, `errors` or `slow`.
    pub verdict: String,
    /// As in the document's curve.
    pub point: CurvePoint,
    /// What it cost the server.
    pub server_cost: ServerCost,
}

/// A load far past the knee, and what comes after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverloadNote {
    /// Of the knee.
    pub percent: u64,
    /// As in the document's curve.
    pub point: CurvePoint,
    /// What it cost the server.
    pub server_cost: ServerCost,
    /// Its throughput over the knee's rate.
    pub throughput_over_knee: f64,
    /// Share of the answers that were `Busy`.
    pub busy_share: f64,
    /// How long refusals took, us.
    pub refusal_p99_us: Option<f64>,
    /// From the end of the overload until a light load is served as before, at most, ms; `null`:
    /// not within five seconds, or `recovery_failed` says why it is not known.
    pub recovery_ms: Option<f64>,
    /// Why the light load behind the overload could not be measured.
    pub recovery_failed: Option<String>,
}

impl OverloadNote {
    /// How soon the server has recovered, for people.
    #[must_use]
    pub fn recovery_words(&self) -> String {
        recovery_words(self.recovery_ms, self.recovery_failed.as_deref())
    }
}

/// The same of two numbers.
#[must_use]
pub fn recovery_words(recovery_ms: Option<f64>, failed: Option<&str>) -> String {
    match (recovery_ms, failed) {
        (_, Some(reason)) => format!("could not be measured: {reason}"),
        (Some(ms), None) => format!("is served as before within {ms:.0} ms"),
        (None, None) => "is not served as before within 5 s".to_owned(),
    }
}
