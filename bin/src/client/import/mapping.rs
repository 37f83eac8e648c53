//! What a line becomes: which stream it goes to and which type it has.

use serde_json::Value as Json;

/// Where stream and type of a line come from.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Put before the stream's name.
    pub stream_prefix: String,
    /// The stream.
    pub stream: Source,
    /// The type.
    pub kind: Source,
}

/// Where a text comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The same for all lines.
    Fixed(String),
    /// This field of the line; dots lead into objects.
    Field(String),
}

/// What a line becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The stream.
    pub stream: String,
    /// The type.
    pub kind: String,
}

impl Mapping {
    /// Looks at a line. The error says what is wrong with it.
    pub fn target(&self, line: &[u8]) -> Result<Target, String> {
        let document: Json =
            serde_json::from_slice(line).map_err(|error| format!("is no JSON: {error}"))?;
        if !document.is_object() {
            return Err("is no JSON object".to_owned());
        }
        let stream = format!("{}{}", self.stream_prefix, self.stream.text(&document)?);
        Ok(Target { stream, kind: self.kind.text(&document)? })
    }
}

impl Source {
    fn text(&self, document: &Json) -> Result<String, String> {
        let field = match self {
            Self::Fixed(text) => return Ok(text.clone()),
            Self::Field(field) => field,
        };
        // A field whose own name contains dots comes first.
        let value = document
            .get(field)
            .or_else(|| field.split('.').try_fold(document, |value, name| value.get(name)));
        match value {
            Some(Json::String(text)) if text.is_empty() => Err(format!("has an empty {field}")),
            Some(Json::String(text)) => Ok(text.clone()),
            Some(Json::Number(number)) => Ok(number.to_string()),
            Some(Json::Bool(switch)) => Ok(switch.to_string()),
            Some(_) => Err(format!("has a {field} that is neither text nor number")),
            None => Err(format!("has no {field}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(stream: &str, kind: &str) -> Mapping {
        Mapping {
            stream_prefix: "p-".to_owned(),
            stream: Source::Field(stream.to_owned()),
            kind: Source::Field(kind.to_owned()),
        }
    }

    #[test]
    fn fields_lead_into_objects() {
        let line = br#"{"properties":{"net":"ci","a.b":7},"a.b":true,"type":"Feature"}"#;
        let target = mapping("properties.net", "type").target(line).unwrap();
        assert_eq!((target.stream.as_str(), target.kind.as_str()), ("p-ci", "Feature"));
        assert_eq!(mapping("a.b", "type").target(line).unwrap().stream, "p-true");
    }

    #[test]
    fn numbers_name_streams_too() {
        assert_eq!(mapping("n", "n").target(br#"{"n":17}"#).unwrap().stream, "p-17");
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        for (line, reason) in [
            (&b"{"[..], "is no JSON"),
            (b"[1]", "is no JSON object"),
            (b"{}", "has no s"),
            (br#"{"s":""}"#, "has an empty s"),
            (br#"{"s":{}}"#, "neither text nor number"),
            (b"\xff", "is no JSON"),
        ] {
            let error = mapping("s", "s").target(line).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
