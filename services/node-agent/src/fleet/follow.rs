//! Which nodes a following fleet stands for: every node that a node-local pool names.
//!
//! It reads all slices and then follows their changes. The set only grows: a node whose pool was withdrawn may still have
//! claims to let go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chassis::Backoff;
use resource_api::DriverName;
use resource_api::node::Node;
use rpc::dray::v1 as pb;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{RETRY_CAP, RETRY_FIRST};
use crate::config::NodeConfig;
use crate::server::Server;

const SLICES: &str = "resourceslices";
/// Pools come in bursts, and each change of the set begins the list of what is wanted anew: they are gathered for so long.
const GATHER: Duration = Duration::from_millis(500);

/// Which pools' nodes a fleet takes on. It must be the only agent there: registering takes a node from another agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Follow {
    /// Pools of these drivers; none: of every driver.
    pub drivers: BTreeSet<DriverName>,
}

/// Adds nodes to `nodes` as pools name them.
pub(super) struct Follower {
    pub(super) server: Server,
    pub(super) follow: Follow,
    /// Of nodes that the server does not know; others keep theirs.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) nodes: watch::Sender<Vec<pb::AgentNode>>,
}

/// What matters here of a ResourceSlice.
#[derive(Deserialize)]
struct Slice {
    spec: SliceSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceSpec {
    driver: DriverName,
    /// Empty or missing in slices of pools that more than one node reaches.
    #[serde(default)]
    node_name: Option<String>,
}

impl Follower {
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_CAP);
        loop {
            let followed = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                followed = self.follow(&mut backoff) => followed,
            };
            if let Err(status) = followed {
                tracing::warn!(code = %status.code(), message = status.message(), attempt = backoff.failures(), "cannot follow the pools; trying again");
            }
            let wait = backoff.next_wait(&mut rand::rng());
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Everything from the beginning, until the stream ends: what is known already is not added twice.
    async fn follow(&self, backoff: &mut Backoff) -> Result<(), Status> {
        let mut names = BTreeSet::new();
        let sequence = self.server.list(SLICES, |slice| names.extend(self.node_of(&slice))).await?;
        self.add(names).await?;
        let mut events = self.server.watch(SLICES, sequence).await?;
        while let Some(event) = events.message().await? {
            backoff.reset();
            let mut names: BTreeSet<String> = event.object.iter().filter_map(|slice| self.node_of(slice)).collect();
            let until = Instant::now() + GATHER;
            while let Ok(event) = tokio::time::timeout_at(until, events.message()).await {
                let Some(event) = event? else { break };
                names.extend(event.object.iter().filter_map(|slice| self.node_of(slice)));
            }
            self.add(names).await?;
        }
        Ok(())
    }

    /// The node that this slice is for, if its driver is followed.
    fn node_of(&self, slice: &pb::Object) -> Option<String> {
        let parsed = serde_json::from_slice::<Slice>(&slice.json);
        let spec = parsed
            .inspect_err(|error| tracing::error!(slice.name, %error, "the server's slice cannot be read"))
            .ok()?
            .spec;
        let followed = self.follow.drivers.is_empty() || self.follow.drivers.contains(&spec.driver);
        spec.node_name.filter(|name| followed && !name.is_empty())
    }

    /// Registering replaces a node's labels, so those that it has are taken over.
    async fn add(&self, mut names: BTreeSet<String>) -> Result<(), Status> {
        for node in self.nodes.borrow().iter() {
            names.remove(&node.name);
        }
        if names.is_empty() {
            return Ok(());
        }
        let mut nodes = BTreeMap::new();
        self.server
            .list("nodes", |node| nodes.extend(registered(&node, &names)))
            .await?;
        for name in names {
            let labels = self.labels.clone();
            nodes.entry(name.clone()).or_insert_with(|| {
                let node = NodeConfig {
                    name,
                    labels,
                    unschedulable: false,
                };
                node.message()
            });
        }
        let added = nodes.len();
        self.nodes.send_modify(|known| known.extend(nodes.into_values()));
        tracing::info!(added, nodes = self.nodes.borrow().len(), "the fleet stands for more nodes");
        Ok(())
    }
}

/// A node of `names` as the server has it; one that cannot be read is registered as a new one would be.
fn registered(node: &pb::Object, names: &BTreeSet<String>) -> Option<(String, pb::AgentNode)> {
    let name = names.get(&node.name)?;
    let node: Node = serde_json::from_slice(&node.json).ok()?;
    let config = NodeConfig {
        name: name.clone(),
        labels: node.metadata.labels,
        unschedulable: node.spec.unschedulable,
    };
    Some((name.clone(), config.message()))
}
