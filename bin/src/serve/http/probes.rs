//! Probes: is the process alive, may it be sent requests, has it started.
//!
//! What is asked of the node is a [`View`]; the judgement is a function of it.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Site;
use super::problem::Problem;
use crate::serve::cluster::gauges::Role;
use crate::serve::life::Phase;
use crate::serve::progress::ProgressReading;

/// What probes go by.
#[derive(Clone, Debug)]
pub struct View {
    /// Where the process stands.
    pub phase: Phase,
    /// What the node is; none if it is standalone.
    pub role: Option<Role>,
    /// The shards that hang.
    pub hanging: Vec<usize>,
    /// How far each shard's recovery is.
    pub shards: Vec<ProgressReading>,
}

impl View {
    fn of(site: &Site) -> Self {
        let shards: Vec<_> = site.life.shards.iter().map(|progress| progress.read()).collect();
        Self {
            phase: site.life.phase(),
            role: site.pair.then(|| site.inboxes[0].node.role()),
            hanging: (0..shards.len()).filter(|shard| site.pulse.hangs(*shard)).collect(),
            shards,
        }
    }

    fn role_name(&self) -> &'static str {
        self.role.map_or("standalone", Role::name)
    }
}

/// Yes, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict(Result<(), String>);

/// Alive: no shard hangs. A process that recovers is alive, however long that takes.
fn judge_alive(view: &View) -> Verdict {
    if view.phase != Phase::Serving || view.hanging.is_empty() {
        return Verdict(Ok(()));
    }
    Verdict(Err(format!("hanging shards: {:?}", view.hanging)))
}

/// Ready: serves what a node of its role serves. With `leader` only the node that takes appends is.
fn judge_ready(view: &View, leader: bool) -> Verdict {
    if view.phase != Phase::Serving {
        return Verdict(Err(format!("the node is {}", view.phase.name())));
    }
    if !view.hanging.is_empty() {
        return judge_alive(view);
    }
    let ready = match view.role {
        None | Some(Role::Leader) => true,
        Some(Role::Follower) => !leader,
        Some(_) => false,
    };
    Verdict(if ready { Ok(()) } else { Err(format!("the node is {}", view.role_name())) })
}

/// Started: the logs are recovered and the shards run.
fn judge_started(view: &View) -> Verdict {
    if view.phase >= Phase::Serving {
        return Verdict(Ok(()));
    }
    let done = view.shards.iter().filter(|shard| shard.done).count();
    let sum = |part: fn(&ProgressReading) -> u64| view.shards.iter().map(part).sum::<u64>();
    let (scanned, total) = (sum(|shard| shard.scanned_bytes), sum(|shard| shard.total_bytes));
    Verdict(Err(format!(
        "the node is {}: {done} of {} shards recovered, {scanned} of at most {total} bytes read",
        view.phase.name(),
        view.shards.len()
    )))
}

/// Everything that a probe goes by.
fn verbose(view: &View, verdict: &Verdict) -> Value {
    let shards = view.shards.iter().enumerate().map(|(index, progress)| {
        let ProgressReading { scanned_bytes, total_bytes, done } = *progress;
        json!({
            "shard": index,
            "hangs": view.hanging.contains(&index),
            "recovered": done,
            "scanned_bytes": scanned_bytes,
            "total_bytes": total_bytes,
        })
    });
    json!({
        "ok": verdict.0.is_ok(),
        "reason": verdict.0.as_ref().err(),
        "phase": view.phase.name(),
        "role": view.role_name(),
        "shards": shards.collect::<Vec<_>>(),
    })
}

fn answer(view: &View, verdict: &Verdict, asked: &Asked) -> Response {
    let status = match verdict.0 {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let (kind, body) = match (&asked.verbose, &verdict.0) {
        (Some(_), _) => ("application/json", verbose(view, verdict).to_string()),
        (None, Ok(())) => ("text/plain; charset=utf-8", "ok".to_owned()),
        (None, Err(reason)) => ("text/plain; charset=utf-8", reason.clone()),
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, format!("{body}\n")).into_response()
}

/// What a probe's query may say.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    /// Everything, as JSON; whatever its value.
    verbose: Option<String>,
    /// `leader`
    role: Option<String>,
}

/// `GET /livez`
pub(super) async fn alive(State(site): State<Arc<Site>>, Query(asked): Query<Asked>) -> Response {
    let view = View::of(&site);
    answer(&view, &judge_alive(&view), &asked)
}

/// `GET /readyz`
pub(super) async fn ready(State(site): State<Arc<Site>>, Query(asked): Query<Asked>) -> Response {
    let leader = match asked.role.as_deref() {
        None => false,
        Some("leader") => true,
        Some(other) => {
            let text = format!("role={other}: the only role to ask for is leader");
            return Problem::new(StatusCode::BAD_REQUEST, "bad_request", text).into_response();
        }
    };
    let view = View::of(&site);
    answer(&view, &judge_ready(&view, leader), &asked)
}

/// `GET /startupz`
pub(super) async fn started(State(site): State<Arc<Site>>, Query(asked): Query<Asked>) -> Response {
    let view = View::of(&site);
    answer(&view, &judge_started(&view), &asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(phase: Phase, role: Option<Role>) -> View {
        let shard = |done| ProgressReading { scanned_bytes: 10, total_bytes: 64, done };
        View { phase, role, hanging: Vec::new(), shards: vec![shard(true), shard(false)] }
    }

    fn yes(verdict: &Verdict) -> bool {
        verdict.0.is_ok()
    }

    #[test]
    fn only_a_shard_that_hangs_is_death() {
        for phase in [Phase::Joining, Phase::Recovering, Phase::Serving, Phase::Stopping] {
            assert!(yes(&judge_alive(&view(phase, Some(Role::Fenced)))), "{phase:?}");
        }
        let hanging = View { hanging: vec![1], ..view(Phase::Serving, None) };
        assert_eq!(judge_alive(&hanging), Verdict(Err("hanging shards: [1]".to_owned())));
        assert!(!yes(&judge_ready(&hanging, false)));
    }

    /// The whole table: which role is ready, and which may be sent appends.
    #[test]
    fn ready_is_who_serves_and_leader_is_who_takes_appends() {
        let table = [
            (None, true, true),
            (Some(Role::Leader), true, true),
            (Some(Role::Follower), true, false),
            (Some(Role::CatchingUp), false, false),
            (Some(Role::Promoting), false, false),
            (Some(Role::Booting), false, false),
            (Some(Role::Fenced), false, false),
        ];
        for (role, ready, leads) in table {
            let view = view(Phase::Serving, role);
            assert_eq!(yes(&judge_ready(&view, false)), ready, "{role:?}");
            assert_eq!(yes(&judge_ready(&view, true)), leads, "{role:?}");
        }
        for phase in [Phase::Joining, Phase::Recovering, Phase::Opening, Phase::Stopping] {
            assert!(!yes(&judge_ready(&view(phase, Some(Role::Leader)), false)), "{phase:?}");
        }
    }

    #[test]
    fn a_start_tells_how_far_it_is() {
        let Verdict(Err(text)) = judge_started(&view(Phase::Recovering, None)) else {
            panic!("it has not started");
        };
        assert_eq!(
            text,
            "the node is recovering: 1 of 2 shards recovered, 20 of at most 128 bytes read"
        );
        assert!(yes(&judge_started(&view(Phase::Serving, None))));
        assert!(yes(&judge_started(&view(Phase::Stopping, None))));
    }
}
