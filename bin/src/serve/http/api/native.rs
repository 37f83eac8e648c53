//! The way to this node's own shards: a client over the loopback, and where the leader's HTTP is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use duolog_net::client::{Client, Error};
use tokio::sync::OnceCell;

/// Connections to the own port: a long answer on one holds up only a part of the others.
const CONNECTIONS: usize = 4;
/// How long the leader may take to say where its HTTP is: one round trip, usually.
const LEADER_MAX: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub struct Native {
    client: OnceCell<Client>,
    /// A leader's native address and where its HTTP is.
    leader: Mutex<Option<(String, String)>>,
}

impl Native {
    /// The client of the node that listens at `address`.
    pub async fn client(&self, address: SocketAddr) -> Result<&Client, Error> {
        let connect = || {
            let builder = Client::builder().addresses(&own(address).to_string());
            builder.this_node().connections(CONNECTIONS).connect()
        };
        self.client.get_or_try_init(connect).await
    }

    /// Where HTTP clients reach the node whose clients connect to `leader`; nothing if it does not
    /// say so or if only itself gets there. An answer is kept until another node leads: an address
    /// is a node's for as long as it runs, and a redirect to one that has changed fails openly.
    pub async fn http_of(&self, leader: &str) -> Option<String> {
        let known = self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, http)) = known.filter(|(native, _)| native == leader) {
            return Some(http);
        }
        let told = tokio::time::timeout(LEADER_MAX, ask(leader)).await.ok()??;
        let http = reachable(leader, &told)?;
        let news = Some((leader.to_owned(), http.clone()));
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner) = news;
        Some(http)
    }
}

/// What a node says of its HTTP address.
async fn ask(native: &str) -> Option<String> {
    let client = Client::builder().addresses(native).this_node().connect().await.ok()?;
    let status: serde_json::Value = serde_json::from_str(&client.status().await.ok()?).ok()?;
    status["http"].as_str().map(str::to_owned)
}

/// The address as others reach it. A node on all addresses is where its clients find it; one on the
/// loopback is reached by its own machine alone.
pub(super) fn reachable(native: &str, http: &str) -> Option<String> {
    let Ok(address) = http.parse::<SocketAddr>() else { return Some(http.to_owned()) };
    let host = native.rsplit_once(':').map_or(native, |(host, _)| host);
    let local = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback(),
        Err(_) => host == "localhost",
    };
    if address.ip().is_unspecified() {
        return Some(format!("{host}:{}", address.port()));
    }
    (local || !address.ip().is_loopback()).then(|| http.to_owned())
}

/// The address to reach a port of this process.
fn own(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_to_where_the_client_can_go() {
        let same = |native, http| assert_eq!(reachable(native, http).as_deref(), Some(http));
        same("10.0.0.1:7400", "10.0.0.1:7402");
        same("10.0.0.1:7400", "events-1.example.org:7402");
        same("127.0.0.1:7400", "127.0.0.1:7402");
        same("localhost:7400", "[::1]:7402");
        let told = |native, http| reachable(native, http);
        assert_eq!(told("10.0.0.1:7400", "127.0.0.1:7402"), None, "only the leader gets there");
        assert_eq!(told("db-1.example.org:7400", "[::1]:7402"), None);
        let all = Some("db-1.example.org:7402".to_owned());
        assert_eq!(told("db-1.example.org:7400", "0.0.0.0:7402"), all);
        assert_eq!(told("[fd00::1]:7400", "[::]:7402"), Some("[fd00::1]:7402".to_owned()));
    }

    #[test]
    fn the_own_port_is_reached_over_the_loopback() {
        let own = |text: &str| super::own(text.parse().unwrap()).to_string();
        assert_eq!(own("0.0.0.0:7400"), "127.0.0.1:7400");
        assert_eq!(own("[::]:7400"), "[::1]:7400");
        assert_eq!(own("10.0.0.1:7400"), "10.0.0.1:7400");
    }
}
