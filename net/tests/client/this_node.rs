//! A client that stays with one node, whatever that is.

use duolog_net::client::{Error, Event, Lsn, NodeRole};

use crate::fake::Fake;

/// Broken if the client went to the leader that the node names, asked the same node again, or left
/// the connection: whoever stays where it is has to be told.
#[tokio::test]
async fn a_client_of_one_node_is_told_that_another_one_leads_and_stays() {
    let two = Fake::node(NodeRole::Leader, 2, "").await;
    let (client, _one, mut peer) = Fake::with_client(|options| options.this_node()).await;
    let append = || client.append("s").event(Event::new("t", "data")).retry();
    let (outcome, ()) = tokio::join!(append().send(), async {
        let request = peer.request().await;
        peer.not_leader(request.correlation, 2, &two.address).await;
    });
    match outcome {
        Err(Error::NotLeader { leader, .. }) => assert_eq!(leader.as_ref(), Some(&two.address)),
        other => panic!("{other:?}"),
    }
    let (outcome, ()) = tokio::join!(append().send(), async {
        let request = peer.request().await;
        peer.receipt(request.correlation, 9).await;
    });
    assert_eq!(outcome.expect("the same connection").first_lsn, Lsn(9));
}
