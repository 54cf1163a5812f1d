//! A cluster that has lived decides as one that was made from the same objects a moment ago: nothing that it remembers (views,
//! counts, nodes ruled out, their order) is ever out of date.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use resource_api::claim::DeviceRequestAllocationResult;
use resource_api::ids::Uid;
use serde_json::{Value, json};
use structured::{Cluster, Features, Limits, NodeFacts, Policy, check, compile_unit, place};
use uuid::Uuid;

const GPU: &str = "gpu.dray.test";
const NET: &str = "net.dray.test";

fn object<T: serde::de::DeserializeOwned>(value: &Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value.clone()).expect("test objects are well-formed"))
}

/// Something that happens to a cluster. Nodes are few at first and come to fill several blocks of the node index.
#[derive(Clone, Debug)]
enum Step {
    Join { node: u32, devices: u32, unschedulable: bool },
    Leave { node: u32 },
    Publish { node: u32, devices: u32 },
    Withdraw { node: u32 },
    Network { devices: u32 },
    Claim { gpus: u32, kind: u32, net: bool },
    Release { which: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = 0..300_u32;
    let step = prop_oneof![
        6 => (node.clone(), 0..5_u32, prop::bool::weighted(0.1))
            .prop_map(|(node, devices, unschedulable)| Step::Join { node, devices, unschedulable }),
        2 => node.clone().prop_map(|node| Step::Leave { node }),
        2 => (node.clone(), 0..5_u32).prop_map(|(node, devices)| Step::Publish { node, devices }),
        1 => node.prop_map(|node| Step::Withdraw { node }),
        1 => (0..3_u32).prop_map(|devices| Step::Network { devices }),
        8 => (1..4_u32, 0..3_u32, prop::bool::weighted(0.2)).prop_map(|(gpus, kind, net)| Step::Claim { gpus, kind, net }),
        3 => any::<usize>().prop_map(|which| Step::Release { which }),
    ];
    prop::collection::vec(step, 100..500)
}

fn slice(driver: &str, pool: &str, place: (&str, Value), devices: u32) -> Value {
    let devices: Vec<_> = (0..devices)
        .map(|at| json!({"name": format!("dev-{at}"), "attributes": {"kind": {"int": at % 2}}}))
        .collect();
    let mut spec =
        json!({"driver": driver, "devices": devices, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}});
    spec[place.0] = place.1;
    json!({"metadata": {"name": format!("slice-{pool}")}, "spec": spec})
}

/// The objects, and the cluster that has lived through all changes of them.
struct World {
    nodes: BTreeMap<String, bool>,
    slices: BTreeMap<String, Value>,
    taken: BTreeMap<u128, Vec<DeviceRequestAllocationResult>>,
    cluster: Cluster,
}

impl World {
    fn new() -> Self {
        Self {
            nodes: BTreeMap::new(),
            slices: BTreeMap::new(),
            taken: BTreeMap::new(),
            cluster: Self::empty(),
        }
    }

    fn empty() -> Cluster {
        let mut cluster = Cluster::new(Features::default());
        for (name, driver) in [("gpu", GPU), ("net", NET)] {
            let selectors = json!([{"cel": {"expression": format!("device.driver == \"{driver}\"")}}]);
            cluster.put_class(object(&json!({"metadata": {"name": name}, "spec": {"selectors": selectors}})));
        }
        cluster
    }

    fn node(name: &str, unschedulable: bool) -> NodeFacts {
        NodeFacts {
            name: name.to_owned(),
            unschedulable,
            ..NodeFacts::default()
        }
    }

    fn fresh(&self) -> Cluster {
        let mut cluster = Self::empty();
        self.nodes
            .iter()
            .for_each(|(name, unschedulable)| cluster.put_node(Self::node(name, *unschedulable)));
        self.slices.values().for_each(|slice| cluster.put_slice(object(slice)));
        self.taken
            .iter()
            .for_each(|(claim, results)| cluster.take(Uid(Uuid::from_u128(*claim)), results));
        cluster
    }

    fn publish(&mut self, slice: Value) {
        self.cluster.put_slice(object(&slice));
        let name = slice["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.slices.insert(name, slice);
    }

    fn withdraw(&mut self, pool: &str) {
        let name = format!("slice-{pool}");
        self.cluster.remove_slice(&name);
        self.slices.remove(&name);
    }

    fn claim(&mut self, number: u128, gpus: u32, kind: u32, net: bool) -> Result<(), TestCaseError> {
        let mut exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": gpus});
        if kind < 2 {
            let expression = format!("device.attributes[\"{GPU}\"].kind == {kind}");
            exactly["selectors"] = json!([{"cel": {"expression": expression}}]);
        }
        let mut requests = vec![json!({"name": "gpu", "exactly": exactly})];
        if net {
            let exactly = json!({"deviceClassName": "net", "allocationMode": "ExactCount", "count": 1});
            requests.push(json!({"name": "net", "exactly": exactly}));
        }
        let uid = Uid(Uuid::from_u128(number));
        let metadata = json!({"namespace": "ns", "name": "claim", "uid": uid});
        let claim = object(&json!({"metadata": metadata, "spec": {"devices": {"requests": requests}}}));
        let decide = |cluster: &Cluster| {
            let unit = compile_unit(cluster, std::slice::from_ref(&claim)).expect("no fault");
            let answer = place(cluster, &unit, Policy::FirstFit, &Limits::default());
            let violations = answer.as_ref().map(|plan| check(cluster, &unit, plan)).unwrap_or_default();
            (
                answer.map(|plan| (plan.node, plan.claims)).map_err(|refusal| refusal.kind),
                violations,
            )
        };
        let (lived, violations) = decide(&self.cluster);
        prop_assert_eq!(violations, vec![]);
        prop_assert_eq!(&lived, &decide(&self.fresh()).0);
        if let Ok((_, claims)) = lived {
            for (uid, allocation) in claims {
                self.cluster.take(uid, &allocation.devices.results);
                self.taken.insert(number, allocation.devices.results);
            }
        }
        Ok(())
    }

    fn step(&mut self, number: u128, step: &Step) -> Result<(), TestCaseError> {
        let name = |node: u32| format!("node-{node}");
        match *step {
            Step::Join {
                node,
                devices,
                unschedulable,
            } => {
                let name = name(node);
                self.cluster.put_node(Self::node(&name, unschedulable));
                self.nodes.insert(name.clone(), unschedulable);
                self.publish(slice(GPU, &name, ("nodeName", json!(name)), devices));
            }
            Step::Leave { node } => {
                let name = name(node);
                self.cluster.remove_node(&name);
                self.nodes.remove(&name);
                self.withdraw(&name);
            }
            Step::Publish { node, devices } => {
                let name = name(node);
                self.publish(slice(GPU, &name, ("nodeName", json!(name)), devices));
            }
            Step::Withdraw { node } => self.withdraw(&name(node)),
            Step::Network { devices: 0 } => self.withdraw("fabric"),
            Step::Network { devices } => self.publish(slice(NET, "fabric", ("allNodes", json!(true)), devices)),
            Step::Claim { gpus, kind, net } => self.claim(number, gpus, kind, net)?,
            Step::Release { which } => {
                let claim = self.taken.keys().nth(which % self.taken.len().max(1)).copied();
                if let Some(claim) = claim {
                    self.taken.remove(&claim);
                    self.cluster.release(Uid(Uuid::from_u128(claim)));
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_cluster_that_has_lived_decides_as_a_fresh_one(steps in steps()) {
        let mut world = World::new();
        for (number, step) in (1..).zip(&steps) {
            world.step(number, step)?;
        }
        prop_assert_eq!(world.cluster.stats(), world.fresh().stats());
    }
}
