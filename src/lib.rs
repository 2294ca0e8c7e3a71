//! opledger: one authoritative journal of operations for AI agents.
//!
//! Layers, each knows only those below it:
//!
//! - [`cli`], [`admin`]: the program, its commands and its operational endpoints
//! - [`grpc`]: the service: checks requests, shapes answers
//! - [`engine`]: batches; carries commands to the rules and decisions to the store
//! - [`store`], [`policy_file`]: PostgreSQL and SQLite; the policies in force
//! - [`ledger`]: the rules. Pure: no runtime, no database, no clock, no randomness
//! - [`fingerprint`]: canonical JSON and its hash
//!
//! Beside them: [`config`], [`telemetry`], [`health`], [`shutdown`].

pub mod admin;
pub mod cli;
pub mod config;
pub mod engine;
pub mod failpoint;
pub mod figures;
pub mod fingerprint;
pub mod grpc;
pub mod health;
pub mod ledger;
pub mod policy_file;
pub mod shutdown;
pub mod store;
pub mod telemetry;

/// Generated protobuf types and the gRPC service traits.
#[allow(missing_docs)]
pub mod proto {
    tonic::include_proto!("opledger.v1");
    /// The compiled descriptor set, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
}
