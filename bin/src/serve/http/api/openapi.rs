//! The API's description (OpenAPI 3.1), made from the handlers and their documents; what those
//! types cannot say is added here.

use std::collections::BTreeMap;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use utoipa::openapi::{Content, Ref, RefOr, Response as Described, ResponseBuilder};
use utoipa::{IntoResponses, OpenApi, ToSchema};

/// What a stream's name is.
pub const STREAM: &str = "The stream's name, 1 to 255 bytes of UTF-8, each escaped that is no \
                          letter, digit, -, ., _ or ~; .. and . cannot be named";

#[derive(OpenApi)]
#[openapi(
    info(title = "Duolog", description = "Append events to streams and read them back."),
    paths(
        super::append::append,
        super::read::stream,
        super::read::log,
        super::status,
        super::cluster::cluster
    ),
    components(schemas(Problem, CloudEvent))
)]
struct Api;

/// An error (RFC 9457). Depending on its code there are further members: docs/HTTP.md lists them.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes what serve::http::problem writes")]
pub struct Problem {
    /// `urn:duolog:error:` and the code.
    r#type: String,
    title: String,
    /// The answer's status.
    status: u16,
    /// The error's name.
    code: String,
    /// What happened, with which values, and what to do.
    detail: String,
}

/// A CloudEvent 1.0 in its JSON form.
#[derive(Debug, ToSchema)]
pub struct CloudEvent;

/// Every way in which a request is not done.
#[derive(Debug)]
pub struct Refusals;

impl IntoResponses for Refusals {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        let kinds = [
            ("307", "Another node leads: Location says where the same request goes"),
            ("400", "The request is wrong"),
            ("401", "No token, or another one"),
            ("404", "There is no such thing"),
            ("409", "A higher fencing token was seen"),
            ("412", "The stream is not as If-Match or If-None-Match says"),
            ("413", "Larger than the node takes"),
            ("415", "A body of another kind"),
            ("421", "For another host"),
            ("422", "The idempotency key came before with another append"),
            ("429", "A limit on requests in flight: Retry-After says when to ask again"),
            ("500", "The node cannot do what it should"),
            ("503", "No node leads, or this one starts or stops: ask again"),
            ("504", "Not known whether it happened: send it again with the same key"),
            ("507", "The node's disk is full"),
        ];
        let described = kinds.map(|(status, description)| {
            let content = Content::new(Some(Ref::from_schema_name("Problem")));
            let response = ResponseBuilder::new().description(description);
            let response = response.content("application/problem+json", content).build();
            (status.to_owned(), RefOr::T(response))
        });
        described.into()
    }
}

/// The bytes of a text in base64 with padding, and no other text.
const BASE64: &str =
    "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// Parameters that count events or shards: numbers of 63 bits.
const NUMBERS: [&str; 3] = ["from", "from_lsn", "shard"];

/// The whole description.
fn description() -> Value {
    let mut described = serde_json::to_value(Api::openapi()).unwrap_or_default();
    described["info"]["version"] = json!(crate::version::VERSION);
    described["servers"] = json!([{ "url": "/" }]);
    described["components"]["securitySchemes"] =
        json!({ "token": { "type": "http", "scheme": "bearer" } });
    let paths = described["paths"].as_object_mut().into_iter().flatten();
    let methods = paths.filter_map(|(_, methods)| methods.as_object_mut()).flatten();
    let parameters = methods.filter_map(|(_, method)| method.get_mut("parameters"));
    for parameter in parameters.filter_map(Value::as_array_mut).flatten() {
        // Left out or given: there is no word for nothing in a header or an address.
        let kinds = parameter["schema"]["type"].as_array();
        if let Some(kind) = kinds.and_then(|kinds| kinds.iter().find(|kind| *kind != "null")) {
            parameter["schema"]["type"] = kind.clone();
        }
        if parameter["name"].as_str().is_some_and(|name| NUMBERS.contains(&name)) {
            parameter["schema"]["maximum"] = json!(i64::MAX);
        }
    }
    // With the token of http.token, or without one if there is none.
    described["security"] = json!([{ "token": [] }, {}]);
    let schemas = &mut described["components"]["schemas"];
    let event = &mut schemas["GivenEvent"];
    for name in ["data_base64", "metadata_base64"] {
        event["properties"][name]["pattern"] = json!(BASE64);
    }
    let both = |one: &str, other: &str| json!({ "not": { "required": [one, other] } });
    event["allOf"] = json!([
        both("data", "data_text"),
        both("data", "data_base64"),
        both("data_text", "data_base64"),
        both("metadata", "metadata_text"),
        both("metadata", "metadata_base64"),
        both("metadata_text", "metadata_base64"),
    ]);
    schemas["CloudEvent"] = cloud_event(&both("data", "data_base64"));
    described
}

fn cloud_event(one_data: &Value) -> Value {
    let text = json!({ "type": "string", "minLength": 1 });
    json!({
        "type": "object",
        "description": "A CloudEvent 1.0 in its JSON form",
        "required": ["specversion", "id", "source", "type"],
        "properties": {
            "specversion": { "type": "string", "enum": ["1.0"] },
            "id": text,
            "source": text,
            "type": text,
            "datacontenttype": { "type": ["string", "null"], "minLength": 1 },
            "data": {},
            "data_base64": { "type": ["string", "null"], "pattern": BASE64 },
        },
        "propertyNames": { "pattern": "^([a-z0-9]+|data_base64)$" },
        "additionalProperties": {
            "type": ["string", "boolean", "integer", "null"],
            "minimum": i32::MIN,
            "maximum": i32::MAX,
        },
        "allOf": [one_data],
    })
}

/// `GET /v1/openapi.json`
pub(super) async fn document() -> Response {
    let body = description().to_string().into_bytes();
    super::document(StatusCode::OK, "application/json", body)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every route of the API is described, and nothing else; every reference leads somewhere.
    #[test]
    fn the_description_is_whole() {
        let described = description();
        let paths = described["paths"].as_object().expect("paths");
        let routes = include_str!("mod.rs").lines().filter_map(|line| {
            line.trim().strip_prefix(".route(\"").and_then(|rest| rest.split('"').next())
        });
        let mut routes: Vec<&str> = routes.filter(|route| *route != "/v1/openapi.json").collect();
        routes.sort_unstable();
        assert_eq!(paths.keys().map(String::as_str).collect::<Vec<_>>(), routes);
        let text = described.to_string();
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap_or_default();
            assert!(described["components"]["schemas"][name].is_object(), "{name}");
        }
        assert!(described["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
    }
}
