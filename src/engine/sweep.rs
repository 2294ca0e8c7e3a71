//! Notices what time has brought about where no command comes by: lapsed leases, operations that stay
//! unknown too long, results and keys that are no longer kept. Several replicas may sweep; the swap lets each change happen once.

use super::{Engine, Error, SWEEPER};
use crate::ledger::{Action, Command, DueKind, Key};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Operations looked at in one go.
const SWEEP_MAX: u32 = 256;

/// How much rarer than lapsed leases the end of keeping is looked for: it is planned in days.
const RETENTION_RARER: u32 = 10;
/// After each batch retention rests for so many times the time that the batch took: the busier the
/// database, the slower it goes.
const RETENTION_REST: u32 = 4;
/// It rests at least so long.
const RETENTION_REST_MIN: Duration = Duration::from_millis(5);

/// Looks for lapsed leases and unresolved operations.
pub(super) async fn run(engine: Engine, interval: Duration, stopping: watch::Receiver<bool>) {
    repeat(interval, stopping, "the sweep for lapsed leases", || sweep(&engine)).await;
}

/// Looks for what the policies no longer keep.
pub(super) async fn retain(engine: Engine, interval: Duration, batch: u32, stopping: watch::Receiver<bool>) {
    let interval = interval.saturating_mul(RETENTION_RARER);
    repeat(interval, stopping, "retention", || forget(&engine, batch.max(1))).await;
}

/// Does `work` again and again until the engine stops.
async fn repeat<F: Future<Output = Result<(), Error>>>(
    interval: Duration,
    mut stopping: watch::Receiver<bool>,
    what: &'static str,
    work: impl Fn() -> F,
) {
    let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = super::stopped(&mut stopping) => return,
        }
        let outcome = tokio::select! {
            outcome = work() => outcome,
            () = super::stopped(&mut stopping) => return,
        };
        match outcome {
            Ok(()) => failing = false,
            // Once an outage, not once a second.
            Err(error) if !failing => {
                tracing::warn!(?error, "{what} failed; it goes on trying");
                failing = true;
            }
            Err(_) => {}
        }
    }
}

async fn sweep(engine: &Engine) -> Result<(), Error> {
    loop {
        let keys = engine.inner.store.due(DueKind::Sweep, SWEEP_MAX).await?;
        let is_last = keys.len() < SWEEP_MAX as usize;
        observe(engine, keys).await?;
        if is_last {
            return Ok(());
        }
    }
}

async fn forget(engine: &Engine, batch: u32) -> Result<(), Error> {
    let mut before = Vec::new();
    loop {
        let begun = Instant::now();
        let keys = engine.inner.store.due(DueKind::Retain, batch).await?;
        // The same again: something holds them. Not in a hurry.
        if keys.is_empty() || keys == before {
            return Ok(());
        }
        observe(engine, keys.clone()).await?;
        let is_last = keys.len() < batch as usize;
        if is_last {
            return Ok(());
        }
        before = keys;
        tokio::time::sleep((begun.elapsed() * RETENTION_REST).max(RETENTION_REST_MIN)).await;
    }
}

/// Lets the rules look at each of these.
async fn observe(engine: &Engine, keys: Vec<Key>) -> Result<(), Error> {
    let mut answers = Vec::with_capacity(keys.len());
    for key in keys {
        let command = Command { key, actor: SWEEPER.into(), action: Action::Observe };
        answers.push(engine.submit(command)?);
    }
    for answer in answers {
        match answer.await {
            // Gone in the meantime, or somebody else was faster.
            Ok(Ok(_) | Err(Error::Refused(_) | Error::Contended)) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(Error::Stopping),
        }
    }
    Ok(())
}
