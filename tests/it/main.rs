//! The one binary of the integration tests.

mod harness;
mod play;
mod properties;
mod random;
mod script;
mod state_table;
