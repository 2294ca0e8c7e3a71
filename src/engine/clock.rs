//! The store's clock, carried forward between its answers by this process's monotonic clock.

use crate::ledger::Timestamp;
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How far the store's clock may be from the carried one when a batch arrives. See
/// `docs/decisions/0002-the-databases-clock-carried-forward.md`.
pub(super) const TOLERANCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Clock {
    last: Mutex<Option<(Timestamp, Instant)>>,
}

impl Clock {
    /// Takes over what the store just said.
    pub fn learn(&self, now: Timestamp) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Instant::now()));
    }

    /// The store's time, late by at most its last answer's travel time; none before its first answer.
    pub fn now(&self) -> Option<Timestamp> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.map(|(now, at)| now.plus(at.elapsed()))
    }
}
