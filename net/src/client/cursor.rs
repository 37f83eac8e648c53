//! Durable cursors: how far a named consumer is, kept in the log itself.
//!
//! A cursor is a stream whose last event holds a position. It is moved by an append that expects
//! the revision that this consumer saw last, so two consumers under one name do not move it behind
//! each other's back: the second one gets a conflict. A cursor beside a stream lives in that
//! stream's shard and can move in one append with what the consumer writes there: both or neither.

use duolog_engine::append::Expect;
use duolog_engine::ids::Revision;
use duolog_engine::route::{routing_key, shard_of};

use super::error::Error;
use super::event::Event;
use super::subscribe::Bookmark;
use super::{AppendCall, Client, Receipt};
use crate::wire::SYSTEM_PREFIX;

/// Type of a cursor's events.
const KIND: &str = "CursorMoved";

/// A named position that outlives its consumer.
#[derive(Clone, Debug)]
pub struct Cursor {
    client: Client,
    stream: String,
    /// Revision of its last event as far as this consumer knows.
    revision: Option<Revision>,
    bookmark: Option<Bookmark>,
}

impl Client {
    /// Opens the cursor called `name` (1 to 200 bytes without braces or `#`): reads where it is.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for another name or when its stream holds something else; see
    /// [`Error`].
    pub async fn cursor(&self, name: &str) -> Result<Cursor, Error> {
        Cursor::open(self, format!("{SYSTEM_PREFIX}cursor.{}", checked(name)?)).await
    }

    /// The same in the shard of `stream`, so that it can move in one append with events of that
    /// stream ([`AppendCall::and_cursor`]). It is another cursor than one of the same name beside
    /// another stream.
    ///
    /// # Errors
    /// As [`Client::cursor`]; also when the stream's name leaves no way to name a stream beside it.
    pub async fn cursor_beside(&self, name: &str, stream: &str) -> Result<Cursor, Error> {
        let key = String::from_utf8_lossy(routing_key(stream.as_bytes()));
        let own = format!("{SYSTEM_PREFIX}cursor.{}#{{{key}}}", checked(name)?);
        let count = self.server().shard_count.max(1);
        if shard_of(own.as_bytes(), count) != shard_of(stream.as_bytes(), count) || own.len() > 255
        {
            let text = format!(
                "no cursor can be kept beside stream {stream:?}: its routing key is too long or \
                 has a brace in it"
            );
            return Err(Error::BadRequest { text });
        }
        Cursor::open(self, own).await
    }
}

fn checked(name: &str) -> Result<&str, Error> {
    let bad = name.is_empty() || name.len() > 200 || name.contains(['{', '}', '#']);
    if bad {
        let text = format!("{name:?} cannot name a cursor: 1 to 200 bytes, no braces and no #");
        return Err(Error::BadRequest { text });
    }
    Ok(name)
}

impl Cursor {
    async fn open(client: &Client, stream: String) -> Result<Self, Error> {
        let mut cursor = Self { client: client.clone(), stream, revision: None, bookmark: None };
        cursor.refresh().await?;
        Ok(cursor)
    }

    /// Where the consumer goes on: behind this event. `None`: it has not begun.
    #[must_use]
    pub const fn bookmark(&self) -> Option<Bookmark> {
        self.bookmark
    }

    /// The stream that keeps it.
    #[must_use]
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Reads again where it is.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn refresh(&mut self) -> Result<(), Error> {
        let page = self.client.read(self.stream.as_str()).backwards().limit(1).page().await?;
        let Some(event) = page.events.first() else {
            (self.revision, self.bookmark) = (None, None);
            return Ok(());
        };
        let text = String::from_utf8_lossy(&event.data);
        let bookmark = text.parse().map_err(|error| Error::BadRequest {
            text: format!("the stream {} holds no cursor: {error}", self.stream),
        })?;
        (self.revision, self.bookmark) = (Some(event.revision), Some(bookmark));
        Ok(())
    }

    /// Moves it and waits until that is durable.
    ///
    /// # Errors
    /// [`Error::Conflict`]: another consumer has moved it. See [`Error`].
    pub async fn save(&mut self, bookmark: Bookmark) -> Result<Receipt, Error> {
        let call = self.client.append(self.stream.as_str()).expect(self.expect());
        let receipt = call.event(moved(bookmark)).retry().send().await?;
        self.moved(bookmark, &receipt);
        Ok(receipt)
    }

    /// Notes that an append which moved it ([`AppendCall::and_cursor`]) was done.
    pub fn moved(&mut self, bookmark: Bookmark, receipt: &Receipt) {
        let own = receipt.streams.iter().find(|part| part.stream == self.stream);
        if let Some(own) = own {
            (self.revision, self.bookmark) = (Some(own.last), Some(bookmark));
        }
    }

    fn expect(&self) -> Expect {
        self.revision.map_or(Expect::NoStream, Expect::Exact)
    }
}

fn moved(bookmark: Bookmark) -> Event {
    Event::new(KIND, bookmark.to_string())
}

impl AppendCall {
    /// Moves the cursor in the same append: everything is done, or nothing. The cursor must live in
    /// the shard of the append's streams ([`Client::cursor_beside`]). When it is done, tell the
    /// cursor by [`Cursor::moved`].
    pub fn and_cursor(self, cursor: &Cursor, bookmark: Bookmark) -> Self {
        self.and_stream(cursor.stream()).expect(cursor.expect()).event(moved(bookmark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_leave_room_for_the_key() {
        assert!(checked("billing").is_ok());
        for bad in ["", "a{b", "a}b", "a#b", &"x".repeat(201)] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }
}
