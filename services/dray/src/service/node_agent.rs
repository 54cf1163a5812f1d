//! `dray node-agent`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use chassis::config::Validate;
use chassis::{AnyError, ChassisConfig, Parts};

use super::args::{self, Service, ServiceArgs, missing};

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
    #[command(flatten)]
    common: ServiceArgs,
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
    chassis: ChassisConfig,
}

/// The node as it is published.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NodeSettings {
    name: String,
    unschedulable: bool,
    labels: BTreeMap<String, String>,
}

impl Validate for Settings {
    fn problems(&self) -> Vec<String> {
        missing(&[
            ("node.name", &self.node.name),
            ("server", &self.server),
            ("nats-url", &self.nats_url),
        ])
    }
}

impl args::Settings for Settings {
    fn chassis(&self) -> &ChassisConfig {
        &self.chassis
    }
}

/// Runs a node agent until it is stopped.
pub(crate) fn run(args: NodeAgentArgs) -> ExitCode {
    let path = |path: Option<PathBuf>| path.map(|path| path.display().to_string());
    let flags = [
        ("node.name", args.node),
        ("server", args.server),
        ("plugins-registry", path(args.plugins_registry)),
        ("state-dir", path(args.state_dir)),
    ];
    args::run(&SERVICE, args.common, &flags, serve)
}

async fn serve(settings: Settings, parts: Parts) -> Result<(), AnyError> {
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
        async move {
            if is_ready {
                Ok(())
            } else {
                Err("what is wanted on this node is not known yet".to_owned())
            }
        }
    });
    Ok(node_agent::run(deps, parts.stop).await?)
}
