//! Configuration: embedded defaults, then a file, then the environment, checked as a whole before anything connects.
//!
//! The defaults are TOML text with a comment per key, so that they are the reference at the same time. A key of the
//! environment is `DRAY_<SERVICE>__<KEY>`, with `__` between levels and `_` for `-`:
//! `DRAY_NODE_AGENT__CHASSIS__TELEMETRY__LOG=debug`. Three short names work for every service: `DRAY_LOG`,
//! `DRAY_LOG_FORMAT`, `DRAY_OTLP_ENDPOINT`.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::telemetry::TelemetryConfig;

/// The defaults of [`ChassisConfig`], under every service's own.
const CHASSIS_DEFAULTS: &str = include_str!("defaults.toml");

/// Environment names that are the same for all services.
const SHORT_NAMES: [(&str, [&str; 3]); 3] = [
    ("DRAY_LOG", ["chassis", "telemetry", "log"]),
    ("DRAY_LOG_FORMAT", ["chassis", "telemetry", "log-format"]),
    ("DRAY_OTLP_ENDPOINT", ["chassis", "telemetry", "otlp-endpoint"]),
];

/// Settings that every service has; a field `chassis` of its configuration. See `defaults.toml` for each.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ChassisConfig {
    /// Where metrics and health are served; port 0 takes a free one.
    pub health_listen: SocketAddr,
    /// How long work in flight may take after a stop request.
    #[serde(with = "humantime_serde")]
    pub drain_timeout: Duration,
    /// Runtime threads; 0 takes one per core.
    pub worker_threads: usize,
    /// Logs and traces.
    pub telemetry: TelemetryConfig,
}

impl Default for ChassisConfig {
    fn default() -> Self {
        #[derive(serde::Deserialize)]
        struct Defaults {
            chassis: ChassisConfig,
        }
        let defaults: Defaults = toml::from_str(CHASSIS_DEFAULTS).expect("the embedded defaults are tested");
        defaults.chassis
    }
}

/// A service's configuration: what parsing cannot check.
pub trait Validate {
    /// Every problem found, each one a text that names the key; empty when all is well.
    fn problems(&self) -> Vec<String>;
}

/// Where a service's configuration comes from.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The service's name as in its command, e.g. `node-agent`.
    pub service: &'static str,
    /// The service's embedded TOML; complete, so that it is a valid configuration by itself.
    pub defaults: &'static str,
    /// The user's file, if any; one that is named must exist.
    pub file: Option<PathBuf>,
    /// Environment variables; others than ours are ignored.
    pub environment: Vec<(String, String)>,
}

impl Sources {
    /// The named defaults and file, and this process's environment.
    pub fn of_process(service: &'static str, defaults: &'static str, file: Option<PathBuf>) -> Self {
        let text =
            |(key, value): (std::ffi::OsString, std::ffi::OsString)| Some((key.into_string().ok()?, value.into_string().ok()?));
        let environment = std::env::vars_os().filter_map(text).collect();
        Self {
            service,
            defaults,
            file,
            environment,
        }
    }
}

/// The configuration cannot be used; holds every problem, not only the first.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// One text per problem, each naming its source (file, variable) and key.
    pub problems: Vec<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} problem(s) in the configuration", self.problems.len())?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

/// One value somebody set, and where.
struct Override {
    origin: String,
    path: Vec<String>,
    value: Value,
}

/// Loads and checks a configuration.
///
/// `ConfigError` with all problems: unreadable or unparsable files, unknown keys, wrong types, and what `C` finds.
pub fn load<C: DeserializeOwned + Validate>(sources: &Sources) -> Result<C, ConfigError> {
    let mut problems = Vec::new();
    let defaults = defaults(sources.defaults).map_err(|problem| ConfigError { problems: vec![problem] })?;
    let mut overrides = Vec::new();
    if let Some(file) = &sources.file {
        match read_file(file) {
            Ok(found) => overrides.extend(found),
            Err(problem) => problems.push(problem),
        }
    }
    overrides.extend(from_environment(sources, &defaults));
    let merged = with_all(&defaults, &overrides);
    match parse::<C>(merged) {
        Ok(config) => {
            problems.extend(config.problems());
            if problems.is_empty() {
                Ok(config)
            } else {
                Err(ConfigError { problems })
            }
        }
        Err(whole) => {
            problems.extend(blame::<C>(&defaults, &overrides, whole));
            Err(ConfigError { problems })
        }
    }
}

fn defaults(own: &str) -> Result<Table, String> {
    let mut table: Table = CHASSIS_DEFAULTS
        .parse()
        .map_err(|error| format!("embedded defaults: {error}"))?;
    let own: Table = own
        .parse()
        .map_err(|error| format!("the service's embedded defaults: {error}"))?;
    for found in leaves("", own) {
        set(&mut table, &found.path, found.value);
    }
    Ok(table)
}

fn read_file(file: &Path) -> Result<Vec<Override>, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
    let table: Table = text.parse().map_err(|error| format!("{shown}: {error}"))?;
    Ok(leaves(&shown.to_string(), table))
}

fn from_environment(sources: &Sources, defaults: &Table) -> Vec<Override> {
    let prefix = format!("DRAY_{}__", sources.service.to_uppercase().replace('-', "_"));
    let short = sources.environment.iter().filter_map(|(name, text)| {
        let (_, path) = SHORT_NAMES.iter().find(|(short, _)| short == name)?;
        Some((name, path.map(str::to_owned).to_vec(), text))
    });
    let long = sources.environment.iter().filter_map(|(name, text)| {
        let path = name
            .strip_prefix(&prefix)?
            .split("__")
            .map(|key| key.to_lowercase().replace('_', "-"))
            .collect();
        Some((name, path, text))
    });
    // The service's own name is the more precise one and wins.
    let found = short.chain(long);
    found
        .map(|(name, path, text)| Override {
            origin: name.clone(),
            value: typed(text, get(defaults, &path)),
            path,
        })
        .collect()
}

/// The text of an environment variable as TOML: a string where the default is one, else whatever it parses as.
fn typed(text: &str, default: Option<&Value>) -> Value {
    if default.is_some_and(Value::is_str) {
        return Value::String(text.to_owned());
    }
    let parsed = format!("value = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"));
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn leaves(origin: &str, table: Table) -> Vec<Override> {
    let mut found = Vec::new();
    let mut open = vec![(Vec::new(), table)];
    while let Some((path, table)) = open.pop() {
        for (key, value) in table {
            let path = [path.as_slice(), &[key]].concat();
            match value {
                Value::Table(inner) => open.push((path, inner)),
                value => found.push(Override {
                    origin: origin.to_owned(),
                    path,
                    value,
                }),
            }
        }
    }
    found
}

fn get<'t>(table: &'t Table, path: &[String]) -> Option<&'t Value> {
    let (key, rest) = path.split_first()?;
    let value = table.get(key)?;
    if rest.is_empty() {
        Some(value)
    } else {
        get(value.as_table()?, rest)
    }
}

fn set(table: &mut Table, path: &[String], value: Value) {
    let Some((key, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        table.insert(key.clone(), value);
        return;
    }
    let inner = table.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()));
    if !inner.is_table() {
        *inner = Value::Table(Table::new());
    }
    if let Value::Table(inner) = inner {
        set(inner, rest, value);
    }
}

fn with_all<'o>(defaults: &Table, overrides: impl IntoIterator<Item = &'o Override>) -> Table {
    let mut table = defaults.clone();
    for found in overrides {
        set(&mut table, &found.path, found.value.clone());
    }
    table
}

fn parse<C: DeserializeOwned>(table: Table) -> Result<C, String> {
    table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}

/// Finds which overrides are wrong by trying each alone over the defaults: the parser itself stops at its first error.
fn blame<C: DeserializeOwned>(defaults: &Table, overrides: &[Override], whole: String) -> Vec<String> {
    let wrong = |found: &Override| {
        let error = parse::<C>(with_all(defaults, [found])).err()?;
        Some(format!("{}: {}: {error}", found.origin, found.path.join(".")))
    };
    let problems: Vec<String> = overrides.iter().filter_map(wrong).collect();
    if problems.is_empty() { vec![whole] } else { problems }
}

#[cfg(test)]
mod tests;
