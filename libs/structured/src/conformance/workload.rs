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
use crate::{Cluster, Features, Limits, NodeFacts, Plan, Policy, Unallocatable, UnallocatableKind, compile_unit, place};

const FORM: &str = "allocbench/1";

/// Uids of holders of preallocated devices.
const HOLDERS_FROM: u128 = 1 << 64;

/// A cluster and the claims that arrive in it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// `allocbench/1`; the form of what is read, see [`Workload::parse`].
    pub format: String,
    /// The workload's name.
    pub name: String,
    /// In the order in which they are tried.
    pub nodes: Vec<WorkloadNode>,
    /// The classes.
    pub device_classes: Vec<Arc<DeviceClass>>,
    /// The slices.
    pub resource_slices: Vec<Arc<ResourceSlice>>,
    /// In the order in which they arrive.
    pub claims: Vec<Arc<ResourceClaim>>,
    /// Devices held whole before the first claim.
    pub preallocated: Vec<DeviceId>,
}

/// A node of a workload.
#[derive(Clone, Debug, Deserialize)]
pub struct WorkloadNode {
    /// `metadata.name`.
    pub name: String,
    /// Its labels.
    #[serde(default)]
    pub labels: TextMap,
}

/// What became of one claim of a workload, as the set's expected files write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Outcome {
    /// `allocated`, `none`, or what else it was.
    pub outcome: String,
    /// The node, if allocated.
    pub node: Option<String>,
    /// `request=driver/pool/device` in the order of results.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Nodes looked at, in order, the winning one included; 0 if nobody counted.
    #[serde(default, rename = "nodesTried")]
    pub nodes_tried: usize,
}

impl Outcome {
    /// What an answer says.
    #[must_use]
    pub fn of(answer: &Result<Plan, Unallocatable>) -> Self {
        match answer {
            Ok(plan) => Self {
                outcome: "allocated".to_owned(),
                node: Some(plan.node.to_string()),
                devices: plan
                    .claims
                    .iter()
                    .flat_map(|(_, allocation)| &allocation.devices.results)
                    .map(|result| format!("{}={}", result.request, result.device_id()))
                    .collect(),
                nodes_tried: 0,
            },
            Err(refusal) => Self {
                outcome: match refusal.kind {
                    UnallocatableKind::DoesNotFit => "none",
                    UnallocatableKind::Undecided => "undecided",
                    UnallocatableKind::ClaimFault | UnallocatableKind::Cancelled => "error",
                }
                .to_owned(),
                ..Self::default()
            },
        }
    }

    /// Whether both are the same answer; how many nodes were tried is no part of it.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        self.outcome == other.outcome && self.node == other.node && self.devices == other.devices
    }

    /// Reads the outcomes expected of a workload: a line of JSON per claim.
    pub fn read_expected(lines: &str) -> Result<Vec<Self>, FormError> {
        let lines = lines.lines().filter(|line| !line.is_empty());
        lines
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .map_err(FormError::json("expected outcomes"))
    }
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

    /// The state before the first claim.
    #[must_use]
    pub fn cluster(&self) -> Cluster {
        let mut cluster = empty_cluster();
        for WorkloadNode { name, labels } in self.nodes.iter().cloned() {
            cluster.put_node(NodeFacts {
                name,
                labels,
                ..NodeFacts::default()
            });
        }
        self.device_classes
            .iter()
            .for_each(|class| cluster.put_class(Arc::clone(class)));
        self.resource_slices
            .iter()
            .for_each(|slice| cluster.put_slice(Arc::clone(slice)));
        hold(&mut cluster, &self.preallocated);
        cluster
    }
}

/// A cluster without objects, with the gates of the set's reference run.
#[must_use]
pub fn empty_cluster() -> Cluster {
    let features = Features {
        fractional_capacity_range: true,
        ..Features::default()
    };
    Cluster::with_node_order(features, NodeOrder::AsPut)
}

/// Has each device held whole by a claim of its own.
pub fn hold(cluster: &mut Cluster, devices: &[DeviceId]) {
    for (number, id) in (HOLDERS_FROM..).zip(devices) {
        let DeviceId { driver, pool, device } = id.clone();
        let result = DeviceRequestAllocationResult {
            driver,
            pool,
            device,
            ..Default::default()
        };
        cluster.take(Uid(Uuid::from_u128(number)), &[result]);
    }
}

/// One claim from request to taken devices. Not inlined: its name is how a profile is limited to it.
#[inline(never)]
pub fn decide_and_take(cluster: &mut Cluster, claim: &Arc<ResourceClaim>) -> Result<Plan, Unallocatable> {
    let unit = compile_unit(cluster, std::slice::from_ref(claim))?;
    let plan = place(cluster, &unit, Policy::FirstFit, &Limits::default())?;
    for (uid, allocation) in &plan.claims {
        cluster.take(*uid, &allocation.devices.results);
    }
    Ok(plan)
}

/// Replays a workload and compares every outcome with the expected one; the verdict tells the first that differs.
pub fn run_workload(content: &str, expected: &str) -> Result<Verdict, FormError> {
    let workload = Workload::parse(content)?;
    let expected = Outcome::read_expected(expected)?;
    let n_claims = workload.claims.len();
    let mut difference =
        (expected.len() != n_claims).then(|| format!("{n_claims} claims, but {} expected outcomes", expected.len()));
    let mut cluster = workload.cluster();
    for (claim, wanted) in workload.claims.iter().zip(&expected) {
        if difference.is_some() {
            break;
        }
        let got = Outcome::of(&decide_and_take(&mut cluster, claim));
        let name = &claim.metadata.name;
        difference = (!got.agrees(wanted)).then(|| {
            let wanted = (&wanted.outcome, &wanted.node, &wanted.devices);
            format!(
                "{name}: expected {wanted:?}\n{name}:      got {:?}",
                (&got.outcome, &got.node, &got.devices)
            )
        });
    }
    Ok(Verdict {
        id: workload.name,
        difference,
    })
}
