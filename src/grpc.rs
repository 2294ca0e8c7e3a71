//! The `opledger.v1.Ledger` service: checks requests, hands commands to the engine, shapes answers.

mod convert;
mod page_token;
pub mod service;
mod status;
mod validate;

pub use service::LedgerService;
