//! Who may ask: whoever has the token, or, without one, whoever names this machine.
//!
//! A port of the loopback is open to every program of the machine, also to a browser that shows a
//! foreign page: the page's name may resolve to 127.0.0.1. Such a request names the foreign host,
//! and that is how it is told apart.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, HOST, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use subtle::ConstantTimeEq;

use super::Site;
use super::problem::Problem;
use crate::settings::listen::Listen;
use crate::settings::value::Secret;

/// See the module.
#[derive(Debug)]
pub struct Access {
    token: Option<Secret>,
    /// On the loopback without a token: a name for this node besides those of the loopback.
    own_name: Option<String>,
    loopback: bool,
}

/// Why a request is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It carries no token, or another one.
    Token,
    /// It is meant for another host.
    Host,
}

impl Access {
    /// By the settings.
    #[must_use]
    pub fn new(listen: &Listen) -> Self {
        let own_name = listen.advertise_http.as_deref().map(|name| host_of(name).to_owned());
        let loopback = listen.http.is_some_and(|address| address.ip().is_loopback());
        Self { token: listen.token.clone(), own_name, loopback }
    }

    /// Whether a request with these headers is heard.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Denied> {
        if let Some(Secret(token)) = &self.token {
            let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).and_then(bearer);
            let right = given.is_some_and(|given| given.ct_eq(token.as_bytes()).into());
            return if right { Ok(()) } else { Err(Denied::Token) };
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        match host {
            Some(host) if self.loopback && !self.is_own(host_of(host)) => Err(Denied::Host),
            _ => Ok(()),
        }
    }

    fn is_own(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || self.own_name.as_deref().is_some_and(|own| host.eq_ignore_ascii_case(own))
    }
}

/// The token of `Bearer TOKEN`; the word may be written in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (word, rest) = value.split_at_checked(7)?;
    word.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
}

/// Without the port.
fn host_of(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => name,
    }
}

/// Lets only those requests pass that are heard.
pub async fn guard(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    match site.access.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(denied) => refuse(denied),
    }
}

fn refuse(denied: Denied) -> Response {
    match denied {
        Denied::Token => {
            let text = "give the token of http.token: Authorization: Bearer TOKEN";
            let mut response =
                Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", text).into_response();
            let challenge = HeaderValue::from_static("Bearer realm=\"duolog\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            response
        }
        Denied::Host => {
            let text = "without http.token this node answers on the loopback only to requests for \
                        localhost, an IP address, or the host of advertise.http";
            Problem::new(StatusCode::MISDIRECTED_REQUEST, "foreign_host", text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(http: &str, token: Option<&str>, name: Option<&str>) -> Access {
        Access::new(&Listen {
            client: "127.0.0.1:7400".parse().unwrap(),
            http: Some(http.parse().unwrap()),
            advertise_http: name.map(str::to_owned),
            token: token.map(|token| Secret(token.to_owned())),
        })
    }

    fn check(access: &Access, header: http::HeaderName, value: &str) -> Result<(), Denied> {
        let value = HeaderValue::from_str(value).unwrap();
        access.check(&HeaderMap::from_iter([(header, value)]))
    }

    #[test]
    fn only_the_whole_token_opens() {
        let access = access("0.0.0.0:7402", Some("open-sesame"), None);
        let check = |value| check(&access, AUTHORIZATION, value);
        assert_eq!(check("Bearer open-sesame"), Ok(()));
        assert_eq!(check("bearer  open-sesame "), Ok(()));
        for wrong in ["Bearer open-sesam", "Bearer open-sesame1", "Bearer ", "Basic open-sesame"] {
            assert_eq!(check(wrong), Err(Denied::Token), "{wrong}");
        }
        assert_eq!(check("open-sesame"), Err(Denied::Token));
        assert_eq!(access.check(&HeaderMap::new()), Err(Denied::Token));
    }

    #[test]
    fn a_page_of_another_host_does_not_reach_the_loopback() {
        let named = access("127.0.0.1:7402", None, Some("events.example.org:7402"));
        let check = |host| check(&named, HOST, host);
        for own in ["localhost:7402", "127.0.0.1", "[::1]:9", "events.example.org"] {
            assert_eq!(check(own), Ok(()), "{own}");
        }
        assert_eq!(check("evil.example.net:7402"), Err(Denied::Host));
        let open = access("0.0.0.0:7402", None, None);
        assert_eq!(super::tests::check(&open, HOST, "anything.example.net"), Ok(()));
    }
}
