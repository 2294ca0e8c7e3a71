//! The gRPC server around the ledger: HTTP/2 settings, health, reflection, and an end that comes.

use super::{calls::CallsLayer, connection::Incoming, health::HealthService};
use crate::{
    health::{Health, Readiness},
    proto::{
        self,
        ledger_server::{Ledger, LedgerServer},
    },
    shutdown::{self, Shutdown},
    telemetry::Metrics,
};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{net::TcpListener, time::timeout};
use tonic::transport::Server;

/// A drain is over when no call was under way for so long.
const IDLE_ENOUGH: Duration = Duration::from_secs(1);
/// Pings find a half-open connection …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// … when they are not answered within this.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// An old connection was asked to reconnect; it is closed so much later.
const MAX_AGE_GRACE: Duration = Duration::from_secs(30);
/// Streams of one connection at a time: the cap on calls in flight refuses before, with a reason.
const MAX_STREAMS: u32 = 8192;
const MAX_HEADER_BYTES: u32 = 16 * 1024;
/// What a peer may send ahead, per stream and per connection. Fixed: an adaptive window begins at 64 KiB
/// for all streams of a connection together, whatever is set here.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// Streams that a peer opens and resets at once, before the connection is closed ("rapid reset").
const MAX_PENDING_RESETS: usize = 256;
/// Connections that were told to end are gone after this.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long calls in flight may take to finish once the shutdown has begun.
    pub drain_timeout: Duration,
    /// The largest request message.
    pub max_message_bytes: usize,
    /// Calls at the same time, over all connections.
    pub max_in_flight: usize,
    /// Connections older than this are asked to reconnect.
    pub max_connection_age: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            drain_timeout: Duration::from_secs(10),
            max_message_bytes: 4 * 1024 * 1024,
            max_in_flight: 4096,
            max_connection_age: None,
        }
    }
}

/// Serves until the shutdown begins, then lets calls in flight finish, for `drain_timeout` at most,
/// and closes every connection.
///
/// # Errors
/// Where the server cannot run at all.
pub async fn serve(
    listener: TcpListener,
    ledger: impl Ledger,
    settings: Settings,
    metrics: Arc<Metrics>,
    health: Health,
    shutdown: Shutdown,
) -> Result<(), tonic::transport::Error> {
    let (close, closing) = shutdown::channel();
    let max_age = settings.max_connection_age.map(|age| age + MAX_AGE_GRACE);
    let incoming = Incoming::new(listener, closing, max_age, metrics.clone());
    let ledger = LedgerServer::new(ledger).max_decoding_message_size(settings.max_message_bytes);
    let router = builder(&settings)
        .layer(CallsLayer::new(metrics.clone(), settings.max_in_flight))
        .add_service(ledger)
        .add_service(HealthService::server(health.clone()))
        .add_service(reflection().build_v1().expect("the descriptors were made by the build"))
        .add_service(reflection().build_v1alpha().expect("the descriptors were made by the build"));

    let drained = shutdown.clone();
    let drain = async move {
        shutdown.wait().await;
        // Whoever watches the health learns of it before connections are refused.
        health.set(Readiness::Draining);
    };
    let mut server = pin!(router.serve_with_incoming_shutdown(incoming, drain));
    let cut_off = async {
        drained.wait().await;
        idle_or_late(&metrics, settings.drain_timeout).await;
    };
    tokio::select! {
        ended = &mut server => return ended,
        () = cut_off => {}
    }
    if metrics.in_flight.get() > 0 {
        tracing::warn!(
            calls = metrics.in_flight.get(),
            connections = metrics.connections.get(),
            "the drain timeout has passed: closing what is left"
        );
    }
    close.fire();
    // The connections' tasks are not ours to wait for any longer: with the process they end anyhow.
    timeout(CLOSE_TIMEOUT, server).await.unwrap_or(Ok(()))
}

/// Returns when no call has been under way for a while, or the time is over. Clients that keep an idle or
/// half-open connection must not hold up the end; those that listen have read the GOAWAY by then.
async fn idle_or_late(metrics: &Metrics, limit: Duration) {
    const LOOK: Duration = Duration::from_millis(50);
    let end = tokio::time::Instant::now() + limit;
    let mut idle = Duration::ZERO;
    while idle < IDLE_ENOUGH && tokio::time::Instant::now() < end {
        tokio::time::sleep(LOOK).await;
        idle = if metrics.in_flight.get() == 0 { idle + LOOK } else { Duration::ZERO };
    }
}

fn builder(settings: &Settings) -> Server {
    let builder = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_RESETS));
    match settings.max_connection_age {
        // tonic's own grace would close without a GOAWAY; `Incoming` ends them instead.
        Some(age) => builder.max_connection_age(age),
        None => builder,
    }
}

/// Older tools ask for v1alpha only, newer ones for v1. With the messages of error details, which no call
/// names but every tool has to show.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
}
