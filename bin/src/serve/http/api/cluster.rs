//! `GET /v1/cluster`: what both nodes say of themselves, asked by this one.
//!
//! Whoever sees one node should see the pair, also from where the other node's port is closed to
//! him. The other node is asked as any client asks it. An answer is kept for about a second, so
//! that ten open pages cost what one does.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use duolog_net::client::Client;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::openapi::Refusals;
use super::{Outcome, document, native};
use crate::serve::clock::Clock;
use crate::serve::http::Site;

/// How long a node may take to answer: far above a round trip, below what a reader notices.
const ASK_MAX: Duration = Duration::from_millis(800);
/// How long an answer is kept: whoever asks once a second gets a new one each time.
const KEPT: Duration = Duration::from_millis(900);

/// What was told last, and the way to the other node.
#[derive(Debug, Default)]
pub struct Cluster {
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    told: Option<(Instant, Vec<u8>)>,
    other: Option<Other>,
}

/// The other node, remembered while this one knows of none: it fences or boots.
#[derive(Debug)]
struct Other {
    address: String,
    client: Option<Client>,
}

impl Other {
    async fn ask(&mut self) -> Result<Value, String> {
        let late = || format!("no answer within {} ms", ASK_MAX.as_millis());
        let asked = async {
            let client = match self.client.take() {
                Some(client) => client,
                None => {
                    let builder = Client::builder().addresses(&self.address).deadline(ASK_MAX);
                    builder.this_node().connect().await?
                }
            };
            let told = client.status().await;
            // One that failed is made anew: its node may be gone for good.
            self.client = told.is_ok().then_some(client);
            told
        };
        let told = timeout(ASK_MAX, asked).await.map_err(|_| late())?;
        parsed(&told.map_err(|error| error.to_string())?)
    }
}

fn parsed(status: &str) -> Result<Value, String> {
    serde_json::from_str(status).map_err(|error| format!("its status is not understood: {error}"))
}

/// One node's member of the answer.
fn node(this: bool, address: Option<&str>, said: Result<Value, String>) -> Value {
    let http = match (address, &said) {
        (Some(address), Ok(status)) => {
            status["http"].as_str().and_then(|http| native::reachable(address, http))
        }
        _ => None,
    };
    json!({
        "this": this,
        "address": address,
        "http": http,
        "reachable": said.is_ok(),
        "error": said.as_ref().err(),
        "status": said.ok(),
    })
}

async fn ask_both(client: &Client, last: &mut Last) -> Value {
    let at_ms = Clock.now().wall.0;
    let own = match timeout(ASK_MAX, client.status()).await {
        Ok(Ok(text)) => parsed(&text),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} ms", ASK_MAX.as_millis())),
    };
    if let Ok(status) = &own
        && let Some(address) = status["peer"]["client"].as_str()
        && last.other.as_ref().is_none_or(|known| known.address != address)
    {
        last.other = Some(Other { address: address.to_owned(), client: None });
    }
    let mut nodes = vec![node(true, None, own)];
    if let Some(other) = &mut last.other {
        let said = other.ask().await;
        nodes.push(node(false, Some(&other.address), said));
    }
    json!({ "at_ms": at_ms, "nodes": nodes })
}

/// What both nodes say of themselves: `at_ms`, when they were asked (since 1970), and of each node
/// its native `address`, where its `http` is, and its `status` or the `error` in its place.
#[utoipa::path(
    get,
    path = "/v1/cluster",
    tag = "node",
    responses(
        (status = 200, description = "See OPERATIONS.md, The web page", body = Object),
        Refusals,
    )
)]
pub(super) async fn cluster(State(site): State<Arc<Site>>) -> Outcome {
    let client = site.client().await?;
    let mut last = site.cluster.last.lock().await;
    let fresh = last.told.as_ref().filter(|(at, _)| at.elapsed() < KEPT);
    let body = match fresh {
        Some((_, body)) => body.clone(),
        None => {
            let asked = Instant::now();
            let body = ask_both(client, &mut last).await.to_string().into_bytes();
            last.told = Some((asked, body.clone()));
            body
        }
    };
    Ok(document(StatusCode::OK, "application/json", body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_told_by_its_status_or_by_what_kept_it_from_one() {
        let status = json!({ "role": "follower", "http": "0.0.0.0:7402" });
        let told = node(false, Some("10.0.0.2:7400"), Ok(status));
        assert_eq!(
            (&told["reachable"], &told["http"], &told["status"]["role"]),
            (&json!(true), &json!("10.0.0.2:7402"), &json!("follower"))
        );
        let silent = node(false, Some("10.0.0.2:7400"), Err("refused".to_owned()));
        assert_eq!(
            (&silent["reachable"], &silent["error"], &silent["status"], &silent["http"]),
            (&json!(false), &json!("refused"), &Value::Null, &Value::Null)
        );
        let own = node(true, None, Ok(json!({ "http": "127.0.0.1:7402" })));
        assert_eq!((&own["this"], &own["http"]), (&json!(true), &Value::Null));
    }
}
