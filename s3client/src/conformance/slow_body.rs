//! A request body that stops in the middle until it is told to go on.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

/// The half that was handed over, and the word to go on.
#[derive(Debug)]
pub(super) struct Handle {
    /// Comes true when the first half has been taken.
    pub(super) started: oneshot::Receiver<()>,
    /// Sends the rest.
    pub(super) go_on: oneshot::Sender<()>,
}

/// The body.
#[derive(Debug)]
pub(super) struct SlowBody {
    first: Option<Bytes>,
    second: Option<Bytes>,
    size: u64,
    started: Option<oneshot::Sender<()>>,
    go_on: oneshot::Receiver<()>,
}

impl SlowBody {
    pub(super) fn new(body: &Bytes) -> (Self, Handle) {
        let half = body.len() / 2;
        let ((started, is_started), (go_on, may_go_on)) = (oneshot::channel(), oneshot::channel());
        let slow = Self {
            first: Some(body.slice(..half)),
            second: Some(body.slice(half..)),
            size: body.len() as u64,
            started: Some(started),
            go_on: may_go_on,
        };
        (slow, Handle { started: is_started, go_on })
    }
}

impl Body for SlowBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            if let Some(started) = self.started.take() {
                let _ = started.send(());
            }
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.second.is_none() {
            return Poll::Ready(None);
        }
        // Also when nobody is left to give the word: the body then simply goes on.
        match Pin::new(&mut self.go_on).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => Poll::Ready(self.second.take().map(|rest| Ok(Frame::data(rest)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.second.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.size)
    }
}
