//! Two candidates and one lease, from the first start to a handover.

use std::time::Duration;

use duolog_lease::event::Event;
use duolog_lease::ids::{LeaseEpoch, NodeId};
use duolog_lease::in_sync::InSync;
use duolog_lease::status::Status;
use duolog_s3client::Client;
use duolog_s3client::key::ObjectKey;

use crate::candidate::{Candidate, Stage, timings};

pub const NODES: [NodeId; 2] = [NodeId(0xa), NodeId(0xb)];

/// Waits, with a limit, until the condition holds.
async fn until(stage: &Stage, what: &str, holds: impl AsyncFn() -> bool) {
    for _ in 0..3_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not happen\n{}", stage.journal.story());
}

fn leads(candidate: &Candidate) -> Option<LeaseEpoch> {
    match candidate.status() {
        Status::Leader { epoch } => Some(epoch),
        _ => None,
    }
}

fn follows(candidate: &Candidate) -> bool {
    matches!(candidate.status(), Status::Follower { .. })
}

/// Both start in an empty place at one moment, again and again: each time one leads in the first
/// epoch and the other follows.
pub async fn first_leaders(client: &Client, place: &str, rounds: u32) {
    for round in 0..rounds {
        let lease = ObjectKey::new(format!("{place}/{round}/cluster/lease.json")).unwrap();
        client.delete(&lease).await.unwrap();
        let stage = Stage::new(client.clone(), lease);
        let pair = NODES.map(|node| Candidate::start(&stage, node, LeaseEpoch::NONE));
        until(&stage, "a first leader and its follower", async || {
            pair.iter().any(|one| leads(one).is_some()) && pair.iter().any(follows)
        })
        .await;
        let document = stage.document().await;
        assert_eq!(document.epoch, LeaseEpoch::FIRST, "{}", stage.journal.story());
        let leader = pair.iter().find(|one| leads(one).is_some()).unwrap();
        assert_eq!((document.leader, stage.journal.hold()), (leader.node, 1));
    }
}

/// A pair lives through everything that the lease is for. Broken: two nodes with leave to serve at
/// one moment, an epoch with two leaders, a request to the bucket while both are healthy, a lease
/// that is taken before it has expired, or a pair that does not come back.
pub async fn life_of_a_pair(client: &Client, place: &str) {
    let lease = ObjectKey::new(format!("{place}/cluster/lease.json")).unwrap();
    client.delete(&lease).await.unwrap();
    let stage = Stage::new(client.clone(), lease);
    let [one, two] = NODES.map(|node| Candidate::start(&stage, node, LeaseEpoch::NONE));
    until(&stage, "a first leader", async || leads(&one).is_some() || leads(&two).is_some()).await;
    let (leader, follower) = if leads(&one).is_some() { (one, two) } else { (two, one) };
    let both = InSync::pair(leader.node, follower.node);
    until(&stage, "the follower's admission", async || {
        let members = stage.document().await.in_sync;
        members.contains(leader.node) && members.contains(follower.node)
    })
    .await;

    healthy(&stage).await;
    cut_off(&stage, &leader, &follower).await;

    // The leader dies without a word. Its successor waits for the end of the lease.
    let (dead, promised, last) = (leader.node, leader.promised(), stage.document().await);
    drop(leader);
    until(&stage, "the takeover", async || leads(&follower).is_some()).await;
    let document = stage.document().await;
    assert_eq!(document.leader, follower.node);
    assert_eq!(document.epoch, last.epoch.next(), "{}", stage.journal.story());
    assert!(document.acquired >= last.expires, "taken early\n{}", stage.journal.story());
    for node in NODES {
        assert!(document.in_sync.contains(node) && both.contains(node));
    }

    // It comes back and follows; then it is given the lease back, which nobody has to wait for.
    stage.connect(true);
    let back = Candidate::start(&stage, dead, promised);
    until(&stage, "the return", async || follows(&back)).await;
    assert_eq!(leads(&follower), Some(document.epoch), "{}", stage.journal.story());
    until(&stage, "the handover", async || {
        if leads(&follower).is_some() {
            follower.tell(Event::ResignRequested);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        leads(&back).is_some()
    })
    .await;
    let reigns = stage.journal.hold();
    assert_eq!(stage.document().await.epoch, document.epoch.next(), "{}", stage.journal.story());
    assert_eq!(reigns, 3, "{}", stage.journal.story());
}

/// While heartbeats are acked nobody asks the store for anything. A machine that stalls for long
/// enough may miss one, so several stretches are looked at, and one of them must be quiet.
async fn healthy(stage: &Stage) {
    const STRETCHES: usize = 20;
    let stretch = Duration::from_millis(5 * timings().heartbeat_interval_ms());
    for _ in 0..STRETCHES {
        let before = stage.client.counts().sent();
        tokio::time::sleep(stretch).await;
        if stage.client.counts().sent() == before {
            return;
        }
    }
    panic!("no stretch without a request\n{}", stage.journal.story());
}

/// The wire is cut: the leader renews in the bucket and goes on, the follower does not take over.
async fn cut_off(stage: &Stage, leader: &Candidate, follower: &Candidate) {
    const RENEWALS: usize = 3;
    let before = stage.document().await;
    stage.connect(false);
    let mut token = before.token;
    for _ in 0..RENEWALS {
        until(stage, "a renewal", async || stage.document().await.token != token).await;
        token = stage.document().await.token;
    }
    let after = stage.document().await;
    assert_eq!((after.leader, after.epoch), (before.leader, before.epoch));
    assert!(after.expires > before.expires);
    assert_eq!(leads(leader), Some(before.epoch), "{}", stage.journal.story());
    assert_eq!(leads(follower), None);
}
