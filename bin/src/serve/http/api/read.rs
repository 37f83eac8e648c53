//! `GET` of a stream's events and of a shard's log: one page, and where the next one is.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use duolog_net::client::{Consistency, Lsn, RecordedEvent, Revision, ShardId};
use http::header::{ACCEPT, ETAG, LINK, VARY};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::event::ShownEvent;
use super::openapi::{CloudEvent, Refusals, STREAM};
use super::{Outcome, bad_request, cloud, conditions, document, internal, named, query, segment};
use crate::serve::http::Site;
use crate::serve::http::limits::{PAGE_EVENTS_DEFAULT, PAGE_EVENTS_MAX};
use crate::serve::http::problem::Problem;

/// How fresh a page has to be.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Fresh {
    #[default]
    Linearizable,
    Any,
    Confirmed,
}

impl Fresh {
    const fn consistency(self) -> Consistency {
        match self {
            Self::Linearizable => Consistency::Linearizable,
            Self::Any => Consistency::Any,
            Self::Confirmed => Consistency::Confirmed,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Linearizable => "linearizable",
            Self::Any => "any",
            Self::Confirmed => "confirmed",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Towards {
    #[default]
    Forwards,
    Backwards,
}

/// The parameters of a stream's read.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamQuery {
    /// The first revision, inclusive; without it the stream's first event, or backwards its last.
    #[param(minimum = 0)]
    from: Option<u64>,
    /// Events on the page, at most; 256 without it.
    #[param(minimum = 1, maximum = 4096)]
    limit: Option<u64>,
    #[serde(default)]
    #[param(inline, required = false)]
    direction: Towards,
    /// Only events of this type.
    #[param(min_length = 1)]
    r#type: Option<String>,
    /// `linearizable`: the newest there is, from the leader. `confirmed`: the same with a proof
    /// that it leads. `any`: what this node has.
    #[serde(default)]
    #[param(inline, required = false)]
    consistency: Fresh,
}

/// The parameters of a log's read.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct LogQuery {
    /// The first LSN, inclusive; 1 without it.
    #[param(minimum = 1)]
    from_lsn: Option<u64>,
    /// Events on the page, at most; 256 without it.
    #[param(minimum = 1, maximum = 4096)]
    limit: Option<u64>,
    /// As for a stream.
    #[serde(default)]
    #[param(inline, required = false)]
    consistency: Fresh,
}

/// A page in the API's own form.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page {
    events: Vec<ShownEvent>,
    /// The address of the next page, none at the end.
    next: Option<String>,
    /// A stream's last revision, none if it has no event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, required = false)]
    last_revision: Option<Option<u64>>,
    /// The shard's committed end.
    committed_lsn: u64,
}

/// A page of a stream's events
#[utoipa::path(
    get,
    path = "/v1/streams/{stream}/events",
    tag = "events",
    params(("stream" = String, Path, min_length = 1, description = STREAM), StreamQuery),
    responses(
        (status = 200, description = "The page", content(
            (Page = "application/json"), (Vec<CloudEvent> = "application/cloudevents-batch+json"),
        ), headers(
            ("ETag" = String, description = "The stream's last revision; not there without events"),
            ("Link" = String, description = "The next page, rel=next"),
        )),
        Refusals,
    )
)]
pub(super) async fn stream(
    State(site): State<Arc<Site>>,
    stream: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Outcome {
    let stream = named(stream)?;
    let asked: StreamQuery = query(&uri)?;
    let limit = limit(asked.limit)?;
    let client = site.client().await?;
    let mut read = client.read(&stream).limit(limit).consistency(asked.consistency.consistency());
    if asked.direction == Towards::Backwards {
        read = read.backwards();
    }
    if let Some(from) = asked.from {
        read = read.from(Revision(within(from, "from")?));
    }
    if let Some(kind) = &asked.r#type {
        read = read.of_type(kind);
    }
    let page = match read.page().await {
        Ok(page) => page,
        Err(error) => return Err(site.refusal(&error, false, &uri).await),
    };
    let path = format!("/v1/streams/{}/events", segment(&stream));
    let next = (!page.tail.end).then(|| {
        let direction = match asked.direction {
            Towards::Forwards => "forwards",
            Towards::Backwards => "backwards",
        };
        let kind = asked.r#type.as_deref().map(|kind| format!("&type={}", segment(kind)));
        let (from, fresh) = (page.tail.next, asked.consistency.name());
        let kind = kind.unwrap_or_default();
        format!("{path}?from={from}&limit={limit}&direction={direction}&consistency={fresh}{kind}")
    });
    let last = page.tail.stream_next.0.checked_sub(1);
    let told = Told { next, last: Some(last), committed_lsn: page.tail.committed, shard: None };
    let mut response = answer(&headers, page.events, told)?;
    if let Some(last) = last {
        response.headers_mut().insert(ETAG, conditions::tag(Revision(last)));
    }
    Ok(response)
}

/// A page of a shard's log
#[utoipa::path(
    get,
    path = "/v1/shards/{shard}/events",
    tag = "events",
    params(
        ("shard" = u64, Path, description = "From 0"),
        LogQuery,
    ),
    responses(
        (status = 200, description = "The page", content(
            (Page = "application/json"), (Vec<CloudEvent> = "application/cloudevents-batch+json"),
        )),
        Refusals,
    )
)]
pub(super) async fn log(
    State(site): State<Arc<Site>>,
    shard: Result<Path<u64>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Outcome {
    let shard = within(named(shard)?, "shard")?;
    let asked: LogQuery = query(&uri)?;
    let limit = limit(asked.limit)?;
    let count = site.inboxes.len();
    let known = u32::try_from(shard).ok().filter(|shard| (*shard as usize) < count);
    let Some(shard) = known else {
        let text = format!("there is no shard {shard}: they are numbered 0 to {}", count - 1);
        return Err(Problem::new(StatusCode::NOT_FOUND, "no_shard", text));
    };
    let from = match asked.from_lsn {
        Some(0) => return Err(bad_request("from_lsn=0: the first event has LSN 1")),
        from => within(from.unwrap_or(1), "from_lsn")?,
    };
    let client = site.client().await?;
    let read = client.read_log(ShardId(shard), Lsn(from)).limit(limit);
    let page = match read.consistency(asked.consistency.consistency()).page().await {
        Ok(page) => page,
        Err(error) => return Err(site.refusal(&error, false, &uri).await),
    };
    let next = (!page.tail.end).then(|| {
        let (from, fresh) = (page.tail.next, asked.consistency.name());
        format!("/v1/shards/{shard}/events?from_lsn={from}&limit={limit}&consistency={fresh}")
    });
    let shard = Some(ShardId(shard));
    let told = Told { next, last: None, committed_lsn: page.tail.committed, shard };
    answer(&headers, page.events, told)
}

/// Numbers of events have 63 bits here, so that every language can say them.
fn within(number: u64, name: &str) -> Result<u64, Problem> {
    match i64::try_from(number) {
        Ok(_) => Ok(number),
        Err(_) => Err(bad_request(format!("{name}={number}: at most {} is allowed", i64::MAX))),
    }
}

fn limit(given: Option<u64>) -> Result<u64, Problem> {
    match given.unwrap_or(PAGE_EVENTS_DEFAULT) {
        limit @ 1..=PAGE_EVENTS_MAX => Ok(limit),
        other => {
            Err(bad_request(format!("limit={other}: a page has 1 to {PAGE_EVENTS_MAX} events")))
        }
    }
}

/// What a page says besides its events.
struct Told {
    next: Option<String>,
    last: Option<Option<u64>>,
    committed_lsn: Lsn,
    shard: Option<ShardId>,
}

const BATCH: &str = "application/cloudevents-batch+json";

fn answer(headers: &HeaderMap, events: Vec<RecordedEvent>, told: Told) -> Outcome {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let cloud = accepted.flat_map(|value| value.split(',')).any(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(BATCH))
    });
    let Told { next, last, committed_lsn, shard } = told;
    let link = next.as_ref().map(|next| format!("<{next}>; rel=\"next\""));
    let (kind, body) = if cloud {
        let events = events.into_iter().map(|event| {
            let source = format!("/v1/streams/{}", segment(&event.stream));
            cloud::shown(event, shard, &source)
        });
        (BATCH, serde_json::to_vec(&events.collect::<Vec<_>>()))
    } else {
        let events = events.into_iter().map(|event| ShownEvent::of(event, shard));
        let events = events.collect();
        let committed_lsn = committed_lsn.0;
        let page = Page { events, next, last_revision: last, committed_lsn };
        ("application/json", serde_json::to_vec(&page))
    };
    let body = body.map_err(|error| internal(&error))?;
    let mut response: Response = document(StatusCode::OK, kind, body).into_response();
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    if let Some(link) = link.and_then(|link| HeaderValue::from_str(&link).ok()) {
        response.headers_mut().insert(LINK, link);
    }
    Ok(response)
}
