//! Feature gates: what the cluster is made with. A switch makes it anew from everything that it was told; commits of decisions made
//! under the gates before are refused, whichever process made them.

use std::collections::BTreeMap;
use std::sync::Arc;

use resource_api::claim::DeviceRequestAllocationResult;
use resource_api::ids::{DeviceName, PoolId, ShareId};
use resource_api::quantity::Quantity;
use resource_api::shard::node_shard;
use resource_api::slice::QualifiedName;
use store::GatesAt;
use structured::Cluster;

use super::apply::Change;
use super::{Engine, features_of};

/// A device that a claim has, or a share of it: what a cluster must be told again.
pub(super) struct HeldDevice {
    pool: PoolId,
    device: DeviceName,
    share: Option<Box<HeldShare>>,
}

struct HeldShare {
    id: ShareId,
    consumed: BTreeMap<QualifiedName, Quantity>,
}

impl HeldDevice {
    /// Of a claim's results; those that occupy nothing are left out.
    pub(super) fn of(results: &[DeviceRequestAllocationResult]) -> Box<[Self]> {
        let holding = results.iter().filter(|result| result.admin_access != Some(true));
        let held = holding.map(|result| Self {
            pool: result.pool_id(),
            device: result.device.clone(),
            share: result.share_id.clone().map(|id| {
                Box::new(HeldShare {
                    id,
                    consumed: result.consumed_capacity.clone(),
                })
            }),
        });
        held.collect()
    }

    fn result(&self) -> DeviceRequestAllocationResult {
        DeviceRequestAllocationResult {
            driver: self.pool.driver.clone(),
            pool: self.pool.pool.clone(),
            device: self.device.clone(),
            share_id: self.share.as_ref().map(|share| share.id.clone()),
            consumed_capacity: self.share.as_ref().map(|share| share.consumed.clone()).unwrap_or_default(),
            ..DeviceRequestAllocationResult::default()
        }
    }
}

impl Engine {
    pub(super) fn on_gates(&mut self, change: &Change<'_>) -> Result<(), serde_json::Error> {
        let switched = if change.deleted {
            // Only by hand: the defaults, from there on.
            GatesAt {
                position: change.sequence,
                ..GatesAt::default()
            }
        } else {
            GatesAt::read(change.body, change.sequence)?
        };
        if switched.position <= self.gates.position {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.gates, switched);
        if features_of(before.gates) != features_of(switched.gates) {
            self.make_cluster();
            self.changes.gates = true;
        }
        Ok(())
    }

    fn make_cluster(&mut self) {
        let mut cluster = Cluster::new(features_of(self.gates.gates));
        self.classes.values().for_each(|class| cluster.put_class(class.clone()));
        self.taint_rules
            .values()
            .for_each(|rule| cluster.put_taint_rule(rule.clone()));
        self.nodes.values().for_each(|node| cluster.put_node(node.clone()));
        let slices = self.pools.values().flat_map(|facts| facts.slices.values());
        slices.for_each(|slice| cluster.put_slice(slice.clone()));
        // What commits under way would take is left out: those that have not won by now are refused.
        for (claim, held) in &self.held {
            let results: Vec<_> = held.iter().map(HeldDevice::result).collect();
            cluster.take((*claim).into(), &results);
        }
        self.cluster = cluster;
        self.prefer_own_nodes();
    }

    /// First fit takes the nodes that are ours to decide about first.
    pub(super) fn prefer_own_nodes(&mut self) {
        let mine = self.mine.clone();
        self.cluster.prefer_nodes(Arc::new(move |node: &str| {
            mine.get(usize::from(node_shard(node))).copied().unwrap_or(false)
        }));
    }
}
