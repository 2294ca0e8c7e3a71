//! A small language for histories of one operation, and what can play them: the bare rules, the engine
//! on each back end, and (in [`crate::over_grpc`]) the service. A step is a word; `docs` of [`Player::step`] lists them.

use opledger::{
    engine::{self, Engine},
    ledger::{
        Action, ClaimOptions, Command, Event, EventKind, Evidence, Key, LeaseToken, NextStep, Observation,
        Operation, Outcome, Refusal, Refused, Reply, Timestamp,
        command::{Claim, ClaimCheck, Complete, Extend, MarkUnknown, Reconcile, Register},
        transition,
    },
    policy_file::PolicySet,
    store::Store,
};
use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};
use uuid::Uuid;

/// The policies of all scripts, one action type for each way.
pub const POLICIES: &str = "
tool_policy:
  default:
    max_attempts: 3
    lease: { default_seconds: 30, max_seconds: 600 }
    reconcile: { initial_delay_seconds: 5, multiplier: 2, max_interval_seconds: 300, jitter: 0 }
  pay:
    provider: { lookup: authoritative, absence_settle_seconds: 60 }
  mail:
    provider: { lookup: eventual }
  blind:
    provider: { lookup: none }
  same-key:
    retry: { on_timeout: retry_same_key }
    provider: { idempotency_key_ttl_seconds: 300 }
  ask:
    retry: { on_timeout: require_human_review }
  keep:
    on_unresolved: keep_unknown
  brief:
    provider: { lookup: authoritative, absence_settle_seconds: 60 }
    retention: { result_days: 1, key_days: 3 }
  tidy:
    retention: { result_days: 1 }
  gone:
    retention: { key_days: 1 }
  small:
    result: { max_bytes: 16, redact: [/card] }
";

/// What can play a script.
pub trait Target: Sync {
    fn execute(&self, command: Command) -> impl Future<Output = Result<Reply, Box<Refused>>> + Send;
    fn advance(&self, by: Duration);
    fn events(&self, key: &Key) -> impl Future<Output = Vec<Event>> + Send;
    fn record(&self, key: &Key) -> impl Future<Output = Option<Operation>> + Send;

    /// What of an answer can be seen this way.
    fn visible(&self, _step: &str, answer: &str) -> String {
        answer.to_owned()
    }
}

/// The rules alone, over a map in memory.
pub struct Core {
    policies: Arc<PolicySet>,
    inner: Mutex<CoreState>,
}

struct CoreState {
    now: Timestamp,
    records: HashMap<Key, (Operation, Vec<Event>)>,
}

impl Core {
    pub fn new(policies: Arc<PolicySet>) -> Self {
        let now = Timestamp(1_764_547_200_000_000);
        Self { policies, inner: Mutex::new(CoreState { now, records: HashMap::new() }) }
    }
}

impl Target for Core {
    async fn execute(&self, command: Command) -> Result<Reply, Box<Refused>> {
        let mut inner = self.inner.lock().unwrap();
        inner.now = inner.now.plus(Duration::from_millis(1));
        let current = inner.records.get(&command.key).map(|(operation, _)| operation.clone());
        let action_type = match (&current, &command.action) {
            (Some(operation), _) => operation.identity.action_type.clone(),
            (None, Action::Register(request)) => request.action_type.clone(),
            _ => "".into(),
        };
        let policy = self.policies.get(&action_type);
        let decision = transition(current.as_ref(), &command, policy, inner.now);
        assert!(decision.changes.len() <= 2, "a decision has at most two changes");
        for change in decision.changes {
            // What retention deletes of the journal.
            if change.event.as_ref().is_some_and(|event| event.kind == EventKind::ResultForgotten)
                && let Some((_, events)) = inner.records.get_mut(&command.key)
            {
                events.clear();
            }
            let entry = inner.records.entry(command.key.clone());
            let (operation, events) = entry.or_insert_with(|| (change.after.clone(), Vec::new()));
            *operation = change.after;
            events.extend(change.event);
        }
        if decision.forgets_key {
            inner.records.remove(&command.key);
        }
        decision.answer
    }

    fn advance(&self, by: Duration) {
        let mut inner = self.inner.lock().unwrap();
        inner.now = inner.now.plus(by);
    }

    async fn events(&self, key: &Key) -> Vec<Event> {
        let inner = self.inner.lock().unwrap();
        inner.records.get(key).map(|(_, events)| events.clone()).unwrap_or_default()
    }

    async fn record(&self, key: &Key) -> Option<Operation> {
        let inner = self.inner.lock().unwrap();
        inner.records.get(key).map(|(operation, _)| operation.clone())
    }
}

/// The engine on a store whose clock the script moves.
pub struct OnStore {
    pub engine: Engine,
    pub store: Arc<crate::play::ShiftedClock>,
}

impl Target for OnStore {
    async fn execute(&self, command: Command) -> Result<Reply, Box<Refused>> {
        match self.engine.execute(command).await {
            Ok(reply) => Ok(reply),
            Err(engine::Error::Refused(refused)) => Err(refused),
            Err(error) => panic!("the store failed: {error:?}"),
        }
    }

    fn advance(&self, by: Duration) {
        self.store.advance(by);
    }

    async fn events(&self, key: &Key) -> Vec<Event> {
        let events = self.engine.events(key, 0, 100_000).await.expect("events");
        events.unwrap_or_default().into_iter().map(|stored| stored.event).collect()
    }

    async fn record(&self, key: &Key) -> Option<Operation> {
        let snapshot = self.store.load(std::slice::from_ref(key)).await.expect("load");
        snapshot.rows.into_iter().next().flatten()
    }
}

/// Plays steps on one key.
pub struct Player<'a, T> {
    pub target: &'a T,
    pub key: Key,
    /// Tokens as they were granted: `1` is that of the first attempt, `c1` that of the first check.
    pub tokens: BTreeMap<String, LeaseToken>,
    fresh: u64,
}

/// The number in a token: `1` for an attempt, `c1` for a check.
fn number(token: &LeaseToken) -> String {
    let (number, _) = token.expose().split_once('.').expect("a token has two parts");
    number.trim_start_matches('a').to_owned()
}

/// A claim id for a letter or word of the script: the same word, the same id.
fn claim_id(word: &str) -> Uuid {
    let mut bytes = [0x11; 16];
    for (at, byte) in word.bytes().enumerate().take(15) {
        bytes[at + 1] = byte;
    }
    Uuid::from_bytes(bytes)
}

fn text(arg: Option<&str>) -> Option<String> {
    arg.filter(|arg| !arg.is_empty()).map(str::to_owned)
}

fn seconds(arg: Option<&str>) -> Option<Duration> {
    arg.map(|arg| Duration::from_secs_f64(arg.parse().expect("seconds")))
}

impl<'a, T: Target> Player<'a, T> {
    pub fn new(target: &'a T, operation_key: &str) -> Self {
        let key = Key::new("default", operation_key);
        Self { target, key, tokens: BTreeMap::new(), fresh: 0 }
    }

    fn token(&self, word: Option<&str>) -> LeaseToken {
        let word = word.unwrap_or("0");
        let forged = || LeaseToken::from_caller(format!("a{word}.00000000000000000000000000000000"));
        self.tokens.get(word).cloned().unwrap_or_else(forged)
    }

    /// Plays one step; `wait:S` only moves the clock. Steps:
    ///
    /// `register[/ACTION][#REQUEST][+CLAIM|++CLAIM][~SECONDS]` (`++`: two-step) ·
    /// (`register!` stores the payload) · `check:ID` and `deliver:ID` (by the poll of that id) ·
    /// `claim:ID[:SECONDS]` · `claim2:ID` (two-step) · `claim!:ID` (expecting another request) ·
    /// `dispatch:N[:S]` · `renew:N[:S]` · `ok:N[:EXTERNAL[:RESULT]]` · `fail:N:CODE` · `lost:N[:EXTERNAL]` ·
    /// `saw-ok[:EXTERNAL]` `saw-failed[:CODE]` `saw-absent` `saw-nothing[:S]`, each with `@N` (token) and
    /// `?V` (if_version), `op-…` for a person · `observe` · `wait:S`
    pub async fn step(&mut self, step: &str) -> Option<Result<Reply, Box<Refused>>> {
        if let Some(by) = step.strip_prefix("wait:") {
            self.target.advance(seconds(Some(by)).unwrap());
            return None;
        }
        let action = self.parse(step);
        let command = Command { key: self.key.clone(), actor: "tester".into(), action };
        let answer = self.target.execute(command).await;
        // The key was forgotten in between, and the tokens of its first life with it.
        if answer.as_ref().is_ok_and(|reply| reply.created) {
            self.tokens.clear();
        }
        if let Ok(reply) = &answer
            && let Some(lease) = &reply.lease
        {
            let known = self.tokens.insert(number(&lease.token), lease.token.clone());
            assert!(known.is_none_or(|known| known == lease.token), "one number, one token");
        }
        Some(answer)
    }

    fn parse(&mut self, step: &str) -> Action {
        let mut parts = step.split(':');
        let word = parts.next().unwrap_or_default();
        let mut arg = || parts.next();
        match word {
            "claim" | "claim2" | "claim!" => Action::Claim(Claim {
                options: options(arg().expect("a claim id"), seconds(arg()), word == "claim2"),
                expected_request_hash: (word == "claim!").then_some([0xee; 32]),
            }),
            "deliver" => {
                let id = arg().expect("a poll id");
                let options = ClaimOptions { poll_id: Some(claim_id(id)), ..options(id, None, true) };
                Action::Claim(Claim { options, expected_request_hash: None })
            }
            "check" => Action::ClaimCheck(ClaimCheck {
                poll_id: claim_id(arg().expect("a poll id")),
                worker_id: "checker".into(),
                lease_duration: None,
            }),
            "dispatch" => {
                Action::Dispatch(Extend { token: self.token(arg()), lease_duration: seconds(arg()) })
            }
            "renew" => Action::Renew(Extend { token: self.token(arg()), lease_duration: seconds(arg()) }),
            "ok" => Action::Complete(Complete {
                token: self.token(arg()),
                outcome: Outcome::Succeeded {
                    external_id: text(arg()),
                    result_json: Some(step.splitn(4, ':').nth(3).unwrap_or("{}").into()),
                },
            }),
            "fail" => Action::Complete(Complete {
                token: self.token(arg()),
                outcome: Outcome::Failed { error_code: arg().expect("a code").into(), error_message: None },
            }),
            "lost" => Action::MarkUnknown(MarkUnknown {
                token: self.token(arg()),
                error_code: "timeout".into(),
                error_message: None,
                external_id: text(arg()),
            }),
            "observe" => Action::Observe,
            _ if word.starts_with("register") => Action::Register(Box::new(self.register(step))),
            _ => Action::Reconcile(Box::new(self.reconcile(step))),
        }
    }

    fn register(&mut self, step: &str) -> Register {
        let (step, lease) = match step.split_once('~') {
            Some((step, lease)) => (step, seconds(Some(lease))),
            None => (step, None),
        };
        let (step, claim) = match step.split_once('+') {
            Some((step, id)) => (step, Some(options(id.trim_start_matches('+'), lease, id.starts_with('+')))),
            None => (step, None),
        };
        let (step, request) = step.split_once('#').unwrap_or((step, "0"));
        let stored = step.contains('!');
        let action_type = step.split_once('/').map_or("pay", |(_, action)| action);
        self.fresh += 1;
        Register {
            operation_id: Uuid::now_v7(),
            lease_secret: *Uuid::new_v4().as_bytes(),
            action_type: action_type.into(),
            request_hash: [request.parse().expect("a request number"); 32],
            hash_scheme: "jcs-sha256/1".into(),
            labels: BTreeMap::new(),
            parent_operation_key: None,
            payload_json: stored.then(|| "{}".to_owned()),
            claim,
        }
    }

    fn reconcile(&self, step: &str) -> Reconcile {
        let (step, if_version) = match step.split_once('?') {
            Some((step, version)) => (step, Some(version.parse().expect("a version"))),
            None => (step, None),
        };
        let (step, token) = match step.split_once('@') {
            Some((step, token)) => (step, Some(self.token(Some(token)))),
            None => (step, None),
        };
        let (word, arg) = step.split_once(':').map_or((step, None), |(word, arg)| (word, Some(arg)));
        let observation = match word.trim_start_matches("saw-").trim_start_matches("op-") {
            "ok" => Observation::Known(Outcome::Succeeded { external_id: text(arg), result_json: None }),
            "failed" => Observation::Known(Outcome::Failed {
                error_code: arg.unwrap_or("rejected").into(),
                error_message: None,
            }),
            "absent" => Observation::Absent,
            "nothing" => Observation::Indeterminate { check_after: seconds(arg) },
            other => panic!("no such step: {other}"),
        };
        Reconcile {
            token,
            observation,
            evidence: Some(Evidence { source: "the test".into(), ..Evidence::default() }),
            operator_decision: word.starts_with("op-"),
            if_version,
        }
    }
}

fn options(id: &str, lease_duration: Option<Duration>, two_step: bool) -> ClaimOptions {
    let worker_id = format!("worker-{id}");
    ClaimOptions { claim_id: claim_id(id), worker_id, lease_duration, two_step, poll_id: None }
}

/// An answer as a table shows it: `created CLAIM`, `lease1 EXECUTE`, `LEASE_LOST`, …
pub fn show(answer: &Result<Reply, Box<Refused>>) -> String {
    let reply = match answer {
        Ok(reply) => reply,
        Err(refused) => return show_refusal(&refused.refusal),
    };
    let mut words: Vec<String> = Vec::new();
    for (flag, word) in [(reply.created, "created"), (reply.replayed, "replayed"), (reply.applied, "applied")]
    {
        if flag {
            words.push(word.into());
        }
    }
    let held = reply.lease.as_ref().map(|lease| number(&lease.token));
    let checks = held.as_ref().is_some_and(|number| number.starts_with('c'));
    words.extend(held.map(|number| match number.strip_prefix('c') {
        Some(number) => format!("check{number}"),
        None => format!("lease{number}"),
    }));
    let step = match reply.next_step {
        NextStep::Execute => "EXECUTE",
        NextStep::Claim => "CLAIM",
        NextStep::Wait => "WAIT",
        NextStep::Reconcile => "RECONCILE",
        NextStep::UseResult => "USE_RESULT",
        NextStep::Stop => "STOP",
        NextStep::Review => "REVIEW",
    };
    let acts = reply.lease.is_some() && !checks;
    assert_eq!(acts, reply.next_step == NextStep::Execute, "who may act holds a lease");
    match reply.next_step {
        NextStep::Wait => assert!(reply.retry_after.is_some(), "who waits knows how long"),
        NextStep::Reconcile => {}
        _ => assert_eq!(reply.retry_after, None, "nothing to wait for"),
    }
    words.push(step.into());
    words.join(" ")
}

fn show_refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NotFound => "NOT_FOUND".into(),
        Refusal::RequestHashMismatch { .. } => "CONFLICT".into(),
        Refusal::LeaseLost => "LEASE_LOST".into(),
        Refusal::OutcomeConflict => "OUTCOME_CONFLICT".into(),
        Refusal::AlreadyTerminal => "ALREADY_TERMINAL".into(),
        Refusal::VersionMismatch => "VERSION_MISMATCH".into(),
        Refusal::InvalidField { field, .. } => format!("INVALID {field}"),
    }
}

/// A record as a table shows it: `unknown v4 review(unresolved)`.
pub fn show_record(record: Option<&Operation>) -> String {
    match record {
        None => "none".into(),
        Some(operation) => {
            let state = &operation.state;
            let review = state.review_reason.as_ref().map(|reason| format!(" review({reason})"));
            let forgotten = if state.result_forgotten_at.is_some() { " forgotten" } else { "" };
            if !forgotten.is_empty() {
                assert_eq!((&state.result_json, &state.error_message), (&None, &None));
                assert_eq!(operation.identity.payload_json, None);
            }
            format!("{} v{}{}{forgotten}", state.status, state.version, review.unwrap_or_default())
        }
    }
}
