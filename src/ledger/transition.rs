//! The state machine.

use super::{Command, Decision, Operation, Policy, Timestamp};

/// Decides one command.
#[must_use]
pub fn transition(
    _current: Option<&Operation>,
    _command: &Command,
    _policy: &Policy,
    _now: Timestamp,
) -> Decision {
    unimplemented!()
}
