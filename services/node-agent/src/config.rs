//! How a node agent is set up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of `dray node-agent`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names this agent; the same after a restart, and of no other agent.
    pub id: String,
    /// Address of ingest, `http://host:port`.
    pub server: String,
    /// `nats://host:port`.
    pub nats_url: String,
    /// The node that this agent answers for.
    pub node: NodeConfig,
    /// Where drivers put their registration sockets.
    pub plugins_registry: PathBuf,
    /// Where the agent keeps what it must not forget. On a disk that survives a restart; of no other agent.
    pub state_dir: PathBuf,
    /// How long a driver may take for a call; then it is repeated, or undone. Upstream: `PluginClientTimeout`, 45 s.
    pub call_timeout: Duration,
}

/// Upstream: `PluginClientTimeout`.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);

/// A node, as it is published when the agent registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeConfig {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// True: nothing new is placed here.
    pub unschedulable: bool,
}

impl Config {
    /// The kubelet's folder for sockets (`/var/lib/kubelet/plugins_registry`, which drivers mount) and Dray's own for the
    /// state. The agent is called after its node.
    pub fn new(node: impl Into<String>, server: impl Into<String>, nats_url: impl Into<String>) -> Self {
        let name = node.into();
        Self {
            id: name.clone(),
            server: server.into(),
            nats_url: nats_url.into(),
            node: NodeConfig {
                name,
                ..NodeConfig::default()
            },
            plugins_registry: "/var/lib/kubelet/plugins_registry".into(),
            state_dir: "/var/lib/dray/node-agent".into(),
            call_timeout: CALL_TIMEOUT,
        }
    }
}

impl NodeConfig {
    pub(crate) fn message(&self) -> rpc::dray::v1::AgentNode {
        rpc::dray::v1::AgentNode {
            name: self.name.clone(),
            labels: self.labels.clone().into_iter().collect(),
            unschedulable: self.unschedulable,
        }
    }
}
