//! The drivers of a node of a pair: the lease machine on shard 0, and every shard's connections to
//! the other node and objects in the bucket.

mod admin;
mod bell;
mod blocks;
mod calls;
pub(super) mod confirm;
mod control;
mod garbage;
mod heartbeat;
mod history;
mod inlink;
mod lend;
mod listener;
mod member;
mod notes;
mod object;
mod outlink;
mod promote;
mod rebuild;
mod rejoin;
mod seek;
mod standing;
mod stop;
mod tally;
mod upload;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use duolog_engine::ids::LeaseEpoch;

pub(super) use calls::Calls;
pub(super) use control::Control;
pub(super) use member::Member;

use super::accept;
use super::shard_loop::ShardLoop;
use crate::serve::cluster::objects::{NODE_FORMAT, NodeDocument};
use crate::serve::cluster::store::{Ask, Lane, Told};

/// Starts every shard's drivers.
pub(super) fn start(shard: &Rc<ShardLoop>) {
    glommio::spawn_local(outlink::run(Rc::clone(shard))).detach();
}

/// Starts shard 0's drivers: the port for the other node is open when this returns.
pub(super) fn start_control(
    shard: &Rc<ShardLoop>,
    listen: SocketAddr,
    promised: LeaseEpoch,
) -> io::Result<Rc<Control>> {
    let member = shard.member();
    let listener = accept::listen_alone(listen)?;
    let control =
        Control::new(Arc::clone(&member.settings), Rc::clone(shard), Rc::clone(&member.calls));
    glommio::spawn_local(listener::run(Rc::clone(&control), listener)).detach();
    glommio::spawn_local(seek::run(Rc::clone(&control))).detach();
    glommio::spawn_local(introduce(Rc::clone(&control))).detach();
    glommio::spawn_local(Rc::clone(&control).run(promised)).detach();
    Ok(control)
}

/// Tells the bucket where this node is.
async fn introduce(control: Rc<Control>) {
    let settings = &control.settings;
    let document = NodeDocument {
        format: NODE_FORMAT,
        cluster: settings.identity.cluster.to_string(),
        node: settings.identity.node.to_string(),
        client: settings.client_address.clone(),
        peer: settings.peer_address.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        shard_count: settings.shard_count,
        started_ms: control.now().wall.0,
    };
    let key = settings.keys.node(settings.identity.node);
    let ask = Ask::Put(key, Bytes::from(document.encode()));
    // Repeated underneath until it works: without it a leader finds this node only where it was.
    if let Told::Failed(error) = control.calls.ask(Lane::Bulk, ask).await {
        tracing::warn!(event = "node_not_introduced", %error);
    }
}
