//! Where a bucket is: endpoint, name, region and style of addressing.
//!
//! Promise: [`Bucket::host`] is the one text that is signed and sent as `Host`, without a default
//! port and in lower case.

use std::fmt;

use crate::key::{self, ObjectKey, Place};
use crate::limits::{BUCKET_BYTES_MAX, BUCKET_BYTES_MIN};

/// The region of stores that have none, and where AWS answers for every bucket.
pub const DEFAULT_REGION: &str = "us-east-1";

/// How a bucket's name is put into URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// `https://host/bucket/key`
    Path,
    /// `https://bucket.host/key`
    VirtualHosted,
}

/// Whether plain HTTP may be spoken. Bodies and listings are then readable on the way, and a
/// man in the middle may answer; signatures protect requests only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainHttp {
    /// `https` only.
    #[default]
    Refused,
    /// `http` too: `s3.allow_http`.
    Allowed,
}

/// A server: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    scheme: &'static str,
    /// Lower case, IPv6 in brackets.
    host: String,
    /// `None` for the scheme's own.
    port: Option<u16>,
}

/// What is wrong with the place of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// No usable URL.
    #[error("s3.endpoint = {given:?}: {reason}; expected https://HOST or https://HOST:PORT")]
    Endpoint {
        /// As given.
        given: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Plain HTTP without permission.
    #[error(
        "s3.endpoint = {given:?} speaks plain HTTP: use https, or allow it with \
         s3.allow_http = true (--s3-allow-http) on a network that nobody else can reach"
    )]
    PlainHttp {
        /// As given.
        given: String,
    },
    /// Not a bucket name.
    #[error(
        "s3.bucket = {given:?} is no bucket name: {BUCKET_BYTES_MIN} to {BUCKET_BYTES_MAX} \
         characters, small letters, digits, dots and hyphens"
    )]
    Name {
        /// As given.
        given: String,
    },
    /// No certificate of `*.host` is good for two labels.
    #[error(
        "s3.bucket = {given:?} has dots, which virtual-hosted addressing over https cannot have: \
         set s3.addressing = \"path\""
    )]
    DotsInHost {
        /// As given.
        given: String,
    },
    /// Not a region name.
    #[error("s3.region = {given:?}: small letters, digits and hyphens are expected")]
    Region {
        /// As given.
        given: String,
    },
}

impl Endpoint {
    /// Reads `https://host[:port]`; a `/` at the end is allowed.
    pub fn parse(given: &str, plain: PlainHttp) -> Result<Self, BucketError> {
        let refuse = |reason| BucketError::Endpoint { given: given.to_owned(), reason };
        let uri: http::Uri = given.parse().map_err(|_| refuse("not a URL"))?;
        let scheme = match uri.scheme_str() {
            Some("https") => "https",
            Some("http") if plain == PlainHttp::Allowed => "http",
            Some("http") => return Err(BucketError::PlainHttp { given: given.to_owned() }),
            Some(_) => return Err(refuse("the scheme is neither https nor http")),
            None => return Err(refuse("it does not begin with https://")),
        };
        let authority = uri.authority().ok_or_else(|| refuse("there is no host"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("a user name belongs into the credentials"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(refuse("a path cannot be part of it"));
        }
        let host = authority.host().to_ascii_lowercase();
        let known = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let right = match address {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.chars().all(known),
        };
        if !right {
            return Err(refuse("the host is neither a name nor an address"));
        }
        let port = match authority.as_str().rsplit_once(']').map_or(authority.as_str(), |(_, p)| p)
        {
            text if text.contains(':') => match authority.port_u16() {
                None | Some(0) => return Err(refuse("the port is no number from 1 to 65535")),
                Some(443) if scheme == "https" => None,
                Some(80) if scheme == "http" => None,
                port => port,
            },
            _ => None,
        };
        Ok(Self { scheme, host, port })
    }

    /// The endpoint of AWS for a region.
    #[must_use]
    pub fn aws(region: &str) -> Self {
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        Self { scheme: "https", host: format!("s3.{region}.{domain}"), port: None }
    }

    /// Whether it is one of AWS's own.
    #[must_use]
    pub fn is_aws(&self) -> bool {
        self.host.ends_with(".amazonaws.com") || self.host.ends_with(".amazonaws.com.cn")
    }

    /// Whether requests to it are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.scheme == "https"
    }

    fn is_address(&self) -> bool {
        self.host.starts_with('[') || self.host.parse::<std::net::Ipv4Addr>().is_ok()
    }

    fn authority(&self, prefix: &str) -> String {
        match self.port {
            Some(port) => format!("{prefix}{}:{port}", self.host),
            None => format!("{prefix}{}", self.host),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority(""))
    }
}

/// A bucket and the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    endpoint: Endpoint,
    name: String,
    region: String,
    addressing: Addressing,
    /// Where a redirect sent us: the host that stands for the bucket, port included.
    moved_to: Option<String>,
}

impl Bucket {
    /// A bucket. Without `endpoint` it is on AWS; without `region` it is in [`DEFAULT_REGION`];
    /// without `addressing` AWS's buckets are virtual-hosted where their names allow it, and
    /// others are addressed by path, which every server understands.
    pub fn new(
        name: &str,
        endpoint: Option<Endpoint>,
        region: Option<&str>,
        addressing: Option<Addressing>,
    ) -> Result<Self, BucketError> {
        let right = (BUCKET_BYTES_MIN..=BUCKET_BYTES_MAX).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-".contains(&b))
            && !name.starts_with(['.', '-'])
            && !name.ends_with(['.', '-'])
            && !name.contains("..");
        if !right {
            return Err(BucketError::Name { given: name.to_owned() });
        }
        let region = checked_region(region.unwrap_or(DEFAULT_REGION))?;
        let endpoint = endpoint.unwrap_or_else(|| Endpoint::aws(&region));
        let dots = name.contains('.');
        let addressing = match addressing {
            Some(Addressing::VirtualHosted) if dots && endpoint.is_encrypted() => {
                return Err(BucketError::DotsInHost { given: name.to_owned() });
            }
            Some(addressing) => addressing,
            None if endpoint.is_aws() && !dots => Addressing::VirtualHosted,
            None => Addressing::Path,
        };
        // An address has no subdomains.
        let addressing = if endpoint.is_address() { Addressing::Path } else { addressing };
        Ok(Self { endpoint, name: name.to_owned(), region, addressing, moved_to: None })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The region that requests are signed for.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The server.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The value of `Host`.
    #[must_use]
    pub fn host(&self) -> String {
        match (&self.moved_to, self.addressing) {
            (Some(host), _) => host.clone(),
            (None, Addressing::Path) => self.endpoint.authority(""),
            (None, Addressing::VirtualHosted) => {
                self.endpoint.authority(&format!("{}.", self.name))
            }
        }
    }

    /// The URL of an object, or of the bucket; `query` is encoded already.
    #[must_use]
    pub fn url(&self, key: Option<&ObjectKey>, query: &str) -> String {
        let mut url = format!("{}://{}/", self.endpoint.scheme, self.host());
        if self.addressing == Addressing::Path {
            url.push_str(&self.name);
            if key.is_some() {
                url.push('/');
            }
        }
        if let Some(key) = key {
            url.push_str(&key::encode(key.as_str(), Place::Path));
        }
        if !query.is_empty() {
            url.push('?');
            url.push_str(query);
        }
        url
    }

    /// The same bucket in the region that the server named. On AWS the host follows.
    pub fn in_region(&self, region: &str) -> Result<Self, BucketError> {
        let region = checked_region(region)?;
        let endpoint =
            if self.endpoint.is_aws() { Endpoint::aws(&region) } else { self.endpoint.clone() };
        Ok(Self { endpoint, region, moved_to: None, ..self.clone() })
    }

    /// The same bucket at the same host, signed for another region.
    pub fn signed_for(&self, region: &str) -> Result<Self, BucketError> {
        Ok(Self { region: checked_region(region)?, ..self.clone() })
    }

    /// The same bucket at the host of a redirect's `Location`. `None` if the address is no place
    /// to send signed requests to: not a URL, or plain HTTP where https was spoken before.
    #[must_use]
    pub fn at_location(&self, location: &str) -> Option<Self> {
        let uri: http::Uri = location.parse().ok()?;
        let plain = match self.endpoint.is_encrypted() {
            true => PlainHttp::Refused,
            false => PlainHttp::Allowed,
        };
        let base = format!("{}://{}", uri.scheme_str()?, uri.authority()?);
        let endpoint = Endpoint::parse(&base, plain).ok()?;
        let host = endpoint.authority("");
        let named = host.strip_prefix(&self.name).is_some_and(|rest| rest.starts_with('.'));
        let addressing = if named { Addressing::VirtualHosted } else { Addressing::Path };
        Some(Self { moved_to: Some(host), addressing, endpoint, ..self.clone() })
    }
}

fn checked_region(given: &str) -> Result<String, BucketError> {
    let right = (1..=64).contains(&given.len())
        && given.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if right {
        Ok(given.to_owned())
    } else {
        Err(BucketError::Region { given: given.chars().take(64).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Result<Endpoint, BucketError> {
        Endpoint::parse(text, PlainHttp::Allowed)
    }

    fn bucket(at: &str, style: Option<Addressing>) -> Bucket {
        Bucket::new("events", Some(endpoint(at).unwrap()), None, style).unwrap()
    }

    #[test]
    fn default_ports_are_neither_signed_nor_sent() {
        for (given, host) in [
            ("http://h:80", "h"),
            ("https://h:443/", "h"),
            ("http://h:443", "h:443"),
            ("http://H.Example:9000", "h.example:9000"),
            ("http://[::1]:9000", "[::1]:9000"),
            ("https://[::1]", "[::1]"),
            ("http://127.0.0.1:7403", "127.0.0.1:7403"),
        ] {
            assert_eq!(bucket(given, Some(Addressing::Path)).host(), host, "{given}");
        }
    }

    #[test]
    fn both_styles_make_the_url_and_the_host_that_belong_together() {
        let key = ObjectKey::new("a b/c").unwrap();
        let path = bucket("http://h:9000", None);
        assert_eq!(path.url(Some(&key), ""), "http://h:9000/events/a%20b/c");
        assert_eq!(path.url(None, "list-type=2"), "http://h:9000/events?list-type=2");
        let hosted = bucket("http://h:9000", Some(Addressing::VirtualHosted));
        assert_eq!(hosted.url(Some(&key), ""), "http://events.h:9000/a%20b/c");
        assert_eq!(hosted.url(None, ""), "http://events.h:9000/");
        let numeric = bucket("http://127.0.0.1:9", Some(Addressing::VirtualHosted));
        assert_eq!(numeric.url(None, ""), "http://127.0.0.1:9/events");
    }

    #[test]
    fn aws_is_the_default_and_names_with_dots_go_by_path() {
        let aws = Bucket::new("events", None, Some("eu-central-1"), None).unwrap();
        assert_eq!(aws.url(None, ""), "https://events.s3.eu-central-1.amazonaws.com/");
        let dots = Bucket::new("my.events", None, None, None).unwrap();
        assert_eq!(dots.url(None, ""), "https://s3.us-east-1.amazonaws.com/my.events");
        let forced = Bucket::new("my.events", None, None, Some(Addressing::VirtualHosted));
        assert_eq!(forced, Err(BucketError::DotsInHost { given: "my.events".to_owned() }));
        let china = Bucket::new("events", None, Some("cn-north-1"), None).unwrap();
        assert_eq!(china.host(), "events.s3.cn-north-1.amazonaws.com.cn");
    }

    #[test]
    fn plain_http_needs_permission() {
        let refused = Endpoint::parse("http://h", PlainHttp::Refused);
        assert_eq!(refused, Err(BucketError::PlainHttp { given: "http://h".to_owned() }));
    }

    #[test]
    fn endpoints_and_names_that_cannot_work_are_refused() {
        for given in [
            "h:9000",
            "ftp://h",
            "https://",
            "https://u:p@h",
            "https://h/path",
            "https://h?x",
            "https://h:0",
            "https://h:99999",
            "https://[::1",
            "https://a b",
            "https://[::g]",
        ] {
            assert!(matches!(endpoint(given), Err(BucketError::Endpoint { .. })), "{given}");
        }
        for name in ["ab", "Events", "-ab", "a..b", "ab.", "a_b", &"x".repeat(64)] {
            assert!(Bucket::new(name, None, None, None).is_err(), "{name}");
        }
        assert!(Bucket::new("events", None, Some("EU West"), None).is_err());
    }

    #[test]
    fn a_redirect_changes_the_host_but_never_drops_encryption() {
        let aws = Bucket::new("events", None, None, None).unwrap();
        let moved = aws.at_location("https://events.s3.eu-west-1.amazonaws.com/k?x=1").unwrap();
        assert_eq!(moved.url(None, ""), "https://events.s3.eu-west-1.amazonaws.com/");
        assert_eq!(aws.at_location("http://events.s3.eu-west-1.amazonaws.com/k"), None);
        assert_eq!(aws.at_location("/k"), None);
        let path = bucket("http://127.0.0.1:1", None).at_location("http://127.0.0.1:2/events/k");
        assert_eq!(path.unwrap().url(None, ""), "http://127.0.0.1:2/events");
    }

    #[test]
    fn another_region_moves_the_host_on_aws_only() {
        let aws = Bucket::new("events", None, None, None).unwrap().in_region("eu-west-1").unwrap();
        assert_eq!(aws.host(), "events.s3.eu-west-1.amazonaws.com");
        let other = bucket("http://h:9000", None).in_region("eu-west-1").unwrap();
        assert_eq!((other.host().as_str(), other.region()), ("h:9000", "eu-west-1"));
    }
}
