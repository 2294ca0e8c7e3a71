//! Placeholder: the real one lists all modules of the integration tests.

mod shell_program;
mod shell_server;
