//! Notices what time has brought about where no command comes by: lapsed leases, operations that stay
//! unknown too long. Several replicas may sweep; the swap lets each change happen once.

use super::{Engine, Error, SWEEPER};
use crate::ledger::{Action, Command, DueKind};
use std::time::Duration;
use tokio::sync::watch;

/// Operations looked at in one go.
const SWEEP_MAX: u32 = 256;

pub(super) async fn run(engine: Engine, interval: Duration, mut stopping: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = super::stopped(&mut stopping) => return,
        }
        let outcome = tokio::select! {
            outcome = sweep(&engine) => outcome,
            () = super::stopped(&mut stopping) => return,
        };
        match outcome {
            Ok(()) => failing = false,
            // Once an outage, not once a second.
            Err(error) if !failing => {
                tracing::warn!(?error, "the sweep for lapsed leases failed; it goes on trying");
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
        if is_last {
            return Ok(());
        }
    }
}
