//! `allocbench/1` workloads in `seq` mode: claims one after the other, each on the first node in file order that fits,
//! nothing ever released. There is one right answer per claim.

use std::sync::Arc;

use resource_api::claim::{DeviceRequestAllocationResult, ResourceClaim};
use resource_api::class::DeviceClass;
use resource_api::ids::{DeviceId, Uid};
use resource_api::meta::TextMap;
use resource_api::slice::ResourceSlice;
use serde::Deserialize;
use uuid::Uuid;

use super::{FormError, Verdict};
use crate::cluster::NodeOrder;
use crate::{Cluster, Features, Limits, NodeFacts, Policy, UnallocatableKind, compile_unit, place};

const FORM: &str = "allocbench/1";

/// Uids of holders of preallocated devices.
const HOLDERS_FROM: u128 = 1 << 64;

/// A cluster and the claims that arrive in it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    format: String,
    /// The workload's name.
    pub name: String,
    nodes: Vec<WorkloadNode>,
    device_classes: Vec<DeviceClass>,
    resource_slices: Vec<Arc<ResourceSlice>>,
    claims: Vec<Arc<ResourceClaim>>,
    preallocated: Vec<DeviceId>,
}

#[derive(Debug, Deserialize)]
struct WorkloadNode {
    name: String,
    #[serde(default)]
    labels: TextMap,
}

#[derive(Debug, Deserialize)]
struct ExpectedLine {
    claim: String,
    outcome: String,
    node: Option<String>,
    #[serde(default)]
    devices: Vec<String>,
}

/// What became of one claim of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `allocated`, `none`, or what else it was.
    pub outcome: &'static str,
    /// The node, if allocated.
    pub node: Option<String>,
    /// `request=driver/pool/device` in the order of results.
    pub devices: Vec<String>,
}

impl Workload {
    /// Reads the uncompressed JSON of a workload.
    pub fn parse(content: &str) -> Result<Self, FormError> {
        let workload: Self = serde_json::from_str(content).map_err(FormError::json("workload"))?;
        if workload.format == FORM {
            Ok(workload)
        } else {
            Err(FormError::OtherForm {
                found: workload.format,
                wanted: FORM,
            })
        }
    }

    /// The number of claims.
    #[must_use]
    pub fn n_claims(&self) -> usize {
        self.claims.len()
    }

    /// Starts from the preallocated state, with the gates of the set's reference run.
    #[must_use]
    pub fn replay(&self) -> Replay<'_> {
        let features = Features {
            fractional_capacity_range: true,
            ..Features::default()
        };
        let mut cluster = Cluster::with_node_order(features, NodeOrder::AsPut);
        for node in &self.nodes {
            let (name, labels) = (node.name.clone(), node.labels.clone());
            cluster.put_node(NodeFacts {
                name,
                labels,
                ..NodeFacts::default()
            });
        }
        self.device_classes
            .iter()
            .for_each(|class| cluster.put_class(Arc::new(class.clone())));
        self.resource_slices
            .iter()
            .for_each(|slice| cluster.put_slice(Arc::clone(slice)));
        for (number, id) in (HOLDERS_FROM..).zip(&self.preallocated) {
            let DeviceId { driver, pool, device } = id.clone();
            let result = DeviceRequestAllocationResult {
                driver,
                pool,
                device,
                ..Default::default()
            };
            cluster.take(Uid(Uuid::from_u128(number)), &[result]);
        }
        Replay {
            workload: self,
            cluster,
            next: 0,
        }
    }
}

/// A workload under way.
#[derive(Debug)]
pub struct Replay<'a> {
    workload: &'a Workload,
    /// The state so far.
    pub cluster: Cluster,
    next: usize,
}

impl Iterator for Replay<'_> {
    type Item = Outcome;

    /// Decides the next claim and takes what it is given.
    fn next(&mut self) -> Option<Outcome> {
        let claim = self.workload.claims.get(self.next)?;
        self.next += 1;
        let unit = match compile_unit(&self.cluster, std::slice::from_ref(claim)) {
            Ok(unit) => unit,
            Err(_) => {
                return Some(Outcome {
                    outcome: "error",
                    node: None,
                    devices: Vec::new(),
                });
            }
        };
        Some(match place(&self.cluster, &unit, Policy::FirstFit, &Limits::default()) {
            Ok(plan) => {
                let mut devices = Vec::new();
                for (uid, allocation) in &plan.claims {
                    let results = &allocation.devices.results;
                    devices.extend(
                        results
                            .iter()
                            .map(|result| format!("{}={}", result.request, result.device_id())),
                    );
                    self.cluster.take(*uid, results);
                }
                Outcome {
                    outcome: "allocated",
                    node: Some(plan.node.to_string()),
                    devices,
                }
            }
            Err(refusal) => {
                let outcome = match refusal.kind {
                    UnallocatableKind::DoesNotFit => "none",
                    UnallocatableKind::Undecided => "undecided",
                    UnallocatableKind::ClaimFault | UnallocatableKind::Cancelled => "error",
                };
                Outcome {
                    outcome,
                    node: None,
                    devices: Vec::new(),
                }
            }
        })
    }
}

/// Replays a workload and compares every outcome with the expected one; the verdict tells the first that differs.
pub fn run_workload(content: &str, expected: &str) -> Result<Verdict, FormError> {
    let workload = Workload::parse(content)?;
    let lines = expected.lines().filter(|line| !line.is_empty());
    let expected: Vec<ExpectedLine> = lines
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(FormError::json("expected outcomes"))?;
    let mut difference = (expected.len() != workload.n_claims())
        .then(|| format!("{} claims, but {} expected outcomes", workload.n_claims(), expected.len()));
    for (line, got) in expected.iter().zip(workload.replay()) {
        if difference.is_some() {
            break;
        }
        let same = line.outcome == got.outcome && line.node == got.node && line.devices == got.devices;
        difference = (!same).then(|| {
            let wanted = (&line.outcome, &line.node, &line.devices);
            format!(
                "{}: expected {wanted:?}\n{}:      got {:?}",
                line.claim,
                line.claim,
                (got.outcome, &got.node, &got.devices)
            )
        });
    }
    Ok(Verdict {
        id: workload.name,
        difference,
    })
}
