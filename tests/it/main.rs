//! The one binary of the integration tests. Each module's head says what it is about and how.
//!
//! PostgreSQL is tested where `OPLEDGER_TEST_POSTGRES_URL` names a superuser's URL; without it that half is
//! skipped with a line, and fails where `CI` is set.

mod bench;
mod crew;
mod docs;
mod feed;
mod feed_grpc;
mod figures;
mod gossip;
mod harness;
mod migrations;
mod over_grpc;
mod plans;
mod play;
mod properties;
mod random;
mod records;
mod retention;
mod script;
mod shell_program;
mod shell_server;
mod state_table;
mod store_concurrency;
mod store_conformance;
mod tidy;
