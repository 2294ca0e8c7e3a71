//! The subcommands of the program.

/// `opledger policy`.
pub mod policy;
