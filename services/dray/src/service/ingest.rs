//! `dray ingest`.

use std::net::SocketAddr;
use std::process::ExitCode;

use chassis::config::Validate;
use chassis::{AnyError, ChassisConfig, Parts};

use super::args::{self, DatabaseServiceArgs, GatesArgs, Service, id_or_new, missing};

const SERVICE: Service = Service {
    name: "ingest",
    defaults: include_str!("ingest.toml"),
};

/// Flags of `dray ingest`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IngestArgs {
    /// Where gRPC is served.
    #[arg(long, env = "DRAY_LISTEN", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    gates: GatesArgs,
    #[command(flatten)]
    database: DatabaseServiceArgs,
}

/// See `ingest.toml`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    id: String,
    database_url: String,
    nats_url: String,
    listen: SocketAddr,
    connections_max: u32,
    writes_max: usize,
    waiters_max: usize,
    feature_gates: String,
    chassis: ChassisConfig,
}

impl Validate for Settings {
    fn problems(&self) -> Vec<String> {
        missing(&[("database-url", &self.database_url), ("nats-url", &self.nats_url)])
    }
}

impl args::Settings for Settings {
    fn chassis(&self) -> &ChassisConfig {
        &self.chassis
    }
}

/// Runs an ingest until it is stopped.
pub(crate) fn run(args: IngestArgs) -> ExitCode {
    let mut flags = args.database.flags();
    flags.push(("listen", args.listen.map(|address| address.to_string())));
    flags.extend(args.gates.flags());
    args::run(&SERVICE, args.database.bus.common, flags, serve)
}

async fn serve(settings: Settings, parts: Parts) -> Result<(), AnyError> {
    let config = ingest::Config {
        listen: settings.listen,
        connections_max: settings.connections_max,
        writes_max: settings.writes_max,
        waiters_max: settings.waiters_max,
        feature_gates: settings.feature_gates,
        ..ingest::Config::new(id_or_new(settings.id, SERVICE.name), settings.database_url, settings.nats_url)
    };
    let deps = ingest::connect(config, parts.health.registry().clone()).await?;
    args::check_database(&parts.health, deps.store.clone());
    args::check_bus(&parts.health, &deps.bus);
    Ok(ingest::run(deps, parts.stop).await?)
}
