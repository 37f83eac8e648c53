//! A pair whose lead moves: the client goes where the leader is, and nothing is done twice.

use std::sync::atomic::Ordering;
use std::time::Duration;

use duolog_net::client::{AppendCall, Client, Error, Event, Lsn, NodeRole, Revision, StreamTail};
use duolog_net::wire::{ErrorCode, ErrorFrame, FrameKind, StreamPage, encode_admin_answer};
use tokio::net::TcpListener;

use crate::fake::{Fake, Peer, soon};

const LEADER: NodeRole = NodeRole::Leader;
const FOLLOWER: NodeRole = NodeRole::Follower;

fn append(client: &Client) -> AppendCall {
    client.append("s").event(Event::new("t", "data"))
}

/// A client with both nodes' addresses, connected to the first; silence makes it leave nobody.
async fn joined(one: &Fake, two: &Fake) -> (Client, Peer) {
    let list = format!("{},{}", one.address, two.address);
    let builder = Client::builder().addresses(&list).silence(Duration::from_secs(60));
    let (client, peer) = tokio::join!(builder.connect(), one.peer());
    (client.expect("the first node leads"), peer)
}

/// A leader of reign 1 and one of reign 2.
async fn two_leaders() -> (Fake, Fake) {
    (Fake::node(LEADER, 1, "").await, Fake::node(LEADER, 2, "").await)
}

async fn answer_append(peer: &mut Peer, lsn: u64) {
    let request = peer.request().await;
    assert_eq!(request.kind, FrameKind::Append);
    peer.receipt(request.correlation, lsn).await;
}

fn empty_page(correlation: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let page = StreamPage::begin(&mut out, correlation);
    let (next, stream_next) = (Revision(0), Revision(0));
    page.finish_stream(&mut out, &StreamTail { next, stream_next, committed: Lsn(3), end: true });
    out
}

/// With and without a key: where nothing was done, nothing can be done twice.
#[tokio::test]
async fn a_redirect_is_followed_to_an_address_that_nobody_listed() {
    for key in [true, false] {
        let two = Fake::node(LEADER, 2, "").await;
        let (client, _one, mut peer) = Fake::with_client(|options| options).await;
        let call = if key { append(&client).retry() } else { append(&client) };
        let (outcome, ()) = tokio::join!(call.send(), async {
            let request = peer.request().await;
            peer.not_leader(request.correlation, 2, &two.address).await;
            assert_eq!(peer.next().await, None, "the client leaves");
            answer_append(&mut two.peer().await, 8).await;
        });
        assert_eq!(outcome.unwrap().first_lsn, Lsn(8));
        assert_eq!(client.server().address, two.address);
    }
}

#[tokio::test]
async fn a_follower_leads_the_way_when_it_is_greeted() {
    let two = Fake::node(LEADER, 3, "").await;
    let one = Fake::node(FOLLOWER, 3, &two.address).await;
    let (client, _spare, mut peer) =
        tokio::join!(Client::connect(&one.address), one.peer(), two.peer());
    let client = client.unwrap();
    let info = client.server();
    assert_eq!((info.address, info.role, info.epoch.0), (two.address.clone(), LEADER, 3));
    let (outcome, ()) = tokio::join!(append(&client).send(), answer_append(&mut peer, 5));
    assert_eq!(outcome.unwrap().first_lsn, Lsn(5));
}

/// Broken would be a client that runs in circles as fast as it can, or for ever.
#[tokio::test]
async fn nodes_that_name_each_other_are_asked_with_pauses_until_the_deadline() {
    let (mut one, mut two) = (Fake::start().await, Fake::start().await);
    (one.leader, two.leader) = (two.address.clone(), one.address.clone());
    for node in [&mut one, &mut two] {
        node.accepted.role = FOLLOWER;
    }
    let list = format!("{},{}", one.address, two.address);
    let counts = [one.greet_all(), two.greet_all()];
    let builder = Client::builder().addresses(&list).deadline(Duration::from_millis(500));
    let client = builder.connect().await.expect("followers are servers too");
    let error = append(&client).retry().send().await.unwrap_err();
    assert!(matches!(error, Error::NotLeader { .. }), "nothing was sent: {error}");
    assert!(error.to_string().starts_with("no node leads ("), "{error}");
    let greeted: usize = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert!((2..40).contains(&greeted), "{greeted} connections in half a second");
}

/// A node that names itself and refuses all the same.
#[tokio::test]
async fn a_node_that_redirects_to_itself_is_asked_with_pauses_until_the_deadline() {
    let mut one = Fake::node(LEADER, 2, "").await;
    one.leader = one.address.clone();
    let address = one.address.clone();
    let server = tokio::spawn(async move {
        for _ in 0..100 {
            let mut peer = one.peer().await;
            if let Some(request) = peer.next().await {
                peer.not_leader(request.correlation, 2, &one.leader).await;
            }
        }
    });
    let builder = Client::builder().addresses(&address).deadline(Duration::from_millis(500));
    let client = builder.connect().await.unwrap();
    let error = append(&client).send().await.unwrap_err();
    assert!(matches!(error, Error::NotLeader { .. }), "{error}");
    assert!(!server.is_finished(), "far below a hundred attempts in half a second");
    server.abort();
}

#[tokio::test]
async fn a_call_waits_for_a_leader_and_goes_as_soon_as_one_says_so() {
    let one = Fake::node(FOLLOWER, 1, "").await;
    let (client, _spare) = tokio::join!(Client::connect(&one.address), one.peer());
    let client = client.expect("a follower is a server too");
    let sending = tokio::spawn(append(&client).send());
    let mut peer = one.peer().await;
    peer.standing(NodeRole::Other, 2, "").await;
    peer.standing(LEADER, 2, &one.address).await;
    answer_append(&mut peer, 4).await;
    assert_eq!(sending.await.unwrap().unwrap().first_lsn, Lsn(4));
    assert_eq!((client.server().role, client.server().epoch.0), (LEADER, 2));
}

#[tokio::test]
async fn without_a_leader_reads_that_may_be_stale_are_served() {
    let one = Fake::node(FOLLOWER, 1, "").await;
    let (client, mut peer) = tokio::join!(Client::connect(&one.address), one.peer());
    let client = client.unwrap();
    for role in [FOLLOWER, LEADER, NodeRole::Other] {
        let reading = client.read("s").any_consistency();
        let (read, ()) = tokio::join!(reading.page(), async {
            let request = peer.request().await;
            assert_eq!(request.kind, FrameKind::ReadStream);
            peer.send(&empty_page(request.correlation)).await;
            peer.standing(role, 1, "").await;
        });
        assert_eq!(read.unwrap().tail.committed, Lsn(3));
    }
}

#[tokio::test]
async fn a_leader_that_dies_under_an_append_leaves_it_unknown_without_a_key() {
    let (one, two) = two_leaders().await;
    let (client, mut peer) = joined(&one, &two).await;
    let (outcome, ()) = tokio::join!(append(&client).send(), async {
        peer.request().await;
        drop((peer, one));
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Unknown { idempotency_key: None, .. }), "{error}");
    // The next one goes to the other node; the lost one does not.
    let (outcome, ()) = tokio::join!(append(&client).send(), async {
        answer_append(&mut two.peer().await, 9).await;
    });
    assert_eq!(outcome.unwrap().first_lsn, Lsn(9));
}

#[tokio::test]
async fn a_leader_that_dies_under_an_append_with_a_key_is_replaced_by_the_other_node() {
    let (one, two) = two_leaders().await;
    let (client, mut peer) = joined(&one, &two).await;
    let (outcome, ()) = tokio::join!(append(&client).retry().send(), async {
        let lost = peer.request().await;
        drop((peer, one));
        let mut peer = two.peer().await;
        let repeated = peer.request().await;
        assert_eq!(lost.body, repeated.body, "the same append");
        peer.receipt_with(repeated.correlation, 6, true).await;
    });
    let receipt = outcome.unwrap();
    assert_eq!((receipt.first_lsn, receipt.replayed), (Lsn(6), true));
}

/// The old leader still answers and thinks that it leads: it is greeted and gets no call.
#[tokio::test]
async fn the_higher_reign_is_preferred_whoever_answers_first() {
    let (old, new) = two_leaders().await;
    let refuser = Fake::node(LEADER, 1, "").await;
    let list = format!("{},{},{}", refuser.address, old.address, new.address);
    let olds = old.greet_all();
    let builder = Client::builder().addresses(&list).silence(Duration::from_secs(60));
    let (client, mut peer) = tokio::join!(builder.connect(), refuser.peer());
    let client = client.unwrap();
    let calling = tokio::spawn(append(&client).retry().send());
    let request = peer.request().await;
    // It has heard of a newer reign, not of its leader.
    peer.not_leader(request.correlation, 2, "").await;
    answer_append(&mut new.peer().await, 7).await;
    assert_eq!(calling.await.unwrap().unwrap().first_lsn, Lsn(7));
    assert_eq!(olds.load(Ordering::Relaxed), 1, "it was asked first");
}

#[tokio::test]
async fn an_older_reign_is_asked_when_nobody_of_the_newer_one_answers() {
    let (one, two) = two_leaders().await;
    let (client, mut peer) = joined(&one, &two).await;
    let calling = tokio::spawn(append(&client).retry().send());
    let request = peer.request().await;
    peer.not_leader(request.correlation, 2, "").await;
    drop((peer, two));
    answer_append(&mut one.peer().await, 8).await;
    assert_eq!(calling.await.unwrap().unwrap().first_lsn, Lsn(8));
}

/// The only address listed leads by an old reign; the way to the new one is known.
#[tokio::test]
async fn a_node_of_an_older_reign_gets_no_call_while_a_newer_one_answers() {
    let mut two = Fake::node(FOLLOWER, 2, "").await;
    let one = Fake::node(LEADER, 1, "").await;
    let list = format!("{},{}", two.address, one.address);
    let connecting = tokio::spawn(Client::builder().addresses(&list).connect());
    let mut twos = two.peer().await;
    let mut ones = one.peer().await;
    let client = connecting.await.unwrap().unwrap();
    // Reign 1 was the best that answered.
    assert_eq!(client.server().epoch.0, 1);
    two.accepted.role = LEADER;
    twos.standing(LEADER, 2, &two.address).await;
    assert_eq!(soon("leaving", ones.next()).await, None, "another connection knew better");
    let calling = tokio::spawn(append(&client).send());
    answer_append(&mut two.peer().await, 2).await;
    assert_eq!(calling.await.unwrap().unwrap().first_lsn, Lsn(2));
}

#[tokio::test]
async fn a_leader_that_says_it_stepped_down_is_left_before_the_next_call() {
    let (one, two) = two_leaders().await;
    let (client, mut peer) = joined(&one, &two).await;
    peer.standing(FOLLOWER, 2, &two.address).await;
    assert_eq!(soon("leaving", peer.next()).await, None, "the client leaves unasked");
    let (outcome, ()) = tokio::join!(append(&client).send(), async {
        answer_append(&mut two.peer().await, 3).await;
    });
    assert_eq!(outcome.unwrap().first_lsn, Lsn(3));
}

#[tokio::test]
async fn both_nodes_down_is_one_error_that_names_both_once() {
    let (one, two) = (Fake::node(LEADER, 1, "").await, Fake::node(FOLLOWER, 1, "").await);
    let list = format!("{},{}", one.address, two.address);
    let builder = Client::builder().addresses(&list).deadline(Duration::from_millis(400));
    let (client, peer) = tokio::join!(builder.connect(), one.peer());
    let (client, ones, twos) = (client.unwrap(), one.address.clone(), two.address.clone());
    drop((peer, one, two));
    let error = append(&client).send().await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    let text = error.to_string();
    assert_eq!(text.matches("no connection to").count(), 1, "{text}");
    for address in [ones, twos] {
        assert!(text.contains(&format!("{address}: ")), "{text}");
    }
}

/// A stopped process accepts connections (its kernel does) and says nothing.
#[tokio::test]
async fn a_node_that_accepts_and_says_nothing_does_not_hold_up_the_other() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let two = Fake::node(LEADER, 2, "").await;
    let list = format!("{},{}", silent.local_addr().unwrap(), two.address);
    let builder = Client::builder().addresses(&list).connect_timeout(Duration::from_secs(600));
    let both = async { tokio::join!(builder.connect(), two.peer()) };
    let (client, _peer) = soon("connecting", both).await;
    assert_eq!(client.unwrap().server().address, two.address);
}

/// A handover done twice would lead back.
#[tokio::test]
async fn a_command_is_redirected_and_never_sent_twice() {
    let (one, two) = two_leaders().await;
    let (client, mut peer) = joined(&one, &two).await;
    let command = r#"{"command":"handoff"}"#;
    let (outcome, mut peer) = tokio::join!(client.command(command), async {
        let request = peer.request().await;
        assert_eq!((request.kind, &request.body[..]), (FrameKind::Admin, command.as_bytes()));
        peer.not_leader(request.correlation, 2, &two.address).await;
        let mut peer = two.peer().await;
        let request = peer.request().await;
        let mut out = Vec::new();
        encode_admin_answer(&mut out, request.correlation, r#"{"epoch":3}"#);
        peer.send(&out).await;
        peer
    });
    assert_eq!(outcome.unwrap(), r#"{"epoch":3}"#);
    let (outcome, ()) = tokio::join!(client.command(command), async {
        let request = peer.request().await;
        peer.error(request.correlation, ErrorFrame::new(ErrorCode::Refused), "alone").await;
    });
    assert_eq!(outcome.unwrap_err(), Error::Refused { text: "alone".to_owned() });
    let (outcome, ()) = tokio::join!(client.command(command), async {
        peer.request().await;
        drop(peer);
    });
    assert!(matches!(outcome.unwrap_err(), Error::CommandUnknown { .. }));
}
