//! The rules of the ledger, pure.
//!
//! Nothing below this module knows a runtime, a database, the network, a clock or a random number:
//! the time and every fresh id come in with the call. Storage loads, this module decides, storage
//! swaps.

pub mod command;
pub mod decision;
pub mod due;
pub mod event;
pub mod lease;
pub mod limits;
pub mod operation;
pub mod policy;
pub mod report;
pub mod timestamp;
pub mod transition;

pub use command::{Action, ClaimOptions, Command, Evidence, Observation, Outcome};
pub use decision::{Change, Decision, Granted, NextStep, Refusal, Refused, Reply};
pub use due::{Due, DueKind, DueMoment};
pub use event::{Event, EventKind, replay};
pub use lease::{CheckLease, Lease, LeaseToken};
pub use operation::{Identity, Key, Operation, State, Status};
pub use policy::Policy;
pub use report::{ReportDigest, Reports};
pub use timestamp::Timestamp;
pub use transition::transition;
