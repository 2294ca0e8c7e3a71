//! `opledger reconcile`: what the provider says, or what a person decides.

use super::{
    Exit,
    client::{Client, ClientArgs, Failure},
    json::{self, AnswerJson},
    output, read,
};
use crate::{
    config::units,
    proto::{
        Absent, Evidence, Failure as FailureReport, Indeterminate, ReconcileRequest, ReconcileResponse,
        Success, reconcile_request::Observation,
    },
};
use clap::{ArgGroup, Args};
use std::time::Duration;

// `conflicts_with_all` below rather than `requires`: clap drops a requirement that conflicts with
// what was given.
/// Arguments of `reconcile`.
#[derive(Args)]
#[command(group = ArgGroup::new("observation").required(true).args(["succeeded", "failed", "absent", "indeterminate"]))]
pub struct ReconcileArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The operation key
    #[arg(value_name = "KEY")]
    operation_key: String,
    /// The effect happened
    #[arg(long)]
    succeeded: bool,
    /// With --succeeded: the provider's name for the effect
    #[arg(long, value_name = "ID", conflicts_with_all = ["failed", "absent", "indeterminate"])]
    external_id: Option<String>,
    /// With --succeeded: what a replay returns; nothing secret
    #[arg(long, value_name = "JSON", conflicts_with_all = ["failed", "absent", "indeterminate"])]
    result_json: Option<String>,
    /// The effect did not happen and never will, because of this error code
    #[arg(long, value_name = "CODE")]
    failed: Option<String>,
    /// With --failed: the error, for people
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["succeeded", "absent", "indeterminate"])]
    error_message: Option<String>,
    /// The provider knows of no such effect: it may be tried again, if the policy allows
    #[arg(long)]
    absent: bool,
    /// The provider could not say
    #[arg(long)]
    indeterminate: bool,
    /// With --indeterminate: when to ask again
    #[arg(long, value_name = "DURATION", value_parser = units::duration, conflicts_with_all = ["succeeded", "failed", "absent"])]
    check_after: Option<Duration>,
    /// Who or what was asked, and what was seen; kept in the history
    #[arg(long, value_name = "TEXT", default_value = "opledger reconcile")]
    reason: String,
    /// This is a person's decision, for the reason given: it settles a review and may release what
    /// absence alone may not
    #[arg(long, requires = "reason")]
    operator: bool,
    /// Only if the operation still has this version
    #[arg(long, value_name = "N")]
    if_version: Option<i64>,
}

/// Reports an observation.
pub async fn run(args: ReconcileArgs) -> Exit {
    let json = args.client.json;
    match report(args).await {
        Ok(answer) => {
            show(&answer, json);
            Exit::Ok
        }
        Err(failure) => failure.report(json),
    }
}

async fn report(args: ReconcileArgs) -> Result<ReconcileResponse, Failure> {
    let client = Client::connect(&args.client).await?;
    let request = request(args);
    client.call(request, |mut ledger, request| async move { ledger.reconcile(request).await }).await
}

fn request(args: ReconcileArgs) -> ReconcileRequest {
    let observation = if args.succeeded {
        Observation::Succeeded(Success { external_id: args.external_id, result_json: args.result_json })
    } else if let Some(error_code) = args.failed {
        Observation::Failed(FailureReport { error_code, error_message: args.error_message })
    } else if args.absent {
        Observation::Absent(Absent {})
    } else {
        let check_after = args.check_after.and_then(|after| prost_types::Duration::try_from(after).ok());
        Observation::Indeterminate(Indeterminate { check_after })
    };
    ReconcileRequest {
        namespace: args.client.namespace,
        operation_key: args.operation_key,
        lease_token: None,
        observation: Some(observation),
        evidence: Some(Evidence {
            source: args.reason,
            detail_json: None,
            // The service's clock: this machine's may be wrong.
            observe_time: None,
        }),
        operator_decision: args.operator,
        if_version: args.if_version,
    }
}

fn show(answer: &ReconcileResponse, as_json: bool) {
    if as_json {
        let whole = AnswerJson {
            applied: Some(answer.applied),
            replayed: Some(answer.replayed),
            ..AnswerJson::new(answer.operation.as_ref(), answer.next_step())
        };
        return output::line(json::text(&whole));
    }
    output::line(match (answer.replayed, answer.applied) {
        (true, _) => "already reported; nothing changed",
        (false, true) => "settled",
        (false, false) => "recorded; it does not settle the operation",
    });
    if let Some(operation) = &answer.operation {
        read::show_operation(operation, answer.next_step());
    }
}
