//! `allocbench/1` workloads: the input, our cluster made from it, and a replay with time per claim.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::time::{ClockId, clock_gettime};
use resource_api::claim::{DeviceRequestAllocationResult, ResourceClaim};
use resource_api::class::DeviceClass;
use resource_api::ids::{DeviceId, Uid};
use resource_api::meta::TextMap;
use resource_api::slice::ResourceSlice;
use serde::Deserialize;
use structured::{Cluster, Features, Limits, NodeFacts, NodeOrder, Plan, Policy, Unallocatable, UnallocatableKind};
use uuid::Uuid;

const FORM: &str = "allocbench/1";

/// Uids of holders of preallocated devices.
const HOLDERS_FROM: u128 = 1 << 64;

/// A cluster and the claims that arrive in it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Workload {
    pub(crate) format: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) device_classes: Vec<Arc<DeviceClass>>,
    pub(crate) resource_slices: Vec<Arc<ResourceSlice>>,
    pub(crate) claims: Vec<Arc<ResourceClaim>>,
    pub(crate) preallocated: Vec<DeviceId>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) labels: TextMap,
}

/// What becomes of a claim, as the set's expected files write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) outcome: String,
    pub(crate) node: Option<String>,
    /// `request=driver/pool/device` in the order of results.
    #[serde(default)]
    pub(crate) devices: Vec<String>,
    /// Nodes looked at, in order, the winning one included.
    #[serde(default, rename = "nodesTried")]
    pub(crate) nodes_tried: usize,
}

impl Outcome {
    /// Whether both are the same answer; how many nodes were tried is no part of it.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        self.outcome == other.outcome && self.node == other.node && self.devices == other.devices
    }
}

/// Time per claim of one replay.
pub(crate) struct Replay {
    /// Wall time of compiling, deciding and taking, per claim.
    pub(crate) nanos: Vec<u64>,
    /// CPU time of this thread for the first claims, as many as were asked for, and for all.
    pub(crate) cpu_nanos_prefix: u64,
    pub(crate) cpu_nanos: u64,
    pub(crate) outcomes: Vec<Outcome>,
}

impl Workload {
    /// Reads a workload's file.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        Self::parse(&unpack(file)?).with_context(|| format!("{}", file.display()))
    }

    pub(crate) fn parse(content: &str) -> anyhow::Result<Self> {
        let workload: Self = serde_json::from_str(content)?;
        ensure!(workload.format == FORM, "unknown form {:?}, wanted {FORM:?}", workload.format);
        Ok(workload)
    }

    /// The state before the first claim, with the gates of the set's reference run.
    pub(crate) fn cluster(&self) -> Cluster {
        let mut cluster = empty_cluster();
        for node in &self.nodes {
            cluster.put_node(NodeFacts {
                name: node.name.clone(),
                labels: node.labels.clone(),
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

    /// Decides every claim in order and takes what it is given.
    pub(crate) fn replay(&self, cpu_prefix: usize) -> Replay {
        let mut cluster = self.cluster();
        let mut nanos = Vec::with_capacity(self.claims.len());
        let mut answers = Vec::with_capacity(self.claims.len());
        let cpu_before = thread_cpu_nanos();
        let mut cpu_at_prefix = cpu_before;
        for (at, claim) in self.claims.iter().enumerate() {
            if at == cpu_prefix {
                cpu_at_prefix = thread_cpu_nanos();
            }
            let began = Instant::now();
            let answer = decide_and_take(&mut cluster, claim);
            nanos.push(nanos_since(began));
            answers.push(answer);
        }
        let cpu_after = thread_cpu_nanos();
        if cpu_prefix >= self.claims.len() {
            cpu_at_prefix = cpu_after;
        }
        Replay {
            nanos,
            cpu_nanos_prefix: cpu_at_prefix - cpu_before,
            cpu_nanos: cpu_after - cpu_before,
            outcomes: answers.iter().map(outcome).collect(),
        }
    }
}

/// Per claim the median of its times: replays are equal, so what differs between them is the machine's doing.
pub(crate) fn medians_per_claim(replays: &[Replay]) -> Vec<u64> {
    let n_claims = replays.iter().map(|replay| replay.nanos.len()).min().unwrap_or(0);
    let of_claim = |claim: usize| {
        let mut nanos: Vec<u64> = replays.iter().map(|replay| replay.nanos[claim]).collect();
        nanos.sort_unstable();
        nanos[nanos.len() / 2]
    };
    (0..n_claims).map(of_claim).collect()
}

/// A cluster without objects, with the gates of the set's reference run.
pub(crate) fn empty_cluster() -> Cluster {
    let features = Features {
        fractional_capacity_range: true,
        ..Features::default()
    };
    Cluster::with_node_order(features, NodeOrder::AsPut)
}

/// Has each device held whole by a claim of its own.
pub(crate) fn hold(cluster: &mut Cluster, devices: &[DeviceId]) {
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
pub(crate) fn decide_and_take(cluster: &mut Cluster, claim: &Arc<ResourceClaim>) -> Result<Plan, Unallocatable> {
    let unit = structured::compile_unit(cluster, std::slice::from_ref(claim))?;
    let plan = structured::place(cluster, &unit, Policy::FirstFit, &Limits::default())?;
    for (uid, allocation) in &plan.claims {
        cluster.take(*uid, &allocation.devices.results);
    }
    Ok(plan)
}

fn outcome(answer: &Result<Plan, Unallocatable>) -> Outcome {
    match answer {
        Ok(plan) => Outcome {
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
        Err(refusal) => Outcome {
            outcome: match refusal.kind {
                UnallocatableKind::DoesNotFit => "none",
                UnallocatableKind::Undecided => "undecided",
                UnallocatableKind::ClaimFault | UnallocatableKind::Cancelled => "error",
            }
            .to_owned(),
            ..Outcome::default()
        },
    }
}

/// Reads the outcomes expected of a workload, one per claim.
pub(crate) fn read_expected(file: &Path) -> anyhow::Result<Vec<Outcome>> {
    let text = unpack(file)?;
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .with_context(|| format!("{}", file.display()))
}

fn unpack(file: &Path) -> anyhow::Result<String> {
    let mut content = String::new();
    let packed = std::fs::File::open(file).with_context(|| format!("{}", file.display()))?;
    flate2::read::GzDecoder::new(packed)
        .read_to_string(&mut content)
        .with_context(|| format!("{}", file.display()))?;
    Ok(content)
}

pub(crate) fn nanos_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of this thread.
pub(crate) fn thread_cpu_nanos() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has this clock");
    u64::try_from(Duration::from(time).as_nanos()).unwrap_or(u64::MAX)
}
