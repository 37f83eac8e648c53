//! `POST /v1/streams/{stream}/events`: an append.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use duolog_net::client::{Copies, Event, Expect, Receipt};
use http::header::{ETAG, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde::Serialize;
use utoipa::ToSchema;

use super::body::Kind;
use super::cloud::{self, Attributes};
use super::conditions::{self, Conditions};
use super::event::Append;
use super::openapi::{CloudEvent, Refusals, STREAM};
use super::{Outcome, bad_request, document, internal, named, segment};
use crate::serve::http::Site;
use crate::serve::http::problem::Problem;
use crate::timestamp::rfc3339;

/// Append events to a stream, all of them or none
#[utoipa::path(
    post,
    path = "/v1/streams/{stream}/events",
    tag = "events",
    params(
        ("stream" = String, Path, min_length = 1, description = STREAM),
        ("If-Match" = Option<String>, Header,
            description = "The stream's last revision in quotes; * = it has events"),
        ("If-None-Match" = Option<String>, Header,
            description = "*: the stream has no event"),
        ("Idempotency-Key" = Option<String>, Header,
            pattern = r#"^("[!#-~]{1,255}"|[!#-~]{1,255})$"#,
            description = "Names the append, so that it happens once however often it is sent"),
        ("Duolog-Fencing-Token" = Option<String>, Header, pattern = "^[0-9]{1,18}$",
            description = "Refused if the stream has seen a higher one"),
    ),
    request_body(content(
        (Append = "application/json"),
        (CloudEvent = "application/cloudevents+json"),
        (Vec<CloudEvent> = "application/cloudevents-batch+json"),
    )),
    responses(
        (status = 201, description = "The events are durable", body = Created, headers(
            ("ETag" = String, description = "The stream's last revision now"),
            ("Location" = String, description = "Where the events are"),
        )),
        Refusals,
    )
)]
pub(super) async fn append(
    State(site): State<Arc<Site>>,
    stream: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Outcome {
    let stream = named(stream)?;
    let kind = Kind::of(&headers)?;
    let conditions = Conditions::of(&headers).map_err(bad_request)?;
    if uri.query().is_some_and(|query| !query.is_empty()) {
        return Err(bad_request("an append takes no parameters in its address"));
    }
    let client = site.client().await?;
    let receipt = site.room.with(&headers, body, async |bytes| {
        let events = events(kind, &bytes)?;
        drop(bytes);
        conditions.check()?;
        let mut call = client.append(&stream).expect(conditions.expect).events(events);
        if let Some(key) = conditions.key {
            call = call.idempotency_key(key);
        }
        if let Some(token) = conditions.fencing_token {
            call = call.fencing_token(token);
        }
        match call.send().await {
            Ok(receipt) => Ok(receipt),
            Err(error) => Err(site.refusal(&error, conditions.expect != Expect::Any, &uri).await),
        }
    });
    created(&stream, &receipt.await?)
}

/// The events in a body.
fn events(kind: Kind, bytes: &[u8]) -> Result<Vec<Event>, Problem> {
    let wrong = |error: serde_json::Error| bad_request(format!("the body: {error}"));
    let cloud = |index: usize, attributes: Attributes| {
        cloud::event(attributes).map_err(|error| bad_request(format!("event {index}: {error}")))
    };
    let events: Vec<Event> = match kind {
        Kind::Events => {
            let append: Append = serde_json::from_slice(bytes).map_err(wrong)?;
            let events = append.events.into_iter().enumerate().map(|(index, event)| {
                event.event().map_err(|error| bad_request(format!("event {index}: {error}")))
            });
            events.collect::<Result<_, _>>()?
        }
        Kind::CloudEvent => vec![cloud(0, serde_json::from_slice(bytes).map_err(wrong)?)?],
        Kind::CloudEvents => {
            let batch: Vec<Attributes> = serde_json::from_slice(bytes).map_err(wrong)?;
            let events = batch.into_iter().enumerate().map(|(index, event)| cloud(index, event));
            events.collect::<Result<_, _>>()?
        }
    };
    if events.is_empty() {
        return Err(bad_request("the append has no events"));
    }
    Ok(events)
}

const fn copies(copies: Copies) -> &'static str {
    match copies {
        Copies::ThisDisk => "this_disk",
        Copies::ThisDiskAndPeer => "this_disk_and_peer",
        Copies::ThisDiskAndS3 => "this_disk_and_s3",
    }
}

/// The receipt of an append.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Created {
    stream: String,
    first_revision: u64,
    last_revision: u64,
    shard: u32,
    first_lsn: u64,
    last_lsn: u64,
    /// A number of 64 bits in digits.
    hlc: String,
    time: String,
    /// 0 on a standalone node.
    epoch: u64,
    /// `this_disk`, `this_disk_and_peer` or `this_disk_and_s3`.
    copies: &'static str,
    /// True: an earlier append with this key had been done; this is its receipt.
    replayed: bool,
}

/// The answer to an append that happened.
fn created(stream: &str, receipt: &Receipt) -> Outcome {
    let span = receipt.streams.first();
    let (first, last) = span.map_or_else(Default::default, |span| (span.first, span.last));
    let created = Created {
        stream: stream.to_owned(),
        first_revision: first.0,
        last_revision: last.0,
        shard: receipt.shard.0,
        first_lsn: receipt.first_lsn.0,
        last_lsn: receipt.last_lsn.0,
        hlc: receipt.hlc.get().to_string(),
        time: rfc3339(receipt.hlc.wall_ms()),
        epoch: receipt.epoch.0,
        copies: copies(receipt.copies),
        replayed: receipt.replayed,
    };
    let body = serde_json::to_vec(&created).map_err(|error| internal(&error))?;
    let path = format!("/v1/streams/{}/events?from={first}", segment(stream));
    let location = HeaderValue::from_str(&path).expect("a segment is printable");
    let headers = [(ETAG, conditions::tag(last)), (LOCATION, location)];
    Ok((headers, document(StatusCode::CREATED, "application/json", body)).into_response())
}
