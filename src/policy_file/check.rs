//! Whether the values of one entry fit together.

use super::{
    Finding, Source,
    keys::{self, KEYS},
    read::{Draft, Findings},
};
use crate::ledger::policy::{Lookup, OnTimeout, OnUnresolved, Policy};
use std::time::Duration;

/// Values that do not fit together.
struct Rule {
    /// The keys concerned. The finding stands at the first that the entry itself states.
    keys: &'static [&'static str],
    broken: fn(&Policy) -> bool,
    /// What follows from it, and what to do.
    remedy: &'static str,
}

/// Faults: no sensible meaning.
const FAULTS: [Rule; 4] = [
    Rule {
        keys: &["retry.on_timeout", "provider.idempotency_key_ttl_seconds"],
        broken: |p| p.on_timeout == OnTimeout::RetrySameKey && p.idempotency_key_ttl.is_none(),
        remedy: "state how long the provider remembers a key, or write `on_timeout: reconcile_before_retry`",
    },
    Rule {
        keys: &["lease.default_seconds", "lease.max_seconds"],
        broken: |p| p.lease_default > p.lease_max,
        remedy: "no lease is longer than the maximum; lower the first or raise the second",
    },
    Rule {
        keys: &["reconcile.max_interval_seconds", "reconcile.initial_delay_seconds"],
        broken: |p| p.reconcile.max_interval < p.reconcile.initial_delay,
        remedy: "no delay is longer than the maximum; raise the first or lower the second",
    },
    Rule {
        keys: &["retention.key_days", "retention.result_days"],
        broken: |p| matches!((p.key_days, p.result_days), (Some(key), Some(result)) if key < result),
        remedy: "a result goes with its key; raise the first or lower the second",
    },
];

/// Warnings: a meaning, but hardly the one that was intended.
const WARNINGS: [Rule; 9] = [
    Rule {
        keys: &["retention.key_days", "provider.idempotency_key_ttl_seconds"],
        broken: |p| shorter(key_kept(p), p.idempotency_key_ttl),
        remedy: "the provider would still remember a key that the ledger has forgotten; keep keys longer",
    },
    Rule {
        keys: &["retention.key_days", "unknown_after_seconds"],
        broken: |p| shorter(key_kept(p), Some(p.unknown_after)),
        remedy: "a late retry would find its key forgotten and act again; keep keys longer",
    },
    Rule {
        keys: &["retention.key_days", "reconcile.max_interval_seconds"],
        broken: |p| shorter(key_kept(p), Some(p.reconcile.max_interval)),
        remedy: "a late retry would find its key forgotten and act again; keep keys longer",
    },
    Rule {
        keys: &["retention.key_days", "lease.max_seconds"],
        broken: |p| shorter(key_kept(p), Some(p.lease_max)),
        remedy: "a late retry would find its key forgotten and act again; keep keys longer",
    },
    Rule {
        keys: &["unknown_after_seconds", "lease.default_seconds"],
        broken: |p| p.unknown_after < p.lease_default,
        remedy: "an attempt becomes unknown while its lease still runs; raise the first or lower the second",
    },
    Rule {
        keys: &["unknown_after_seconds", "reconcile.initial_delay_seconds"],
        broken: |p| p.unknown_after < p.reconcile.initial_delay,
        remedy: "an operation is unresolved before its first check; raise the first or lower the second",
    },
    Rule {
        keys: &["provider.absence_settle_seconds", "provider.lookup"],
        broken: |p| p.lookup == Lookup::Authoritative && p.absence_settle == Duration::ZERO,
        remedy: "a request still on its way is taken for absent and is sent a second time; \
                 allow for the longest time that a request may travel",
    },
    Rule {
        keys: &["on_unresolved", "provider.lookup"],
        broken: |p| p.on_unresolved == OnUnresolved::KeepUnknown && p.lookup == Lookup::None,
        remedy: "nobody can ever find out and no person is asked: such an operation stays unknown for ever; \
                 write `on_unresolved: require_human_review`",
    },
    Rule {
        keys: &["provider.idempotency_key_ttl_seconds", "lease.default_seconds", "retry.on_timeout"],
        broken: |p| {
            p.on_timeout == OnTimeout::RetrySameKey && shorter(p.idempotency_key_ttl, Some(p.lease_default))
        },
        remedy: "the provider forgets the key before the lease ends, so it is never sent again",
    },
];

/// Adds what does not fit together in an entry.
///
/// What `default` alone has wrong is said there, not once more in every heir.
pub(super) fn entry(draft: &Draft, findings: &mut Findings) {
    FAULTS.iter().filter_map(|rule| apply(rule, draft)).for_each(|fault| findings.add(fault));
    findings.warnings.extend(WARNINGS.iter().filter_map(|rule| apply(rule, draft)));
}

fn apply(rule: &Rule, draft: &Draft) -> Option<Finding> {
    let indexes: Vec<usize> = rule.keys.iter().filter_map(|path| keys::position(path)).collect();
    let known = indexes.iter().all(|index| !draft.refused[*index]);
    let (place, at) = indexes.iter().find_map(|index| draft.own[*index].map(|at| (*index, at)))?;
    if !known || !(rule.broken)(&draft.policy) {
        return None;
    }
    let says = |index: &usize| says(draft, *index);
    let facts: Vec<String> = indexes.iter().take(2).map(says).collect();
    let path = format!("{}.{}", draft.path, KEYS[place].path);
    Some(Finding::new(at, path, format!("{}: {}", facts.join(", but "), rule.remedy)))
}

/// "`lease.max_seconds` is 600 (built-in)".
fn says(draft: &Draft, index: usize) -> String {
    let value = match (KEYS[index].show)(&draft.policy) {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    let from = match draft.source(index) {
        Source::Entry(_) => String::new(),
        Source::DefaultEntry(line) => format!(" (from `default`, line {line})"),
        Source::BuiltIn => " (built-in)".into(),
    };
    format!("`{}` is {value}{from}", KEYS[index].path)
}

fn key_kept(policy: &Policy) -> Option<Duration> {
    policy.key_days.map(|days| Duration::from_secs(u64::from(days) * 86_400))
}

/// Whether both are given and the first is the shorter.
fn shorter(first: Option<Duration>, second: Option<Duration>) -> bool {
    matches!((first, second), (Some(first), Some(second)) if first < second)
}
