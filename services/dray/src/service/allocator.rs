//! `dray allocator`.

use std::process::ExitCode;
use std::time::Duration;

use chassis::config::Validate;
use chassis::{AnyError, ChassisConfig, Parts};

use super::args::{self, DatabaseServiceArgs, GatesArgs, Service, id_or_new, missing, zero};

const SERVICE: Service = Service {
    name: "allocator",
    defaults: include_str!("allocator.toml"),
};

/// Flags of `dray allocator`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AllocatorArgs {
    /// How a node is chosen among those that fit: first-fit, pack, spread or least-fragmentation.
    #[arg(long, env = "DRAY_POLICY", value_name = "POLICY")]
    policy: Option<allocator::Policy>,
    #[command(flatten)]
    gates: GatesArgs,
    #[command(flatten)]
    database: DatabaseServiceArgs,
}

/// See `allocator.toml`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    id: String,
    database_url: String,
    nats_url: String,
    #[serde(with = "humantime_serde")]
    lease_ttl: Duration,
    connections_max: u32,
    policy: String,
    feature_gates: String,
    chassis: ChassisConfig,
}

impl Validate for Settings {
    fn problems(&self) -> Vec<String> {
        let missing = missing(&[("database-url", &self.database_url), ("nats-url", &self.nats_url)]);
        let policy = self.policy.parse::<allocator::Policy>().err();
        let policy = policy.map(|error| format!("policy: {error}")).into_iter().collect();
        [missing, zero(&[("lease-ttl", self.lease_ttl)]), policy].concat()
    }
}

impl args::Settings for Settings {
    fn chassis(&self) -> &ChassisConfig {
        &self.chassis
    }
}

/// Runs an allocator until it is stopped.
pub(crate) fn run(args: AllocatorArgs) -> ExitCode {
    let mut flags = args.database.flags();
    flags.extend(args.gates.flags());
    flags.push(("policy", args.policy.map(|policy| policy.as_str().to_owned())));
    args::run(&SERVICE, args.database.bus.common, flags, serve)
}

async fn serve(settings: Settings, parts: Parts) -> Result<(), AnyError> {
    let config = allocator::Config {
        lease_ttl: settings.lease_ttl,
        connections_max: settings.connections_max,
        policy: settings.policy.parse()?,
        feature_gates: settings.feature_gates,
        ..allocator::Config::new(id_or_new(settings.id, SERVICE.name), settings.database_url, settings.nats_url)
    };
    let deps = allocator::connect(config, parts.health.registry().clone()).await?;
    args::check_database(&parts.health, deps.store.clone());
    args::check_bus(&parts.health, &deps.bus);
    Ok(allocator::run(deps, parts.stop).await?)
}
