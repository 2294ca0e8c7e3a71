//! What the rules answer.

use super::{event::Event, lease::LeaseToken, operation::Operation, timestamp::Timestamp};
use std::time::Duration;

/// The one thing that a caller may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// You hold the lease: call the provider with this operation key.
    Execute,
    /// Ask for the permission to act.
    Claim,
    /// Another holds it.
    Wait,
    /// Ask the provider, report with Reconcile.
    Reconcile,
    /// It is done: use the result.
    UseResult,
    /// Finally failed: no automatic retry.
    Stop,
    /// A person decides.
    Review,
}

/// What the rules decided: what to write, and what to answer once that is durable.
#[derive(Clone, Debug)]
pub struct Decision {
    /// At most two: where a lease has lapsed, that comes first.
    pub changes: Vec<Change>,
    /// The operation's key is no longer kept: after the changes, everything of it is deleted.
    pub forgets_key: bool,
    /// The answer. A refusal may still have changes: the lapse, or the note of a conflict.
    pub answer: Result<Reply, Box<Refused>>,
}

/// One step of the record.
#[derive(Clone, Debug)]
pub struct Change {
    /// The record after it.
    pub after: Operation,
    /// Its event; none where a refusal is only counted.
    pub event: Option<Event>,
}

/// An accepted command.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The record after it.
    pub operation: Operation,
    /// What the caller may do now.
    pub next_step: NextStep,
    /// The lease that the caller holds, where it does.
    pub lease: Option<Granted>,
    /// How long to wait: with [`NextStep::Wait`] for the lease's end, with [`NextStep::Reconcile`] until the
    /// check is due, where it is not.
    pub retry_after: Option<Duration>,
    /// Register: the operation is new.
    pub created: bool,
    /// The command had been carried out before.
    pub replayed: bool,
    /// Reconcile: the observation settled something.
    pub applied: bool,
}

/// A lease as its holder gets it.
#[derive(Clone, Debug)]
pub struct Granted {
    /// Proves it.
    pub token: LeaseToken,
    /// Which attempt.
    pub attempt: i32,
    /// When it is over, on the database's clock.
    pub until: Timestamp,
    /// What is left of it now.
    pub remaining: Duration,
}

/// A refused command.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// The record as it is, where there is one.
    pub operation: Option<Operation>,
    /// What the caller may do now, where there is a record.
    pub next_step: Option<NextStep>,
}

/// Why a command is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No operation has this key.
    NotFound,
    /// The key is taken by another request.
    RequestHashMismatch {
        /// The action type differs (as well).
        action_type_differs: bool,
    },
    /// The token is not the current one, or its lease is gone.
    LeaseLost,
    /// The report contradicts the recorded outcome. It was kept.
    OutcomeConflict,
    /// The operation is finished.
    AlreadyTerminal,
    /// `if_version` is not the version.
    VersionMismatch,
    /// A field that only the policy of the recorded action type can judge.
    InvalidField {
        /// Path of the field in the request.
        field: &'static str,
        /// What is allowed.
        description: String,
    },
}
