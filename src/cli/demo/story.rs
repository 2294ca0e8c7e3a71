//! The story itself. Each step makes real calls and checks what comes back.

use super::{
    provider::{AnswerLost, Payment, Provider},
    teller::Teller,
};
use crate::{
    cli::table::{short, status_text},
    proto::{
        ClaimOptions, EventType, Evidence, ListEventsRequest, MarkUnknownRequest, NextStep, OperationStatus,
        ReconcileRequest, RegisterRequest, RegisterResponse, Success, ledger_client::LedgerClient,
        reconcile_request::Observation, register_request::Request,
    },
    telemetry::code_name,
};
use std::fmt::Debug;
use tonic::{Code, Status, transport::Channel};
use tonic_types::StatusExt;

const KEY: &str = "order-7/payment";
const AMOUNT: &str = "49.90";
const PAYLOAD: &str = r#"{"amount":"49.90","currency":"EUR","order":"7"}"#;
/// The same request as another program might write it.
const SAME_PAYLOAD: &str = r#"{ "order": "7", "currency": "EUR", "amount": "49.90" }"#;
const OTHER_PAYLOAD: &str = r#"{"amount":"94.90","currency":"EUR","order":"7"}"#;

/// Everyone in it.
struct Scene<'a> {
    ledger: LedgerClient<Channel>,
    provider: &'a Provider,
    teller: &'a mut Teller,
}

/// Tells it all.
pub async fn tell(
    ledger: LedgerClient<Channel>,
    provider: &Provider,
    teller: &mut Teller,
) -> Result<(), String> {
    let mut scene = Scene { ledger, provider, teller };
    let token = scene.register_and_claim().await?;
    scene.pay_and_lose_the_answer().await?;
    scene.mark_unknown(token).await?;
    scene.retry_is_refused().await?;
    let result = scene.reconcile().await?;
    scene.replay(&result).await?;
    scene.count_effects().await?;
    scene.other_amount_is_a_conflict().await?;
    scene.history().await
}

/// Refuses to go on where something differs.
fn expect<T: PartialEq + Debug>(what: &str, actual: &T, expected: &T) -> Result<(), String> {
    if actual == expected {
        return Ok(());
    }
    Err(format!("{what} is {actual:?}, not {expected:?}"))
}

fn failed(call: &'static str) -> impl Fn(Status) -> String {
    move |status| format!("{call} answered {}: {}", code_name(status.code()), status.message())
}

impl Scene<'_> {
    async fn register(&mut self, agent: &str, payload: &str) -> Result<RegisterResponse, Status> {
        let request = RegisterRequest {
            operation_key: KEY.into(),
            action_type: "create_payment".into(),
            request: Some(Request::PayloadJson(payload.into())),
            claim: Some(ClaimOptions {
                claim_id: uuid::Uuid::new_v4().to_string(),
                worker_id: agent.into(),
                ..ClaimOptions::default()
            }),
            ..RegisterRequest::default()
        };
        self.teller.call(format!("{agent}: Register {KEY} {payload}, with a claim")).await;
        self.ledger.register(request).await.map(tonic::Response::into_inner)
    }

    async fn register_and_claim(&mut self) -> Result<String, String> {
        self.teller.step("An agent registers the payment and gets the permission to act").await;
        let answer = self.register("agent-a", PAYLOAD).await.map_err(failed("Register"))?;
        expect("created", &answer.created, &true)?;
        expect("next_step", &answer.next_step(), &NextStep::Execute)?;
        let lease = answer.lease.ok_or("there is no lease")?;
        expect("the attempt", &lease.attempt, &1)?;
        self.teller.answer("created · EXECUTE · attempt 1, with a lease").await;
        Ok(lease.token)
    }

    async fn pay_and_lose_the_answer(&mut self) -> Result<(), String> {
        self.teller.step("The agent pays; the payment is made, but its answer is lost").await;
        self.teller.call(format!("agent-a: provider, pay {AMOUNT} EUR for {KEY}")).await;
        let AnswerLost = self.provider.pay(KEY, AMOUNT);
        self.teller.answer("connection reset").await;
        expect("the number of payments", &self.provider.all().len(), &1)?;
        self.teller.note("Paid or not? The agent cannot know. This is not \"failed\".").await;
        Ok(())
    }

    async fn mark_unknown(&mut self, lease_token: String) -> Result<(), String> {
        self.teller.step("The agent says what it knows: the outcome is unknown").await;
        let request = MarkUnknownRequest {
            operation_key: KEY.into(),
            lease_token,
            error_code: "connection_reset".into(),
            error_message: Some("the provider's answer did not arrive".into()),
            ..MarkUnknownRequest::default()
        };
        self.teller.call("agent-a: MarkUnknown, connection_reset").await;
        let answer = self.ledger.mark_unknown(request).await.map_err(failed("MarkUnknown"))?.into_inner();
        let status = answer.operation.as_ref().map(|operation| operation.status());
        expect("the status", &status, &Some(OperationStatus::Unknown))?;
        expect("next_step", &answer.next_step(), &NextStep::Reconcile)?;
        self.teller.answer(format!("{} · RECONCILE", status_text(OperationStatus::Unknown))).await;
        Ok(())
    }

    async fn retry_is_refused(&mut self) -> Result<(), String> {
        self.teller.step("Another agent tries again: it may not pay").await;
        let answer = self.register("agent-b", PAYLOAD).await.map_err(failed("Register"))?;
        expect("created", &answer.created, &false)?;
        expect("next_step", &answer.next_step(), &NextStep::Reconcile)?;
        expect("the presence of a lease", &answer.lease.is_some(), &false)?;
        self.teller.answer("known already · no lease · RECONCILE: ask the provider first").await;
        expect("the number of payments", &self.provider.all().len(), &1)?;
        self.teller
            .note("A blind retry would have paid twice: this provider does not know idempotency keys.")
            .await;
        Ok(())
    }

    async fn reconcile(&mut self) -> Result<String, String> {
        self.teller.step("The provider is asked, and what it says is reported").await;
        self.teller.call(format!("agent-b: provider, is there a payment for {KEY}?")).await;
        let Payment { id, amount, .. } = self.provider.find(KEY).ok_or("the provider knows of no payment")?;
        self.teller.answer(format!("{id}, {amount} EUR")).await;
        let result = format!(r#"{{"payment_id":"{id}","amount":"{amount}"}}"#);
        let request = ReconcileRequest {
            operation_key: KEY.into(),
            observation: Some(Observation::Succeeded(Success {
                external_id: Some(id.clone()),
                result_json: Some(result.clone()),
            })),
            evidence: Some(Evidence { source: "payments by reference".into(), ..Evidence::default() }),
            ..ReconcileRequest::default()
        };
        self.teller.call(format!("agent-b: Reconcile, succeeded as {id}")).await;
        let answer = self.ledger.reconcile(request).await.map_err(failed("Reconcile"))?.into_inner();
        let status = answer.operation.as_ref().map(|operation| operation.status());
        expect("applied", &answer.applied, &true)?;
        expect("the status", &status, &Some(OperationStatus::Succeeded))?;
        expect("next_step", &answer.next_step(), &NextStep::UseResult)?;
        self.teller.answer(format!("{} · USE_RESULT", status_text(OperationStatus::Succeeded))).await;
        Ok(result)
    }

    async fn replay(&mut self, result: &str) -> Result<(), String> {
        self.teller.step("The first agent wakes up and repeats its request: it gets the result").await;
        let answer = self.register("agent-a", SAME_PAYLOAD).await.map_err(failed("Register"))?;
        expect("created", &answer.created, &false)?;
        expect("next_step", &answer.next_step(), &NextStep::UseResult)?;
        let stored = answer.operation.and_then(|operation| operation.result_json);
        expect("the result", &stored.as_deref(), &Some(result))?;
        self.teller.answer(format!("known already · USE_RESULT · {result}")).await;
        self.teller
            .note("Written with other blanks and in another order, it is still the same request.")
            .await;
        Ok(())
    }

    async fn count_effects(&mut self) -> Result<(), String> {
        self.teller.step("How often was paid?").await;
        let payments = self.provider.all();
        expect("the number of payments", &payments.len(), &1)?;
        self.teller
            .answer(format!("exactly one effect: {}, {} EUR", payments[0].id, payments[0].amount))
            .await;
        Ok(())
    }

    async fn other_amount_is_a_conflict(&mut self) -> Result<(), String> {
        self.teller.step("The same key with another amount is a conflict, and refused").await;
        let status = match self.register("agent-c", OTHER_PAYLOAD).await {
            Ok(_) => return Err("another request under the same key was accepted".into()),
            Err(status) => status,
        };
        let reason = status.get_error_details().error_info().map(|info| info.reason.clone());
        expect("the code", &status.code(), &Code::AlreadyExists)?;
        expect("the reason", &reason.as_deref(), &Some("REQUEST_HASH_MISMATCH"))?;
        expect("the number of payments", &self.provider.all().len(), &1)?;
        self.teller
            .answer(format!("{} REQUEST_HASH_MISMATCH: {}", code_name(status.code()), status.message()))
            .await;
        Ok(())
    }

    async fn history(&mut self) -> Result<(), String> {
        self.teller.step("All of it is in the journal").await;
        let request = ListEventsRequest { operation_key: KEY.into(), ..ListEventsRequest::default() };
        self.teller.call(format!("ListEvents {KEY}")).await;
        let events =
            self.ledger.list_events(request).await.map_err(failed("ListEvents"))?.into_inner().events;
        let kinds: Vec<EventType> = events.iter().map(|event| event.r#type()).collect();
        let expected = [
            EventType::Registered,
            EventType::Claimed,
            EventType::MarkedUnknown,
            EventType::Succeeded,
            EventType::ConflictRefused,
        ];
        expect("the journal", &kinds.as_slice(), &expected.as_slice())?;
        for event in &events {
            let kind = short(event.r#type().as_str_name(), "EVENT_TYPE_");
            let status = status_text(event.status());
            self.teller.answer(format!("{kind:<17} {status:<12} attempt {}", event.attempt)).await;
        }
        Ok(())
    }
}
