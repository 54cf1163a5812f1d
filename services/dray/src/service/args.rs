//! The flags that every service has, and how they become settings.

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use chassis::config::{Sources, Validate, load};
use chassis::{AnyError, ChassisConfig, Health, Parts};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// Flags override the environment (`DRAY_<SERVICE>__<KEY>`), which overrides the file, which overrides the defaults.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServiceArgs {
    /// A TOML file of settings.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where /metrics, /healthz and /readyz are served.
    #[arg(long, env = "DRAY_HEALTH_LISTEN", value_name = "ADDRESS")]
    health_listen: Option<SocketAddr>,
    /// Any other setting by its key in the file, e.g. `chassis.drain-timeout=5s`; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
    /// Stop when standard input closes: for a parent that must not be outlived.
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

/// The flags of a service that talks with others over NATS.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BusArgs {
    /// NATS.
    #[arg(long, env = "DRAY_NATS_URL", value_name = "URL", hide_env_values = true)]
    nats_url: Option<String>,
    /// Name of this process among its peers; made up if left out.
    #[arg(long, env = "DRAY_ID", value_name = "NAME")]
    id: Option<String>,
    #[command(flatten)]
    pub(crate) common: ServiceArgs,
}

impl BusArgs {
    pub(crate) fn flags(&self) -> Flags {
        vec![("nats-url", self.nats_url.clone()), ("id", self.id.clone())]
    }
}

/// The flags of a service that also uses the database.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DatabaseServiceArgs {
    /// Postgres.
    #[arg(long, env = "DRAY_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    #[command(flatten)]
    pub(crate) bus: BusArgs,
}

impl DatabaseServiceArgs {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = self.bus.flags();
        flags.push(("database-url", self.database_url.clone()));
        flags
    }
}

/// The flag of a service that may switch feature gates.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GatesArgs {
    /// Feature gates to switch at the start, e.g. `DRADerivedAttributes=true`; those not named stay as they are. `dray gates` shows all.
    #[arg(long, env = "DRAY_FEATURE_GATES", value_name = "NAME=BOOL,...")]
    pub(crate) feature_gates: Option<String>,
}

impl GatesArgs {
    pub(crate) fn flags(&self) -> Flags {
        vec![("feature-gates", self.feature_gates.clone())]
    }
}

/// Keys of settings with the values that flags gave them.
pub(crate) type Flags = Vec<(&'static str, Option<String>)>;

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("the form is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A service as the command line sees it.
pub(crate) struct Service {
    pub(crate) name: &'static str,
    /// Its complete default settings, as commented TOML.
    pub(crate) defaults: &'static str,
}

/// What the settings of every service have.
pub(crate) trait Settings: DeserializeOwned + Validate {
    fn chassis(&self) -> &ChassisConfig;
}

/// Loads the settings and runs `serve` until it ends or a stop is asked for.
pub(crate) fn run<S, F, Fut>(service: &Service, args: ServiceArgs, flags: Flags, serve: F) -> ExitCode
where
    S: Settings,
    F: FnOnce(S, Parts) -> Fut,
    Fut: Future<Output = Result<(), AnyError>>,
{
    let settings: S = match load(&sources(service, &args, flags)) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("dray {}: {error}", service.name);
            return ExitCode::from(2);
        }
    };
    let chassis = settings.chassis().clone();
    chassis::run(service.name, &chassis, |parts| {
        if args.stop_with_stdin {
            stop_with_stdin(parts.stop.clone());
        }
        serve(settings, parts)
    })
}

/// Flags are handed over as environment variables that come last.
fn sources(service: &Service, args: &ServiceArgs, mut flags: Flags) -> Sources {
    let mut sources = Sources::of_process(service.name, service.defaults, args.config.clone());
    flags.push(("chassis.health-listen", args.health_listen.map(|address| address.to_string())));
    let flags = flags.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let set = args.set.iter().map(|(key, value)| (key.as_str(), value.clone()));
    for (key, value) in flags.chain(set) {
        sources.environment.push((variable(service.name, key), value));
    }
    sources
}

/// `DRAY_NODE_AGENT__CHASSIS__HEALTH_LISTEN`.
fn variable(service: &str, key: &str) -> String {
    let upper = |text: &str| text.to_uppercase().replace('-', "_");
    format!("DRAY_{}__{}", upper(service), upper(key).replace('.', "__"))
}

/// Watches standard input on a thread that ends with the process: a blocking read cannot be cancelled.
pub(crate) fn stop_with_stdin(stop: CancellationToken) {
    let watch = move || {
        let mut rest = [0; 64];
        while std::io::stdin().read(&mut rest).is_ok_and(|read| read > 0) {}
        stop.cancel();
    };
    if let Err(error) = std::thread::Builder::new().name("stdin".to_owned()).spawn(watch) {
        tracing::warn!(%error, "cannot watch standard input; this process may outlive its parent");
    }
}

/// A folder as the value of a setting.
pub(crate) fn path(path: Option<PathBuf>) -> Option<String> {
    path.map(|path| path.display().to_string())
}

/// `id`, or a name that nobody else has.
pub(crate) fn id_or_new(id: String, service: &str) -> String {
    if !id.is_empty() {
        return id;
    }
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("{service}-{}", &random[..8])
}

/// Settings that must not be empty, as problems.
pub(crate) fn missing(settings: &[(&str, &str)]) -> Vec<String> {
    let empty = settings.iter().filter(|(_, value)| value.is_empty());
    empty
        .map(|(key, _)| format!("{key} is not set: by flag, file or environment"))
        .collect()
}

/// Problems with durations that must not be zero.
pub(crate) fn zero(settings: &[(&str, Duration)]) -> Vec<String> {
    let zero = settings.iter().filter(|(_, value)| value.is_zero());
    zero.map(|(key, _)| format!("{key} must be more than nothing")).collect()
}

/// The database answers.
pub(crate) fn check_database(health: &Health, store: store::Store) {
    health.add_check("database", move || {
        let store = store.clone();
        async move { store.ping().await.map_err(|error| error.to_string()) }
    });
}

/// The bus is connected.
pub(crate) fn check_bus(health: &Health, bus: &bus::Bus) {
    let connected = bus.connected();
    health.add_check("nats", move || {
        let is_connected = *connected.borrow();
        async move { ready_if(is_connected, "not connected") }
    });
}

/// The answer of a readiness check.
pub(crate) fn ready_if(is_ready: bool, otherwise: &str) -> Result<(), String> {
    if is_ready { Ok(()) } else { Err(otherwise.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_the_services_own_variables() {
        assert_eq!(
            variable("node-agent", "chassis.health-listen"),
            "DRAY_NODE_AGENT__CHASSIS__HEALTH_LISTEN"
        );
        assert_eq!(key_and_value("a.b=c=d"), Ok(("a.b".to_owned(), "c=d".to_owned())));
        assert!(key_and_value("a").is_err());
        assert_eq!(missing(&[("database-url", ""), ("nats-url", "x")]).len(), 1);
    }
}
