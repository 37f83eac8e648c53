//! The roster, told everything that workers can say and do.

use super::*;
use crate::generator::report::Report;

const ALIVE: Reply = Reply::Alive { so_far: Reading { acked: 7, errors: 1, p99_ns: 9 } };
const SECOND: u64 = 1_000_000_000;

fn names() -> Vec<String> {
    vec!["a:1".to_owned(), "b:2".to_owned()]
}

fn settings() -> Settings {
    let addr = "127.0.0.1:1".parse().unwrap();
    let duration = Duration::from_secs(3);
    Settings { threads: 4, ..Settings::appends(addr, 8, 100, duration) }
}

fn hello(needs_token: bool) -> Reply {
    Reply::Hello { version: Version::ours(), nonce: "n".to_owned(), needs_token }
}

/// Steps the roster; what it wants, in words.
fn step(roster: &mut Roster, worker: usize, reply: Reply, now_ns: u64) -> Vec<String> {
    let mut out = Vec::new();
    roster.step(worker, Event::Said(reply), now_ns, &mut out);
    words(&out)
}

fn words(actions: &[Action]) -> Vec<String> {
    let word = |action: &Action| match action {
        Action::Send(worker, ask) => match &**ask {
            Ask::Join { proof, .. } => format!("{worker} join {}", proof.is_some()),
            Ask::Ping { number } => format!("{worker} ping {number}"),
            Ask::Prepare { first_thread, thread_count, .. } => {
                format!("{worker} prepare {first_thread}+{thread_count}")
            }
            Ask::Go { .. } => format!("{worker} go"),
            Ask::Alive => format!("{worker} alive"),
        },
        Action::Go { after_us } => format!("go {after_us}"),
        Action::Joined => "joined".to_owned(),
        Action::Over(tallies) => format!("over {}", tallies.len()),
        Action::Failed(error) => error.to_string(),
    };
    actions.iter().map(word).collect()
}

fn joined() -> Roster {
    let mut roster = Roster::new(&names(), None, 0);
    for worker in 0..2 {
        assert_eq!(step(&mut roster, worker, hello(false), 0), [format!("{worker} join false")]);
    }
    assert!(step(&mut roster, 1, Reply::Welcome, 0).is_empty());
    assert_eq!(step(&mut roster, 0, Reply::Welcome, 0), ["joined"]);
    roster
}

/// Both opened, measured and sent off at 1 s; round trips of 2 ms and 3 ms.
fn loaded() -> Roster {
    let mut roster = joined();
    let mut out = Vec::new();
    roster.begin(&settings(), SECOND, &mut out);
    assert_eq!(words(&out), ["0 prepare 0+2", "1 prepare 2+2"]);
    assert!(step(&mut roster, 1, Reply::Ready, SECOND).is_empty(), "nobody goes ahead");
    assert_eq!(step(&mut roster, 0, Reply::Ready, SECOND), ["0 ping 0", "1 ping 0"]);
    for number in 0..PINGS {
        for (worker, trip_ns) in [(0, 2_000_000), (1, 3_000_000)] {
            let sent_ns = roster.members[worker].ping_sent_ns;
            let found = step(&mut roster, worker, Reply::Pong { number }, sent_ns + trip_ns);
            if number + 1 < PINGS {
                assert_eq!(found, [format!("{worker} ping {}", number + 1)]);
            } else if worker == 0 {
                assert!(found.is_empty());
            } else {
                assert_eq!(found, ["go 53000"], "head start and the longest round trip");
            }
        }
    }
    assert_eq!(roster.round_trips_ns().collect::<Vec<_>>(), [2_000_000, 3_000_000]);
    roster
}

/// A run goes through its phases with all workers together, and a second one can follow.
#[test]
fn all_workers_go_through_the_phases_together() {
    let mut roster = loaded();
    let tallies = |acked| Reply::Done { tallies: vec![Tally { acked, ..Tally::default() }; 2] };
    assert!(step(&mut roster, 1, tallies(5), SECOND).is_empty());
    let mut out = Vec::new();
    roster.step(0, Event::Said(tallies(3)), SECOND, &mut out);
    let Some(Action::Over(all)) = out.pop() else { panic!("the run is not over") };
    let acked: Vec<u64> = all.iter().map(|tally| tally.acked).collect();
    assert_eq!(acked, [3, 3, 5, 5], "in the order of the threads");
    roster.begin(&settings(), 2 * SECOND, &mut out);
    assert_eq!(words(&out), ["0 prepare 0+2", "1 prepare 2+2"]);
}

/// Whatever ends a worker ends the run, and names it.
#[test]
fn a_worker_that_ends_ends_the_run_by_its_name() {
    let mut out = Vec::new();
    loaded().step(1, Event::Lost("reset".to_owned()), SECOND, &mut out);
    assert_eq!(words(&out), ["lost worker b:2: reset; there is no result"]);
    let failed = Reply::Failed { unreachable: true, reason: "cannot connect".to_owned() };
    assert_eq!(step(&mut loaded(), 0, failed, SECOND), ["worker a:1: cannot connect"]);
    let refused = Reply::Refused { reason: "busy".to_owned() };
    assert_eq!(step(&mut joined(), 1, refused, SECOND), ["worker b:2 refused: busy"]);
    let early = Reply::Done { tallies: Vec::new() };
    let found = step(&mut joined(), 1, early, SECOND);
    assert_eq!(found, ["worker b:2 said \"done\" out of turn; there is no result"]);
}

/// Silence is a loss, too; a worker that speaks but does not end is late.
#[test]
fn silence_and_lateness_are_noticed() {
    let mut roster = loaded();
    let mut out = Vec::new();
    let mut now_ns = SECOND;
    for _ in 0..11 {
        now_ns += SECOND;
        roster.step(0, Event::Said(ALIVE), now_ns, &mut out);
        roster.tick(now_ns, &mut out);
    }
    assert_eq!(roster.so_far(), Reading { acked: 7, errors: 1, p99_ns: 9 });
    let found = words(&out);
    assert_eq!(found[..2], ["0 alive", "1 alive"]);
    assert_eq!(found.last().unwrap(), "worker b:2 said nothing for 10 s; there is no result");
    let count = found.len();
    roster.tick(now_ns + 100 * SECOND, &mut out);
    assert_eq!(out.len(), count, "after a failure nothing more comes");

    let mut roster = loaded();
    out.clear();
    // 1 s + window 3 s + drain 5 s + hand-in 30 s, and a little.
    for now_ns in (1..41).map(|second| second * SECOND) {
        for worker in 0..2 {
            roster.step(worker, Event::Said(ALIVE), now_ns, &mut out);
        }
        roster.tick(now_ns, &mut out);
    }
    let found = words(&out);
    assert!(found.last().unwrap().starts_with("worker a:1 did not hand in"), "{found:?}");
}

/// Versions that differ are refused with both, and a token that is wanted is asked of the user.
#[test]
fn other_versions_and_missing_tokens_are_refused() {
    let mut roster = Roster::new(&names(), None, 0);
    let version =
        Version { protocol: PROTOCOL_OF_TOMORROW, program: "9.9.9".to_owned(), ..Version::ours() };
    let other = Reply::Hello { version, nonce: "n".to_owned(), needs_token: false };
    let found = step(&mut roster, 0, other, 0).remove(0);
    for version in ["9.9.9", "protocol 77", env!("CARGO_PKG_VERSION")] {
        assert!(found.contains(version), "{found}");
    }
    let found = step(&mut Roster::new(&names(), None, 0), 0, hello(true), 0);
    assert!(found[0].contains("wants a token"), "{found:?}");
    let token = Token::new("0123456789abcdef").ok();
    let found = step(&mut Roster::new(&names(), token, 0), 0, hello(true), 0);
    assert_eq!(found, ["0 join true"]);
}

const PROTOCOL_OF_TOMORROW: u32 = 77;

/// Threads are dealt out without a gap or an overlap.
#[test]
fn shares_cover_all_threads_once() {
    for (workers, each) in [(1, 1), (2, 3), (5, 2)] {
        let threads = workers as u32 * each;
        let all: Vec<u32> =
            (0..workers).flat_map(|worker| share(worker, threads, workers)).collect();
        assert_eq!(all, (0..threads).collect::<Vec<u32>>());
    }
}

/// The report of a fleet is the report of the union: latencies of random size that were dealt to
/// threads, sent as text and put together again give the figures of one thread that saw them all.
/// Broken if a percentile, a count or an extreme differs.
#[test]
fn tallies_that_travelled_report_as_one_thread_would() {
    let mut mixer = crate::generator::clock::Mixer::new(3);
    let mut threads = vec![Tally::default(); 4];
    let mut one = Tally::default();
    for _ in 0..50_000 {
        let latency_ns = mixer.next_number() >> (20 + mixer.below(30));
        let thread = &mut threads[mixer.below(4) as usize];
        for tally in [thread, &mut one] {
            tally.latencies.record(latency_ns);
            tally.acked += 1;
            if latency_ns.is_multiple_of(11) {
                tally
                    .count_error(if latency_ns.is_multiple_of(2) { "Busy" } else { "Conflict" }, 1);
            }
        }
    }
    let travelled: Vec<Tally> = threads
        .chunks(2)
        .flat_map(|share| {
            let reply = Reply::Done { tallies: share.to_vec() };
            let text = serde_json::to_string(&reply).unwrap();
            match serde_json::from_str(&text).unwrap() {
                Reply::Done { tallies } => tallies,
                other => panic!("{other:?}"),
            }
        })
        .collect();
    let (union, whole) = (Report::new(&settings(), &travelled), Report::new(&settings(), &[one]));
    assert_eq!(union.latency_us, whole.latency_us);
    assert_eq!(union.errors_by_code, whole.errors_by_code);
    assert_eq!((union.acked, union.throughput_per_s), (whole.acked, whole.throughput_per_s));
    assert!(union.latency_us.samples == 50_000 && union.latency_us.over_range > 0);
}
