//! A request of an operator to one node, whatever it is, and its answer.

use std::time::Duration;

use duolog_net::client::{Client, Error};
use duolog_net::limits::CONNECT_TIMEOUT_MS_DEFAULT;
use serde_json::Value as Json;

/// Asks the node at one address something that changes nothing (WIRE.md, "Admin").
///
/// # Errors
/// Why there is no answer, in words without the address.
pub async fn ask(address: &str, request: &str, deadline: Duration) -> Result<Json, String> {
    let patience = deadline.min(Duration::from_millis(CONNECT_TIMEOUT_MS_DEFAULT));
    let builder = Client::builder().addresses(address).any_node();
    let client = builder.connect_timeout(patience).deadline(deadline).connect().await;
    let answer = match client {
        Ok(client) => client.ask(request).await,
        Err(error) => Err(error),
    };
    let text = answer.map_err(|error| match error {
        Error::Connect { text, .. } => text,
        other => other.to_string(),
    })?;
    serde_json::from_str(&text).map_err(|error| format!("its answer is not JSON: {error}"))
}
