//! The table of settings as flags.

use crate::config::{Config, Faults, SETTINGS, Setting, Sources};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use std::collections::BTreeMap;

/// What `migrate` takes.
const OF_MIGRATE: [&str; 3] = ["database-url", "log-format", "log-level"];

/// Flags as they were given.
#[derive(Default)]
struct Flags {
    given: BTreeMap<&'static str, String>,
    config_file: Option<String>,
}

impl Flags {
    fn sources(&self) -> Sources<'static> {
        Sources {
            flags: self.given.clone(),
            config_file: self.config_file.clone(),
            env: &|name| std::env::var(name).ok(),
        }
    }

    fn read(matches: &ArgMatches, settings: &[&'static Setting]) -> Self {
        let text = |name: &str| {
            let given = matches.value_source(name) == Some(ValueSource::CommandLine);
            given.then(|| matches.get_one::<String>(name).cloned()).flatten()
        };
        Self {
            given: settings.iter().filter_map(|setting| Some((setting.name, text(setting.name)?))).collect(),
            config_file: text("config"),
        }
    }

    fn augment(command: Command, settings: &[&'static Setting]) -> Command {
        let config = Arg::new("config").long("config").value_name("FILE").help(
            "A file of settings (TOML), as opledger.example.toml; flags and environment win over it \
             [env: OPLEDGER_CONFIG]",
        );
        settings.iter().fold(command.arg(config), |command, setting| command.arg(argument(setting)))
    }
}

fn argument(setting: &'static Setting) -> Arg {
    let help = format!("{}\n[default: {}] [env: {}]", setting.help, shown_default(setting), setting.env());
    let argument = Arg::new(setting.name).long(setting.name).help(help);
    if setting.is_switch() {
        let switch = argument.num_args(0..=1).require_equals(true).default_missing_value("true");
        return switch.value_name("true|false");
    }
    argument.value_name(setting.value_name).allow_hyphen_values(false)
}

/// The default, as the help shows it.
pub fn shown_default(setting: &Setting) -> &'static str {
    if setting.default.is_empty() { "none" } else { setting.default }
}

fn all() -> Vec<&'static Setting> {
    SETTINGS.iter().collect()
}

fn of_migrate() -> Vec<&'static Setting> {
    SETTINGS.iter().filter(|setting| OF_MIGRATE.contains(&setting.name)).collect()
}

/// Flags of `serve`.
pub struct ServeArgs(Flags);

impl ServeArgs {
    /// The configuration, from all sources.
    pub fn config(&self) -> Result<Config, Faults> {
        self.0.sources().for_serve()
    }
}

/// Flags of `migrate`.
pub struct MigrateArgs(Flags);

impl MigrateArgs {
    /// The configuration, from all sources.
    pub fn config(&self) -> Result<Config, Faults> {
        self.0.sources().resolve()
    }
}

/// Both are read from the table in the same way.
macro_rules! from_table {
    ($name:ident, $settings:ident) => {
        impl FromArgMatches for $name {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self(Flags::read(matches, &$settings())))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                self.0 = Flags::read(matches, &$settings());
                Ok(())
            }
        }

        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                Flags::augment(command, &$settings())
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }
    };
}

from_table!(ServeArgs, all);
from_table!(MigrateArgs, of_migrate);
