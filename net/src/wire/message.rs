//! Any message, by the kind of its frame.

use super::admin::{decode_admin, decode_admin_answer};
use super::appended::AppendedView;
use super::body::BodyError;
use super::error::ErrorView;
use super::events::Events;
use super::frame::{Frame, FrameKind};
use super::hello::{Hello, HelloAccepted};
use super::page::{LogPage, StreamPage};
use super::read::{ReadLog, ReadStream};
use super::standing::Standing;
use super::subscribe::{Subscribe, SubscriptionAsk};
use crate::limits::PING_MAX_BYTES;

/// A frame's body, decoded as its kind says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// First frame of a client.
    Hello(Hello),
    /// The server's answer to it, and the leader's address (see [`Standing::leader`]).
    HelloAccepted(HelloAccepted, &'a str),
    /// An append: the bytes that `AppendView::parse` takes.
    Append(&'a [u8]),
    /// A receipt.
    Appended(AppendedView<'a>),
    /// A request for a page of a stream.
    ReadStream(ReadStream<'a>),
    /// That page; its records are not checked yet.
    StreamPage(StreamPage<'a>),
    /// A request for a page of a log.
    ReadLog(ReadLog),
    /// That page; its records are not checked yet.
    LogPage(LogPage<'a>),
    /// Comes back as it is.
    Ping(&'a [u8]),
    /// Came back.
    Pong(&'a [u8]),
    /// A refusal.
    Error(ErrorView<'a>),
    /// A request of an operator, in JSON.
    Admin(&'a str),
    /// Its answer, in JSON.
    AdminAnswer(&'a str),
    /// What the node is now.
    Standing(Standing<'a>),
    /// A request for a subscription.
    Subscribe(Subscribe<'a>),
    /// A piece of one; its records are not checked yet.
    Events(Events<'a>),
    /// What a subscriber says about one; sent back, the end of one.
    Subscription(SubscriptionAsk),
}

impl<'a> Message<'a> {
    /// Decodes the body of `frame`.
    pub fn decode(frame: &Frame<'a>) -> Result<Self, BodyError> {
        let body = frame.body;
        Ok(match frame.kind {
            FrameKind::Hello => Self::Hello(Hello::decode(body)?),
            FrameKind::HelloAccepted => {
                let (accepted, leader) = HelloAccepted::decode(body)?;
                Self::HelloAccepted(accepted, leader)
            }
            FrameKind::Append => Self::Append(body),
            FrameKind::Appended => Self::Appended(AppendedView::decode(body)?),
            FrameKind::ReadStream => Self::ReadStream(ReadStream::decode(body)?),
            FrameKind::StreamPage => Self::StreamPage(StreamPage::decode(body)?),
            FrameKind::ReadLog => Self::ReadLog(ReadLog::decode(body)?),
            FrameKind::LogPage => Self::LogPage(LogPage::decode(body)?),
            FrameKind::Ping => Self::Ping(ping_body("ping", body)?),
            FrameKind::Pong => Self::Pong(ping_body("pong", body)?),
            FrameKind::Error => Self::Error(ErrorView::decode(body)?),
            FrameKind::Admin => Self::Admin(decode_admin(body)?),
            FrameKind::AdminAnswer => Self::AdminAnswer(decode_admin_answer(body)?),
            FrameKind::Standing => Self::Standing(Standing::decode(body)?),
            FrameKind::Subscribe => Self::Subscribe(Subscribe::decode(body)?),
            FrameKind::Events => Self::Events(Events::decode(body)?),
            FrameKind::Taken | FrameKind::Settle | FrameKind::Unsubscribe => {
                Self::Subscription(SubscriptionAsk::decode(frame)?)
            }
        })
    }
}

const fn ping_body<'a>(field: &'static str, body: &'a [u8]) -> Result<&'a [u8], BodyError> {
    if body.len() > PING_MAX_BYTES {
        return Err(BodyError::TooLong { field, size: body.len(), limit: PING_MAX_BYTES });
    }
    Ok(body)
}
