//! Family `a` of the workload set, in any size: nodes with GPUs, claims with two selectors, some devices in use.
//!
//! Source: the set's description, section 4; the test compares whole files by their hash.

use std::sync::Arc;

use resource_api::class::DeviceClass;
use resource_api::ids::DeviceId;
use resource_api::slice::ResourceSlice;
use serde_json::{Value, json};

use crate::dice::Dice;
use structured::conformance::{Workload, WorkloadNode};

const DRIVER: &str = "gpu.example.com";
const MODELS: [&str; 4] = ["A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM5-141GB"];
const FAMILIES: [&str; 4] = ["ampere", "ampere", "hopper", "hopper"];
const DRIVER_VERSIONS: [&str; 4] = ["535.161.8", "550.54.15", "550.90.7", "560.35.3"];
const MEMORY: [&str; 4] = ["40Gi", "80Gi", "80Gi", "141Gi"];
const MULTIPROCESSORS: [&str; 4] = ["108", "108", "132", "132"];

/// Which devices are in use before the first claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefill {
    None,
    /// Each with a chance of one half.
    Half,
    /// All of all nodes but the last so many.
    AllButNodes(usize),
    /// Each with a chance of 99 in 100. Not a part of the set.
    NearlyAll,
}

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    /// 8 in the set.
    pub(super) devices_per_node: usize,
    pub(super) claims: usize,
    pub(super) prefill: Prefill,
}

impl Spec {
    /// The workload, made object by object: the JSON of all of them never exists at once.
    pub(super) fn workload(self) -> serde_json::Result<Workload> {
        let slices = (0..self.nodes).map(|node| self.slice_object(node));
        Ok(Workload {
            format: "allocbench/1".to_owned(),
            name: "generated".to_owned(),
            nodes: self.node_list(),
            device_classes: vec![Arc::new(serde_json::from_value::<DeviceClass>(class())?)],
            resource_slices: slices.collect::<Result<_, _>>()?,
            claims: self
                .claims()
                .into_iter()
                .map(|claim| serde_json::from_value(claim).map(Arc::new))
                .collect::<Result<_, _>>()?,
            preallocated: self.preallocated(),
        })
    }

    pub(super) fn slice_object(self, node: usize) -> serde_json::Result<Arc<ResourceSlice>> {
        serde_json::from_value(gpu_slice(node, self.devices_per_node)).map(Arc::new)
    }

    pub(super) fn node_list(self) -> Vec<WorkloadNode> {
        let node = |i| WorkloadNode {
            name: node_name(i),
            labels: [
                ("kubernetes.io/hostname", node_name(i)),
                ("rack", format!("rack-{:03}", i / 16)),
            ]
            .map(|(key, value)| (key.to_owned(), value))
            .into(),
        };
        (0..self.nodes).map(node).collect()
    }

    pub(super) fn preallocated(self) -> Vec<DeviceId> {
        self.draws().1
    }

    /// As in the set, they follow the draws for devices in use: equal seeds have equal claims only with equal draws.
    pub(super) fn claims(self) -> Vec<Value> {
        let mut dice = self.draws().0;
        (0..self.claims).map(|k| claim(k, dice.below(20))).collect()
    }

    /// The stream of random numbers after the draws for devices in use, and these devices.
    fn draws(self) -> (Dice, Vec<DeviceId>) {
        let mut dice = Dice::new(self.seed);
        let mut used = Vec::new();
        for i in 0..self.nodes {
            for j in 0..self.devices_per_node {
                let in_use = match self.prefill {
                    Prefill::None => false,
                    Prefill::Half => dice.below(2) == 0,
                    Prefill::AllButNodes(left) => i + left < self.nodes,
                    Prefill::NearlyAll => dice.below(100) != 0,
                };
                if in_use {
                    used.push(DeviceId {
                        driver: DRIVER.into(),
                        pool: node_name(i).as_str().into(),
                        device: format!("gpu-{j}").as_str().into(),
                    });
                }
            }
        }
        (dice, used)
    }
}

fn node_name(i: usize) -> String {
    format!("node-{i:05}")
}

pub(super) fn class() -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == \"{DRIVER}\"")}}]}})
}

fn gpu_slice(i: usize, n_devices: usize) -> Value {
    let node = node_name(i);
    let devices: Vec<Value> = (0..n_devices).map(|j| gpu(i, j)).collect();
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("gpu-{node}")},
        "spec": {"driver": DRIVER, "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})
}

fn gpu(i: usize, j: usize) -> Value {
    let (m, root) = (i % 4, 16 * (j % 2));
    json!({"name": format!("gpu-{j}"),
        "attributes": {
            "index": {"int": j},
            "uuid": {"string": format!("GPU-{i:05}-{j}")},
            "model": {"string": MODELS[m]},
            "family": {"string": FAMILIES[m]},
            "driverVersion": {"version": DRIVER_VERSIONS[(i / 4) % 4]},
            "ecc": {"bool": true},
            "numa": {"int": j / 4},
            "nvlinkDomain": {"string": format!("{}-nvl{}", node_name(i), j / 4)},
            "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{root:02x}")},
            "resource.kubernetes.io/pciBusID": {"string": format!("0000:{root:02x}:{j:02x}.0")},
        },
        "capacity": {"memory": {"value": MEMORY[m]}, "multiprocessors": {"value": MULTIPROCESSORS[m]}}})
}

fn claim(k: usize, d: u64) -> Value {
    let count = match d {
        0..10 => 1,
        10..15 => 2,
        15..18 => 4,
        _ => 8,
    };
    let selectors = [
        format!("device.attributes[\"{DRIVER}\"].driverVersion.compareTo(semver(\"550.0.0\")) >= 0"),
        format!("device.capacity[\"{DRIVER}\"].memory.compareTo(quantity(\"80Gi\")) >= 0"),
    ]
    .map(|expression| json!({"cel": {"expression": expression}}));
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": format!("claim-{k:05}"), "namespace": "bench", "uid": format!("00000000-0000-4000-8000-{k:012}")},
        "spec": {"devices": {"requests": [{"name": "r0", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount",
            "count": count, "selectors": selectors}}]}}})
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// The hash of the workload's file, made as the set's description says.
    fn hash(name: &str, prefill: &str, spec: Spec) -> String {
        let nodes: Vec<Value> = spec
            .node_list()
            .into_iter()
            .map(|node| json!({"name": node.name, "labels": node.labels}))
            .collect();
        let used: Vec<Value> = spec
            .preallocated()
            .iter()
            .map(|id| json!({"driver": id.driver, "pool": id.pool, "device": id.device}))
            .collect();
        let slices: Vec<Value> = (0..spec.nodes).map(|i| gpu_slice(i, spec.devices_per_node)).collect();
        let file = json!({"format": "allocbench/1", "name": name, "nodes": nodes, "deviceClasses": [class()],
            "resourceSlices": slices, "claims": spec.claims(), "preallocated": used,
            "params": {"family": "a", "seed": spec.seed, "nodes": spec.nodes, "claims": spec.claims, "prefill": prefill}});
        let digest = Sha256::digest(file.to_string());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn generated_files_have_the_published_hashes() {
        let spec = |seed, nodes, claims, prefill| Spec {
            seed,
            nodes,
            devices_per_node: 8,
            claims,
            prefill,
        };
        assert_eq!(
            hash("a-gpu-100", "none", spec(101, 100, 300, Prefill::None)),
            "d7dde70549a4b7ae1e00f498d027e84ff0dd9829cd912d3d55a179b870b8e494"
        );
        assert_eq!(
            hash("a-gpu-1000-half", "half", spec(103, 1000, 500, Prefill::Half)),
            "6ffd268e43072f0baedc767980776aff8ae15a2b498deab70f9204f365ef43d6"
        );
        assert_eq!(
            hash("a-gpu-5000-full", "allbut64", spec(105, 5000, 100, Prefill::AllButNodes(64))),
            "d4bc514bae7789eaeae54c928b07e73db3b8eb67a500dddadf0358394aeb9a81"
        );
    }
}
