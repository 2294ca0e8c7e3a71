//! A decision in the making: the record as it is so far, and the changes that led there.

use super::{Answer, next_step};
use crate::ledger::{
    Change, Command, Decision, Event, EventKind, Granted, LeaseToken, NextStep, Operation, Policy, Refusal,
    Refused, Reply, State, Status, Timestamp, event::Detail,
};
use std::sync::Arc;
use uuid::Uuid;

pub(super) struct Draft<'a> {
    pub operation: Operation,
    pub policy: &'a Policy,
    pub now: Timestamp,
    actor: Arc<str>,
    changes: Vec<Change>,
}

impl<'a> Draft<'a> {
    pub fn of(operation: &Operation, command: &Command, policy: &'a Policy, now: Timestamp) -> Self {
        Self { operation: operation.clone(), policy, now, actor: command.actor.clone(), changes: Vec::new() }
    }

    pub fn state(&self) -> &State {
        &self.operation.state
    }

    pub fn operation_id(&self) -> Uuid {
        self.operation.identity.operation_id
    }

    /// Accepts a change: the next version, and its one event.
    pub fn accept(&mut self, kind: EventKind, detail: Detail, edit: impl FnOnce(&mut State)) {
        let before = self.operation.state.clone();
        let state = &mut self.operation.state;
        state.reports.forget_passing();
        edit(state);
        state.version += 1;
        state.updated_at = self.now;
        let detail = detail.with_changes(&before, state);
        let event = self.event(kind, detail);
        self.changes.push(Change { after: self.operation.clone(), event: Some(event) });
    }

    /// Notes a refusal: the version stays, the count grows, and `event` tells whether it gets an entry.
    pub fn note_conflict(&mut self, detail: Detail, keep_event: bool) {
        self.operation.state.conflict_count = self.state().conflict_count.saturating_add(1);
        let event = keep_event.then(|| self.event(EventKind::ConflictRefused, detail));
        self.changes.push(Change { after: self.operation.clone(), event });
    }

    /// Changes what is only planned: the version stays, and there is no event.
    pub fn amend(&mut self, edit: impl FnOnce(&mut State)) {
        edit(&mut self.operation.state);
        self.changes.push(Change { after: self.operation.clone(), event: None });
    }

    fn event(&self, kind: EventKind, detail: Detail) -> Event {
        let state = self.state();
        Event {
            version: state.version,
            kind,
            status: state.status,
            attempt: state.attempt_count,
            actor: self.actor.clone(),
            at: self.now,
            detail,
        }
    }

    /// The attempt that this token proves, if it was ever granted.
    pub fn attempt_of(&self, token: &LeaseToken) -> Option<i32> {
        token.attempt(&self.operation.identity.lease_secret, self.state().attempt_count)
    }

    /// True where the token is that of the attempt now in progress, its lease live or not yet noticed to
    /// be over.
    pub fn is_holder(&self, token: &LeaseToken) -> bool {
        self.state().status == Status::InProgress
            && self.attempt_of(token) == Some(self.state().attempt_count)
    }

    /// The current lease, as its holder gets it.
    pub fn granted(&self) -> Option<Granted> {
        let state = self.state();
        state.lease.as_ref().map(|lease| Granted {
            token: LeaseToken::for_attempt(&self.operation.identity.lease_secret, state.attempt_count),
            attempt: state.attempt_count,
            until: lease.until,
            remaining: lease.until.since(self.now),
        })
    }

    /// The current checker's lease, as its holder gets it.
    pub fn check_granted(&self) -> Option<Granted> {
        let state = self.state();
        state.check_lease.as_ref().map(|lease| Granted {
            token: LeaseToken::for_check(&self.operation.identity.lease_secret, state.check_lease_count),
            attempt: state.attempt_count,
            until: lease.until,
            remaining: lease.until.since(self.now),
        })
    }

    /// True where the token is that of the checker's lease granted last, and its report has not come.
    pub fn is_checker(&self, token: &LeaseToken) -> bool {
        let state = self.state();
        let check = token.check(&self.operation.identity.lease_secret, state.check_lease_count);
        state.check_lease.is_some() && check == Some(state.check_lease_count)
    }

    /// The answer to somebody who holds no lease.
    pub fn reply(&self) -> Reply {
        let next_step = next_step(&self.operation, self.policy, self.now);
        let state = self.state();
        let retry_at = match next_step {
            NextStep::Wait => state.lease.as_ref().map(|lease| lease.until),
            NextStep::Reconcile => state.next_check_at.filter(|at| *at > self.now),
            _ => None,
        };
        Reply {
            operation: self.operation.clone(),
            next_step,
            lease: None,
            retry_after: retry_at.map(|at| at.since(self.now)),
            created: false,
            replayed: false,
            applied: false,
        }
    }

    /// The answer to the holder of the current lease.
    pub fn reply_to_holder(&self) -> Reply {
        Reply { next_step: NextStep::Execute, lease: self.granted(), retry_after: None, ..self.reply() }
    }

    pub fn decide(self, answer: Answer) -> Decision {
        let answer = answer.map_err(|refusal| {
            Box::new(Refused {
                refusal,
                next_step: Some(next_step(&self.operation, self.policy, self.now)),
                operation: Some(self.operation.clone()),
            })
        });
        Decision { changes: self.changes, forgets_key: false, answer }
    }

    /// From here on there is no such operation.
    pub fn forget_key(self) -> Decision {
        Decision { changes: self.changes, forgets_key: true, ..not_found() }
    }
}

pub(super) fn not_found() -> Decision {
    let refused = Refused { refusal: Refusal::NotFound, operation: None, next_step: None };
    Decision { changes: Vec::new(), forgets_key: false, answer: Err(Box::new(refused)) }
}
