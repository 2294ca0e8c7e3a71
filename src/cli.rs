//! The command line: what `opledger` can be asked to do, and how it exits.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

pub mod bench;
pub mod demo;
pub mod hash;
pub mod migrate;
pub mod policy;
pub mod read;
pub mod reconcile;
pub mod serve;

mod client;
mod json;
mod output;
mod settings;
mod table;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// Refused or failed.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// There is no such operation.
    NotFound = 3,
    /// The server or its store cannot be reached, or is too busy, or did not answer in time.
    Unavailable = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused or failed
  2  wrong command line or configuration
  3  no such operation
  4  server or store cannot be reached, is too busy, or did not answer in time";

/// One authoritative journal of operations for AI agents: register, claim, act once, reconcile
/// what is unknown.
#[derive(Parser)]
#[command(name = "opledger", version, after_help = EXIT_CODES, styles = output::HELP_STYLES)]
#[command(propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service
    #[command(after_help = serve::AFTER_HELP)]
    Serve(settings::ServeArgs),
    /// Bring the database's schema up to date, then exit
    Migrate(settings::MigrateArgs),
    /// Play the story of a lost answer on a temporary ledger
    Demo(demo::DemoArgs),
    /// Show one operation
    #[command(after_help = EXIT_CODES)]
    Get(read::GetArgs),
    /// List operations, newest first
    #[command(after_help = EXIT_CODES)]
    List(read::ListArgs),
    /// Show what happened to one operation
    #[command(after_help = EXIT_CODES)]
    History(read::HistoryArgs),
    /// Report what the provider says about an operation whose outcome is unknown
    #[command(after_help = EXIT_CODES)]
    Reconcile(reconcile::ReconcileArgs),
    /// Print the request hash of a JSON text, as the service makes it
    Hash(hash::HashArgs),
    /// Put load on a running service and measure it
    #[command(after_long_help = bench::AFTER_HELP)]
    Bench(bench::BenchArgs),
    /// Check a policy file, or show what holds for an action
    Policy(policy::PolicyArgs),
}

/// Runs the program.
#[must_use]
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; where nobody reads them is none either.
            _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() };
        }
    };
    match cli.command {
        Command::Serve(args) => serve::run(&args).into(),
        Command::Migrate(args) => migrate::run(&args).into(),
        Command::Demo(args) => client::block_on(demo::run(args)).into(),
        Command::Get(args) => client::block_on(read::get(args)).into(),
        Command::List(args) => client::block_on(read::list(args)).into(),
        Command::History(args) => client::block_on(read::history(args)).into(),
        Command::Reconcile(args) => client::block_on(reconcile::run(args)).into(),
        Command::Bench(args) => bench::run(&args).into(),
        Command::Hash(args) => hash::run(args),
        Command::Policy(args) => policy::run(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_help_names_every_setting_with_default_and_environment() {
        let mut command = Cli::command();
        let serve = command.find_subcommand_mut("serve").expect("serve exists");
        let help = serve.render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for setting in crate::config::SETTINGS {
            assert!(help.contains(&format!("--{}", setting.name)), "{}", setting.name);
            assert!(help.contains(&format!("[env: {}]", setting.env())), "{}", setting.name);
            assert!(
                help.contains(&format!("[default: {}]", settings::shown_default(setting))),
                "{}",
                setting.name
            );
        }
    }
}
