//! The change feed as a stream of messages.

use super::{convert, status};
use crate::{
    engine::feed::{Sent, Watching},
    ledger::Key,
    proto::{self, watch_response::Message},
};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio_stream::Stream;
use tonic::Status;

/// What one watcher is sent. Dropped, it ends the watching.
pub struct WatchStream {
    /// None once the end was told.
    watching: Option<Watching>,
    key: Key,
}

impl WatchStream {
    pub(super) fn new(watching: Watching, key: Key) -> Self {
        Self { watching: Some(watching), key }
    }
}

impl Stream for WatchStream {
    type Item = Result<proto::WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(watching) = &mut this.watching else {
            return Poll::Ready(None);
        };
        let message = match ready!(watching.sent.poll_recv(context)) {
            Some(Sent::Event(event)) => Message::Event(convert::event(event.stored)),
            Some(Sent::CaughtUp(sequence)) => Message::HeartbeatSequence(sequence),
            None => {
                let end = ready!(Pin::new(&mut watching.end).poll(context));
                this.watching = None;
                return Poll::Ready(match end {
                    Ok(end) => status::watch_ended(end, &this.key).map(Err),
                    Err(_) => {
                        Some(Err(Status::internal("a fault in opledger ended the stream: watch again")))
                    }
                });
            }
        };
        Poll::Ready(Some(Ok(proto::WatchResponse { message: Some(message) })))
    }
}
