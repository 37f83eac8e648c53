//! Subscriptions of a pair: over failovers, and on the follower.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duolog_net::client::{Client, Delivered, Delivery, SubscribeCall};
use duolog_tests::pair::{Pair, PairOptions, Timing};
use duolog_tests::process::{block_on, pause, quiet};

const SHARDS: u32 = 2;

/// What tells events apart: their place in the order of all shards, stream and revision.
type Mark = (u64, u32, u64, String, u64);

fn mark(delivered: &Delivered) -> Mark {
    let event = &delivered.event;
    (event.hlc.0, delivered.shard.0, event.lsn.0, event.stream.clone(), event.revision.0)
}

/// Takes what comes; ends when nothing has come for a while after `stop`.
fn follow(addresses: &str, any: bool, stop: &AtomicBool) -> Vec<Mark> {
    block_on(async {
        let client = Client::connect(addresses).await.expect("the pair takes clients");
        let call = client.subscribe_all();
        let mut subscription = if any { call.any_node() } else { call }.open().expect("it begins");
        let mut all = Vec::new();
        loop {
            match tokio::time::timeout(Duration::from_secs(2), subscription.next()).await {
                Ok(Ok(Delivery::Event(delivered))) => all.push(mark(&delivered)),
                Ok(Ok(Delivery::CaughtUp)) => {}
                Ok(Err(error)) => panic!("{error}"),
                Err(_) if stop.load(Ordering::Acquire) => return all,
                Err(_) => {}
            }
        }
    })
}

async fn there(call: SubscribeCall) -> Vec<Mark> {
    let mut subscription = call.open().expect("it begins");
    let mut all = Vec::new();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(60), subscription.next()).await;
        match next.expect("something comes").expect("it goes on") {
            Delivery::Event(delivered) => all.push(mark(&delivered)),
            Delivery::CaughtUp => return all,
        }
    }
}

/// Promised (U1, O1): a subscription goes on over failovers by itself; it has brought every event
/// once and in the very order in which both nodes give them later, also one that asks the follower.
/// Provoked: writers on both shards, the leader killed, handed over, frozen, both nodes restarted.
/// Broken: an event missing, doubled or in another place; an acknowledged one that never comes.
#[test]
fn a_subscription_survives_every_change_of_the_lead() {
    let _alone = quiet();
    let mut pair = Pair::found(PairOptions { shards: SHARDS, timing: Timing::Short });
    let addresses = pair.options.iter().map(|node| node.address.to_string());
    let addresses = addresses.collect::<Vec<_>>().join(",");
    let stop = AtomicBool::new(false);
    let (live, any, ledger) = std::thread::scope(|scope| {
        let live = scope.spawn(|| follow(&addresses, false, &stop));
        let any = scope.spawn(|| follow(&addresses, true, &stop));
        let crowd = pair.crowd();
        pair.until_acked(&crowd, 200);
        let leader = pair.leader();
        pair.kill(leader);
        pair.until_acked(&crowd, 200);
        pair.start(leader);
        let leader = pair.healed_under_load();
        pair.hand_over(leader);
        pair.until_leads(pair.other(leader));
        pair.until_acked(&crowd, 200);
        let leader = pair.healed_under_load();
        pair.freeze(leader, true);
        pair.until_leads(pair.other(leader));
        pair.until_acked(&crowd, 200);
        pair.freeze(leader, false);
        let _ = pair.healed_under_load();
        pair.until_acked(&crowd, 200);
        let ledger = crowd.finish();
        let _ = pair.healed();
        pause(Duration::from_millis(500));
        stop.store(true, Ordering::Release);
        (live.join().expect("no panic"), any.join().expect("no panic"), ledger)
    });
    let leader = pair.leader();
    let [first, second] = [leader, pair.other(leader)].map(|number| {
        let address = pair.options[number].address.to_string();
        block_on(async {
            let client = Client::connect(&address).await.expect("the node takes clients");
            there(client.subscribe_all().any_node()).await
        })
    });
    assert!(first.len() > 1_000, "{} events", first.len());
    assert!(first.is_sorted(), "the order is that of stamps");
    assert_eq!(first, second, "both nodes give one order");
    assert_eq!(live.len(), first.len());
    assert_eq!(live, first, "and the subscription saw that very order");
    assert_eq!(any, first, "also the one that took any node");
    pair.reckon(&ledger);
}
