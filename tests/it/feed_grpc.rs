//! Goal: the change feed as a client gets it: soon, and without the server piling up what is not taken.
//! Method: a server in this process, its client, and the engines behind it. Latencies are printed.

use crate::{
    crew::{act, begin, engine, engine_with, key, soon, succeed, until},
    harness::on_each_store,
};
use opledger::{
    engine::{
        Engine, Settings,
        feed::{Limits, Sent, Watch},
    },
    grpc::{self, LedgerService},
    health::Health,
    ledger::{Action, command::MarkUnknown},
    proto::{self, ledger_client::LedgerClient, watch_response::Message},
    shutdown::{self, Trigger},
    store::Backend,
    telemetry::Metrics,
};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt;

/// A server on this engine, and a client that takes 64 KiB ahead at most.
async fn served(engine: &Engine) -> (LedgerClient<Channel>, Trigger) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (trigger, shutdown) = shutdown::channel();
    let settings = grpc::Settings { drain_timeout: Duration::from_secs(1), ..Default::default() };
    let service = LedgerService::new(engine.clone());
    tokio::spawn(grpc::serve(listener, service, settings, Metrics::new(), Health::new(), shutdown));
    let endpoint = Endpoint::from_shared(address).unwrap();
    let endpoint = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    (LedgerClient::new(endpoint.connect().await.unwrap()), trigger)
}

/// An operation whose history has a long text.
async fn write_long(engine: &Engine, name: &str) {
    let token = begin(engine, &key(name)).await;
    let mark = MarkUnknown {
        token,
        error_code: "timeout".into(),
        error_message: Some("x".repeat(1000)),
        external_id: None,
    };
    act(engine, &key(name), Action::MarkUnknown(mark)).await.unwrap();
}

#[test]
fn a_client_that_does_not_read_is_ended_and_costs_little() {
    on_each_store(|_, store| async move {
        let limits = Limits { patience: Duration::from_millis(500), ..Limits::default() };
        let engine = engine_with(store, Settings { feed: limits, ..Settings::default() });
        let (mut client, trigger) = served(&engine).await;
        let request = proto::WatchRequest::default();
        let mut stream = client.watch(request.clone()).await.unwrap().into_inner();
        let first = stream.message().await.unwrap().unwrap();
        assert_eq!(first.message, Some(Message::HeartbeatSequence(0)));
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..800 {
            let engine = engine.clone();
            writes.spawn(async move { write_long(&engine, &format!("k{n}")).await });
        }
        writes.join_all().await;
        // The client has read nothing of it. The end waits behind what is on its way.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let mut last = 0;
        let mut count = 0;
        let status = loop {
            match soon("the end", stream.message()).await {
                Ok(Some(response)) => {
                    if let Some(Message::Event(event)) = response.message {
                        last = event.sequence;
                        count += 1;
                    }
                }
                Ok(None) => panic!("ended without a reason"),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        let details = status.get_error_details();
        let info = details.error_info().expect("a reason");
        assert_eq!(info.reason, "WATCH_TOO_SLOW");
        assert_eq!(info.metadata["resumeSequence"], last.to_string(), "all before it came through");
        println!("{count} of 2400 events were under way");
        assert!(count < 2400);
        let request = proto::WatchRequest { after_sequence: last, ..request };
        let mut rest = client.watch(request).await.unwrap().into_inner();
        while count < 2400 {
            let response = soon("the rest", rest.message()).await.unwrap().unwrap();
            count += i32::from(matches!(response.message, Some(Message::Event(_))));
        }
        drop(rest);
        trigger.fire();
        engine.stop().await;
    });
}

#[test]
fn changes_are_seen_soon_on_every_replica() {
    on_each_store(|database, store| async move {
        let (here, there) = (engine(store), engine(database.open().await));
        if database.backend == Backend::Postgres {
            until("word from the other replica", || async {
                here.hears_replicas() && there.hears_replicas()
            })
            .await;
        }
        for (name, watcher) in [("the same replica", &here), ("another replica", &there)] {
            let watch = Watch {
                namespace: "default".into(),
                operation_key: None,
                after: 0,
                action_types: Vec::new(),
            };
            let mut watching = watcher.watch(watch).await.unwrap();
            while !matches!(soon("caught up", watching.sent.recv()).await, Some(Sent::CaughtUp(_))) {}
            let mut took = Vec::new();
            for n in 0..21 {
                let key = key(&format!("{name} {n}"));
                let token = begin(&here, &key).await;
                act(&here, &key, succeed(token)).await.unwrap();
                let since = Instant::now();
                let mut is_there = false;
                while !is_there {
                    let sent = soon("the event", watching.sent.recv()).await.unwrap();
                    is_there = matches!(&sent, Sent::Event(event) if event.stored.event.version == 3);
                }
                took.push(since.elapsed());
            }
            took.sort();
            println!(
                "{:?}, {name}: seen after {:?} (median), {:?} (worst)",
                database.backend, took[10], took[20]
            );
            assert!(took[10] < Duration::from_millis(1500), "{took:?}");
        }
        for engine in [here, there] {
            engine.stop().await;
        }
    });
}
