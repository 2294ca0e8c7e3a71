//! Goal: what stands around the ledger keeps its promises to real gRPC clients: deadlines, overload,
//! panics, unreadable messages, health, reflection, and an end that comes.
//!
//! Method: the real server in this process, on a free port, with a ledger that only pretends:
//! `operation_key` says how it behaves.

use opledger::{
    grpc::{self, Settings, calls::Deadline},
    health::{Health, Readiness},
    proto::{self, ledger_client::LedgerClient, ledger_server::Ledger},
    shutdown::{self, Trigger},
    telemetry::Metrics,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::AsyncWriteExt, net::TcpListener, net::TcpStream, sync::Notify, task::JoinHandle, time::timeout,
};
use tonic::{Code, Request, Response, Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;

/// `echo` answers, `block` waits for `release`, `panic` panics, `fail` is INTERNAL.
#[derive(Clone, Default)]
struct Pretender {
    begun: Arc<AtomicUsize>,
    release: Arc<Notify>,
}

macro_rules! unimplemented_calls {
    ($($name:ident $request:ident $response:ident,)*) => {
        #[tonic::async_trait]
        impl Ledger for Pretender {
            type WatchStream = tokio_stream::Pending<Result<proto::WatchResponse, Status>>;

            async fn register(
                &self,
                request: Request<proto::RegisterRequest>,
            ) -> Result<Response<proto::RegisterResponse>, Status> {
                self.behave(request).await
            }

            async fn watch(&self, _: Request<proto::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
                Ok(Response::new(tokio_stream::pending()))
            }

            $(async fn $name(&self, _: Request<proto::$request>) -> Result<Response<proto::$response>, Status> {
                Err(Status::unimplemented("not in this test"))
            })*
        }
    };
}

unimplemented_calls! {
    claim ClaimRequest ClaimResponse,
    dispatch DispatchRequest DispatchResponse,
    renew RenewRequest RenewResponse,
    complete CompleteRequest CompleteResponse,
    mark_unknown MarkUnknownRequest MarkUnknownResponse,
    reconcile ReconcileRequest ReconcileResponse,
    get GetRequest GetResponse,
    list ListRequest ListResponse,
    list_events ListEventsRequest ListEventsResponse,
    poll PollRequest PollResponse,
}

impl Pretender {
    async fn behave(
        &self,
        request: Request<proto::RegisterRequest>,
    ) -> Result<Response<proto::RegisterResponse>, Status> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let has_deadline = request.extensions().get::<Deadline>().is_some();
        match request.get_ref().operation_key.as_str() {
            "block" => self.release.notified().await,
            "panic" => panic!("as the test wants it"),
            "fail" => return Err(Status::internal("something broke")),
            _ => {}
        }
        Ok(Response::new(proto::RegisterResponse {
            created: has_deadline,
            ..proto::RegisterResponse::default()
        }))
    }
}

struct Server {
    address: SocketAddr,
    pretender: Pretender,
    metrics: Arc<Metrics>,
    health: Health,
    trigger: Trigger,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Server {
    async fn start(settings: Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (trigger, shutdown) = shutdown::channel();
        let (metrics, health, pretender) = (Metrics::new(), Health::new(), Pretender::default());
        health.set(Readiness::Ready);
        let served =
            grpc::serve(listener, pretender.clone(), settings, metrics.clone(), health.clone(), shutdown);
        Self { address, pretender, metrics, health, trigger, task: tokio::spawn(served) }
    }

    async fn channel(&self) -> Channel {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect().await.unwrap()
    }

    async fn client(&self) -> LedgerClient<Channel> {
        LedgerClient::new(self.channel().await)
    }

    /// A call that is begun and stays so.
    async fn blocked(&self) -> JoinHandle<Result<Response<proto::RegisterResponse>, Status>> {
        let mut client = self.client().await;
        let before = self.pretender.begun.load(Ordering::SeqCst);
        let call = tokio::spawn(async move { client.register(register("block")).await });
        while self.pretender.begun.load(Ordering::SeqCst) == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        call
    }

    /// Must end within the limit, without an error.
    async fn ends_within(self, limit: Duration) -> Duration {
        let begun = Instant::now();
        self.trigger.fire();
        timeout(limit, self.task).await.expect("the server ends").expect("no panic").expect("no error");
        begun.elapsed()
    }
}

fn register(operation_key: &str) -> proto::RegisterRequest {
    proto::RegisterRequest { operation_key: operation_key.into(), ..proto::RegisterRequest::default() }
}

#[tokio::test]
async fn a_deadline_that_passes_is_deadline_exceeded_and_not_cancelled() {
    let server = Server::start(Settings::default()).await;
    for (header, millis) in [("150m", 150), ("30000u", 30), ("7m", 7), ("1m", 1), ("0m", 0)] {
        let begun = Instant::now();
        assert_eq!(status_sent(server.address, header).await, "4", "{header}");
        let took = begun.elapsed();
        assert!(took + Duration::from_millis(4) >= Duration::from_millis(millis), "{header}: {took:?}");
        assert!(took < Duration::from_millis(millis + 1000), "{header}: {took:?}");
    }
    assert_eq!(server.metrics.in_flight.get(), 0);
    let expected = "opledger_rpc_requests_total{method=\"Register\",code=\"DEADLINE_EXCEEDED\"} 5";
    assert!(server.metrics.encode().contains(expected));
}

/// The `grpc-status` that comes over the wire for a call that blocks. By h2 alone: tonic's client has
/// a timer of its own, which would hide it.
async fn status_sent(address: SocketAddr, grpc_timeout: &str) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{address}/opledger.v1.Ledger/Register"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", grpc_timeout)
        .body(())
        .unwrap();
    let (response, mut body) = client.ready().await.unwrap().send_request(request, false).unwrap();
    let message = prost::Message::encode_to_vec(&register("block"));
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&message);
    body.send_data(frame.into(), true).unwrap();
    let response = response.await.unwrap();
    response.headers()["grpc-status"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_call_that_comes_in_too_late_is_not_begun() {
    let server = Server::start(Settings::default()).await;
    let mut client = server.client().await;
    let mut request = Request::new(register("echo"));
    request.metadata_mut().insert("grpc-timeout", "0n".parse().unwrap());
    _ = client.register(request).await.err().expect("too late");
    assert_eq!(server.pretender.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_deadline_is_told_to_the_ledger() {
    let server = Server::start(Settings::default()).await;
    let mut client = server.client().await;
    assert!(!client.register(register("echo")).await.unwrap().into_inner().created);
    let mut request = Request::new(register("echo"));
    request.set_timeout(Duration::from_secs(5));
    assert!(client.register(request).await.unwrap().into_inner().created);
}

#[tokio::test]
async fn too_many_calls_are_refused_with_a_delay_and_health_is_not_counted() {
    let server = Server::start(Settings { max_in_flight: 2, ..Settings::default() }).await;
    let calls = [server.blocked().await, server.blocked().await];
    assert_eq!(server.metrics.in_flight.get(), 2);

    let status = server.client().await.register(register("echo")).await.err().expect("refused");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let details = status.get_error_details();
    let info = details.error_info().expect("an ErrorInfo");
    assert_eq!((info.domain.as_str(), info.reason.as_str()), ("opledger", "OVERLOADED"));
    assert!(details.retry_info().expect("a RetryInfo").retry_delay > Some(Duration::ZERO));
    assert_eq!(server.pretender.begun.load(Ordering::SeqCst), 2, "what is refused is not begun");

    let mut health = HealthClient::new(server.channel().await);
    assert_eq!(health.check(HealthCheckRequest::default()).await.unwrap().into_inner().status, 1);

    server.pretender.release.notify_waiters();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(server.metrics.in_flight.get(), 0);
    server.client().await.register(register("echo")).await.expect("there is room again");
}

#[tokio::test]
async fn a_call_that_is_given_up_makes_room() {
    let server = Server::start(Settings { max_in_flight: 1, ..Settings::default() }).await;
    let call = server.blocked().await;
    call.abort();
    let mut client = server.client().await;
    let made = timeout(Duration::from_secs(5), async {
        while client.register(register("echo")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    made.await.expect("room");
    assert!(server.metrics.encode().contains("code=\"CANCELLED\"} 1"));
}

#[tokio::test]
async fn a_panic_is_internal_and_takes_nothing_with_it() {
    let server = Server::start(Settings::default()).await;
    let mut client = server.client().await;
    let mut neighbour = client.clone();
    let call = tokio::spawn(async move { neighbour.register(register("block")).await });
    while server.pretender.begun.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let status = client.register(register("panic")).await.err().expect("it panicked");
    assert_eq!(status.code(), Code::Internal);
    assert!(!status.message().contains("as the test wants it"));
    server.pretender.release.notify_waiters();
    call.await.unwrap().expect("the neighbour on the same connection is answered");
    assert_eq!(server.metrics.in_flight.get(), 0);
}

#[tokio::test]
async fn messages_up_to_the_limit_are_read_and_larger_ones_are_explained() {
    let limit = 64 * 1024;
    let server = Server::start(Settings { max_message_bytes: limit, ..Settings::default() }).await;
    let mut client = server.client().await;
    // A field of this length costs four bytes more: one for its tag, three for its length.
    client.register(register(&"k".repeat(limit - 4))).await.expect("just below");
    let status = client.register(register(&"k".repeat(limit - 3))).await.err().expect("just above");
    assert_eq!(status.code(), Code::OutOfRange);
    assert!(status.message().contains("65537") && status.message().contains("65536"), "{}", status.message());
    assert_eq!(status.get_error_details().error_info().expect("an ErrorInfo").reason, "MESSAGE_TOO_LARGE");
    client.register(register("echo")).await.expect("the connection goes on");
}

/// A message with the same field numbers, but bytes instead of text.
#[derive(Clone, PartialEq, prost::Message)]
struct RawRegister {
    #[prost(bytes = "vec", tag = "2")]
    operation_key: Vec<u8>,
}

#[tokio::test]
async fn text_that_is_no_utf_8_is_the_callers_fault() {
    let server = Server::start(Settings::default()).await;
    let mut grpc = tonic::client::Grpc::new(server.channel().await);
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/opledger.v1.Ledger/Register");
    let codec = tonic_prost::ProstCodec::<RawRegister, proto::RegisterResponse>::default();
    let message = RawRegister { operation_key: vec![0xff, 0xfe] };
    let status = grpc.unary(Request::new(message), path, codec).await.err().expect("refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let details = status.get_error_details();
    assert_eq!(details.error_info().expect("an ErrorInfo").reason, "INVALID_FIELD");
    assert_eq!(details.bad_request().expect("a BadRequest").field_violations[0].field, "operation_key");
}

#[tokio::test]
async fn health_follows_and_its_stream_ends_with_the_drain() {
    let server = Server::start(Settings::default()).await;
    let mut client = HealthClient::new(server.channel().await);
    for (service, expected) in [("", Ok(1)), ("opledger.v1.Ledger", Ok(1)), ("other", Err(Code::NotFound))] {
        let request = HealthCheckRequest { service: service.into() };
        let status = client
            .check(request)
            .await
            .map(|answer| answer.into_inner().status)
            .map_err(|status| status.code());
        assert_eq!(status, expected, "{service}");
    }
    let mut stream = client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().status, 1);
    server.health.set(Readiness::StoreAway("gone".into()));
    assert_eq!(stream.message().await.unwrap().unwrap().status, 2);
    server.health.set(Readiness::Ready);
    assert_eq!(stream.message().await.unwrap().unwrap().status, 1);
    server.trigger.fire();
    assert_eq!(stream.message().await.unwrap().unwrap().status, 2);
    assert!(stream.message().await.unwrap().is_none(), "the stream ends");
}

#[tokio::test]
async fn reflection_answers_in_both_versions() {
    let server = Server::start(Settings::default()).await;
    for version in ["v1", "v1alpha"] {
        // `list_services: ""`, field 7, by hand: the client's stubs are not generated.
        let services = reflect(&server, version).await;
        for name in ["opledger.v1.Ledger", "grpc.health.v1.Health"] {
            assert!(services.contains(name), "{version}: {name} is missing in {services}");
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReflectionRequest {
    #[prost(string, optional, tag = "7")]
    list_services: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReflectionResponse {
    #[prost(bytes = "vec", tag = "6")]
    list_services_response: Vec<u8>,
}

async fn reflect(server: &Server, version: &str) -> String {
    let mut grpc = tonic::client::Grpc::new(server.channel().await);
    grpc.ready().await.unwrap();
    let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo").parse().unwrap();
    let codec = tonic_prost::ProstCodec::<ReflectionRequest, ReflectionResponse>::default();
    let request = tokio_stream::once(ReflectionRequest { list_services: Some(String::new()) });
    let mut answers = grpc.streaming(Request::new(request), path, codec).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    String::from_utf8_lossy(&answer.list_services_response).into_owned()
}

#[tokio::test]
async fn the_drain_lets_calls_finish_and_takes_no_new_connections() {
    let server = Server::start(Settings::default()).await;
    let call = server.blocked().await;
    server.trigger.fire();
    let refused = timeout(Duration::from_secs(5), async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    refused.await.expect("new connections are refused");
    assert_eq!(server.health.readiness(), Readiness::Draining);
    assert!(!server.task.is_finished(), "it waits for the call");
    server.pretender.release.notify_waiters();
    call.await.unwrap().expect("the call is answered");
    server.ends_within(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn idle_connections_and_watched_health_do_not_hold_the_drain_up() {
    let server = Server::start(Settings::default()).await;
    let mut idle = server.client().await;
    idle.register(register("echo")).await.unwrap();
    let mut watcher = HealthClient::new(server.channel().await);
    let mut stream = watcher.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    let took = server.ends_within(Duration::from_secs(5)).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn stuck_calls_open_streams_and_half_open_connections_end_with_the_drain_timeout() {
    let server =
        Server::start(Settings { drain_timeout: Duration::from_millis(300), ..Settings::default() }).await;
    // One that never says a word, one that stops after the preface, a call without end, a stream
    // without end.
    let silent = TcpStream::connect(server.address).await.unwrap();
    let mut half_open = TcpStream::connect(server.address).await.unwrap();
    half_open.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let call = server.blocked().await;
    let mut watcher = server.client().await;
    let mut stream = watcher.watch(proto::WatchRequest::default()).await.unwrap().into_inner();
    let metrics = server.metrics.clone();
    let took = server.ends_within(Duration::from_secs(5)).await;
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(2), "{took:?}");
    assert!(call.await.unwrap().is_err(), "the call is cut");
    assert!(timeout(Duration::from_secs(1), stream.message()).await.expect("the stream ends").is_err());
    assert_eq!((metrics.in_flight.get(), metrics.connections.get()), (0, 0));
    drop((silent, half_open));
}

#[tokio::test]
async fn a_peer_that_does_not_read_cannot_hold_the_end_up() {
    let server =
        Server::start(Settings { drain_timeout: Duration::from_millis(200), ..Settings::default() }).await;
    let mut peer = TcpStream::connect(server.address).await.unwrap();
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    // Pings whose answers nobody reads, until neither side can write.
    let ping = b"\0\0\x08\x06\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08".repeat(4096);
    while timeout(Duration::from_millis(200), peer.write_all(&ping)).await.is_ok() {}
    let metrics = server.metrics.clone();
    server.ends_within(Duration::from_secs(5)).await;
    assert_eq!(metrics.connections.get(), 0);
}

#[tokio::test]
async fn old_connections_are_asked_to_reconnect() {
    let server = Server::start(Settings {
        max_connection_age: Some(Duration::from_millis(200)),
        ..Settings::default()
    })
    .await;
    let mut client = server.client().await;
    for _ in 0..10 {
        client.register(register("echo")).await.expect("the client reconnects by itself");
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    assert!(server.metrics.connections.get() <= 1);
    assert!(server.metrics.encode().contains("code=\"OK\"} 10"));
}
