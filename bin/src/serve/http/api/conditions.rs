//! What the headers of an append say: which stream is expected, and under which key it happens.

use duolog_net::client::{Expect, Revision, Uuid};
use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::serve::http::problem::Problem;

/// The namespace of keys that follow from what is no UUID.
const KEY_NAMESPACE: Uuid = Uuid::from_u128(0x0d55_41c6_8f2e_4b83_9c0b_1e6f_77a4_d2b9);
/// The append's name.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The writer's fencing token.
const FENCING_TOKEN: HeaderName = HeaderName::from_static("duolog-fencing-token");

/// The longest key.
const KEY_MAX_BYTES: usize = 255;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// What the stream must look like.
    pub expect: Expect,
    /// The append's name.
    pub key: Option<Uuid>,
    /// The writer's token.
    pub fencing_token: Option<u64>,
    impossible: Option<&'static str>,
}

impl Conditions {
    /// As the headers say, or what is wrong with them.
    pub fn of(headers: &HeaderMap) -> Result<Self, String> {
        let tags = |name: HeaderName, weak| -> Result<Option<Tags>, String> {
            one(headers, &name)?.map(|value| Tags::parse(&name, value, weak)).transpose()
        };
        let (matching, other) = (tags(IF_MATCH, Weak::Never)?, tags(IF_NONE_MATCH, Weak::Counts)?);
        let (expect, impossible) = judge(matching, other);
        let key = one(headers, &IDEMPOTENCY_KEY)?.map(key).transpose()?;
        let fencing_token = one(headers, &FENCING_TOKEN)?.map(|text| {
            let number = digits(text).ok_or("Duolog-Fencing-Token: a whole number is wanted");
            number.map_err(str::to_owned)
        });
        Ok(Self { expect, key, fencing_token: fencing_token.transpose()?, impossible })
    }

    /// Refuses conditions that can never hold. They are well-formed, so this comes after everything
    /// else that may be wrong with a request.
    pub fn check(&self) -> Result<(), Problem> {
        let status = StatusCode::PRECONDITION_FAILED;
        self.impossible.map_or(Ok(()), |text| Err(Problem::new(status, "impossible", text)))
    }
}

/// The header's value, if it is there once.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(HeaderValue::to_str).transpose();
    let value = value.map_err(|_| format!("{name} must be printable ASCII"))?;
    match values.next() {
        Some(_) => Err(format!("{name} is given twice")),
        None => Ok(value.map(str::trim)),
    }
}

/// Digits alone: no sign, no blank.
fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// What `If-Match` and `If-None-Match` come to; a text if no append can be under them.
const fn judge(matching: Option<Tags>, other: Option<Tags>) -> (Expect, Option<&'static str>) {
    let expect = match matching {
        None => Expect::Any,
        Some(Tags::Star) => Expect::StreamExists,
        Some(Tags::One(revision)) => Expect::Exact(revision),
        Some(Tags::Several) => return (Expect::Any, Some("If-Match: one revision is expected")),
        Some(Tags::Foreign) => {
            return (Expect::Any, Some("If-Match: no stream ever has any of these tags"));
        }
    };
    match (other, matching) {
        (None | Some(Tags::Foreign), _) => (expect, None),
        (Some(Tags::Star), None) => (Expect::NoStream, None),
        (Some(Tags::Star), Some(_)) => (expect, Some("no stream both has events and has none")),
        (Some(Tags::One(_) | Tags::Several), _) => {
            (expect, Some("If-None-Match: an append knows only *, no event yet"))
        }
    }
}

/// Whether a weak tag is like a strong one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weak {
    Counts,
    Never,
}

/// A list of entity tags (RFC 9110, section 8.8.3), as far as streams can have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tags {
    /// `*`
    Star,
    /// None that a stream can have.
    Foreign,
    /// A stream's with this last revision.
    One(Revision),
    /// Those of several revisions.
    Several,
}

impl Tags {
    fn parse(name: &HeaderName, value: &str, weak: Weak) -> Result<Self, String> {
        if value == "*" {
            return Ok(Self::Star);
        }
        let wrong = || format!("{name}: {value}: ETags like \"41\", in quotes, or * are wanted");
        let (mut rest, mut found) = (value, Self::Foreign);
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return Ok(found);
            }
            let counts = weak == Weak::Counts || !rest.starts_with("W/");
            let quoted = rest.strip_prefix("W/").unwrap_or(rest);
            let quoted = quoted.strip_prefix('"').ok_or_else(wrong)?;
            let (inner, behind) = quoted.split_once('"').ok_or_else(wrong)?;
            if !behind.is_empty() && !behind.starts_with([' ', '\t', ',']) {
                return Err(wrong());
            }
            let number = digits(inner).filter(|number| counts && number.to_string() == inner);
            found = match (number.map(Revision), found) {
                (Some(revision), Self::Foreign) => Self::One(revision),
                (Some(revision), Self::One(other)) if revision != other => Self::Several,
                _ => found,
            };
            rest = behind;
        }
    }
}

/// The tag of a stream whose last revision is this.
#[must_use]
pub fn tag(last: Revision) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{last}\"")).expect("digits and quotes are printable")
}

/// A UUID is the key itself; any other word gives one. Quotes around it do not count.
fn key(text: &str) -> Result<Uuid, String> {
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let text = quoted.unwrap_or(text);
    let word = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
    if !word || !(1..=KEY_MAX_BYTES).contains(&text.len()) {
        return Err(format!(
            "Idempotency-Key: a word of 1 to {KEY_MAX_BYTES} printable characters is wanted, \
             without blanks, in quotes or not"
        ));
    }
    Ok(Uuid::parse_str(text).unwrap_or_else(|_| Uuid::new_v5(&KEY_NAMESPACE, text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[(&'static str, &str)]) -> Result<Conditions, String> {
        let headers = given.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value);
        }
        Conditions::of(&map)
    }

    fn expect(given: &[(&'static str, &str)]) -> Expect {
        of(given).unwrap().expect
    }

    #[test]
    fn headers_say_what_the_stream_must_look_like() {
        assert_eq!(expect(&[]), Expect::Any);
        assert_eq!(expect(&[("if-none-match", "*")]), Expect::NoStream);
        assert_eq!(expect(&[("if-match", "*")]), Expect::StreamExists);
        assert_eq!(expect(&[("if-match", "\"41\"")]), Expect::Exact(Revision(41)));
        assert_eq!(tag(Revision(41)), "\"41\"");
        assert_eq!(expect(&[("if-match", "W/\"7\",, \"x\" ,\"41\"")]), Expect::Exact(Revision(41)));
        for wrong in ["41", "\"41", "\"1\"\"2\"", "*, \"1\"", "w/\"1\""] {
            assert!(of(&[("if-match", wrong)]).is_err(), "{wrong}");
        }
        for never in ["W/\"41\"", "\"\"", "\"+1\"", "\"041\"", "\"1\", \"2\"", ""] {
            let status = of(&[("if-match", never)]).unwrap().check().unwrap_err().status;
            assert_eq!(status, StatusCode::PRECONDITION_FAILED, "{never}");
        }
        assert_eq!(expect(&[("if-none-match", "\"x\", W/\"y\"")]), Expect::Any, "it holds always");
        let both = [("if-match", "\"4\""), ("if-none-match", "\"x\"")];
        assert_eq!(expect(&both), Expect::Exact(Revision(4)));
        for never in ["\"3\"", "W/\"3\"", "\"3\", \"4\""] {
            let conditions = of(&[("if-none-match", never)]).unwrap();
            assert!(conditions.check().is_err(), "{never}");
        }
        for both in ["*", "\"41\""] {
            let both = of(&[("if-none-match", "*"), ("if-match", both)]).unwrap();
            assert_eq!(both.check().unwrap_err().status, StatusCode::PRECONDITION_FAILED);
        }
        assert!(of(&[("if-match", "*")]).unwrap().check().is_ok());
        assert!(of(&[("if-match", "*"), ("if-match", "*")]).is_err());
    }

    #[test]
    fn a_uuid_is_the_key_and_other_words_always_give_the_same() {
        let key = |text: &str| of(&[("idempotency-key", text)]).unwrap().key.unwrap();
        let uuid = "6d0e5f2c-7d3b-4f0e-9a55-0c8a1f6b2e11";
        assert_eq!(key(uuid).to_string(), uuid);
        assert_eq!(key(&format!("\"{uuid}\"")).to_string(), uuid);
        assert_eq!(key("order-7"), key("\"order-7\""));
        assert_ne!(key("order-7"), key("order-8"));
        assert_eq!(key("order-7").get_version_num(), 5);
        for wrong in ["", "\"\"", "order 7", "\"a\"b\"", &"k".repeat(256)] {
            assert!(of(&[("idempotency-key", wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fencing_tokens_are_numbers() {
        let token = |text| of(&[("duolog-fencing-token", text)]).map(|given| given.fencing_token);
        assert_eq!(token("18446744073709551615"), Ok(Some(u64::MAX)));
        for wrong in ["-1", "+1", "18446744073709551616", ""] {
            assert!(token(wrong).is_err(), "{wrong}");
        }
    }
}
