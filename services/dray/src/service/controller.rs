//! `dray controller`.

use std::process::ExitCode;
use std::time::Duration;

use chassis::config::Validate;
use chassis::{AnyError, ChassisConfig, Parts};

use super::args::{self, DatabaseServiceArgs, Service, id_or_new, missing, zero};

const SERVICE: Service = Service {
    name: "controller",
    defaults: include_str!("controller.toml"),
};

/// See `controller.toml`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    id: String,
    database_url: String,
    nats_url: String,
    #[serde(with = "humantime_serde")]
    leader_ttl: Duration,
    #[serde(with = "humantime_serde")]
    keep_events: Duration,
    #[serde(with = "humantime_serde")]
    keep_records: Duration,
    #[serde(with = "humantime_serde")]
    retention_every: Duration,
    chassis: ChassisConfig,
}

/// Clients may repeat a submission for this long and get the recorded answer.
const KEEP_RECORDS_MIN: Duration = Duration::from_secs(24 * 3600);

impl Validate for Settings {
    fn problems(&self) -> Vec<String> {
        let mut problems = missing(&[("database-url", &self.database_url), ("nats-url", &self.nats_url)]);
        problems.extend(zero(&[
            ("leader-ttl", self.leader_ttl),
            ("retention-every", self.retention_every),
        ]));
        if self.keep_records < KEEP_RECORDS_MIN {
            problems.push("keep-records is less than the 24h that clients are promised".to_owned());
        }
        problems
    }
}

impl args::Settings for Settings {
    fn chassis(&self) -> &ChassisConfig {
        &self.chassis
    }
}

/// Runs a controller until it is stopped.
pub(crate) fn run(args: DatabaseServiceArgs) -> ExitCode {
    let flags = args.flags();
    args::run(&SERVICE, args.bus.common, flags, serve)
}

async fn serve(settings: Settings, parts: Parts) -> Result<(), AnyError> {
    let config = controller::Config {
        leader_ttl: settings.leader_ttl,
        keep_events: settings.keep_events,
        keep_records: settings.keep_records,
        retention_every: settings.retention_every,
        ..controller::Config::new(id_or_new(settings.id, SERVICE.name), settings.database_url, settings.nats_url)
    };
    let deps = controller::connect(config, parts.health.registry().clone()).await?;
    args::check_database(&parts.health, deps.store.clone());
    args::check_bus(&parts.health, &deps.bus);
    Ok(controller::run(deps, parts.stop).await?)
}
