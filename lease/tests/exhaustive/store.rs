//! The bucket: one object, compare-and-swap, writes that land when they like.

use std::cell::RefCell;

use duolog_lease::document::Document;
use duolog_lease::event::{Condition, Version, WriteOutcome};
use duolog_lease::ids::{CallId, ETag, Token};

/// The object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Store {
    pub version: Option<Version>,
}

/// A write under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flight {
    pub node: usize,
    /// Somebody waits for the answer to this call.
    pub waiting: Option<CallId>,
    pub condition: Condition,
    pub document: Document,
    /// What became of it at the store.
    pub outcome: Option<WriteOutcome>,
}

impl Store {
    pub fn allows(&self, condition: &Condition) -> bool {
        match (condition, &self.version) {
            (Condition::Absent, None) => true,
            (Condition::Matches(etag), Some(version)) => *etag == version.etag,
            _ => false,
        }
    }

    /// Stores the document if the condition holds.
    pub fn write(&mut self, condition: &Condition, document: &Document) -> WriteOutcome {
        if !self.allows(condition) {
            return WriteOutcome::Conflict;
        }
        let etag = etag_of(document.token);
        self.version = Some(Version { etag: etag.clone(), document: document.clone() });
        WriteOutcome::Stored { etag }
    }
}

thread_local! {
    static ETAGS: RefCell<Vec<Option<ETag>>> = const { RefCell::new(Vec::new()) };
}

/// Every token is written once, so it makes a tag: three letters for node, run and count.
pub fn etag_of(token: Token) -> ETag {
    let part = |shift: u32| usize::try_from(token.0 >> shift & 0xff).expect("a byte");
    let parts = [part(96), part(32), part(0)];
    assert!(parts.iter().all(|part| *part < 32), "small worlds have small numbers: {token}");
    let index = (parts[0] * 32 + parts[1]) * 32 + parts[2];
    ETAGS.with_borrow_mut(|tags| {
        if tags.len() <= index {
            tags.resize(index + 1, None);
        }
        let text = || parts.iter().map(|part| char::from(b'A' + *part as u8)).collect::<String>();
        tags[index].get_or_insert_with(|| ETag::new(&text())).clone()
    })
}

/// The token that made a tag.
pub fn token_of(etag: &ETag) -> Token {
    let part = |index: usize| u128::from(etag.0.as_bytes()[index] - b'A');
    Token(part(0) << 96 | part(1) << 32 | part(2))
}
