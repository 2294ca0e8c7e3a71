//! The one integration test binary: a module for each subject.

mod harness;
mod migrations;
mod records;
mod store_concurrency;
mod store_conformance;
