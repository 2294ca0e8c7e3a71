//! `opledger get`, `list` and `history`: the same calls that any client makes.

use super::{
    Exit,
    client::{Client, ClientArgs, Failure},
    json::{self, AnswerJson, EventJson, OperationJson},
    output, table,
};
use crate::proto::{
    Event, EventType, GetRequest, GetResponse, ListEventsRequest, ListRequest, NextStep, Operation,
    OperationStatus, get_request::Id,
};
use clap::Args;
use prost_types::Timestamp;
use std::collections::HashMap;

pub mod detail;

/// Operations asked for at a time.
const PAGE: usize = 500;

/// Arguments of `get`.
#[derive(Args)]
pub struct GetArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The operation key
    #[arg(required_unless_present = "id", conflicts_with = "id", value_name = "KEY")]
    operation_key: Option<String>,
    /// The operation id (the UUID that Register gave)
    #[arg(long, value_name = "UUID")]
    id: Option<String>,
}

/// Arguments of `list`. Several values of one filter: any of them.
#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// With this status: pending, in_progress, unknown, succeeded, failed_final
    #[arg(long, value_name = "STATUS", value_parser = status, value_delimiter = ',')]
    status: Vec<OperationStatus>,
    /// Of this action type
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    action: Vec<String>,
    /// Only those that a person must decide
    #[arg(long)]
    review: bool,
    /// With this label; several: all of them
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    /// Parts of this operation
    #[arg(long, value_name = "KEY")]
    parent: Option<String>,
    /// Last changed before this time (RFC 3339, such as 2026-01-31T08:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = time)]
    updated_before: Option<Timestamp>,
    /// Last changed at or after this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    updated_after: Option<Timestamp>,
    /// At most so many; 0: all
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// Arguments of `history`.
#[derive(Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The operation key
    #[arg(value_name = "KEY")]
    operation_key: String,
}

fn status(text: &str) -> Result<OperationStatus, String> {
    let name = format!("OPERATION_STATUS_{}", text.to_ascii_uppercase());
    OperationStatus::from_str_name(&name)
        .filter(|status| *status != OperationStatus::Unspecified)
        .ok_or_else(|| "use pending, in_progress, unknown, succeeded or failed_final".into())
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.into(), value.into()))
}

fn time(text: &str) -> Result<Timestamp, String> {
    // prost also reads a date alone and a time without zone; which zone is meant must be said.
    let zoned =
        text.contains(['T', 't', ' ']) && (text.ends_with(['Z', 'z']) || text.rfind(['+', '-']) > Some(10));
    let parsed = zoned.then(|| text.parse().ok()).flatten();
    parsed.ok_or_else(|| "write a time with its zone, such as 2026-01-31T08:00:00Z".into())
}

/// Shows one operation.
pub async fn get(args: GetArgs) -> Exit {
    let json = args.client.json;
    match fetch(args).await {
        Ok(answer) => {
            show(&answer, json);
            Exit::Ok
        }
        Err(failure) => failure.report(json),
    }
}

async fn fetch(args: GetArgs) -> Result<GetResponse, Failure> {
    let client = Client::connect(&args.client).await?;
    let id = args.id.map(Id::OperationId).or(args.operation_key.map(Id::OperationKey));
    let request = GetRequest { namespace: args.client.namespace, id, wait: None };
    client.call(request, |mut ledger, request| async move { ledger.get(request).await }).await
}

fn show(answer: &GetResponse, as_json: bool) {
    if as_json {
        let retry_after = answer.retry_after.as_ref().map(ToString::to_string);
        let whole =
            AnswerJson { retry_after, ..AnswerJson::new(answer.operation.as_ref(), answer.next_step()) };
        output::line(json::text(&whole));
    } else if let Some(operation) = &answer.operation {
        show_operation(operation, answer.next_step());
    }
}

/// One operation, a line for each thing that is known about it.
pub fn show_operation(operation: &Operation, next_step: NextStep) {
    let mut table = table::table(&[]);
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            table.add_row([table::name_cell(name), table::cell(value)]);
        }
    };
    let time = |time: &Option<Timestamp>| time.as_ref().map(ToString::to_string);
    row("key", Some(operation.operation_key.clone()));
    row("namespace", Some(operation.namespace.clone()));
    row("action", Some(operation.action_type.clone()));
    row("next step", Some(table::next_step_text(next_step).into()));
    row("external id", operation.external_id.clone());
    row("result", operation.result_json.clone());
    row("error", error_text(operation));
    row("review", operation.review_reason.clone().or(operation.review_required.then(String::new)));
    row("attempts", Some(operation.attempt_count.to_string()));
    row("lease", lease_text(operation));
    row("unknown since", time(&operation.unknown_since_time));
    row("next check", time(&operation.next_check_time));
    row("checks", (operation.check_count > 0).then(|| operation.check_count.to_string()));
    row("labels", labels_text(&operation.labels));
    row("parent", operation.parent_operation_key.clone());
    row("payload", operation.payload_json.clone());
    row("request hash", Some(format!("{} ({})", operation.request_hash, operation.hash_scheme)));
    row("operation id", Some(operation.operation_id.clone()));
    row("version", Some(operation.version.to_string()));
    row("created", time(&operation.create_time));
    row("updated", time(&operation.update_time));
    row("completed", time(&operation.complete_time));
    row("result forgotten", time(&operation.result_forget_time));
    output::line(format!("{}  {}", table::status_styled(operation.status()), operation_name(operation)));
    table::print(table, &[0]);
}

fn operation_name(operation: &Operation) -> String {
    output::styled(output::STRONG, output::harmless(&operation.operation_key))
}

fn error_text(operation: &Operation) -> Option<String> {
    let code = operation.error_code.clone()?;
    Some(operation.error_message.as_ref().map_or(code.clone(), |message| format!("{code}: {message}")))
}

fn lease_text(operation: &Operation) -> Option<String> {
    let until = operation.lease_expire_time.as_ref()?;
    let holder =
        operation.lease_holder.as_deref().filter(|holder| !holder.is_empty()).unwrap_or("a nameless worker");
    let sent = if operation.dispatched { "" } else { ", not yet dispatched" };
    Some(format!("{holder}, until {until}{sent}"))
}

fn labels_text(labels: &HashMap<String, String>) -> Option<String> {
    let mut pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.sort();
    (!pairs.is_empty()).then(|| pairs.join(" "))
}

/// Lists operations.
pub async fn list(args: ListArgs) -> Exit {
    let json = args.client.json;
    match list_pages(args).await {
        Ok(()) => Exit::Ok,
        Err(failure) => failure.report(json),
    }
}

async fn list_pages(args: ListArgs) -> Result<(), Failure> {
    let client = Client::connect(&args.client).await?;
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let mut request = ListRequest {
        namespace: args.client.namespace,
        statuses: args.status.into_iter().map(i32::from).collect(),
        action_types: args.action,
        review_required: args.review.then_some(true),
        labels: args.label.into_iter().collect(),
        updated_before: args.updated_before,
        updated_after: args.updated_after,
        parent_operation_key: args.parent,
        page_size: 0,
        page_token: String::new(),
    };
    let mut table =
        table::table(&["operation key", "action", "status", "attempts", "external id", "review", "updated"]);
    let mut shown = 0;
    loop {
        request.page_size = i32::try_from(PAGE.min(limit - shown)).unwrap_or(i32::MAX);
        let page = client
            .call(request.clone(), |mut ledger, request| async move { ledger.list(request).await })
            .await?;
        for operation in &page.operations {
            if args.client.json {
                output::line(json::text(&OperationJson::from(operation)));
            } else {
                table.add_row(list_row(operation));
            }
        }
        shown += page.operations.len();
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() || shown >= limit {
            break;
        }
    }
    if !args.client.json {
        if shown == 0 {
            output::note("no operations");
        } else {
            table::print(table, &[2, 6]);
        }
        if !request.page_token.is_empty() {
            output::note(format!("the first {shown}; --limit N shows more, --limit 0 all"));
        }
    }
    Ok(())
}

fn list_row(operation: &Operation) -> [comfy_table::Cell; 7] {
    let dash = || "-".to_owned();
    let review = operation.review_required.then(|| operation.review_reason.as_deref().unwrap_or("yes"));
    [
        table::cell(&operation.operation_key),
        table::cell(&operation.action_type),
        table::status_cell(operation.status()),
        table::cell(operation.attempt_count.to_string()),
        table::cell(operation.external_id.clone().unwrap_or_else(dash)),
        table::review_cell(review),
        table::time_cell(operation.update_time.as_ref()),
    ]
}

/// Shows what happened to one operation.
pub async fn history(args: HistoryArgs) -> Exit {
    let json = args.client.json;
    match show_history(args).await {
        Ok(()) => Exit::Ok,
        Err(failure) => failure.report(json),
    }
}

async fn show_history(args: HistoryArgs) -> Result<(), Failure> {
    let client = Client::connect(&args.client).await?;
    let mut table = table::table(&["time", "event", "status", "version", "attempt", "by", "detail"]);
    let mut request = ListEventsRequest {
        namespace: args.client.namespace,
        operation_key: args.operation_key,
        page_size: i32::try_from(PAGE).unwrap_or(i32::MAX),
        page_token: String::new(),
    };
    loop {
        let page = client
            .call(request.clone(), |mut ledger, request| async move { ledger.list_events(request).await })
            .await?;
        for event in &page.events {
            if args.client.json {
                output::line(json::text(&EventJson::from(event)));
            } else {
                table.add_row(history_row(event));
            }
        }
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    if !args.client.json {
        table::print(table, &[0, 1, 2]);
    }
    Ok(())
}

fn history_row(event: &Event) -> [comfy_table::Cell; 7] {
    let kind = EventType::try_from(event.r#type).unwrap_or_default();
    let status = OperationStatus::try_from(event.status).unwrap_or_default();
    [
        table::time_cell(event.event_time.as_ref()),
        table::cell(table::short(kind.as_str_name(), "EVENT_TYPE_")),
        table::status_cell(status),
        table::cell(event.version.to_string()),
        table::cell(event.attempt.to_string()),
        table::cell(&event.actor),
        table::cell(event.detail_json.as_deref().map_or(String::new(), detail::readable)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read() {
        assert_eq!(status("unknown"), Ok(OperationStatus::Unknown));
        assert_eq!(status("IN_PROGRESS"), Ok(OperationStatus::InProgress));
        assert!(status("unspecified").is_err());
        assert_eq!(label("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(label("a").is_err());
        for good in ["2026-01-31T08:00:00Z", "2026-01-31T08:00:00.5+01:00"] {
            assert!(time(good).is_ok(), "{good}");
        }
        for bad in ["2026-01-31", "2026-01-31T08:00:00", "yesterday", ""] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
