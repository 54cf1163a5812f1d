//! `dray node-agent`: the agent of one node, or a fleet that stands for many.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use chassis::config::Validate;
use chassis::{AnyError, ChassisConfig, Parts};
use node_agent::fleet;

use super::args::{self, BusArgs, Service, id_or_new, missing, path};

const SERVICE: Service = Service {
    name: "node-agent",
    defaults: include_str!("node_agent.toml"),
};

/// Flags of `dray node-agent`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NodeAgentArgs {
    /// The node that this agent answers for.
    #[arg(long, env = "DRAY_NODE", value_name = "NAME")]
    node: Option<String>,
    /// Address of ingest.
    #[arg(long, env = "DRAY_SERVER", value_name = "URL")]
    server: Option<String>,
    /// Where drivers put their registration sockets.
    #[arg(long, value_name = "FOLDER")]
    plugins_registry: Option<PathBuf>,
    /// Where the agent keeps what it must not forget.
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
    /// Stand for so many made-up nodes instead of one real one.
    #[arg(long, value_name = "N", conflicts_with_all = ["node", "plugins_registry", "state_dir"])]
    fleet_nodes: Option<u32>,
    /// Stand for every node that a published pool names.
    #[arg(long, conflicts_with_all = ["node", "plugins_registry", "state_dir"])]
    fleet_follow: bool,
    #[command(flatten)]
    bus: BusArgs,
}

/// See `node_agent.toml`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    id: String,
    server: String,
    nats_url: String,
    plugins_registry: PathBuf,
    state_dir: PathBuf,
    node: NodeSettings,
    fleet: FleetSettings,
    chassis: ChassisConfig,
}

/// The node as it is published.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NodeSettings {
    name: String,
    unschedulable: bool,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Many nodes in one process, without sockets and devices.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FleetSettings {
    nodes: u32,
    node_prefix: String,
    follow: bool,
    follow_drivers: BTreeSet<String>,
    driver: String,
    devices_per_node: u32,
    models: Vec<String>,
    #[serde(with = "humantime_serde")]
    prepare_latency: Duration,
    publishes_at_once: usize,
}

impl FleetSettings {
    fn is_wanted(&self) -> bool {
        self.nodes > 0 || self.follow
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = missing(&[("fleet.node-prefix", &self.node_prefix)]);
        for driver in self.follow_drivers.iter().chain([&self.driver]) {
            if let Err(error) = driver.parse::<resource_api::DriverName>() {
                problems.push(format!("a driver of the fleet: {error}"));
            }
        }
        if self.publishes_at_once == 0 {
            problems.push("fleet.publishes-at-once must be at least 1".to_owned());
        }
        problems
    }
}

impl Validate for Settings {
    fn problems(&self) -> Vec<String> {
        let own = if self.fleet.is_wanted() {
            self.fleet.problems()
        } else {
            missing(&[("node.name", &self.node.name)])
        };
        [own, missing(&[("server", &self.server), ("nats-url", &self.nats_url)])].concat()
    }
}

impl args::Settings for Settings {
    fn chassis(&self) -> &ChassisConfig {
        &self.chassis
    }
}

/// Runs a node agent until it is stopped.
pub(crate) fn run(args: NodeAgentArgs) -> ExitCode {
    let mut flags = args.bus.flags();
    flags.extend([
        ("node.name", args.node),
        ("server", args.server),
        ("plugins-registry", path(args.plugins_registry)),
        ("state-dir", path(args.state_dir)),
        ("fleet.nodes", args.fleet_nodes.map(|nodes| nodes.to_string())),
        ("fleet.follow", args.fleet_follow.then(|| "true".to_owned())),
    ]);
    args::run(&SERVICE, args.bus.common, flags, serve)
}

async fn serve(settings: Settings, parts: Parts) -> Result<(), AnyError> {
    if settings.fleet.is_wanted() {
        serve_fleet(settings, parts).await
    } else {
        serve_node(settings, parts).await
    }
}

async fn serve_fleet(settings: Settings, parts: Parts) -> Result<(), AnyError> {
    let wanted = settings.fleet;
    let drivers = wanted.follow_drivers.into_iter().map(Into::into).collect();
    let id = id_or_new(settings.id, "fleet");
    let config = fleet::Config {
        node_prefix: wanted.node_prefix,
        follow: wanted.follow.then_some(fleet::Follow { drivers }),
        labels: settings.node.labels,
        driver: wanted.driver.into(),
        devices_per_node: wanted.devices_per_node,
        models: wanted.models,
        prepare_latency: wanted.prepare_latency,
        publishes_at_once: wanted.publishes_at_once,
        ..fleet::Config::new(id, settings.server, settings.nats_url, wanted.nodes)
    };
    let deps = fleet::connect(config, parts.health.registry().clone()).await?;
    args::check_bus(&parts.health, deps.bus());
    // A fleet that follows has no nodes until a pool is published, and is of use all the same.
    if wanted.nodes > 0 {
        let progress = deps.progress();
        parts.health.add_check("desired", move || {
            let is_ready = progress.borrow().synced;
            async move { args::ready_if(is_ready, "what is wanted on the fleet's nodes is not known yet") }
        });
    }
    Ok(fleet::run(deps, parts.stop).await?)
}

async fn serve_node(settings: Settings, parts: Parts) -> Result<(), AnyError> {
    let NodeSettings {
        name,
        unschedulable,
        labels,
    } = settings.node;
    let defaults = node_agent::Config::new(name.clone(), settings.server, settings.nats_url);
    let config = node_agent::Config {
        id: if settings.id.is_empty() { name.clone() } else { settings.id },
        node: node_agent::NodeConfig {
            name,
            labels,
            unschedulable,
        },
        plugins_registry: settings.plugins_registry,
        state_dir: settings.state_dir,
        ..defaults
    };
    let deps = node_agent::connect(config, parts.health.registry().clone()).await?;
    args::check_bus(&parts.health, deps.bus());
    let ready = deps.ready();
    parts.health.add_check("desired", move || {
        let is_ready = *ready.borrow();
        async move { args::ready_if(is_ready, "what is wanted on this node is not known yet") }
    });
    Ok(node_agent::run(deps, parts.stop).await?)
}
