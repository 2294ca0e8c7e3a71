//! `opledger demo`: the story of a lost answer, played on a temporary ledger by a real server and a
//! real client, with a provider that only pretends.

use super::{Exit, output};
use crate::{
    engine::{self, Engine},
    grpc::{self, LedgerService},
    health::{Health, Readiness},
    policy_file::Policies,
    proto::ledger_client::LedgerClient,
    shutdown::{self, Trigger},
    store,
    telemetry::Metrics,
};
use clap::Args;
use std::{net::SocketAddr, path::PathBuf, time::Duration};
use tokio::{net::TcpListener, task::JoinHandle};
use tonic::transport::{Channel, Endpoint};

mod provider;
mod story;
mod teller;

/// Arguments of `demo`.
#[derive(Args)]
pub struct DemoArgs {
    /// Without pauses
    #[arg(long)]
    fast: bool,
    /// Print one JSON document instead of the story
    #[arg(long)]
    json: bool,
}

/// Plays the story. Fails where anything differs from it.
pub async fn run(args: DemoArgs) -> Exit {
    let paused = output::is_terminal() && !args.fast && !args.json;
    let pause = if paused { Duration::from_millis(900) } else { Duration::ZERO };
    let mut teller = teller::Teller::new(args.json, pause);
    let told = play(&mut teller).await;
    teller.close(&told);
    match told {
        Ok(()) => Exit::Ok,
        Err(why) => {
            output::error(format!("the story went another way: {why}"));
            Exit::Failed
        }
    }
}

async fn play(teller: &mut teller::Teller) -> Result<(), String> {
    let stage = Stage::set().await?;
    let provider = provider::Provider::default();
    teller
        .opening(&format!(
            "A fresh ledger in {}, served on {}; a payment provider that only pretends.",
            stage.folder.0.display(),
            stage.address
        ))
        .await;
    let told = story::tell(stage.client().await?, &provider, teller).await;
    stage.clear().await;
    told
}

/// A folder that goes when the demo goes.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("opledger-demo-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&path).map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in the temporary folder harms nobody.
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server of its own.
struct Stage {
    folder: Folder,
    address: SocketAddr,
    engine: Engine,
    trigger: Trigger,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Stage {
    async fn set() -> Result<Self, String> {
        let folder = Folder::new()?;
        let url = format!("sqlite://{}", folder.0.join("demo.db").display());
        store::migrate::migrate(&url).await.map_err(|error| error.to_string())?;
        let store =
            store::open(&url, &store::Settings::default()).await.map_err(|error| error.to_string())?;
        let policies = Policies::load(None).map_err(|error| error.to_string())?;
        let metrics = Metrics::new();
        let engine = Engine::start(store, policies, engine::Settings::default(), metrics.clone());

        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let (trigger, shutdown) = shutdown::channel();
        let health = Health::new();
        health.set(Readiness::Ready);
        let settings = grpc::Settings { drain_timeout: Duration::from_secs(1), ..grpc::Settings::default() };
        let ledger = LedgerService::new(engine.clone());
        let server = tokio::spawn(grpc::serve(listener, ledger, settings, metrics, health, shutdown));
        Ok(Self { folder, address, engine, trigger, server })
    }

    async fn client(&self) -> Result<LedgerClient<Channel>, String> {
        let endpoint =
            Endpoint::from_shared(format!("http://{}", self.address)).map_err(|error| error.to_string())?;
        let channel = endpoint
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(10))
            .connect()
            .await
            .map_err(|error| error.to_string())?;
        Ok(LedgerClient::new(channel))
    }

    async fn clear(self) {
        self.trigger.fire();
        // The story is told; how the server ends is tested elsewhere.
        _ = self.server.await;
        self.engine.stop().await;
    }
}
