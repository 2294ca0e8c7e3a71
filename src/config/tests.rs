use super::*;
use std::collections::BTreeMap;

/// Settings said in each place, as tests say them.
#[derive(Default)]
struct Said<'a> {
    flags: &'a [(&'static str, &'a str)],
    env: &'a [(&'a str, &'a str)],
    file: Option<&'a str>,
}

impl Said<'_> {
    fn read(&self) -> Result<Config, Faults> {
        let file = self.file.map(|text| {
            let file = tempfile::NamedTempFile::new().expect("a temporary file");
            std::fs::write(file.path(), text).expect("it can be written");
            file
        });
        let env = |name: &str| {
            self.env.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
        };
        let flags: BTreeMap<_, _> =
            self.flags.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        let sources = Sources {
            flags,
            config_file: file.as_ref().map(|file| file.path().display().to_string()),
            env: &env,
        };
        sources.for_serve()
    }

    fn config(&self) -> Config {
        self.read().expect("no faults")
    }

    fn faults(&self) -> Vec<String> {
        self.read().expect_err("faults").0
    }
}

#[test]
fn every_default_is_read() {
    let mut config = Config::default();
    for setting in SETTINGS {
        assert_eq!((setting.set)(&mut config, setting.default), Ok(()), "{}", setting.name);
    }
    assert_eq!(config.database_url.expose(), "sqlite://opledger.db");
    assert_eq!(config.drain_timeout, Duration::from_secs(10));
    assert_eq!(config.max_message_bytes, 4 << 20);
    assert!((2..=8).contains(&config.store_connections));
}

#[test]
fn the_example_file_states_every_setting_once_with_its_default() {
    let example = include_str!("../../opledger.example.toml");
    let said = Said { file: Some(example), ..Said::default() };
    assert_eq!(said.config(), Config::default());
    for setting in SETTINGS {
        let stated =
            example.lines().filter(|line| line.starts_with(&format!("{} = ", setting.key()))).count();
        assert_eq!(stated, 1, "{}", setting.key());
    }
}

/// One row a case: file, environment, flag, and which one holds.
#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    for (file, env, flag, expected) in [
        (None, None, None, "10s"),
        (Some("1s"), None, None, "1s"),
        (None, Some("2s"), None, "2s"),
        (None, None, Some("3s"), "3s"),
        (Some("1s"), Some("2s"), None, "2s"),
        (Some("1s"), None, Some("3s"), "3s"),
        (None, Some("2s"), Some("3s"), "3s"),
        (Some("1s"), Some("2s"), Some("3s"), "3s"),
        (Some("1s"), Some(""), None, "1s"),
    ] {
        let text = file.map(|value| format!("drain_timeout = \"{value}\"\n"));
        let env: Vec<_> = env.map(|value| ("OPLEDGER_DRAIN_TIMEOUT", value)).into_iter().collect();
        let flags: Vec<_> = flag.map(|value| ("drain-timeout", value)).into_iter().collect();
        let said = Said { flags: &flags, env: &env, file: text.as_deref() };
        assert_eq!(
            said.config().drain_timeout,
            units::duration(expected).unwrap(),
            "{file:?} {env:?} {flag:?}"
        );
    }
}

#[test]
fn a_switch_can_be_taken_back() {
    let said = Said {
        flags: &[("insecure", "false")],
        env: &[("OPLEDGER_INSECURE", "true")],
        file: Some("no_migrate = true\n"),
    };
    assert!(!said.config().insecure);
    assert!(said.config().no_migrate);
}

#[test]
fn all_faults_are_told_at_once_with_their_place() {
    let faults = Said {
        flags: &[("drain-timeout", "10"), ("listen", "somewhere")],
        env: &[("OPLEDGER_MAX_IN_FLIGHT", "none"), ("OPLEDGER_LOG_LEVEL", "=/=")],
        file: Some("sweep_interval = \"1ms\"\n\nmax_in_fligth = 3\nlog_format = [1]\n[server]\nport = 1\n"),
    }
    .faults();
    let all = faults.join("\n");
    for part in [
        "--drain-timeout: `10` is not a duration",
        "--listen: `somewhere` is not an address",
        "OPLEDGER_MAX_IN_FLIGHT: `none` is not a whole number from 1 to 1000000",
        "OPLEDGER_LOG_LEVEL: is not a log filter",
        ":1: sweep_interval: must be at least 10ms",
        ":3: max_in_fligth: unknown setting: did you mean max_in_flight?",
        ":4: log_format: must be a text, a whole number, true or false",
        ":5: server: unknown setting",
    ] {
        assert!(all.contains(part), "{part} is missing in\n{all}");
    }
    assert_eq!(faults.len(), 8, "{all}");
}

#[test]
fn broken_toml_and_doubled_keys_are_told_with_their_line() {
    for (text, part) in [
        ("listen = \"127.0.0.1:1\"\ndrain_timeout = \n", ":2: "),
        ("insecure = false\ninsecure = false\n", ":2: duplicate key"),
    ] {
        let said = Said { file: Some(text), ..Said::default() };
        let all = said.faults().join("\n");
        assert!(all.contains(part), "{part} is missing in\n{all}");
    }
}

#[test]
fn a_missing_file_is_told() {
    let env = |name: &str| (name == "OPLEDGER_CONFIG").then(|| "/nowhere/opledger.toml".to_owned());
    let sources = Sources { flags: BTreeMap::new(), config_file: None, env: &env };
    let faults = sources.for_serve().expect_err("a fault");
    assert!(faults.0[0].contains("cannot read /nowhere/opledger.toml"), "{faults}");
}

#[test]
fn the_database_url_can_come_from_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "postgres://u:secret@db/x\n").unwrap();
    let path = file.path().display().to_string();
    let from_file = ("OPLEDGER_DATABASE_URL_FILE", path.as_str());
    let config =
        Said { env: &[from_file], file: Some("database_url = \"sqlite://other.db\"\n"), ..Said::default() }
            .config();
    assert_eq!(config.database_url.expose(), "postgres://u:secret@db/x");

    let flag = Said { flags: &[("database-url", "sqlite://flag.db")], env: &[from_file], ..Said::default() };
    assert_eq!(flag.config().database_url.expose(), "sqlite://flag.db");

    let both = Said { env: &[from_file, ("OPLEDGER_DATABASE_URL", "sqlite://x.db")], ..Said::default() };
    assert!(both.faults()[0].contains("set one of them"));
}

#[test]
fn a_password_is_never_shown() {
    let config =
        Said { env: &[("OPLEDGER_DATABASE_URL", "postgres://u:Zk7planted@db:5432/x")], ..Said::default() }
            .config();
    for text in [format!("{config:?}"), config.database_url.to_string(), format!("{:?}", config.database_url)]
    {
        assert!(!text.contains("Zk7planted"), "{text}");
    }
    let wrong = Said { env: &[("OPLEDGER_DATABASE_URL", "mysql://u:Zk7planted@db/x")], ..Said::default() };
    assert_eq!(wrong.faults(), ["OPLEDGER_DATABASE_URL: must begin with sqlite:// or postgres://"]);
}

#[test]
fn other_machines_are_let_in_only_when_that_is_said() {
    for (name, address, refused) in [
        ("listen", "127.0.0.1:1", false),
        ("listen", "127.8.8.8:1", false),
        ("listen", "localhost:1", false),
        ("listen", "[::1]:1", false),
        ("listen", "[::ffff:127.0.0.1]:1", false),
        ("listen", "0.0.0.0:1", true),
        ("listen", "[::]:1", true),
        ("listen", "10.0.0.1:1", true),
        ("listen", "[::ffff:10.0.0.1]:1", true),
        ("admin-listen", "0.0.0.0:1", true),
        ("admin-listen", "off", false),
    ] {
        let flags = [(name, address)];
        let said = Said { flags: &flags, ..Said::default() };
        let faults = said.read().err().map(|faults| faults.0.join("\n"));
        assert_eq!(faults.is_some(), refused, "{name} {address}: {faults:?}");
        if let Some(text) = faults {
            assert!(text.contains("--insecure") && text.contains(&format!("--{name}")), "{text}");
        }
        let insecure = Said { flags: &flags, env: &[("OPLEDGER_INSECURE", "true")], ..Said::default() };
        insecure.config();
    }
}

#[test]
fn durations_are_exact_and_have_a_unit() {
    for (text, millis) in [
        ("10s", Some(10_000)),
        ("500ms", Some(500)),
        ("0.1s", Some(100)),
        ("1.5m", Some(90_000)),
        ("2 h", Some(7_200_000)),
        ("1d", Some(86_400_000)),
        ("0s", Some(0)),
        ("10", None),
        ("s", None),
        ("-1s", None),
        ("1s1", None),
        ("1,5s", None),
        ("1..5s", None),
        ("1.s", None),
        ("0.0000001s", None),
        ("367d", None),
        ("99999999999999999999s", None),
        ("1e3s", None),
        ("", None),
    ] {
        assert_eq!(units::duration(text).ok(), millis.map(Duration::from_millis), "{text}");
    }
}

#[test]
fn sizes_are_exact() {
    for (text, bytes) in [
        ("4194304", Some(4 << 20)),
        ("4MiB", Some(4 << 20)),
        ("64 KiB", Some(64 << 10)),
        ("1.5KiB", Some(1536)),
        ("4MB", None),
        ("0.3B", None),
        ("", None),
        ("99999999999GiB", None),
    ] {
        assert_eq!(units::size(text).ok(), bytes, "{text}");
    }
}
