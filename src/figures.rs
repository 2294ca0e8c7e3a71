//! Reads the figures of unfinished work from the database, for /metrics.

use crate::{
    health::{Health, Readiness},
    ledger::DueKind,
    shutdown::Shutdown,
    store::{Error, Figure, Store},
    telemetry::{Metrics, WorkFigures},
};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

/// How long the database may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads them at once and then about every `interval`, until the shutdown begins. While the store is away
/// nothing is asked and the last figures stay.
pub async fn run(
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    health: Health,
    interval: Duration,
    shutdown: Shutdown,
) {
    let stopped = shutdown.wait();
    tokio::pin!(stopped);
    let mut failing = false;
    loop {
        if health.readiness() == Readiness::Ready {
            let outcome = tokio::select! {
                outcome = tokio::time::timeout(TIMEOUT, read(&*store, &metrics)) => outcome,
                () = &mut stopped => return,
            };
            let failure = match outcome {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("no answer within {TIMEOUT:?}")),
            };
            // Once an outage, not once each time.
            if let Some(error) = failure.as_ref().filter(|_| !failing) {
                tracing::warn!(error, "the figures for /metrics could not be read; the last ones stay");
            }
            failing = failure.is_some();
        }
        tokio::select! {
            () = tokio::time::sleep(jittered(interval)) => {}
            () = &mut stopped => return,
        }
    }
}

/// Longer or shorter by up to a tenth: replicas that were started together do not ask together.
fn jittered(interval: Duration) -> Duration {
    let share = f64::from(Uuid::new_v4().as_bytes()[0]) / 255.0;
    interval.mul_f64(0.9 + 0.2 * share)
}

/// Reads them once.
///
/// # Errors
/// What the store says; then the last figures stay.
pub async fn read(store: &dyn Store, metrics: &Metrics) -> Result<(), Error> {
    let figures = store.figures().await?;
    metrics.show_work(&summed(&figures));
    Ok(())
}

/// What the counts of due work say about operations: one that is in progress has a lease that will end, one
/// that is unknown has a check, one that waits for a deliverer has a delivery.
fn summed(figures: &[Figure]) -> WorkFigures {
    let mut sum = WorkFigures::default();
    for figure in figures {
        let status = match figure.kind {
            DueKind::Sweep if !figure.is_unknown => "in_progress",
            DueKind::Check => {
                sum.checks_due += figure.due;
                sum.oldest_unknown = sum.oldest_unknown.max(figure.unknown_for);
                "unknown"
            }
            DueKind::Deliver => "pending_delivery",
            DueKind::Review => {
                sum.oldest_review = sum.oldest_review.max(Some(figure.due_for));
                *sum.reviews.entry(figure.action_type.clone()).or_default() += figure.count;
                continue;
            }
            DueKind::Sweep | DueKind::Retain => continue,
        };
        *sum.operations.entry((figure.action_type.clone(), status)).or_default() += figure.count;
    }
    sum
}
