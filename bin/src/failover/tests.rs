//! Made-up logs of every kind of failover.

use serde_json::{Value as Json, json};

use super::cause::Cause;
use super::evidence::{Evidence, Lease, Missing, NodeLog};
use super::story::{Story, tell};
use super::words;
use crate::journal::Entry;
use crate::journal::entry::Facts;

const A: &str = "aaaa";
const B: &str = "bbbb";

/// (event, epoch or 0 for none, wall clock in ms, facts)
type Made<'a> = (&'a str, u64, u64, Json);

/// A node whose monotonic clock is its wall clock less 1000 ms.
fn log(node: &str, made: &[Made<'_>]) -> NodeLog {
    let entries = made.iter().zip(1..).map(|((event, epoch, at_ms, facts), number)| {
        let mut facts: Facts = facts.as_object().cloned().unwrap_or_default();
        let reason = facts.remove("reason").and_then(|reason| reason.as_str().map(str::to_owned));
        Entry {
            number,
            at_ms: *at_ms,
            mono_us: (at_ms - 1000) * 1000,
            boot: "boot".to_owned(),
            event: (*event).to_owned(),
            epoch: (*epoch > 0).then_some(*epoch),
            reason,
            facts,
        }
    });
    NodeLog {
        node: node.to_owned(),
        name: format!("{node}:7400"),
        answers: true,
        entries: entries.collect(),
        left_out: false,
    }
}

fn evidence(logs: Vec<NodeLog>) -> Evidence {
    Evidence { logs, ..Evidence::default() }
}

const NONE: Json = Json::Null;

/// A founded the cluster and led at epoch 4; B follows.
fn leader_a() -> Vec<Made<'static>> {
    vec![
        ("process_start", 0, 10_000, NONE),
        ("challenges", 4, 10_100, json!({"cause": "no_lease"})),
        ("reign_won", 4, 10_200, NONE),
        ("leads", 4, 10_300, json!({"phases": [], "took_us": 0})),
        ("follower_reachable", 4, 10_900, NONE),
    ]
}

fn follower_b() -> Vec<Made<'static>> {
    vec![("process_start", 0, 10_500, NONE), ("follows", 4, 10_800, json!({"peer": A}))]
}

/// B takes over at epoch 5 from `at` on: heard 1500 ms before the look, 1700 before the lead.
fn takes_over(at: u64, cause: &str) -> Vec<Made<'static>> {
    let phases = json!([
        {"phase": "detect", "us": 1_500_000},
        {"phase": "write", "us": 100_000},
        {"phase": "read", "us": 60_000},
        {"phase": "open", "us": 40_000},
    ]);
    vec![
        ("challenges", 5, at, json!({"cause": cause, "silent_us": 1_500_000})),
        ("reign_won", 5, at + 100, NONE),
        ("leads", 5, at + 200, json!({"phases": phases, "took_us": 1_700_000})),
        ("first_append", 5, at + 230, json!({"after_us": 30_000, "paused_us": 1_730_000})),
    ]
}

fn joined<'a>(parts: &[Vec<Made<'a>>]) -> Vec<Made<'a>> {
    parts.concat()
}

/// The last change, told of these two logs.
fn cause_of(a: &[Made<'_>], b: &[Made<'_>]) -> (Cause, String) {
    let evidence = evidence(vec![log(A, a), log(B, b)]);
    let story = tell(&evidence);
    let change = story.changes.last().expect("a change");
    (change.cause, change.why.clone())
}

fn back_as_follower(at: u64, facts: Json) -> Vec<Made<'static>> {
    vec![("process_start", 0, at, facts), ("follows", 5, at + 300, json!({"peer": B}))]
}

#[test]
fn a_killed_leader_is_told_with_phases_that_add_up_to_the_pause() {
    let killed = json!({"clean": false, "same_boot": true});
    let a = joined(&[leader_a(), back_as_follower(60_000, killed)]);
    let b = joined(&[follower_b(), takes_over(50_000, "expired")]);
    let evidence = evidence(vec![log(A, &a), log(B, &b)]);
    let story = tell(&evidence);
    assert_eq!(story.changes.len(), 2, "founded, then moved");
    assert_eq!(story.changes[0].cause, Cause::Founded);
    let change = &story.changes[1];
    assert_eq!((change.cause, change.before, change.epoch), (Cause::Killed, Some(4), 5));
    assert_eq!((change.from.as_deref(), change.to.as_str()), (Some(A), B));
    assert_eq!(change.paused_us, 1_730_000);
    assert!(change.appended);
    let names: Vec<&str> = change.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["detect", "write", "read", "open", "first_append"]);
    let words: Vec<&str> = change.lines.iter().map(|line| line.entry.event.as_str()).collect();
    let expected = ["challenges", "reign_won", "leads", "first_append", "process_start", "follows"];
    assert_eq!(words, expected);
    let text = words::text(&story, &evidence, 1);
    for part in [
        "the lead moved from aaaa:7400 to bbbb:7400, epoch 4 -> 5",
        "killed or crashed",
        "paused  1.730 s to the first append",
        "1.500 s  detection",
        "1 earlier changes are not shown: --last 2",
        "no settings for the bucket",
        "skew_ms  not known",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[test]
fn every_end_of_a_leader_has_its_own_words() {
    let b = joined(&[follower_b(), takes_over(50_000, "expired")]);
    let rebooted = json!({"clean": false, "same_boot": false});
    let deposed = ("deposed", 5, 53_000, json!({"why": "higher_epoch", "seen": 5}));
    let follows = ("follows", 5, 53_100, json!({"peer": B}));
    let cases: [(Vec<Made<'_>>, Cause, &str); 6] = [
        (back_as_follower(60_000, rebooted), Cause::MachineRestarted, "machine"),
        (
            vec![("process_stop", 0, 48_400, json!({"exit": 17, "reason": "a write failed"}))],
            Cause::Ended,
            "exit code 17: a write failed",
        ),
        (
            vec![
                ("stalled", 0, 53_000, json!({"for_us": 4_500_000})),
                ("lease_ran_out", 4, 53_000, NONE),
                deposed.clone(),
                follows.clone(),
            ],
            Cause::Frozen,
            "did not run for 4.5 s",
        ),
        (
            vec![
                ("follower_unreachable", 4, 49_000, NONE),
                ("store_unreachable", 0, 49_200, NONE),
                ("lease_ran_out", 4, 49_500, json!({"reason": "no ack"})),
                deposed,
                follows,
            ],
            Cause::Partition,
            "nor the bucket (partition)",
        ),
        (
            vec![("clock_drift", 4, 48_000, json!({"difference_ms": 9000}))],
            Cause::ClockDrift,
            "clocks",
        ),
        (vec![], Cause::Unknown, "says nothing"),
    ];
    for (more, cause, words) in cases {
        let (found, why) = cause_of(&joined(&[leader_a(), more]), &b);
        assert_eq!(found, cause, "{why}");
        assert!(why.contains(words), "{words:?} in {why:?}");
    }
}

#[test]
fn a_handover_is_told_from_the_drain_to_the_first_append() {
    let handover: Vec<Made<'_>> = vec![
        ("handover_started", 4, 49_000, NONE),
        ("appends_paused", 4, 49_000, NONE),
        ("drained", 4, 49_004, NONE),
        ("resigned", 4, 49_005, NONE),
        ("handover_done", 4, 49_060, NONE),
        ("follows", 5, 49_070, json!({"peer": B})),
    ];
    let phases = json!([
        {"phase": "detect", "us": 1000},
        {"phase": "write", "us": 9000},
        {"phase": "open", "us": 20_000},
    ]);
    let taken: Vec<Made<'_>> = vec![
        ("resign_received", 4, 49_007, NONE),
        ("challenges", 5, 49_008, json!({"cause": "resigned", "silent_us": 1000})),
        ("reign_won", 5, 49_017, NONE),
        ("leads", 5, 49_037, json!({"phases": phases, "took_us": 30_000})),
        ("first_append", 5, 49_038, json!({"after_us": 1000, "paused_us": 31_000})),
    ];
    let b = joined(&[follower_b(), taken]);
    let evidence = evidence(vec![log(A, &joined(&[leader_a(), handover.clone()])), log(B, &b)]);
    let story = tell(&evidence);
    let change = story.changes.last().expect("a change");
    assert_eq!(change.cause, Cause::Handover);
    assert!(change.why.contains("duolog handoff"), "{}", change.why);
    let phases: Vec<(&str, u64)> =
        change.phases.iter().map(|phase| (phase.name.as_str(), phase.us)).collect();
    let expected = [
        ("drain", 5000),
        ("message", 2000),
        ("look", 1000),
        ("write", 9000),
        ("open", 20_000),
        ("first_append", 1000),
    ];
    assert_eq!(phases, expected);
    assert_eq!(change.paused_us, 38_000);
    let first = change.lines.first().expect("lines").entry.event.as_str();
    assert_eq!(first, "handover_started");
    assert!(story.interruptions.is_empty(), "the pause is the change's");
    let stopping = vec![("process_stopping", 0, 48_990, json!({"reason": "SIGTERM"}))];
    let (cause, why) = cause_of(&joined(&[leader_a(), stopping, handover]), &b);
    assert_eq!(cause, Cause::Handover);
    assert!(why.contains("SIGTERM"), "{why}");
}

#[test]
fn restarts_of_one_or_both_are_told_apart() {
    let again = |at| -> Vec<Made<'static>> {
        vec![
            ("process_start", 0, at, json!({"clean": false, "same_boot": true})),
            ("challenges", 5, at + 100, json!({"cause": "own_lease"})),
            ("leads", 5, at + 200, json!({"phases": []})),
        ]
    };
    let a = joined(&[leader_a(), again(60_000)]);
    assert_eq!(cause_of(&a, &follower_b()).0, Cause::Restarted);
    let b = joined(&[follower_b(), vec![("process_start", 0, 60_050, NONE)]]);
    assert_eq!(cause_of(&a, &b).0, Cause::BothRestarted);
    let late = ("process_start", 0, 55_000, json!({"clean": false, "same_boot": true}));
    let b = joined(&[follower_b(), vec![("process_start", 0, 48_000, NONE)]]);
    let b = joined(&[b, takes_over(50_000, "expired")]);
    let (cause, why) = cause_of(&joined(&[leader_a(), vec![late]]), &b);
    assert_eq!(cause, Cause::BothRestarted, "{why}");
    let unanswered: Vec<Made<'_>> = vec![
        ("handover_started", 4, 50_000, NONE),
        ("handover_unanswered", 4, 51_000, NONE),
        ("challenges", 5, 51_100, json!({"cause": "own_lease"})),
        ("leads", 5, 51_200, json!({"phases": []})),
    ];
    let a = joined(&[leader_a(), unanswered]);
    assert_eq!(cause_of(&a, &follower_b()).0, Cause::Unanswered);
    let new_reign: Vec<Made<'_>> = vec![
        ("deposed", 4, 50_000, json!({"why": "new_reign"})),
        ("challenges", 5, 51_100, json!({"cause": "own_lease"})),
        ("leads", 5, 51_200, json!({"phases": []})),
    ];
    let a = joined(&[leader_a(), new_reign]);
    assert_eq!(cause_of(&a, &follower_b()).0, Cause::NewReign);
}

fn events<'a>(story: &Story<'a>) -> Vec<(usize, &'a str)> {
    let lines = &story.changes.last().expect("a change").lines;
    lines.iter().map(|line| (line.log, line.entry.event.as_str())).collect()
}

/// Promised: clocks that lie apart change no order that epochs prove; the skew is told.
/// Provoked: B's clock an hour behind, measured and not measured.
/// Broken: A is deposed before B challenged.
#[test]
fn clocks_that_lie_apart_do_not_reorder_what_epochs_prove() {
    let shifted = |made: Vec<Made<'static>>, by: i64, skew: Option<i64>| -> Vec<Made<'static>> {
        let shift = |(event, epoch, at, facts): Made<'static>| {
            let mut facts = if facts.is_null() { json!({}) } else { facts };
            if let Some(skew) = skew {
                facts["skew_ms"] = json!(skew);
            }
            (event, epoch, at.saturating_add_signed(by), facts)
        };
        made.into_iter().map(shift).collect()
    };
    let frozen: Vec<Made<'_>> = vec![
        ("stalled", 0, 4_053_000, json!({"for_us": 4_500_000})),
        ("deposed", 5, 4_053_001, json!({"why": "higher_epoch", "seen": 5})),
        ("follows", 5, 4_053_100, json!({"peer": B})),
    ];
    let a = joined(&[shifted(leader_a(), 4_000_000, None), frozen]);
    let b = joined(&[follower_b(), takes_over(50_000, "expired")]);
    for (by, told) in
        [(4_000_000 - 3_600_000, true), (4_000_000 - 3_600_000, false), (7_600_000, false)]
    {
        let skew = told.then_some(3_600_000);
        let evidence = evidence(vec![log(A, &a), log(B, &shifted(b.clone(), by, skew))]);
        assert_eq!(evidence.skew_ms(), told.then_some(-3_600_000));
        let story = tell(&evidence);
        let order = events(&story);
        let place = |event: (usize, &str)| order.iter().position(|known| *known == event);
        let challenged = place((1, "challenges")).expect("B challenges");
        assert!(Some(challenged) < place((0, "deposed")), "{order:?}");
        assert!(place((1, "leads")) < place((0, "follows")), "{order:?}");
        let change = story.changes.last().expect("a change");
        assert_eq!((change.cause, change.paused_us), (Cause::Frozen, 1_730_000), "{}", change.why);
        let text = words::text(&story, &evidence, 1);
        let expected = if told { "skew_ms  -3600000" } else { "skew_ms  not known" };
        assert!(text.contains(expected), "{text}");
        let any_marked = change.lines.iter().any(|line| line.by_cause);
        assert_eq!(any_marked, !told, "clocks that are known to lie apart need no mark\n{text}");
    }
}

#[test]
fn a_log_that_is_missing_is_named_and_nothing_is_made_up() {
    let b = joined(&[follower_b(), takes_over(50_000, "expired")]);
    let mut evidence = evidence(vec![log(B, &b)]);
    let missing = Missing { what: "a:7400".to_owned(), reason: "connection refused".to_owned() };
    evidence.missing.push(missing);
    let lease = Lease { leader: A.to_owned(), epoch: 6, acquired_ms: 1, expires_ms: 2 };
    evidence.lease = Some(Ok(lease));
    let story = tell(&evidence);
    let change = story.changes.last().expect("a change");
    assert_eq!((change.cause, change.from.as_deref()), (Cause::Unknown, Some(A)));
    assert!(change.why.contains("missing"), "{}", change.why);
    let text = words::text(&story, &evidence, 1);
    assert!(text.contains("MISSING  a:7400: connection refused"), "{text}");
    assert!(text.contains("newer than any lead in these logs (5)"), "{text}");
    let json = words::json(&story, &evidence, 1);
    assert_eq!(json["missing"][0]["what"], "a:7400");
    assert_eq!(json["failovers"][0]["cause"], "unknown");
    // The dead node's directory instead: its log ends without a word.
    let dead = NodeLog { answers: false, ..log(A, &leader_a()) };
    evidence.logs.insert(0, dead);
    let story = tell(&evidence);
    let change = story.changes.last().expect("a change");
    assert_eq!(change.cause, Cause::Killed);
    assert!(change.why.contains("ends without a word"), "{}", change.why);
}

#[test]
fn a_pause_without_a_change_of_the_lead_is_told_as_that() {
    let paused: Vec<Made<'_>> = vec![
        ("appends_paused", 4, 50_000, json!({"reason": "the store is away"})),
        ("appends_resumed", 4, 52_000, json!({"paused_us": 2_000_000})),
    ];
    let evidence = evidence(vec![log(A, &joined(&[leader_a(), paused])), log(B, &follower_b())]);
    let story = tell(&evidence);
    assert_eq!(story.changes.len(), 1);
    assert_eq!((story.interruptions.len(), story.interruptions[0].paused_us), (1, 2_000_000));
    let text = words::text(&story, &evidence, 1);
    assert!(text.contains("kept the lead, epoch 4; appends paused 2.000 s: the store is away"));
}

#[test]
fn empty_logs_are_no_story() {
    let evidence = evidence(vec![log(A, &[]), log(B, &[])]);
    let story = tell(&evidence);
    assert!(words::text(&story, &evidence, 3).contains("No change of the lead"));
    assert_eq!(words::json(&story, &evidence, 3)["failovers"], json!([]));
}
