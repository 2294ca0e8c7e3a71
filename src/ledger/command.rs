//! What a caller may ask for. Fresh ids and secrets come in with the command: nothing is random
//! inside.

use super::{lease::LeaseToken, operation::Key, timestamp::Timestamp};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use uuid::Uuid;

/// One command on one operation.
#[derive(Clone)]
pub struct Command {
    /// Which operation.
    pub key: Key,
    /// Who asks: the authenticated principal, or `system:…`.
    pub actor: Arc<str>,
    /// What is asked.
    pub action: Action,
}

/// What is asked.
#[derive(Clone)]
pub enum Action {
    /// Record the intention; claim it in the same step where `claim` is set.
    Register(Box<Register>),
    /// Ask for the permission to act.
    Claim(Claim),
    /// About to send (two-step attempts).
    Dispatch(Extend),
    /// Heartbeat.
    Renew(Extend),
    /// The outcome is known.
    Complete(Complete),
    /// The outcome is unknown.
    MarkUnknown(MarkUnknown),
    /// What the provider, or a person, says.
    Reconcile(Box<Reconcile>),
    /// Ask for the lease to check an unknown operation whose check is due.
    ClaimCheck(ClaimCheck),
    /// Nothing but the time has passed (the sweeper; a read that must be current).
    Observe,
}

/// See [`Action::Register`].
#[derive(Clone)]
pub struct Register {
    /// Fresh, for the case that the operation is new.
    pub operation_id: Uuid,
    /// Fresh, for the case that the operation is new.
    pub lease_secret: [u8; 16],
    /// Which tool.
    pub action_type: Arc<str>,
    /// SHA-256 of the canonical request.
    pub request_hash: [u8; 32],
    /// How it was made.
    pub hash_scheme: Arc<str>,
    /// For finding it again.
    pub labels: BTreeMap<String, String>,
    /// The operation that this one is a part of.
    pub parent_operation_key: Option<String>,
    /// The request, only where it is to be stored.
    pub payload_json: Option<String>,
    /// Claim in the same step.
    pub claim: Option<ClaimOptions>,
}

/// How to claim.
#[derive(Clone)]
pub struct ClaimOptions {
    /// Made by the caller, kept over its retries: names one attempt at most.
    pub claim_id: Uuid,
    /// A note for people.
    pub worker_id: String,
    /// None: the policy's default.
    pub lease_duration: Option<Duration>,
    /// Nothing is sent before Dispatch was acknowledged.
    pub two_step: bool,
    /// The poll that claims, where it is one.
    pub poll_id: Option<Uuid>,
}

/// See [`Action::ClaimCheck`].
#[derive(Clone)]
pub struct ClaimCheck {
    /// Made by the caller, kept over its retries: the same poll gets the same lease again.
    pub poll_id: Uuid,
    /// A note for people.
    pub worker_id: String,
    /// None: the policy's default.
    pub lease_duration: Option<Duration>,
}

/// See [`Action::Claim`].
#[derive(Clone)]
pub struct Claim {
    /// How to claim.
    pub options: ClaimOptions,
    /// Refuse where the operation is another request.
    pub expected_request_hash: Option<[u8; 32]>,
}

/// See [`Action::Dispatch`] and [`Action::Renew`].
#[derive(Clone)]
pub struct Extend {
    /// Proves the lease.
    pub token: LeaseToken,
    /// None: what the lease was granted with.
    pub lease_duration: Option<Duration>,
}

/// A known outcome.
#[derive(Clone)]
pub enum Outcome {
    /// The effect happened.
    Succeeded {
        /// The provider's name for it.
        external_id: Option<String>,
        /// What a replay returns.
        result_json: Option<String>,
    },
    /// The effect did not happen and never will.
    Failed {
        /// Why, as a short code.
        error_code: String,
        /// Why, for people.
        error_message: Option<String>,
    },
}

/// See [`Action::Complete`].
#[derive(Clone)]
pub struct Complete {
    /// Proves the attempt.
    pub token: LeaseToken,
    /// The outcome.
    pub outcome: Outcome,
}

/// See [`Action::MarkUnknown`].
#[derive(Clone)]
pub struct MarkUnknown {
    /// Proves the attempt.
    pub token: LeaseToken,
    /// Why, as a short code.
    pub error_code: String,
    /// Why, for people.
    pub error_message: Option<String>,
    /// The provider's name for the effect, where it gave one before the answer was lost.
    pub external_id: Option<String>,
}

/// What was observed about the effect.
#[derive(Clone)]
pub enum Observation {
    /// It happened, or it never will.
    Known(Outcome),
    /// The provider knows nothing of it.
    Absent,
    /// The provider could not say.
    Indeterminate {
        /// Ask again after this. None: the policy's schedule.
        check_after: Option<Duration>,
    },
}

/// Where an observation comes from. Kept in the event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Which look-up was asked, or a person's reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// What it said, as JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail_json: Option<String>,
    /// When it was asked, by the asker's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<Timestamp>,
}

/// See [`Action::Reconcile`].
#[derive(Clone)]
pub struct Reconcile {
    /// Of the executor, where it reports itself.
    pub token: Option<LeaseToken>,
    /// What was observed.
    pub observation: Observation,
    /// Where that comes from.
    pub evidence: Option<Evidence>,
    /// A person decides a review.
    pub operator_decision: bool,
    /// Refuse where the operation has changed since.
    pub if_version: Option<i64>,
}
