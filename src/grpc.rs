//! The gRPC side: the `opledger.v1.Ledger` service and the server that carries it.

pub mod calls;
pub mod connection;
mod convert;
pub mod health;
mod page_token;
pub mod server;
pub mod service;
mod status;
mod validate;
mod watch;

pub use server::{Settings, serve};
pub use service::LedgerService;
