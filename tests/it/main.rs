//! The one integration test binary: a module for each subject.

mod harness;
mod migrations;
mod store_conformance;
