//! The gRPC client of the commands, and how its errors are told.

use super::{
    Exit,
    output::{self, BAD, FAINT, STRONG, styled},
};
use crate::{config::units, proto::ledger_client::LedgerClient, telemetry::code_name};
use clap::Args;
use serde::Serialize;
use std::{collections::BTreeMap, error::Error, time::Duration};
use tonic::{
    Code, Request, Response, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::{ErrorDetails, StatusExt};

/// How much longer than its deadline a call is waited for, should the server not keep it.
const DEADLINE_GRACE: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the service is.
#[derive(Args, Clone)]
pub struct ClientArgs {
    /// Where the service is
    #[arg(
        long,
        visible_alias = "server",
        env = "OPLEDGER_TARGET",
        value_name = "URL",
        default_value = "http://127.0.0.1:50051"
    )]
    target: String,
    /// The namespace; empty means "default"
    #[arg(long, env = "OPLEDGER_NAMESPACE", value_name = "NAME", default_value = "")]
    pub namespace: String,
    /// How long a call may take
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = units::duration)]
    timeout: Duration,
    /// Print JSON, in protobuf's form, instead of text
    #[arg(long)]
    pub json: bool,
}

/// A client of the ledger.
pub struct Client {
    ledger: LedgerClient<Channel>,
    timeout: Duration,
}

/// Why a command ends without what was asked for.
#[derive(Debug)]
pub enum Failure {
    /// The server said so.
    Status(Box<Status>),
    /// There is no server to ask.
    Unreachable(String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// The URL of a service; without a scheme, `http://` is meant.
pub fn url(target: &str) -> String {
    if target.contains("://") { target.to_owned() } else { format!("http://{target}") }
}

/// The service at a URL.
pub fn endpoint(url: &str) -> Result<Endpoint, Failure> {
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| unreachable(url, &error))?;
    Ok(endpoint.connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true))
}

/// There is no server to ask, because of this.
pub fn unreachable(url: &str, error: &tonic::transport::Error) -> Failure {
    Failure::Unreachable(format!("cannot reach {url}: {}", innermost(error)))
}

impl Client {
    /// Connects.
    pub async fn connect(args: &ClientArgs) -> Result<Self, Failure> {
        let url = url(&args.target);
        let endpoint = endpoint(&url)?.connect_timeout(CONNECT_TIMEOUT.min(args.timeout));
        let channel = endpoint.connect().await.map_err(|error| unreachable(&url, &error))?;
        // A page of results may be larger than the default of 4 MiB.
        let ledger = LedgerClient::new(channel).max_decoding_message_size(usize::MAX);
        Ok(Self { ledger, timeout: args.timeout })
    }

    /// Makes one call, within the deadline.
    pub async fn call<T, R, F>(
        &self,
        message: T,
        call: impl FnOnce(LedgerClient<Channel>, Request<T>) -> F,
    ) -> Result<R, Failure>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        let answer =
            tokio::time::timeout(self.timeout + DEADLINE_GRACE, call(self.ledger.clone(), request)).await;
        match answer {
            Ok(Ok(response)) => Ok(response.into_inner()),
            // tonic's own timer in this process says CANCELLED.
            Ok(Err(status)) if status.code() == Code::Cancelled && status.message() == "Timeout expired" => {
                Err(self.too_late().into())
            }
            Ok(Err(status)) => Err(status.into()),
            Err(_) => Err(self.too_late().into()),
        }
    }

    fn too_late(&self) -> Status {
        Status::deadline_exceeded(format!("no answer within {:?}", self.timeout))
    }
}

impl Failure {
    /// Prints it and says how to exit.
    pub fn report(&self, json: bool) -> Exit {
        let told = Told::of(self);
        if json {
            output::note(super::json::text(&serde_json::json!({"error": told})));
        } else {
            told.print();
        }
        match self {
            Failure::Unreachable(_) => Exit::Unavailable,
            Failure::Status(status) => match status.code() {
                Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted => Exit::Unavailable,
                Code::NotFound => Exit::NotFound,
                Code::InvalidArgument => Exit::Usage,
                _ => Exit::Failed,
            },
        }
    }
}

/// All that an error tells.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    field_violations: Vec<Violation>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
}

#[derive(Serialize)]
struct Violation {
    field: String,
    description: String,
}

impl Told {
    fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Unreachable(message) => Self {
                code: code_name(Code::Unavailable),
                reason: None,
                message: message.clone(),
                field_violations: Vec::new(),
                metadata: BTreeMap::new(),
                retry_after_seconds: None,
                remedy: Some("is `opledger serve` running? --target or OPLEDGER_TARGET names its address"),
            },
            Failure::Status(status) => Self::of_status(status, &status.get_error_details()),
        }
    }

    fn of_status(status: &Status, details: &ErrorDetails) -> Self {
        let info = details.error_info();
        let reason = info.map(|info| info.reason.clone());
        let violations = details.bad_request().map(|bad| bad.field_violations.clone()).unwrap_or_default();
        let remedy = remedy(status.code(), reason.as_deref());
        Self {
            code: code_name(status.code()),
            reason,
            message: status.message().to_owned(),
            field_violations: violations
                .into_iter()
                .map(|violation| Violation { field: violation.field, description: violation.description })
                .collect(),
            metadata: info.map(|info| info.metadata.clone().into_iter().collect()).unwrap_or_default(),
            retry_after_seconds: details.retry_info().and_then(|info| Some(info.retry_delay?.as_secs_f64())),
            remedy,
        }
    }

    fn print(&self) {
        let reason = self.reason.as_ref().map_or(String::new(), |reason| format!(" {reason}"));
        let head = styled(BAD.bold(), format!("{}{reason}", self.code));
        output::note(format!("{head}: {}", output::harmless(&self.message)));
        for violation in &self.field_violations {
            let field = styled(STRONG, output::harmless(&violation.field));
            output::note(format!("  {field} {}", output::harmless(&violation.description)));
        }
        for (name, value) in &self.metadata {
            let text = output::harmless(&format!("{name}: {value}"));
            output::note(format!("  {}", styled(FAINT, text)));
        }
        if let Some(seconds) = self.retry_after_seconds {
            output::note(format!("  try again in {seconds} s"));
        }
        if let Some(remedy) = self.remedy {
            output::note(format!("  {} {remedy}", styled(STRONG, "→")));
        }
    }
}

/// What to do about it.
fn remedy(code: Code, reason: Option<&str>) -> Option<&'static str> {
    Some(match (code, reason) {
        (_, Some("OPERATION_NOT_FOUND")) => {
            "check the key and --namespace; `opledger list` shows what there is"
        }
        (_, Some("REQUEST_HASH_MISMATCH")) => {
            "the key belongs to another request: a new intention needs a new operation key"
        }
        (_, Some("LEASE_LOST")) => {
            "another holds, or has held, the permission to act: look with `opledger get`"
        }
        (_, Some("OUTCOME_CONFLICT")) => {
            "another outcome is recorded; the report was kept and the operation marked for review"
        }
        (_, Some("ALREADY_TERMINAL")) => "the operation is finished: `opledger get` shows its outcome",
        (_, Some("VERSION_MISMATCH")) => {
            "it has changed meanwhile: look again with `opledger get`, then decide"
        }
        (_, Some("STORE_UNAVAILABLE")) => {
            "the service cannot reach its database; repeating the command is safe"
        }
        (Code::ResourceExhausted, _) => "the service is busy; repeating the command is safe",
        (Code::Unavailable | Code::DeadlineExceeded, _) => "repeating the command is safe",
        (Code::Unimplemented, _) => "this server does not have that call: is it an older one?",
        _ => return None,
    })
}

/// The cause that says something: the outer layers only say "transport error".
fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Runs a command that only talks.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => {
            output::error(format!("cannot start: {error}"));
            std::process::exit(Exit::Failed as i32)
        }
    }
}
