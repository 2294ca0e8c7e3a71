//! Connections that can be closed from here, whatever the peer does.
//!
//! A graceful close of HTTP/2 waits for the peer: one that is half open, or that never sends its
//! preface, would be waited for until TCP gives up. These connections end by themselves.

use crate::{shutdown::Shutdown, telemetry::Metrics};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::{Instant, Sleep, sleep, sleep_until},
};
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// A peer that has not sent a byte by then gets no more time.
const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(20);
/// The pause after a failed accept: out of file descriptors, most likely. Without it the loop spins.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// The listener as a stream of connections.
pub struct Incoming {
    listener: TcpListener,
    pause: Option<Pin<Box<Sleep>>>,
    /// Connections end when this begins.
    close: Shutdown,
    /// Connections end at this age at the latest.
    max_age: Option<Duration>,
    metrics: Arc<Metrics>,
}

impl Incoming {
    /// Takes connections from `listener`; all of them end when `close` begins.
    #[must_use]
    pub fn new(
        listener: TcpListener,
        close: Shutdown,
        max_age: Option<Duration>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { listener, pause: None, close, max_age, metrics }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = self.pause.as_mut() {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok((stream, _)) => {
                    // Fails only on a connection that is already gone.
                    _ = stream.set_nodelay(true);
                    let connection =
                        Connection::new(stream, self.close.clone(), self.max_age, self.metrics.clone());
                    return Poll::Ready(Some(Ok(connection)));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot accept a connection");
                    self.pause = Some(Box::pin(sleep(PAUSE_AFTER_FAILURE)));
                }
            }
        }
    }
}

/// True where the peer has gone before it was accepted: nothing to do with the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

type Alarm = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection with an end.
pub struct Connection {
    stream: TcpStream,
    /// Rings when the connection must end.
    alarm: Alarm,
    /// Rings where the peer stays silent; none once it has spoken.
    silence: Option<Pin<Box<Sleep>>>,
    closed: bool,
    metrics: Arc<Metrics>,
}

impl Connection {
    fn new(stream: TcpStream, close: Shutdown, max_age: Option<Duration>, metrics: Arc<Metrics>) -> Self {
        metrics.connections.inc();
        let old = max_age.map(|age| Instant::now() + age);
        let alarm = async move {
            match old {
                None => close.wait().await,
                Some(old) => tokio::select! {
                    () = close.wait() => {}
                    () = sleep_until(old) => {}
                },
            }
        };
        Self {
            stream,
            alarm: Box::pin(alarm),
            silence: Some(Box::pin(sleep(FIRST_BYTE_WITHIN))),
            closed: false,
            metrics,
        }
    }

    /// True once it must end. Asked whenever the task is about to wait for the peer, in either
    /// direction: then it waits for this as well.
    fn must_close(&mut self, context: &mut Context<'_>) -> bool {
        let silent = self.silence.as_mut().is_some_and(|silence| silence.as_mut().poll(context).is_ready());
        // Once it has rung it must not be asked again.
        self.closed = self.closed || silent || self.alarm.as_mut().poll(context).is_ready();
        self.closed
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.metrics.connections.dec();
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "closed by the server")
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.closed {
            return Poll::Ready(Err(closed()));
        }
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        match read {
            Poll::Ready(_) => self.silence = None,
            Poll::Pending if self.must_close(context) => return Poll::Ready(Err(closed())),
            Poll::Pending => {}
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.closed {
            return Poll::Ready(Err(closed()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_pending() && self.must_close(context) {
            return Poll::Ready(Err(closed()));
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    // No vectored writes, which the trait's defaults say: where a socket takes them, h2 writes each message of
    // 256 bytes or more by a call of its own; where it does not, those below 1 KiB are gathered. That is a
    // third of the writes at 64 calls in flight.
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}
