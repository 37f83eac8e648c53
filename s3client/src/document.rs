//! The XML documents of answers: errors, listings, versioning.
//!
//! Promise: text is taken only with entities, CDATA and character references resolved; a listing
//! that cannot be complete is never taken for complete.

use quick_xml::events::Event;
use quick_xml::reader::Reader;

use crate::etag::ETag;
use crate::key::decode_listed;

/// What an error document says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorDocument {
    /// For programs.
    pub code: Option<String>,
    /// For people.
    pub message: Option<String>,
    /// Where the bucket is.
    pub region: Option<String>,
    /// The server's number of the request.
    pub request_id: Option<String>,
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Its version, if the server tells it.
    pub etag: Option<ETag>,
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Its objects, in the server's order.
    pub objects: Vec<Listed>,
    /// For the next page; `None` on the last.
    pub next: Option<String>,
}

/// What is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Not the XML that was expected.
    #[error("the store's answer is no {expected} document: {reason}")]
    Malformed {
        /// The root element.
        expected: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The answer of another version of the call.
    #[error(
        "the store answered ListObjectsV2 with a listing of version 1 (NextMarker, no KeyCount): \
         a continued listing would not be complete; use a store that has ListObjectsV2"
    )]
    ListVersion1,
    /// More is to come but nobody says how to ask for it.
    #[error("the store's listing is truncated but has no NextContinuationToken")]
    NoContinuation,
}

/// Walks a document and hands over each element's path below the root and its text.
fn walk(
    body: &[u8],
    expected: &'static str,
    mut leaf: impl FnMut(&[String], &str) -> Result<(), String>,
) -> Result<(), DocumentError> {
    let malformed = |reason: String| DocumentError::Malformed { expected, reason };
    let text = std::str::from_utf8(body).map_err(|error| malformed(error.to_string()))?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let (mut path, mut value): (Vec<String>, String) = (Vec::new(), String::new());
    let mut rooted = false;
    loop {
        let event = reader.read_event().map_err(|error| malformed(error.to_string()))?;
        match event {
            Event::Start(start) => {
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                if !rooted && name != expected {
                    return Err(malformed(format!("it begins with <{name}>")));
                }
                rooted = true;
                path.push(name);
                value.clear();
            }
            Event::Text(text) => {
                value.push_str(&text.decode().map_err(|error| malformed(error.to_string()))?);
            }
            Event::CData(text) => {
                value.push_str(&text.decode().map_err(|error| malformed(error.to_string()))?);
            }
            Event::GeneralRef(reference) => {
                let character = match reference.resolve_char_ref() {
                    Ok(Some(character)) => Some(character),
                    _ => predefined(&reference),
                };
                value.push(character.ok_or_else(|| malformed("an unknown entity".to_owned()))?);
            }
            Event::End(_) => {
                leaf(path.get(1..).unwrap_or_default(), &value).map_err(malformed)?;
                path.pop();
                value.clear();
                if path.is_empty() {
                    return Ok(());
                }
            }
            Event::Eof => return Err(malformed("it ends too early".to_owned())),
            _ => {}
        }
    }
}

fn predefined(name: &[u8]) -> Option<char> {
    Some(match name {
        b"amp" => '&',
        b"lt" => '<',
        b"gt" => '>',
        b"quot" => '"',
        b"apos" => '\'',
        _ => return None,
    })
}

/// Reads an error document; `None` if `body` is none.
#[must_use]
pub fn parse_error(body: &[u8]) -> Option<ErrorDocument> {
    // Most bodies are no XML at all; an object of many megabytes is not searched.
    let start = body.iter().position(|byte| !byte.is_ascii_whitespace())?;
    if !matches!(body[start], b'<' | 0xef) {
        return None;
    }
    let mut document = ErrorDocument::default();
    let read = walk(body, "Error", |path, text| {
        let [name] = path else { return Ok(()) };
        let field = match name.as_str() {
            "Code" => &mut document.code,
            "Message" => &mut document.message,
            "Region" => &mut document.region,
            "RequestId" => &mut document.request_id,
            _ => return Ok(()),
        };
        *field = Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        Ok(())
    });
    read.ok().map(|()| document)
}

/// Reads one page of ListObjectsV2.
pub fn parse_list(body: &[u8]) -> Result<ListPage, DocumentError> {
    const ROOT: &str = "ListBucketResult";
    let mut page = ListPage::default();
    let mut open = Listed { key: String::new(), size_bytes: 0, etag: None };
    let (mut truncated, mut url, mut version_1, mut version_2) = (false, false, false, false);
    walk(body, ROOT, |path, text| {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path[..] {
            ["IsTruncated"] => truncated = text.trim() == "true",
            ["EncodingType"] => url = text.trim() == "url",
            ["NextContinuationToken"] => page.next = Some(text.to_owned()),
            ["KeyCount"] => version_2 = true,
            ["NextMarker" | "Marker"] => version_1 = true,
            ["Contents", "Key"] => text.clone_into(&mut open.key),
            ["Contents", "ETag"] => open.etag = ETag::new(text.trim()).ok(),
            ["Contents", "Size"] => {
                let size = text.trim().parse();
                open.size_bytes = size.map_err(|_| format!("the size {text:?} is no number"))?;
            }
            ["Contents"] => {
                if open.key.is_empty() {
                    return Err("an object without a key".to_owned());
                }
                let next = Listed { key: String::new(), size_bytes: 0, etag: None };
                page.objects.push(std::mem::replace(&mut open, next));
            }
            _ => {}
        }
        Ok(())
    })?;
    if version_1 && !version_2 {
        return Err(DocumentError::ListVersion1);
    }
    if url {
        for object in &mut page.objects {
            object.key = decode_listed(&object.key).ok_or_else(|| DocumentError::Malformed {
                expected: ROOT,
                reason: format!("the key {:?} is not percent-encoded", object.key),
            })?;
        }
    }
    match (truncated, &page.next) {
        (true, None) => Err(DocumentError::NoContinuation),
        (true, Some(_)) => Ok(page),
        (false, _) => Ok(ListPage { next: None, ..page }),
    }
}

/// Reads GetBucketVersioning: `Enabled`, `Suspended`, or `None` for never.
pub fn parse_versioning(body: &[u8]) -> Result<Option<String>, DocumentError> {
    let mut status = None;
    walk(body, "VersioningConfiguration", |path, text| {
        if path == ["Status"] && !text.trim().is_empty() {
            status = Some(text.trim().to_owned());
        }
        Ok(())
    })?;
    Ok(status)
}

#[cfg(test)]
mod tests;
