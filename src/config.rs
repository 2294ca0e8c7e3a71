//! The settings of `opledger serve`: one table, from which flags, environment, file and help come.
//!
//! Precedence: flags, then environment (`OPLEDGER_…`), then the file, then the defaults.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

pub mod sources;
pub mod units;

#[cfg(test)]
mod tests;

pub use sources::{Faults, Sources};

/// A database URL. Never printed as it is: it may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    /// Wraps a URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The URL with its password, for the one who connects.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::store::redacted(&self.0))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people; coloured on a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

/// Everything that `opledger serve` can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the ledger is kept.
    pub database_url: DatabaseUrl,
    /// The gRPC address.
    pub listen: SocketAddr,
    /// The address of /livez, /readyz and /metrics; none: not served.
    pub admin_listen: Option<SocketAddr>,
    /// The policy file; none: the defaults for every action.
    pub policy: Option<PathBuf>,
    /// How long calls in flight may take to finish after SIGTERM.
    pub drain_timeout: Duration,
    /// Other machines may reach it although it has neither TLS nor authentication.
    pub insecure: bool,
    /// Calls at the same time; more are refused with RESOURCE_EXHAUSTED.
    pub max_in_flight: usize,
    /// Connections to the database.
    pub store_connections: u32,
    /// How often lapsed leases and unresolved operations are looked for.
    pub sweep_interval: Duration,
    /// Finished operations that retention takes in one go.
    pub retention_batch: u32,
    /// How often the figures are read.
    pub figures_interval: Option<Duration>,
    /// The largest request message.
    pub max_message_bytes: usize,
    /// Connections older than this are asked to reconnect, so that load spreads over new replicas.
    pub max_connection_age: Option<Duration>,
    /// Do not bring the schema up to date at start; refuse a wrong one.
    pub no_migrate: bool,
    /// How log lines look.
    pub log_format: LogFormat,
    /// What is logged, as a filter of `tracing`.
    pub log_level: String,
}

/// One setting: its name is the flag, and gives the name in the environment and in the file.
pub struct Setting {
    /// The flag without dashes: `drain-timeout`.
    pub name: &'static str,
    /// What stands for its value in the help; empty: a switch.
    pub value_name: &'static str,
    /// The default, as text; empty: none.
    pub default: &'static str,
    /// What it means.
    pub help: &'static str,
    set: fn(&mut Config, &str) -> Result<(), String>,
}

impl Setting {
    /// Its name in the environment: `OPLEDGER_DRAIN_TIMEOUT`.
    #[must_use]
    pub fn env(&self) -> String {
        format!("OPLEDGER_{}", self.name.replace('-', "_").to_ascii_uppercase())
    }

    /// Its name in the file: `drain_timeout`.
    #[must_use]
    pub fn key(&self) -> String {
        self.name.replace('-', "_")
    }

    /// True for a setting that is only on or off.
    #[must_use]
    pub fn is_switch(&self) -> bool {
        self.value_name.is_empty()
    }
}

/// Every setting once, in the order of the help.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "database-url",
        value_name: "URL",
        default: "sqlite://opledger.db",
        help: "Where the ledger is kept: sqlite://FILE or postgres://USER:PASSWORD@HOST:PORT/DB. \
               Give a URL with a password by OPLEDGER_DATABASE_URL or by a file named in \
               OPLEDGER_DATABASE_URL_FILE: arguments are visible to every process",
        set: |config, text| {
            let known = ["sqlite:", "postgres://", "postgresql://"];
            if !known.iter().any(|scheme| text.starts_with(scheme)) {
                return Err("must begin with sqlite:// or postgres://".into());
            }
            config.database_url = DatabaseUrl::new(text);
            Ok(())
        },
    },
    Setting {
        name: "listen",
        value_name: "ADDR",
        default: "127.0.0.1:50051",
        help: "Where gRPC is served",
        set: |config, text| units::address(text).map(|address| config.listen = address),
    },
    Setting {
        name: "admin-listen",
        value_name: "ADDR",
        default: "127.0.0.1:8080",
        help: "Where /livez, /readyz and /metrics are served over HTTP; \"off\": nowhere",
        set: |config, text| units::or_off(text, units::address).map(|address| config.admin_listen = address),
    },
    Setting {
        name: "policy",
        value_name: "FILE",
        default: "",
        help: "The policy file (YAML), read again when it changes and on SIGHUP; without one every \
               action gets the default policy",
        set: |config, text| {
            config.policy = (!text.is_empty()).then(|| PathBuf::from(text));
            Ok(())
        },
    },
    Setting {
        name: "drain-timeout",
        value_name: "DURATION",
        default: "10s",
        help: "After SIGTERM, how long the calls in flight may take to finish",
        set: |config, text| units::duration(text).map(|value| config.drain_timeout = value),
    },
    Setting {
        name: "insecure",
        value_name: "",
        default: "false",
        help: "Allow addresses that other machines can reach, without TLS and authentication",
        set: |config, text| units::boolean(text).map(|value| config.insecure = value),
    },
    Setting {
        name: "max-in-flight",
        value_name: "N",
        default: "4096",
        help: "Calls at the same time; more are refused with RESOURCE_EXHAUSTED and a delay to wait",
        set: |config, text| {
            units::integer(text, 1, 1_000_000).map(|value| config.max_in_flight = value as usize)
        },
    },
    Setting {
        name: "store-connections",
        value_name: "N",
        default: "auto",
        help: "Connections to the database; \"auto\": as many as cores, 2 to 8",
        set: |config, text| {
            config.store_connections = if text == "auto" {
                std::thread::available_parallelism().map_or(2, |cores| cores.get() as u32).clamp(2, 8)
            } else {
                units::integer(text, 1, 1000)? as u32
            };
            Ok(())
        },
    },
    Setting {
        name: "sweep-interval",
        value_name: "DURATION",
        default: "1s",
        help: "How often lapsed leases and unresolved operations are looked for",
        set: |config, text| {
            let value = units::duration(text)?;
            if value < Duration::from_millis(10) {
                return Err("must be at least 10ms".into());
            }
            config.sweep_interval = value;
            Ok(())
        },
    },
    Setting {
        name: "retention-batch",
        value_name: "N",
        default: "100",
        help: "Finished operations whose result or key is forgotten in one go, where the policy says so; \
               a rest follows each batch",
        set: |config, text| units::integer(text, 1, 1000).map(|value| config.retention_batch = value as u32),
    },
    Setting {
        name: "figures-interval",
        value_name: "DURATION",
        default: "15s",
        help: "How often the figures of unfinished operations are read from the database for /metrics; \
               \"off\": never",
        set: |config, text| {
            let value = units::or_off(text, units::duration)?;
            if value.is_some_and(|interval| interval < Duration::from_secs(1)) {
                return Err("must be at least 1s, or \"off\"".into());
            }
            config.figures_interval = value;
            Ok(())
        },
    },
    Setting {
        name: "max-message-bytes",
        value_name: "SIZE",
        default: "4MiB",
        help: "The largest request message",
        set: |config, text| {
            let value = units::size(text)?;
            if !(1024..=256 << 20).contains(&value) {
                return Err("must be 1KiB to 256MiB".into());
            }
            config.max_message_bytes = value;
            Ok(())
        },
    },
    Setting {
        name: "max-connection-age",
        value_name: "DURATION",
        default: "off",
        help: "Ask connections older than this to reconnect, so that load spreads over new \
               replicas; \"off\": never",
        set: |config, text| {
            let value = units::or_off(text, units::duration)?;
            if value.is_some_and(|age| age < Duration::from_secs(1)) {
                return Err("must be at least 1s, or \"off\"".into());
            }
            config.max_connection_age = value;
            Ok(())
        },
    },
    Setting {
        name: "no-migrate",
        value_name: "",
        default: "false",
        help: "Do not bring the schema up to date at start; refuse to start with a wrong one",
        set: |config, text| units::boolean(text).map(|value| config.no_migrate = value),
    },
    Setting {
        name: "log-format",
        value_name: "FORMAT",
        default: "text",
        help: "How log lines look (on stderr): text or json",
        set: |config, text| {
            config.log_format = match text {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return Err("must be \"text\" or \"json\"".into()),
            };
            Ok(())
        },
    },
    Setting {
        name: "log-level",
        value_name: "FILTER",
        default: "info",
        help: "What is logged: error, warn, info, debug, trace, or a filter such as \
               info,opledger=debug",
        set: |config, text| {
            tracing_subscriber::EnvFilter::try_new(text)
                .map_err(|error| format!("is not a log filter such as \"info\": {error}"))?;
            config.log_level = text.into();
            Ok(())
        },
    },
];

/// The setting with this flag name.
#[must_use]
pub fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

impl Default for Config {
    fn default() -> Self {
        let unset = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Self {
            database_url: DatabaseUrl::new(""),
            listen: unset,
            admin_listen: None,
            policy: None,
            drain_timeout: Duration::ZERO,
            insecure: false,
            max_in_flight: 0,
            store_connections: 0,
            sweep_interval: Duration::ZERO,
            retention_batch: 0,
            figures_interval: None,
            max_message_bytes: 0,
            max_connection_age: None,
            no_migrate: false,
            log_format: LogFormat::Text,
            log_level: String::new(),
        };
        for setting in SETTINGS {
            // The table is a constant; a test reads every default.
            let applied = (setting.set)(&mut config, setting.default);
            debug_assert!(applied.is_ok(), "default of {}: {applied:?}", setting.name);
        }
        config
    }
}

impl Config {
    /// Why this configuration must not be served: an address that other machines can reach, without
    /// the word of the operator that this is meant.
    #[must_use]
    pub fn exposures(&self) -> Vec<String> {
        if self.insecure {
            return Vec::new();
        }
        let exposed = |name: &str, address: SocketAddr| {
            (!address.ip().to_canonical().is_loopback()).then(|| {
                format!(
                    "--{name} {address} can be reached by other machines, and there is neither TLS nor \
                     authentication: bind 127.0.0.1, or add --insecure (OPLEDGER_INSECURE=true) where \
                     everyone on that network may write"
                )
            })
        };
        [
            exposed("listen", self.listen),
            self.admin_listen.and_then(|address| exposed("admin-listen", address)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
