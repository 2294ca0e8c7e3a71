//! The eight rules of the state machine over random histories, on the bare rules; and the same histories
//! on both back ends, with equal answers.

use crate::{
    harness, play,
    random::{Random, history, seed},
    script::{Core, POLICIES, Player, Target, show, show_record},
};
use opledger::{
    ledger::{Event, EventKind, Operation, Status, policy::OnTimeout, replay},
    policy_file::{self, PolicySet},
};
use std::sync::Arc;

const HISTORIES: u64 = 5_000;
const HISTORIES_ON_STORES: u64 = 400;
const STEPS: u64 = 25;

fn policies() -> Arc<PolicySet> {
    Arc::new(policy_file::parse(POLICIES).expect("policies").0)
}

#[tokio::test]
async fn the_eight_rules_hold_over_random_histories() {
    let mut random = Random::new(seed("the_eight_rules_hold_over_random_histories"));
    let policies = policies();
    for _ in 0..HISTORIES {
        let history = history(&mut random, STEPS);
        if let Err(fault) = check(&history, &policies).await {
            let shortest = shorten(history, &policies).await;
            let fault = check(&shortest, &policies).await.err().unwrap_or(fault);
            panic!("{fault}\nhistory: {}", shortest.join(" "));
        }
    }
}

/// Leaves out steps for as long as the history still fails.
async fn shorten(mut history: Vec<String>, policies: &Arc<PolicySet>) -> Vec<String> {
    let mut at = 0;
    while at < history.len() {
        let mut shorter = history.clone();
        shorter.remove(at);
        if check(&shorter, policies).await.is_err() {
            history = shorter;
        } else {
            at += 1;
        }
    }
    history
}

async fn check(history: &[String], policies: &Arc<PolicySet>) -> Result<(), String> {
    let core = Core::new(policies.clone());
    let mut player = Player::new(&core, "random");
    for step in history {
        let before = core.record(&player.key).await;
        let Some(answer) = player.step(step).await else { continue };
        let after = core.record(&player.key).await;
        check_step(step, before.as_ref(), &answer, after.as_ref())
            .map_err(|fault| format!("{step}: {fault}"))?;
        check_repeat(step, &mut player, &answer)
            .await
            .map_err(|fault| format!("{step}, repeated: {fault}"))?;
    }
    let events = core.events(&player.key).await;
    if let Some(record) = core.record(&player.key).await {
        check_journal(&record, &events)?;
        check_unknown(&record, &events, policies)?;
    }
    Ok(())
}

type Played = Result<opledger::ledger::Reply, Box<opledger::ledger::Refused>>;

fn ensure(holds: bool, rule: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule.to_owned()) }
}

fn check_step(
    step: &str,
    before: Option<&Operation>,
    answer: &Played,
    after: Option<&Operation>,
) -> Result<(), String> {
    let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
    let (old, new) = (&before.state, &after.state);
    if old.status.is_terminal() {
        ensure(old.status == new.status, "rule 2: no transition leaves a final status")?;
        ensure(
            old.external_id == new.external_id
                && (old.result_json == new.result_json || new.result_forgotten_at.is_some()),
            "rule 2: outcome stands",
        )?;
    }
    ensure(new.attempt_count >= old.attempt_count, "rule 1: attempt numbers grow")?;
    if new.attempt_count > old.attempt_count {
        ensure(new.attempt_count == old.attempt_count + 1, "rule 1: one attempt a grant")?;
        let was_live = old.lease.as_ref().is_some_and(|lease| lease.is_live(new.updated_at));
        ensure(!was_live, "rule 1: at most one live lease")?;
    }
    ensure(new.lease.is_some() == (new.status == Status::InProgress), "a lease exactly while in progress")?;
    ensure(
        new.review_reason.is_some() == new.review_since.is_some(),
        "a review has a reason and a beginning, or neither",
    )?;
    if new.status == Status::Unknown {
        ensure(new.next_check_at.is_some(), "an unknown operation is checked some time")?;
        ensure(new.unknown_since.is_some(), "an unknown operation knows since when")?;
    }
    // A success report with a token that was granted is never turned away.
    if step.starts_with("ok:") && !step.starts_with("ok:9") && !step.starts_with("ok:c") {
        let attempt: i32 = step.split(':').nth(1).unwrap().parse().unwrap();
        if attempt <= old.attempt_count {
            let kept = match show(answer).as_str() {
                "OUTCOME_CONFLICT" => new.review_reason.is_some() && new.outcome_conflict_count > 0,
                other => other.ends_with("USE_RESULT"),
            };
            ensure(kept, "rule 3: evidence of an effect is never lost")?;
        }
    }
    Ok(())
}

/// Rule 7: the same call again gives the same outcome. (A repeated contradiction is one more event.)
async fn check_repeat<T: Target>(
    step: &str,
    player: &mut Player<'_, T>,
    first: &Played,
) -> Result<(), String> {
    let before = player.target.record(&player.key).await;
    let again = player.step(step).await.expect("a command");
    let after = player.target.record(&player.key).await;
    let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
    ensure(before.state.attempt_count == after.state.attempt_count, "rule 7: a second attempt was counted")?;
    ensure(before.state.status == after.state.status, "rule 7: the status changed again")?;
    match (first, &again) {
        (Ok(first), Ok(again)) => {
            let tokens =
                |reply: &opledger::ledger::Reply| reply.lease.as_ref().map(|lease| lease.token.clone());
            ensure(tokens(first) == tokens(again), "rule 7: another lease")?;
            ensure(first.next_step == again.next_step, "rule 7: another next step")?;
            ensure(!first.applied || again.applied, "rule 7: what was applied is no longer")
        }
        (Err(first), Err(again)) => ensure(first.refusal == again.refusal, "rule 7: another refusal"),
        (first, again) => Err(format!("rule 7: first {}, then {}", show(first), show(again))),
    }
}

/// Rule 8: one event for each version, and the events give the record.
fn check_journal(record: &Operation, events: &[Event]) -> Result<(), String> {
    let versions: Vec<i64> = events
        .iter()
        .filter(|event| event.kind != EventKind::ConflictRefused)
        .map(|event| event.version)
        .collect();
    let first = if record.state.result_forgotten_at.is_some() { versions[0] } else { 1 };
    let expected: Vec<i64> = (first..=record.state.version).collect();
    ensure(versions == expected, "rule 8: exactly one event for each version")?;
    let json: Vec<Event> = events
        .iter()
        .map(|event| {
            let text = serde_json::to_string(&event.detail).unwrap();
            Event { detail: serde_json::from_str(&text).unwrap(), ..event.clone() }
        })
        .collect();
    ensure(json == events, "an event survives its JSON form")?;
    let mut replayed = replay(record.identity.clone(), events).state;
    // Events carry no result, and no traces that only serve repeats.
    replayed.result_json.clone_from(&record.state.result_json);
    replayed.claim_ids.clone_from(&record.state.claim_ids);
    replayed.reports.clone_from(&record.state.reports);
    replayed.poll_id = record.state.poll_id;
    replayed.retain_until = record.state.retain_until;
    ensure(replayed == record.state, "rule 8: replaying the events gives the record")
}

/// Rules 4 and 5: what is unknown stays so until something is known.
fn check_unknown(record: &Operation, events: &[Event], policies: &PolicySet) -> Result<(), String> {
    let policy = policies.get(&record.identity.action_type);
    let mut two_step = false;
    let mut dispatched = false;
    let mut is_unknown = false;
    for event in events {
        match event.kind {
            EventKind::Claimed => {
                let same_key = policy.on_timeout == OnTimeout::RetrySameKey;
                ensure(
                    !is_unknown || same_key,
                    "rule 5: an attempt after unknown, without the policy's word",
                )?;
                two_step = event.detail.lease.as_ref().and_then(|l| l.as_ref()).is_some_and(|l| l.two_step);
                dispatched = !two_step;
            }
            EventKind::Dispatched => dispatched = true,
            EventKind::LeaseExpired if event.status == Status::Pending => {
                ensure(two_step && !dispatched, "rule 4: a lapsed lease never means that nothing happened")?;
                ensure(!is_unknown, "rule 4: an earlier attempt is still unknown")?;
            }
            EventKind::Released if event.status == Status::Pending => is_unknown = false,
            _ => {}
        }
        if event.status == Status::Unknown {
            is_unknown = true;
        }
    }
    Ok(())
}

/// What a history answers, step by step, as text.
async fn transcript(target: &impl Target, name: &str, history: &[String]) -> Vec<String> {
    let mut player = Player::new(target, name);
    let mut lines = Vec::new();
    for step in history {
        if let Some(answer) = player.step(step).await {
            let record = target.record(&player.key).await;
            lines.push(format!("{step} → {} | {}", show(&answer), show_record(record.as_ref())));
        }
    }
    let events = target.events(&player.key).await;
    lines.extend(events.iter().map(|event| format!("{} v{}", event.kind.as_str(), event.version)));
    lines
}

#[test]
fn random_histories_answer_alike_on_each_back_end() {
    let seed = seed("random_histories_answer_alike_on_each_back_end");
    let policies = policies();
    harness::on_each_store(|database, store| {
        let policies = policies.clone();
        async move {
            // One clock is moved by all, so histories follow each other.
            let target = play::on(store, POLICIES);
            let mut random = Random::new(seed);
            for number in 0..HISTORIES_ON_STORES {
                let history = history(&mut random, STEPS);
                let expected = transcript(&Core::new(policies.clone()), "random", &history).await;
                let got = transcript(&target, &format!("random-{number}"), &history).await;
                assert_eq!(got, expected, "{:?}: {}", database.backend, history.join(" "));
            }
            target.engine.stop().await;
        }
    });
}
