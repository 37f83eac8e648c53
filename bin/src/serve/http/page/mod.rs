//! The web page at `/`: files in this folder, built into the program, without anything from
//! elsewhere. They hold no data and need no token; what they show they ask of `/v1` like any other
//! client, with the token that the reader gives.

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, StatusCode};

use super::problem::Problem;

/// What the page may do: load its own files, ask its own server. No inline code, no markup from
/// strings, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; trusted-types 'none'; \
                      require-trusted-types-for 'script'";

const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, kind and content of each file.
const FILES: [(&str, &str, &str); 14] = [
    ("page.css", CSS, include_str!("page.css")),
    ("parts.css", CSS, include_str!("parts.css")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("main.js", JAVASCRIPT, include_str!("main.js")),
    ("server.js", JAVASCRIPT, include_str!("server.js")),
    ("series.js", JAVASCRIPT, include_str!("series.js")),
    ("units.js", JAVASCRIPT, include_str!("units.js")),
    ("elements.js", JAVASCRIPT, include_str!("elements.js")),
    ("nodes.js", JAVASCRIPT, include_str!("nodes.js")),
    ("tables.js", JAVASCRIPT, include_str!("tables.js")),
    ("chart.js", JAVASCRIPT, include_str!("chart.js")),
    ("browser.js", JAVASCRIPT, include_str!("browser.js")),
    ("event.js", JAVASCRIPT, include_str!("event.js")),
    ("tail.js", JAVASCRIPT, include_str!("tail.js")),
];

/// The page and its files.
pub(super) fn routes() -> Router {
    let page = || async { file("text/html; charset=utf-8", include_str!("page.html")) };
    Router::new().route("/", get(page)).route("/page/{file}", get(part))
}

async fn part(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, content)) => file(kind, content),
        None => {
            let text = format!("the page has no file {name}");
            Problem::new(StatusCode::NOT_FOUND, "not_found", text).into_response()
        }
    }
}

fn file(kind: &'static str, content: &'static str) -> Response {
    let headers: [(HeaderName, &'static str); 7] = [
        (CONTENT_TYPE, kind),
        // The next version of the program brings others under the same names.
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
    (StatusCode::OK, headers, content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file that one names is there, and none is named that lies elsewhere.
    #[test]
    fn the_page_has_all_its_files_and_needs_no_others() {
        let page = include_str!("page.html");
        let mut named: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        named.retain(|name| {
            let by_page = page.contains(&format!("\"/page/{name}\""));
            let import = format!("from \"./{name}\"");
            !by_page && !FILES.iter().any(|(_, _, content)| content.contains(&import))
        });
        assert_eq!(named, Vec::<&str>::new(), "nobody loads these");
        let known = |name: &str| FILES.iter().any(|(known, ..)| *known == name);
        for (name, _, content) in FILES.into_iter().chain([("page.html", "", page)]) {
            for reference in content.split("from \"./").skip(1).chain(references(content)) {
                let named = reference.split('"').next().unwrap();
                assert!(known(named), "{name} names {named}");
            }
            // A namespace is a name; the other node is where this one says.
            let local = content.replace("http://www.w3.org/2000/svg", "").replace("http://${", "");
            assert!(!local.contains("://"), "{name} leads elsewhere");
            for markup in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!content.contains(markup), "{name} makes markup or code from text");
            }
        }
    }

    fn references(content: &str) -> impl Iterator<Item = &str> {
        content.split("\"/page/").skip(1)
    }
}
