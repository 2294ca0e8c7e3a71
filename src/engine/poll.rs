//! Hands out due work: unknown operations to checkers, stored requests to deliverers.
//!
//! The store names candidates; each is then taken by a command like any other, so that two workers, on
//! whatever replica, never get the same one.

use super::{Engine, Error};
use crate::{
    ledger::{
        Action, ClaimOptions, Command, DueKind, Key, Reply,
        command::{Claim, ClaimCheck},
    },
    store::{Candidate, PollQuery},
};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use uuid::Uuid;

/// Work that another replica, or the passing of time, made due is found after this at the latest.
const RECHECK: Duration = Duration::from_secs(2);
/// Two looks of one waiting poll are at least this far apart.
const PAUSE: Duration = Duration::from_millis(20);

/// What a worker asks for.
#[derive(Clone)]
pub struct Poll {
    /// Which work.
    pub query: PollQuery,
    /// How many operations at most.
    pub max: usize,
    /// Made by the caller, kept over its retries.
    pub poll_id: Uuid,
    /// A note for people.
    pub worker_id: String,
    /// None: the policy's default.
    pub lease_duration: Option<Duration>,
    /// Who asks.
    pub actor: Arc<str>,
}

impl Engine {
    /// Takes due work; where there is none, waits for it until `deadline`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn poll(&self, poll: &Poll, deadline: Instant) -> Result<Vec<Reply>, Error> {
        // A repeat: what the first one took. Its answer may have been lost.
        let held = self.inner.store.polled(&poll.query.namespace, poll.poll_id).await?;
        let again = self.take(poll, held).await?;
        if !again.is_empty() {
            return Ok(again);
        }
        let mut draining = self.inner.draining.subscribe();
        let mut due = self.inner.due.subscribe();
        loop {
            due.mark_unchanged();
            let taken = self.take_due(poll).await?;
            if !taken.is_empty() || Instant::now() >= deadline || *draining.borrow() {
                return Ok(taken);
            }
            let next = self.inner.store.poll_next(&poll.query).await?.unwrap_or(RECHECK);
            let wake = Instant::now() + next.clamp(PAUSE, RECHECK);
            tokio::select! {
                () = super::stopped(&mut draining) => {}
                () = tokio::time::sleep_until(wake.min(deadline)) => {}
                _ = due.changed() => tokio::time::sleep(PAUSE.min(deadline - Instant::now())).await,
            }
        }
    }

    /// Takes what is due now. Others may be faster with some of it: then the next ones are tried.
    async fn take_due(&self, poll: &Poll) -> Result<Vec<Reply>, Error> {
        let limit = u32::try_from(poll.max.saturating_mul(4)).unwrap_or(u32::MAX);
        let candidates = self.inner.store.poll_due(&poll.query, limit).await?;
        let mut order: VecDeque<Key> = in_turn(candidates).into();
        let mut taken = Vec::new();
        while taken.len() < poll.max && !order.is_empty() {
            let keys = order.drain(..order.len().min(poll.max - taken.len())).collect();
            taken.extend(self.take(poll, keys).await?);
        }
        Ok(taken)
    }

    /// Takes these, all at once; those that are somebody else's by now are left out.
    async fn take(&self, poll: &Poll, keys: Vec<Key>) -> Result<Vec<Reply>, Error> {
        let mut answers = Vec::with_capacity(keys.len());
        for key in keys {
            answers.push(self.submit(command(poll, key))?);
        }
        let mut taken = Vec::with_capacity(answers.len());
        for answer in answers {
            match answer.await.unwrap_or(Err(Error::Stopping)) {
                Ok(reply) if reply.lease.is_some() => taken.push(reply),
                Ok(_) | Err(Error::Refused(_) | Error::Contended) => {}
                // What was taken before is the caller's, and is found again by the repeat.
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }
}

fn command(poll: &Poll, key: Key) -> Command {
    let action = match poll.query.kind {
        DueKind::Deliver => Action::Claim(Claim {
            options: ClaimOptions {
                claim_id: claim_id(poll.poll_id, &key),
                worker_id: poll.worker_id.clone(),
                lease_duration: poll.lease_duration,
                two_step: true,
                poll_id: Some(poll.poll_id),
            },
            expected_request_hash: None,
        }),
        _ => Action::ClaimCheck(ClaimCheck {
            poll_id: poll.poll_id,
            worker_id: poll.worker_id.clone(),
            lease_duration: poll.lease_duration,
        }),
    };
    Command { key, actor: poll.actor.clone(), action }
}

/// The claim id of one operation in one poll: the same for its repeat, another for every other poll.
fn claim_id(poll_id: Uuid, key: &Key) -> Uuid {
    let mut digest = Sha256::new();
    digest.update(b"opledger poll 1");
    digest.update(poll_id.as_bytes());
    digest.update(key.operation_key.as_bytes());
    let digest = digest.finalize();
    uuid::Builder::from_custom_bytes(std::array::from_fn(|at| digest[at])).into_uuid()
}

/// One of each action type in turn, the type with the longest due first; within a type longest due first.
fn in_turn(candidates: Vec<Candidate>) -> Vec<Key> {
    let mut queues: BTreeMap<Arc<str>, VecDeque<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        queues.entry(candidate.action_type.clone()).or_default().push_back(candidate);
    }
    let mut queues: Vec<VecDeque<Candidate>> = queues.into_values().collect();
    queues.sort_by_key(|queue| queue.front().map(|first| first.due_at));
    let mut order = Vec::new();
    while !queues.is_empty() {
        order.extend(queues.iter_mut().filter_map(VecDeque::pop_front).map(|candidate| candidate.key));
        queues.retain(|queue| !queue.is_empty());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Timestamp;

    #[test]
    fn a_flooded_action_type_does_not_starve_another() {
        let candidate = |action: &str, due_at: i64| Candidate {
            due_at: Timestamp(due_at),
            action_type: action.into(),
            key: Key::new("default", &format!("{action}{due_at}")),
        };
        let mut candidates: Vec<_> = (0..5).map(|at| candidate("flood", at)).collect();
        candidates.extend([candidate("rare", 9), candidate("odd", 3), candidate("odd", 4)]);
        let order: Vec<_> = in_turn(candidates).iter().map(|key| key.operation_key.to_string()).collect();
        assert_eq!(order, ["flood0", "odd3", "rare9", "flood1", "odd4", "flood2", "flood3", "flood4"]);
    }
}
