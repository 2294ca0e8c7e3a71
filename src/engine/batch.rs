//! One key's commands of one batch, folded in memory and written once.

use super::Error;
use crate::{
    ledger::{Action, Command, Due, Event, EventKind, Key, Operation, Refused, Reply, Timestamp, transition},
    policy_file::PolicySet,
    store::{Forgets, Write},
};
use tokio::sync::oneshot;

/// A command and who waits for its answer.
pub(super) struct Job {
    pub command: Command,
    pub answer: oneshot::Sender<Result<Reply, Error>>,
    /// How often it was decided on a record that was another one by then.
    pub tries: u32,
}

impl Job {
    pub fn new(command: Command, answer: oneshot::Sender<Result<Reply, Error>>) -> Self {
        Self { command, answer, tries: 0 }
    }
}

/// All commands of a batch on one key, in the order in which they came.
pub(super) struct Group {
    pub jobs: Vec<Job>,
    pub fold: Option<Fold>,
}

/// What became of a group's commands in memory.
pub(super) struct Fold {
    pub answers: Vec<Result<Reply, Box<Refused>>>,
    pub write: Option<Write>,
}

impl Group {
    pub fn key(&self) -> &Key {
        &self.jobs[0].command.key
    }

    /// True where the first command may be decided without a record: a registration of a key that is
    /// most likely new. Storage finds out when it is not.
    pub fn may_be_new(&self) -> bool {
        self.jobs[0].tries == 0 && matches!(self.jobs[0].command.action, Action::Register(_))
    }

    /// True where an earlier decision turned out to be on an old record.
    pub fn must_load(&self) -> bool {
        self.jobs[0].tries > 0
    }

    /// Decides the commands one after the other.
    pub fn decide(&mut self, base: Option<Operation>, policies: &PolicySet, now: Timestamp) {
        let mut current = base.clone();
        let mut events: Vec<Event> = Vec::new();
        let mut changed = false;
        let mut forgets = Forgets::Nothing;
        let mut answers = Vec::with_capacity(self.jobs.len());
        for job in &self.jobs {
            let action_type = match (&current, &job.command.action) {
                (Some(operation), _) => operation.identity.action_type.clone(),
                (None, Action::Register(request)) => request.action_type.clone(),
                (None, _) => "".into(),
            };
            let policy = policies.get(&action_type);
            let decision = transition(current.as_ref(), &job.command, policy, now);
            for change in decision.changes {
                changed = true;
                if change.event.as_ref().is_some_and(|event| event.kind == EventKind::ResultForgotten) {
                    forgets = Forgets::History;
                }
                current = Some(change.after);
                events.extend(change.event);
            }
            answers.push(decision.answer);
            if decision.forgets_key {
                // The rest wait for the next batch: one write cannot both end a key and begin it again.
                forgets = Forgets::Key;
                break;
            }
        }
        let write = current.filter(|_| changed || forgets == Forgets::Key).map(|after| Write {
            expected: base.as_ref().map(Operation::revision),
            due_before: base.as_ref().map(Due::of).unwrap_or_default(),
            after,
            events,
            forgets,
        });
        self.fold = Some(Fold { answers, write });
    }

    /// Takes out the commands that came after the end of their key and are still undecided.
    pub fn take_undecided(&mut self) -> Vec<Job> {
        let decided = self.fold.as_ref().map_or(0, |fold| fold.answers.len());
        self.jobs.split_off(decided.min(self.jobs.len()))
    }

    /// Sends the decided answers.
    pub fn answer(self) {
        let answers = self.fold.map(|fold| fold.answers).unwrap_or_default();
        for (job, answer) in self.jobs.into_iter().zip(answers) {
            // The caller may have gone; what it asked for is done all the same.
            drop(job.answer.send(answer.map_err(Error::Refused)));
        }
    }

    /// Sends the same error to all.
    pub fn fail(self, error: impl Fn() -> Error) {
        for job in self.jobs {
            drop(job.answer.send(Err(error())));
        }
    }
}
