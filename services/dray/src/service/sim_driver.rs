//! `dray sim-driver`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use chassis::config::Validate;
use chassis::{AnyError, ChassisConfig, Parts};
use node_agent::sim_driver;

use super::args::{self, Service, ServiceArgs, missing, path};

const SERVICE: Service = Service {
    name: "sim-driver",
    defaults: include_str!("sim_driver.toml"),
};

/// Flags of `dray sim-driver`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SimDriverArgs {
    /// The driver's name.
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// The node it runs on.
    #[arg(long, env = "DRAY_NODE", value_name = "NAME")]
    node: Option<String>,
    /// How many devices it publishes.
    #[arg(long, value_name = "N")]
    devices: Option<u32>,
    /// Address of ingest.
    #[arg(long, env = "DRAY_SERVER", value_name = "URL")]
    server: Option<String>,
    /// Where the node agent looks for registration sockets.
    #[arg(long, value_name = "FOLDER")]
    plugins_registry: Option<PathBuf>,
    /// The driver's own folder.
    #[arg(long, value_name = "FOLDER")]
    plugin_dir: Option<PathBuf>,
    #[command(flatten)]
    common: ServiceArgs,
}

/// See `sim_driver.toml`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    driver: String,
    node: String,
    server: String,
    plugins_registry: PathBuf,
    plugin_dir: PathBuf,
    durable: bool,
    devices: u32,
    model: String,
    #[serde(with = "humantime_serde")]
    latency: Duration,
    chassis: ChassisConfig,
}

impl Validate for Settings {
    fn problems(&self) -> Vec<String> {
        let mut problems = missing(&[("node", &self.node), ("server", &self.server)]);
        if let Err(error) = self.driver.parse::<resource_api::DriverName>() {
            problems.push(format!("driver: {error}"));
        }
        problems
    }
}

impl args::Settings for Settings {
    fn chassis(&self) -> &ChassisConfig {
        &self.chassis
    }
}

/// Runs a simulated driver until it is stopped.
pub(crate) fn run(args: SimDriverArgs) -> ExitCode {
    let flags = vec![
        ("driver", args.driver),
        ("node", args.node),
        ("devices", args.devices.map(|devices| devices.to_string())),
        ("server", args.server),
        ("plugins-registry", path(args.plugins_registry)),
        ("plugin-dir", path(args.plugin_dir)),
    ];
    args::run(&SERVICE, args.common, flags, serve)
}

async fn serve(settings: Settings, parts: Parts) -> Result<(), AnyError> {
    let faults = sim_driver::Faults {
        latency: settings.latency,
        ..sim_driver::Faults::default()
    };
    let config = sim_driver::Config {
        plugins_registry: settings.plugins_registry,
        plugin_dir: settings.plugin_dir,
        durable: settings.durable,
        devices: settings.devices,
        model: settings.model,
        faults,
        ..sim_driver::Config::new(settings.driver, settings.node, settings.server)
    };
    Ok(sim_driver::connect(config).await?.run(parts.stop).await?)
}
