//! opledger: one authoritative journal of operations for AI agents.

pub mod fingerprint;
pub mod ledger;

/// Generated protobuf types and the gRPC service traits.
#[allow(missing_docs)]
pub mod proto {
    tonic::include_proto!("opledger.v1");
    /// The compiled descriptor set, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
}
