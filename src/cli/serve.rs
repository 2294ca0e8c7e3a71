//! `opledger serve`

use super::{
    Exit,
    output::{self, STRONG, styled},
    settings::ServeArgs,
};
use crate::{
    admin,
    config::Config,
    engine::{self, Engine},
    figures,
    grpc::{self, LedgerService},
    health::{self, Health, Readiness},
    policy_file::{self, Policies},
    shutdown::{self, Shutdown},
    store::{self, Store},
    telemetry::{self, Metrics},
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{net::TcpListener, time::timeout};

/// Shown below the help.
pub const AFTER_HELP: &str = "\
Each setting can also stand in the environment (OPLEDGER_…) or in a file (--config); flags win over \
the environment, the environment wins over the file.

Exit codes: 0 stopped by a signal and drained, 1 cannot start or serve, 2 wrong configuration, \
130 a second signal cut the drain short";

/// After the drain the engine has nothing left to do, unless the store hangs: then waiting does not help.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// For threads that are busy with files.
const THREADS_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs the service until a signal.
pub fn run(args: &ServeArgs) -> Exit {
    let config = match args.config() {
        Ok(config) => config,
        Err(faults) => {
            faults.0.iter().for_each(output::error);
            return Exit::Usage;
        }
    };
    telemetry::init_logs(config.log_format, &config.log_level);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::error(format!("cannot start threads: {error}"));
            return Exit::Failed;
        }
    };
    let served = runtime.block_on(serve(&config));
    // Connections and files that hang must not keep the process from ending.
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    match served {
        Ok(()) => Exit::Ok,
        Err(why) => {
            output::error(why);
            Exit::Failed
        }
    }
}

/// Everything that must be there before the first call is taken.
struct Parts {
    store: Arc<dyn Store>,
    policies: Policies,
    listener: TcpListener,
    admin: Option<TcpListener>,
}

async fn serve(config: &Config) -> Result<(), String> {
    let (trigger, shutdown) = shutdown::channel();
    shutdown::on_signals(trigger).map_err(|error| format!("cannot listen for signals: {error}"))?;
    let parts = tokio::select! {
        parts = prepare(config) => parts?,
        // A database that does not answer must not keep the process from being stopped.
        () = shutdown.clone().wait() => return Ok(()),
    };
    let local = |listener: &TcpListener| listener.local_addr().map_err(|error| error.to_string());
    let address = local(&parts.listener)?;
    let admin_address = parts.admin.as_ref().map(local).transpose()?;

    let metrics = Metrics::new();
    let health = Health::new();
    health.set(Readiness::Ready);
    let settings = engine::Settings {
        shards: shards(config),
        queue_max: config.max_in_flight,
        sweep_interval: config.sweep_interval,
        retention_batch: config.retention_batch,
        ..engine::Settings::default()
    };
    let engine = Engine::start(parts.store.clone(), parts.policies.clone(), settings, metrics.clone());
    if let Some(interval) = config.figures_interval {
        let (store, metrics) = (parts.store.clone(), metrics.clone());
        tokio::spawn(figures::run(store, metrics, health.clone(), interval, shutdown.clone()));
    }
    tokio::spawn(health::monitor(parts.store, health.clone(), shutdown.clone()));
    tokio::spawn({
        let (engine, shutdown) = (engine.clone(), shutdown.clone());
        async move {
            shutdown.wait().await;
            engine.drain();
        }
    });
    let counted = metrics.clone();
    tokio::spawn(parts.policies.clone().on_reload(move |taken| counted.policy_reloaded(taken)));
    tokio::spawn(parts.policies.watch(policy_file::reload::INTERVAL, shutdown.clone().wait()));
    if let Some(listener) = parts.admin {
        let served = admin::serve(listener, health.clone(), metrics.clone());
        tokio::spawn(async {
            if let Err(error) = served.await {
                tracing::error!(%error, "the admin listener has stopped");
            }
        });
    }
    announce(config, address, admin_address);
    let served = serve_grpc(config, parts.listener, &engine, metrics, health, shutdown).await;
    if timeout(STOP_TIMEOUT, engine.stop()).await.is_err() {
        tracing::warn!("work was still queued when the time to stop was over; none of it was acknowledged");
    }
    tracing::info!("stopped");
    served
}

/// One batch loop for each connection that writes.
fn shards(config: &Config) -> usize {
    match store::Backend::of(config.database_url.expose()) {
        Ok(store::Backend::Postgres) => config.store_connections as usize,
        // SQLite has one writer: more loops would only wait for each other.
        _ => 1,
    }
}

async fn serve_grpc(
    config: &Config,
    listener: TcpListener,
    engine: &Engine,
    metrics: Arc<Metrics>,
    health: Health,
    shutdown: Shutdown,
) -> Result<(), String> {
    let settings = grpc::Settings {
        drain_timeout: config.drain_timeout,
        max_message_bytes: config.max_message_bytes,
        max_in_flight: config.max_in_flight,
        max_connection_age: config.max_connection_age,
    };
    let ledger = LedgerService::new(engine.clone());
    grpc::serve(listener, ledger, settings, metrics, health, shutdown)
        .await
        .map_err(|error| format!("cannot serve: {error}"))
}

async fn prepare(config: &Config) -> Result<Parts, String> {
    let policies =
        Policies::load(config.policy.clone()).map_err(|error| format!("the policy is not valid: {error}"))?;
    let url = config.database_url.expose();
    let named = &config.database_url;
    if !config.no_migrate {
        store::migrate::migrate(url)
            .await
            .map_err(|error| format!("cannot bring the schema of {named} up to date: {error}"))?;
    }
    let settings = store::Settings { connections: config.store_connections, ..store::Settings::default() };
    let store = store::open(url, &settings).await.map_err(|error| format!("cannot open {named}: {error}"))?;
    store.check().await.map_err(|error| {
        let remedy =
            if config.no_migrate { "\nrun `opledger migrate` first, or leave out --no-migrate" } else { "" };
        format!("cannot use {named}: {error}{remedy}")
    })?;
    let listener = bind("listen", config.listen).await?;
    let admin = match config.admin_listen {
        Some(address) => Some(bind("admin-listen", address).await?),
        None => None,
    };
    Ok(Parts { store, policies, listener, admin })
}

async fn bind(name: &str, address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| {
        format!("cannot listen on {address}: {error}\nchoose another address with --{name}, or stop what uses this one")
    })
}

/// At most five lines: what a person needs to go on.
fn announce(config: &Config, address: SocketAddr, admin: Option<SocketAddr>) {
    let shown = if address.ip().is_unspecified() {
        SocketAddr::from(([127, 0, 0, 1], address.port()))
    } else {
        address
    };
    let policy =
        config.policy.as_ref().map_or("defaults for every action".into(), |path| path.display().to_string());
    let admin = admin.map_or("off".into(), |address| format!("http://{address}/readyz, /livez, /metrics"));
    let head = |text: &str| styled(STRONG, format!("{text:<8}"));
    let insecure = if config.insecure { " (insecure: no TLS, no authentication)" } else { "" };
    output::line(format!("{} grpc://{address}{insecure}", head("opledger")));
    output::line(format!("{} {}", head("store"), config.database_url));
    output::line(format!("{} {policy}", head("policy")));
    output::line(format!("{} {admin}", head("admin")));
    let request = r#"{"operation_key":"order-7/payment","action_type":"create_payment","payload_json":"{\"amount\":\"49.90\"}"}"#;
    output::line(format!(
        "{} grpcurl -plaintext -d '{request}' {shown} opledger.v1.Ledger/Register",
        head("try")
    ));
}
