//! Where settings come from, and all that is wrong with them at once.

use super::{Config, DatabaseUrl, SETTINGS, Setting, setting};
use std::{collections::BTreeMap, fmt, path::Path};
use toml::de::{DeTable, DeValue};

/// Everything that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<String>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Faults {}

/// What was said where.
pub struct Sources<'a> {
    /// Flags that were given, by name.
    pub flags: BTreeMap<&'static str, String>,
    /// The configuration file named by a flag.
    pub config_file: Option<String>,
    /// Reads the environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// A value, and the place to name when it is wrong.
struct Found {
    place: String,
    text: String,
}

impl Sources<'_> {
    /// The configuration of a server: also refuses exposure without `--insecure`.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn for_serve(&self) -> Result<Config, Faults> {
        let (config, mut faults) = self.collect();
        faults.extend(config.exposures());
        if faults.is_empty() { Ok(config) } else { Err(Faults(faults)) }
    }

    /// The configuration of a command that only needs the store.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn resolve(&self) -> Result<Config, Faults> {
        let (config, faults) = self.collect();
        if faults.is_empty() { Ok(config) } else { Err(Faults(faults)) }
    }

    fn collect(&self) -> (Config, Vec<String>) {
        let mut faults = Vec::new();
        let mut file = self.read_file(&mut faults);
        let url_file = self.read_url_file(&mut faults);
        let mut config = Config::default();
        for setting in SETTINGS {
            let from_file = file.remove(setting.name);
            let flag = self
                .flags
                .get(setting.name)
                .map(|text| Found { place: format!("--{}", setting.name), text: text.clone() });
            let found = flag.or_else(|| self.env_value(setting)).or(from_file);
            if let Some(Found { place, text }) = found
                && let Err(fault) = (setting.set)(&mut config, &text)
            {
                faults.push(format!("{place}: {fault}"));
            }
        }
        let url_was_said = self.flags.contains_key("database-url");
        if let Some(url) = url_file.filter(|_| !url_was_said) {
            config.database_url = url;
        }
        (config, faults)
    }

    /// Empty means unset: container platforms set variables to nothing.
    fn env(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|text| !text.is_empty())
    }

    fn env_value(&self, setting: &Setting) -> Option<Found> {
        let place = setting.env();
        let text = self.env(&place)?;
        Some(Found { place, text })
    }

    /// The URL from a mounted secret.
    fn read_url_file(&self, faults: &mut Vec<String>) -> Option<DatabaseUrl> {
        const NAME: &str = "OPLEDGER_DATABASE_URL_FILE";
        let path = self.env(NAME)?;
        if self.env("OPLEDGER_DATABASE_URL").is_some() {
            faults.push(format!("{NAME}: OPLEDGER_DATABASE_URL is set as well: set one of them"));
            return None;
        }
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                faults.push(format!("{NAME}: cannot read {path}: {error}"));
                return None;
            }
        };
        let mut config = Config::default();
        let url = setting("database-url").map(|setting| (setting.set)(&mut config, text.trim()));
        if let Some(Err(fault)) = url {
            faults.push(format!("{NAME}: the content of {path} {fault}"));
        }
        Some(config.database_url)
    }

    fn read_file(&self, faults: &mut Vec<String>) -> BTreeMap<&'static str, Found> {
        let Some(path) = self.config_file.clone().or_else(|| self.env("OPLEDGER_CONFIG")) else {
            return BTreeMap::new();
        };
        match std::fs::read_to_string(Path::new(&path)) {
            Ok(text) => parse_file(&path, &text, faults),
            Err(error) => {
                faults.push(format!("--config: cannot read {path}: {error}"));
                BTreeMap::new()
            }
        }
    }
}

fn parse_file(path: &str, text: &str, faults: &mut Vec<String>) -> BTreeMap<&'static str, Found> {
    let line =
        |offset: usize| 1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count();
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = line(error.span().map_or(0, |span| span.start));
        faults.push(format!("{path}:{at}: {}", error.message().lines().next().unwrap_or_default()));
    }
    let mut found = BTreeMap::new();
    for (key, value) in table.into_inner() {
        let place = format!("{path}:{}: {}", line(key.span().start), key.get_ref());
        let known = SETTINGS.iter().find(|setting| setting.key() == key.get_ref().as_ref());
        let Some(setting) = known else {
            faults.push(format!("{place}: unknown setting{}", suggestion(key.get_ref())));
            continue;
        };
        match plain_text(value.get_ref()) {
            Some(text) => _ = found.insert(setting.name, Found { place, text }),
            None => faults.push(format!("{place}: must be a text, a whole number, true or false")),
        }
    }
    found
}

/// The text that a flag would have for this value.
fn plain_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        _ => None,
    }
}

/// Names a setting that was probably meant.
fn suggestion(key: &str) -> String {
    let wanted = key.replace('-', "_").to_ascii_lowercase();
    let near = SETTINGS.iter().map(Setting::key).min_by_key(|known| distance(known, &wanted));
    match near {
        Some(known) if distance(&known, &wanted) <= 3 => format!(": did you mean {known}?"),
        _ => ": `opledger serve --help` lists them all".into(),
    }
}

/// How many characters must be changed, added or removed.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
