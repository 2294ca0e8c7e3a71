//! Whether this replica should get calls: one value, served as /readyz and as `grpc.health.v1`.

use crate::{shutdown::Shutdown, store::Store};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// How often the store is asked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long it may take to answer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Failures in a row before calls are sent elsewhere. One lost packet must not take every replica
/// out at the same moment; one success brings a replica back.
const FAILURES_BEFORE_NOT_READY: u32 = 2;

/// Whether this replica should get calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It should.
    Ready,
    /// It should not, because the store …
    StoreAway(String),
    /// It should not: it is about to stop. Final.
    Draining,
}

/// The value, and who changes it. Cheap to clone.
#[derive(Clone)]
pub struct Health(Arc<watch::Sender<Readiness>>);

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl Health {
    /// Not ready before the first check has succeeded.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Readiness::StoreAway("not checked yet".into()))))
    }

    /// The value now.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.0.borrow().clone()
    }

    /// The value and its changes.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Readiness> {
        self.0.subscribe()
    }

    /// Sets the value. Nothing leaves [`Readiness::Draining`].
    pub fn set(&self, readiness: Readiness) {
        self.0.send_if_modified(|current| {
            let changes = *current != Readiness::Draining && *current != readiness;
            if changes {
                *current = readiness;
            }
            changes
        });
    }
}

/// Follows failures in a row.
#[derive(Default)]
struct Hysteresis {
    failures: u32,
}

impl Hysteresis {
    /// What follows from one more check; none: no change.
    fn observe(&mut self, check: Result<(), String>) -> Option<Readiness> {
        match check {
            Ok(()) => {
                self.failures = 0;
                Some(Readiness::Ready)
            }
            Err(why) => {
                self.failures = self.failures.saturating_add(1);
                (self.failures >= FAILURES_BEFORE_NOT_READY).then_some(Readiness::StoreAway(why))
            }
        }
    }
}

/// Asks the store each second until the shutdown begins.
pub async fn monitor(store: Arc<dyn Store>, health: Health, shutdown: Shutdown) {
    let mut hysteresis = Hysteresis::default();
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let stopped = shutdown.wait();
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            () = &mut stopped => return health.set(Readiness::Draining),
            _ = ticks.tick() => {}
        }
        let check = match tokio::time::timeout(CHECK_TIMEOUT, store.check()).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {CHECK_TIMEOUT:?}")),
        };
        if let Some(readiness) = hysteresis.observe(check) {
            report_change(&health.readiness(), &readiness);
            health.set(readiness);
        }
    }
}

/// One line when it changes, not one a second.
fn report_change(before: &Readiness, after: &Readiness) {
    match (before, after) {
        (Readiness::StoreAway(_), Readiness::Ready) => tracing::info!("the store answers: ready"),
        (Readiness::Ready, Readiness::StoreAway(why)) => {
            tracing::error!(error = %why, "the store does not answer: not ready");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_is_forgiven_two_are_not_and_one_success_is_enough() {
        let mut hysteresis = Hysteresis::default();
        let away = || Err("away".to_owned());
        assert_eq!(hysteresis.observe(Ok(())), Some(Readiness::Ready));
        assert_eq!(hysteresis.observe(away()), None);
        assert_eq!(hysteresis.observe(Ok(())), Some(Readiness::Ready));
        assert_eq!(hysteresis.observe(away()), None);
        assert_eq!(hysteresis.observe(away()), Some(Readiness::StoreAway("away".into())));
        assert_eq!(hysteresis.observe(Ok(())), Some(Readiness::Ready));
    }

    #[test]
    fn nothing_leaves_draining() {
        let health = Health::new();
        health.set(Readiness::Ready);
        health.set(Readiness::Draining);
        health.set(Readiness::Ready);
        assert_eq!(health.readiness(), Readiness::Draining);
    }
}
