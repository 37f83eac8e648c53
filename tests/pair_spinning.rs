//! A leader that lingers over its clients while its second copies take their time.

use std::time::Duration;

use duolog_engine::append::Expect;
use duolog_tests::pair::{Pair, PairOptions, Timing};
use duolog_tests::process::{Operation, Wire, quiet};

/// A node that is asked for a sign of life gives it within this on any machine that runs the tests.
const PATIENCE: Duration = Duration::from_secs(2);
const ROUNDS: u128 = 60;

/// Promised (Q4): a client always gets a sign of life, also when it was answered while another
/// client's block was being written and nobody appends any more.
/// Provoked: the follower away, so that second copies come from the bucket, behind the writes; two
/// clients whose appends overlap, then silence, then pings. `shards.spin_us` makes connections hot
/// that only few others keep company.
/// Broken: a ping without an answer (with 200 us of spinning, a leader forgot one in a few rounds).
#[test]
fn a_client_gets_a_sign_of_life_while_the_bucket_takes_the_second_copies() {
    let _alone = quiet();
    let setup = PairOptions { timing: Timing::Calm, ..PairOptions::default() };
    let mut pair = Pair::unfounded(setup);
    for options in &mut pair.options {
        *options = options.clone().flag("shards-spin-us", "200");
    }
    let mut pair = pair.founded();
    let address = pair.node(0).address();
    let mut clients: Vec<Wire> =
        (0..2).map(|_| Wire::connect(address).expect("the leader takes clients")).collect();
    pair.kill(1);
    for round in 0..ROUNDS {
        for (wire, client) in clients.iter_mut().zip(0_u128..) {
            let key = (round * 2 + client + 1) << 32;
            let operation = Operation::single(key, "orders", Expect::Any, b"x");
            wire.send_append(&operation.request()).expect("it is sent");
        }
        for wire in &mut clients {
            wire.receive().expect("the bucket takes over").1.receipt();
        }
        for wire in &mut clients {
            wire.patience(PATIENCE).expect("a socket has a time limit");
            wire.ping().unwrap_or_else(|error| panic!("no sign of life in round {round}: {error}"));
            wire.patience(Duration::from_secs(30)).expect("a socket has a time limit");
        }
    }
}
