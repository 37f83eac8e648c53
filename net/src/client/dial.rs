//! Reaching a server: an address, a socket, the hello. Ends with a connection that serves calls.

use std::time::Duration;

use duolog_engine::ids::{ClusterId, LeaseEpoch, NodeId, ShardId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::error::Error;
use crate::limits::answer_body_max_bytes;
use crate::wire::{
    ErrorCode, ErrorView, FrameBuffer, Hello, HelloAccepted, Message, NodeRole, Standing,
};

/// The port of addresses that name none.
const PORT_DEFAULT: u16 = 7400;
/// Largest body that can answer a hello, bytes: an error with the longest text.
const GREETING_MAX_BYTES: usize = 8 << 10;

/// What the server said about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The address that was reached.
    pub address: String,
    /// Shards of the cluster.
    pub shard_count: u32,
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// Shard that serves the connection.
    pub shard: ShardId,
    /// Largest frame body the server takes, bytes.
    pub frame_body_max_bytes: usize,
    /// Requests in flight allowed on the connection.
    pub requests_max: usize,
    /// Bytes in flight allowed on the connection.
    pub bytes_max: usize,
    /// What the node is.
    pub role: NodeRole,
    /// The newest reign that it leads or follows, or knows to have begun; 0 standalone.
    pub epoch: LeaseEpoch,
    /// Where that reign's leader is; empty if the node does not know.
    pub leader: String,
}

impl ServerInfo {
    pub(super) fn stands(&mut self, standing: &Standing<'_>) {
        (self.role, self.epoch) = (standing.role, standing.epoch);
        standing.leader.clone_into(&mut self.leader);
    }
}

/// A greeted connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: TcpStream,
    pub(super) frames: FrameBuffer,
    pub(super) info: ServerInfo,
}

impl Link {
    /// Waits until the server says what it has become. Nothing else may come: nothing was asked.
    /// Can be dropped and called again.
    pub(super) async fn next_standing(&mut self) -> Result<(), String> {
        let Self { stream, frames, info } = self;
        loop {
            if let Some(frame) = frames.next_frame().map_err(|error| error.to_string())? {
                return match Message::decode(&frame) {
                    Ok(Message::Standing(standing)) => {
                        info.stands(&standing);
                        Ok(())
                    }
                    _ => Err(format!("{:?} came unasked", frame.kind)),
                };
            }
            let count = stream.read(frames.space()).await.map_err(|error| error.to_string())?;
            if count == 0 {
                return Err("the server closed the connection".to_owned());
            }
            frames.filled(count);
        }
    }
}

/// Connects to `address` and greets, all within `timeout`.
pub(super) async fn dial(
    address: &str,
    shard: Option<ShardId>,
    timeout: Duration,
) -> Result<Link, Error> {
    match tokio::time::timeout(timeout, greet(address, shard)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(unreachable(address, format!("no hello within {} ms", timeout.as_millis()))),
    }
}

/// `address` with the default port, if it names none.
pub(super) fn with_port(address: &str) -> String {
    let host_end = address.rfind(']').map_or(0, |index| index + 1);
    if address[host_end..].contains(':') {
        address.to_owned()
    } else {
        format!("{address}:{PORT_DEFAULT}")
    }
}

fn unreachable(address: &str, text: impl std::fmt::Display) -> Error {
    Error::Connect { addresses: address.to_owned(), text: text.to_string() }
}

fn not_spoken(address: &str, text: impl std::fmt::Display) -> Error {
    Error::Protocol { text: format!("{address}: {text}") }
}

async fn greet(address: &str, shard: Option<ShardId>) -> Result<Link, Error> {
    let io = |error: std::io::Error| unreachable(address, error);
    let mut stream = TcpStream::connect(with_port(address)).await.map_err(io)?;
    stream.set_nodelay(true).map_err(io)?;
    let mut hello = Vec::new();
    Hello::new(shard).encode(&mut hello, 0);
    stream.write_all(&hello).await.map_err(io)?;
    let mut frames = FrameBuffer::new(GREETING_MAX_BYTES);
    loop {
        let count = stream.read(frames.space()).await.map_err(io)?;
        if count == 0 {
            return Err(unreachable(address, "closed before the hello was answered"));
        }
        frames.filled(count);
        let frame = frames.next_frame().map_err(|error| not_spoken(address, error))?;
        let Some(frame) = frame else { continue };
        let info = match Message::decode(&frame) {
            Ok(Message::HelloAccepted(accepted, leader)) => info(address, &accepted, leader),
            Ok(Message::Error(error)) => return Err(refused(address, &error)),
            Ok(_) => return Err(not_spoken(address, format!("{:?} as first frame", frame.kind))),
            Err(error) => return Err(not_spoken(address, error)),
        };
        frames.set_body_max_bytes(answer_body_max_bytes(info.frame_body_max_bytes));
        return Ok(Link { stream, frames, info });
    }
}

fn info(address: &str, accepted: &HelloAccepted, leader: &str) -> ServerInfo {
    ServerInfo {
        address: address.to_owned(),
        shard_count: accepted.shard_count,
        cluster: accepted.cluster,
        node: accepted.node,
        shard: accepted.shard,
        frame_body_max_bytes: accepted.frame_body_max_bytes as usize,
        requests_max: accepted.requests_max as usize,
        bytes_max: accepted.bytes_max as usize,
        role: accepted.role,
        epoch: accepted.epoch,
        leader: leader.to_owned(),
    }
}

fn refused(address: &str, error: &ErrorView<'_>) -> Error {
    match error.code() {
        Some(ErrorCode::BadRequest) => Error::BadRequest { text: error.text.to_owned() },
        Some(ErrorCode::Busy | ErrorCode::ShuttingDown | ErrorCode::NotLeader) => {
            unreachable(address, error.text)
        }
        _ => not_spoken(address, error.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_a_port_get_the_usual_one() {
        assert_eq!(with_port("db1"), "db1:7400");
        assert_eq!(with_port("db1:1"), "db1:1");
        assert_eq!(with_port("[::1]"), "[::1]:7400");
        assert_eq!(with_port("[::1]:1"), "[::1]:1");
    }
}
