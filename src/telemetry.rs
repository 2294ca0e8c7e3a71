//! Logs to stderr, and the metrics that /metrics shows.

mod work;

pub use work::WorkFigures;

use crate::config::LogFormat;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{Metric, Registry},
};
use std::{
    io::IsTerminal,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tonic::Code;

/// Sends logs to stderr. Called once, before anything is logged.
pub fn init_logs(format: LogFormat, filter: &str) {
    let filter = tracing_subscriber::EnvFilter::try_new(filter).unwrap_or_else(|_| "info".into());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // Fails only where a test has set up its own; then that one stays.
    _ = match format {
        LogFormat::Text => lines.with_ansi(coloured).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}

/// The RPCs of the ledger, each with its own counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Method {
    Register,
    Claim,
    Dispatch,
    Renew,
    Complete,
    MarkUnknown,
    Reconcile,
    Get,
    List,
    ListEvents,
    Poll,
    Watch,
}

impl Method {
    /// All of them, in the order of the proto file.
    pub const ALL: [Method; 12] = [
        Method::Register,
        Method::Claim,
        Method::Dispatch,
        Method::Renew,
        Method::Complete,
        Method::MarkUnknown,
        Method::Reconcile,
        Method::Get,
        Method::List,
        Method::ListEvents,
        Method::Poll,
        Method::Watch,
    ];

    /// Its name in the proto file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Register => "Register",
            Method::Claim => "Claim",
            Method::Dispatch => "Dispatch",
            Method::Renew => "Renew",
            Method::Complete => "Complete",
            Method::MarkUnknown => "MarkUnknown",
            Method::Reconcile => "Reconcile",
            Method::Get => "Get",
            Method::List => "List",
            Method::ListEvents => "ListEvents",
            Method::Poll => "Poll",
            Method::Watch => "Watch",
        }
    }

    /// The method with this request path, if it is one of the ledger's.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        let name = path.strip_prefix("/opledger.v1.Ledger/")?;
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabel {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    code: &'static str,
}

/// Ways in which a store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// Surely nothing was changed.
    Determinate,
    /// Something may have been changed.
    Indeterminate,
    /// What is stored makes no sense.
    Corrupt,
    /// The schema is not this binary's.
    Schema,
}

/// Labels, in the order of [`StoreFailure`].
const STORE_FAILURES: [&str; 4] = ["determinate", "indeterminate", "corrupt", "schema"];
/// Labels: the new policy holds, or the old one stays.
const RELOADS: [&str; 2] = ["accepted", "refused"];

/// The counters of one method, looked up once at start: a call formats and allocates nothing.
struct CallMeters {
    duration: Histogram,
    by_code: [OnceLock<Counter>; CODES],
}

/// Status codes of gRPC: 0 to 16.
const CODES: usize = 17;

/// All metrics. Shared as an `Arc`.
pub struct Metrics {
    registry: Registry,
    requests: Family<CallLabels, Counter>,
    calls: [CallMeters; Method::ALL.len()],
    store_errors: [Counter; 4],
    policy_reloads: [Counter; 2],
    work: work::Work,
    /// Calls of the ledger under way.
    pub in_flight: Gauge,
    /// Calls refused because too many were under way.
    pub overloaded: Counter,
    /// Open connections of the gRPC listener.
    pub connections: Gauge,
    /// Commands per batch.
    pub batch_size: Histogram,
    /// Writes that found another version and were decided again.
    pub swaps_stale: Counter,
    /// Requests refused because their key belongs to another request.
    pub conflicts_refused: Counter,
    /// Reported outcomes that contradict the recorded one: a person must look.
    pub outcome_conflicts: Counter,
    /// Leases that ended without a word.
    pub lease_expiries: Counter,
}

impl Metrics {
    /// Fresh metrics, all zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::default();
        let ours = registry.sub_registry_with_prefix("opledger");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        ours.register("build", "The running program", build);
        let (requests, calls) = register_calls(ours);
        let batch_size = Histogram::new(exponential_buckets(1.0, 2.0, 10));
        ours.register("batch_size", "Commands per batch", batch_size.clone());
        let store_errors =
            register_family(ours, "store_errors", "Failures of the store", "kind", STORE_FAILURES);
        let policy_reloads =
            register_family(ours, "policy_reloads", "Times the policy was read again", "result", RELOADS);
        let work = work::Work::register(ours);
        let mut gauge = |name, help: &str| register(ours, name, help, Gauge::<i64>::default());
        let in_flight = gauge("rpc_in_flight", "Calls of the ledger under way");
        let connections = gauge("connections", "Open connections of the gRPC listener");
        let mut counter = |name, help: &str| register(ours, name, help, Counter::<u64>::default());
        Arc::new(Self {
            overloaded: counter("rpc_overloaded", "Calls refused because too many were under way"),
            swaps_stale: counter("swaps_stale", "Writes that found another version and were decided again"),
            conflicts_refused: counter(
                "conflicts_refused",
                "Requests refused: their key is another request's",
            ),
            outcome_conflicts: counter("outcome_conflicts", "Reports that contradict the recorded outcome"),
            lease_expiries: counter("lease_expiries", "Leases that ended without a word"),
            requests,
            calls,
            batch_size,
            store_errors,
            policy_reloads,
            work,
            in_flight,
            connections,
            registry,
        })
    }

    /// A call has ended.
    pub fn call_ended(&self, method: Method, code: Code, took: Duration) {
        let meters = &self.calls[method as usize];
        meters.duration.observe(took.as_secs_f64());
        let counter = meters.by_code[(code as usize).min(CODES - 1)].get_or_init(|| {
            let labels = CallLabels { method: method.as_str(), code: code_name(code) };
            self.requests.get_or_create_owned(&labels)
        });
        counter.inc();
    }

    /// The store has failed.
    pub fn store_failed(&self, kind: StoreFailure) {
        self.store_errors[kind as usize].inc();
    }

    /// The policy file was read again.
    pub fn policy_reloaded(&self, accepted: bool) {
        self.policy_reloads[usize::from(!accepted)].inc();
    }

    /// What the database says about unfinished work.
    pub fn show_work(&self, figures: &WorkFigures) {
        self.work.show(figures);
    }

    /// This replica has written an operation's outcome.
    pub fn operation_finished(&self, action_type: &Arc<str>, succeeded: bool) {
        self.work.finished(action_type, succeeded);
    }

    /// All metrics as OpenMetrics text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// A counter for each value of one label.
fn register_family<const N: usize>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    label: &'static str,
    values: [&'static str; N],
) -> [Counter; N] {
    let family =
        register(registry, name, help, Family::<[(&'static str, &'static str); 1], Counter>::default());
    values.map(|value| family.get_or_create_owned(&[(label, value)]))
}

type Calls = (Family<CallLabels, Counter>, [CallMeters; Method::ALL.len()]);

fn register_calls(registry: &mut Registry) -> Calls {
    let requests = Family::<CallLabels, Counter>::default();
    registry.register("rpc_requests", "Calls by method and status code", requests.clone());
    // From 100 µs, under which nothing durable happens, to 13 s, over which a deadline has passed.
    let durations = Family::<MethodLabel, Histogram>::new_with_constructor(|| {
        Histogram::new(exponential_buckets(0.0001, 2.0, 18))
    });
    registry.register("rpc_duration_seconds", "Time from request to answer", durations.clone());
    let calls = Method::ALL.map(|method| CallMeters {
        duration: durations.get_or_create_owned(&MethodLabel { method: method.as_str() }),
        by_code: std::array::from_fn(|_| OnceLock::new()),
    });
    (requests, calls)
}

/// A status code as gRPC spells it.
#[must_use]
pub const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_shown_under_its_name() {
        let metrics = Metrics::new();
        metrics.call_ended(Method::Register, Code::Ok, Duration::from_millis(3));
        metrics.call_ended(Method::Register, Code::AlreadyExists, Duration::from_millis(3));
        metrics.store_failed(StoreFailure::Indeterminate);
        metrics.policy_reloaded(false);
        metrics.batch_size.observe(3.0);
        let text = metrics.encode();
        for line in [
            "opledger_rpc_requests_total{method=\"Register\",code=\"OK\"} 1",
            "opledger_rpc_requests_total{method=\"Register\",code=\"ALREADY_EXISTS\"} 1",
            "opledger_rpc_duration_seconds_count{method=\"Register\"} 2",
            "opledger_rpc_in_flight 0",
            "opledger_store_errors_total{kind=\"indeterminate\"} 1",
            "opledger_policy_reloads_total{result=\"refused\"} 1",
            "opledger_batch_size_count 1",
            "opledger_lease_expiries_total 0",
            concat!("opledger_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            "# EOF",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn paths_name_methods() {
        assert_eq!(Method::of_path("/opledger.v1.Ledger/Claim"), Some(Method::Claim));
        assert_eq!(Method::of_path("/opledger.v1.Ledger/Nothing"), None);
        assert_eq!(Method::of_path("/grpc.health.v1.Health/Check"), None);
    }
}
