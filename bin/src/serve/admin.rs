//! What an operator asks a standalone node, and its answers. The members of an answer are described
//! in docs/OPERATIONS.md, "Status".

use std::sync::Arc;

use duolog_net::session::Settings;
use serde::Deserialize;
use serde_json::json;

use super::inbox::Inbox;
use super::{metrics, vitals};

/// A request, as `{"command": …}`.
#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
enum Command {
    /// What the node is.
    Status,
    /// The newest entries of its event log.
    Events {
        /// How many, at most.
        #[serde(default = "events_asked")]
        last: usize,
    },
    /// What its process and machine are like, and whether it reaches these addresses.
    Doctor {
        /// `host:port`.
        #[serde(default)]
        reach: Vec<String>,
    },
    /// Give the lead to the other node.
    Handoff,
    /// Change the members.
    Replace,
}

/// Entries for whoever does not say how many.
pub const fn events_asked() -> usize {
    1000
}

/// What an operator is told.
#[derive(Debug, PartialEq)]
pub enum Told {
    /// This.
    Text(String),
    /// So many entries of the event log, by the thread that keeps it.
    Events {
        /// At most.
        last: usize,
    },
    /// What the visitors' thread finds.
    Visit {
        /// Addresses to reach.
        reach: Vec<String>,
    },
}

/// Why an operator's request is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Not a request of this version.
    #[error("the admin request {0:?} is not understood: {1}")]
    NotUnderstood(String, serde_json::Error),
    /// It takes a pair.
    #[error("{0} needs a pair of nodes, and this node is standalone: nothing was done")]
    Standalone(&'static str),
}

/// The answer to `request`.
pub fn answer(request: &str, settings: &Settings, inboxes: &[Arc<Inbox>]) -> Result<Told, Refused> {
    let command = serde_json::from_str(request)
        .map_err(|error| Refused::NotUnderstood(request.to_owned(), error))?;
    match command {
        Command::Status => Ok(Told::Text(status(settings, inboxes))),
        Command::Events { last } => Ok(Told::Events { last }),
        Command::Doctor { reach } => Ok(Told::Visit { reach }),
        Command::Handoff => Err(Refused::Standalone("handoff")),
        Command::Replace => Err(Refused::Standalone("node replace")),
    }
}

fn status(settings: &Settings, inboxes: &[Arc<Inbox>]) -> String {
    let node = settings.node.to_string();
    let shards = (0_u32..).zip(inboxes).map(|(shard, inbox)| {
        let reading = inbox.gauge.read();
        let committed = reading.committed.0;
        json!({
            "shard": shard,
            "lsn": committed,
            "durable": committed,
            "committed": committed,
            "lag": 0,
            "writes": reading.writes,
            "written_bytes": reading.written_bytes,
        })
    });
    let mut status = json!({
        "node": node,
        "cluster": settings.cluster.to_string(),
        "role": "standalone",
        "status": "serving",
        "http": inboxes[0].node.http(),
        "reason": null,
        "epoch": 0,
        "lease_remaining_ms": null,
        "in_sync": [node],
        "peer": null,
        "acks_go_to": "disk",
        "shards": shards.collect::<Vec<_>>(),
        "failovers": [],
        "skew_ms": {"peer": null, "s3": null},
    });
    metrics::status::tell(&mut status, inboxes);
    vitals::tell(&mut status);
    status.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use duolog_engine::ids::Lsn;

    fn ask(request: &str) -> Result<Told, Refused> {
        let (inbox, _bell) = Inbox::new().expect("a socket pair");
        inbox.gauge.log(Lsn(42), Lsn(42), Lsn(42));
        inbox.gauge.wrote(4096);
        inbox.gauge.wrote(8192);
        answer(request, &Settings::default(), &[Arc::new(inbox)])
    }

    #[test]
    fn a_standalone_node_tells_its_shards() {
        let Told::Text(answer) = ask(r#"{"command":"status"}"#).expect("a status") else {
            panic!("a status is a text")
        };
        let status: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(
            (&status["role"], &status["acks_go_to"]),
            (&json!("standalone"), &json!("disk"))
        );
        assert_eq!(
            (&status["shards"][0]["shard"], &status["shards"][0]["committed"]),
            (&json!(0), &json!(42))
        );
        assert_eq!(
            (&status["shards"][0]["writes"], &status["shards"][0]["written_bytes"]),
            (&json!(2), &json!(12_288))
        );
        assert!(status["cpu_us"].as_u64() > Some(0), "{status}");
        assert!(status["resident_bytes"].as_u64() > Some(100_000), "{status}");
        assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn events_are_left_to_the_thread_that_keeps_them() {
        let asked = ask(r#"{"command":"events","last":7}"#).expect("a request");
        assert_eq!(asked, Told::Events { last: 7 });
        let asked = ask(r#"{"command":"events"}"#).expect("a request");
        assert_eq!(asked, Told::Events { last: events_asked() });
    }

    #[test]
    fn a_standalone_node_refuses_what_takes_a_pair() {
        for request in [r#"{"command":"handoff"}"#, r#"{"command":"replace","dead":"x"}"#] {
            let refused = ask(request).expect_err("no pair");
            assert!(refused.to_string().contains("needs a pair of nodes"), "{refused}");
        }
        let refused = ask(r#"{"command":"shred"}"#).expect_err("no command").to_string();
        assert!(refused.contains("shred") && refused.contains("not understood"), "{refused}");
    }
}
