//! The pure parts, without a database: `cargo bench --bench micro`.

use divan::{Bencher, black_box, counter::BytesCount};
use opledger::{
    fingerprint::{self, Rules},
    ledger::{
        Action, ClaimOptions, Command, Key, LeaseToken, Operation, Outcome, Policy, Timestamp,
        command::{Claim, Complete, Register},
        transition,
    },
};
use std::collections::BTreeMap;
use uuid::Uuid;

fn main() {
    divan::main();
}

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);
const SECRET: [u8; 16] = [7; 16];

fn command(action: Action) -> Command {
    Command { key: Key::new("bench", "order-7/payment"), actor: "anonymous".into(), action }
}

fn register() -> Command {
    command(Action::Register(Box::new(Register {
        operation_id: Uuid::from_u128(1),
        lease_secret: SECRET,
        action_type: "create_payment".into(),
        request_hash: [1; 32],
        hash_scheme: fingerprint::SCHEME.into(),
        labels: BTreeMap::new(),
        parent_operation_key: None,
        payload_json: None,
        claim: None,
    })))
}

fn claim() -> Command {
    command(Action::Claim(Claim {
        options: ClaimOptions {
            claim_id: Uuid::from_u128(2),
            worker_id: "worker-1".into(),
            lease_duration: None,
            two_step: false,
            poll_id: None,
        },
        expected_request_hash: None,
    }))
}

fn complete() -> Command {
    command(Action::Complete(Complete {
        token: LeaseToken::for_attempt(&SECRET, 1),
        outcome: Outcome::Succeeded {
            external_id: Some("pay_2f6d1e0a5b11".into()),
            result_json: Some(format!("{{\"note\":\"{}\"}}", "x".repeat(219))),
        },
    }))
}

/// The record after these commands.
fn after(commands: &[Command]) -> Option<Operation> {
    commands.iter().fold(None, |current, command| {
        let decision = transition(current.as_ref(), command, &Policy::default(), NOW);
        decision.changes.into_iter().next_back().map(|change| change.after)
    })
}

fn decide(bencher: Bencher, before: &[Command], command: &Command) {
    let (current, policy) = (after(before), Policy::default());
    bencher.bench_local(|| transition(black_box(current.as_ref()), black_box(command), &policy, NOW));
}

#[divan::bench]
fn transition_register(bencher: Bencher) {
    decide(bencher, &[], &register());
}

#[divan::bench]
fn transition_claim(bencher: Bencher) {
    decide(bencher, &[register()], &claim());
}

#[divan::bench]
fn transition_complete(bencher: Bencher) {
    decide(bencher, &[register(), claim()], &complete());
}

/// A request as agents send them, about this long.
fn payload(bytes: usize) -> String {
    let mut items = Vec::new();
    while items.iter().map(String::len).sum::<usize>() + items.len() + 120 < bytes {
        let n = items.len();
        items.push(format!(
            r#"{{"sku":"A-{n:04}","name":"Grüße, größer","quantity":{n},"unit_price":"{n}.90"}}"#
        ));
    }
    let items = items.join(",");
    format!(
        r#"{{"to":{{"name":"A. Example","iban":"DE89370400440532013000"}},"amount":4990,"currency":"EUR","items":[{items}]}}"#
    )
}

#[divan::bench(args = [256, 1024, 65_536])]
fn canonicalise_and_hash(bencher: Bencher, bytes: usize) {
    let text = payload(bytes);
    bencher
        .counter(BytesCount::of_str(&text))
        .bench_local(|| fingerprint::request_hash(black_box(&text), Rules::default()));
}
