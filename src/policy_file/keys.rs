//! The keys of an entry: one row each, in the order in which people read them.

use super::value::{self, Read, Word};
use super::yaml::Node;
use crate::ledger::policy::{Lookup, OnTimeout, OnUnresolved, Policy};
use serde_json::{Value as Json, json};
use std::time::Duration;

/// One key of the file.
pub(super) struct Key {
    /// With its section, as in `lease.max_seconds`.
    pub path: &'static str,
    /// Reads a node into the policy.
    pub read: fn(&mut Policy, &Node) -> Read<()>,
    /// The value as the file would spell it.
    pub show: fn(&Policy) -> Json,
}

/// The sections that group keys.
pub(super) const SECTIONS: [&str; 7] =
    ["retry", "provider", "lease", "reconcile", "payload", "result", "retention"];

const NO_KEY_NO_GUARD: &str = "without a stable key nothing keeps an effect from happening twice";

/// Every key.
pub(super) const KEYS: [Key; 22] = [
    Key {
        path: "operation_key",
        read: |_, node| value::only(node, "required", NO_KEY_NO_GUARD),
        show: |_| json!("required"),
    },
    Key {
        path: "retry.reuse_operation_key",
        read: |_, node| value::only(node, "true", NO_KEY_NO_GUARD),
        show: |_| json!(true),
    },
    Key {
        path: "retry.on_timeout",
        read: |p, node| set(&mut p.on_timeout, value::word(node)),
        show: |p| json!(p.on_timeout.as_word()),
    },
    Key {
        path: "terminal_states",
        read: |_, node| value::terminal_states(node),
        show: |_| json!(["succeeded", "failed_final"]),
    },
    Key {
        path: "unknown_after_seconds",
        read: |p, node| set(&mut p.unknown_after, value::seconds(node)),
        show: |p| seconds(p.unknown_after),
    },
    Key {
        path: "on_unresolved",
        read: |p, node| set(&mut p.on_unresolved, value::word(node)),
        show: |p| json!(p.on_unresolved.as_word()),
    },
    Key {
        path: "max_attempts",
        read: |p, node| set(&mut p.max_attempts, value::count(node)),
        show: |p| json!(p.max_attempts),
    },
    Key {
        path: "provider.lookup",
        read: |p, node| set(&mut p.lookup, value::word(node)),
        show: |p| json!(p.lookup.as_word()),
    },
    Key {
        path: "provider.absence_settle_seconds",
        read: |p, node| set(&mut p.absence_settle, value::seconds_or_zero(node)),
        show: |p| seconds(p.absence_settle),
    },
    Key {
        path: "provider.idempotency_key_ttl_seconds",
        read: |p, node| set(&mut p.idempotency_key_ttl, value::seconds_or(node, "none")),
        show: |p| p.idempotency_key_ttl.map_or(json!("none"), seconds),
    },
    Key {
        path: "lease.default_seconds",
        read: |p, node| set(&mut p.lease_default, value::seconds(node)),
        show: |p| seconds(p.lease_default),
    },
    Key {
        path: "lease.max_seconds",
        read: |p, node| set(&mut p.lease_max, value::seconds(node)),
        show: |p| seconds(p.lease_max),
    },
    Key {
        path: "reconcile.initial_delay_seconds",
        read: |p, node| set(&mut p.reconcile.initial_delay, value::seconds(node)),
        show: |p| seconds(p.reconcile.initial_delay),
    },
    Key {
        path: "reconcile.multiplier",
        read: |p, node| set(&mut p.reconcile.multiplier, value::factor(node, 1.0, 100.0)),
        show: |p| number(p.reconcile.multiplier),
    },
    Key {
        path: "reconcile.max_interval_seconds",
        read: |p, node| set(&mut p.reconcile.max_interval, value::seconds(node)),
        show: |p| seconds(p.reconcile.max_interval),
    },
    Key {
        path: "reconcile.jitter",
        read: |p, node| set(&mut p.reconcile.jitter, value::factor(node, 0.0, 1.0)),
        show: |p| number(p.reconcile.jitter),
    },
    Key {
        path: "payload.max_bytes",
        read: |p, node| set(&mut p.payload_max_bytes, value::bytes(node)),
        show: |p| json!(p.payload_max_bytes),
    },
    Key {
        path: "payload.reject_fractions",
        read: |p, node| set(&mut p.reject_fractions, value::switch(node)),
        show: |p| json!(p.reject_fractions),
    },
    Key {
        path: "result.max_bytes",
        read: |p, node| set(&mut p.result_max_bytes, value::bytes(node)),
        show: |p| json!(p.result_max_bytes),
    },
    Key {
        path: "result.redact",
        read: |p, node| set(&mut p.result_redact, value::pointers(node)),
        show: |p| json!(p.result_redact),
    },
    Key {
        path: "retention.result_days",
        read: |p, node| set(&mut p.result_days, value::days_or(node, "forever")),
        show: |p| p.result_days.map_or(json!("forever"), |days| json!(days)),
    },
    Key {
        path: "retention.key_days",
        read: |p, node| set(&mut p.key_days, value::days_or(node, "forever")),
        show: |p| p.key_days.map_or(json!("forever"), |days| json!(days)),
    },
];

impl Word for OnTimeout {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("reconcile_before_retry", OnTimeout::ReconcileBeforeRetry),
        ("retry_same_key", OnTimeout::RetrySameKey),
        ("require_human_review", OnTimeout::RequireHumanReview),
    ];
}

impl Word for OnUnresolved {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("require_human_review", OnUnresolved::RequireHumanReview),
        ("keep_unknown", OnUnresolved::KeepUnknown),
    ];
}

impl Word for Lookup {
    const WORDS: &'static [(&'static str, Self)] =
        &[("authoritative", Lookup::Authoritative), ("eventual", Lookup::Eventual), ("none", Lookup::None)];
}

/// The position in [`KEYS`] of a path.
pub(super) fn position(path: &str) -> Option<usize> {
    KEYS.iter().position(|key| key.path == path)
}

/// The keys directly in a section ("" is the entry itself), without its name.
pub(super) fn within(section: &str) -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter_map(move |key| match key.path.split_once('.') {
        Some((first, rest)) => (first == section).then_some(rest),
        None => section.is_empty().then_some(key.path),
    })
}

fn set<T>(field: &mut T, value: Read<T>) -> Read<()> {
    *field = value?;
    Ok(())
}

fn seconds(duration: Duration) -> Json {
    number(duration.as_secs_f64())
}

/// Whole numbers without `.0`, as people write them.
fn number(value: f64) -> Json {
    if value.fract() == 0.0 { json!(value as u64) } else { json!(value) }
}
