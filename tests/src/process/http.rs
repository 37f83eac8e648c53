//! A plain HTTP/1.1 client: one request, one answer, and nothing done that was not asked for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value as Json;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A server's HTTP side.
#[derive(Clone, Debug)]
pub struct Http {
    /// Where it listens.
    pub address: SocketAddr,
    headers: Vec<(String, String)>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// Its status.
    pub status: u16,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl HttpAnswer {
    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Json {
        let parsed = serde_json::from_slice(&self.body);
        parsed.unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.text()))
    }
}

impl Http {
    /// A server at this address.
    #[must_use]
    pub const fn at(address: SocketAddr) -> Self {
        Self { address, headers: Vec::new() }
    }

    /// Sends this header with every request; a later one of the same name takes its place.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// `GET`.
    ///
    /// # Panics
    /// When there is no answer.
    #[must_use]
    pub fn get(&self, path: &str) -> HttpAnswer {
        self.ask("GET", path, b"").unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    /// `POST` of a JSON document, unless a header says that it is something else.
    ///
    /// # Panics
    /// When there is no answer.
    #[must_use]
    pub fn post(&self, path: &str, body: &Json) -> HttpAnswer {
        let body = body.to_string();
        let answer = self.ask("POST", path, body.as_bytes());
        answer.unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    /// One request on a connection of its own.
    pub fn ask(&self, method: &str, path: &str, body: &[u8]) -> std::io::Result<HttpAnswer> {
        let mut socket = TcpStream::connect_timeout(&self.address, ANSWER_MAX)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let given = |name: &str| self.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        if !given("host") {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        if method == "POST" && !given("content-type") {
            head.push_str("Content-Type: application/json\r\n");
        }
        if method == "POST" {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        socket.write_all(format!("{head}\r\n").as_bytes())?;
        // A server that refuses by the head alone may close before it has the body.
        let sent = socket.write_all(body);
        let mut bytes = Vec::new();
        let read = socket.read_to_end(&mut bytes);
        if bytes.is_empty() {
            sent.and(read.map(drop))?;
        }
        parse(&bytes).ok_or_else(|| std::io::Error::other(format!("no answer: {bytes:?}")))
    }
}

fn parse(bytes: &[u8]) -> Option<HttpAnswer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    Some(HttpAnswer { status, headers: headers.collect(), body: bytes[end + 4..].to_vec() })
}
