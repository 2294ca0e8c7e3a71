//! When the provider is asked next.

use crate::ledger::Policy;
use std::time::Duration;
use uuid::Uuid;

/// The delay before the check that follows `done` checks: it grows by the multiplier up to the longest
/// interval, and is moved by the jitter so that operations which became unknown together are not all
/// asked about together. The jitter is drawn from the operation's id: the same operation, the same delay.
pub(super) fn delay(id: Uuid, policy: &Policy, done: i32) -> Duration {
    let schedule = &policy.reconcile;
    let exponent = done.clamp(0, 1000);
    let grown = schedule.initial_delay.as_secs_f64() * schedule.multiplier.max(1.0).powi(exponent);
    let capped = grown.min(schedule.max_interval.as_secs_f64());
    let moved = capped * (1.0 + schedule.jitter.clamp(0.0, 1.0) * spread(id, done));
    Duration::try_from_secs_f64(moved.max(0.0)).unwrap_or(schedule.max_interval)
}

/// A number between -1 and 1 that looks random and depends on the operation and the check only.
fn spread(id: Uuid, done: i32) -> f64 {
    let (high, low) = id.as_u64_pair();
    // The finaliser of SplitMix64: it mixes well and needs no generator.
    let mut x = (high ^ low).wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(done.unsigned_abs().into()));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let unit = f64::from(u32::try_from((x ^ (x >> 31)) >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    unit * 2.0 - 1.0
}
