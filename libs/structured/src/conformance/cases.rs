//! `dray-allocator-cases/1`: one node, the claims of one pod, the state, and the reference's answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use resource_api::claim::{AllocationResult, DeviceRequestAllocationResult, ResourceClaim};
use resource_api::class::DeviceClass;
use resource_api::ids::{DeviceId, DeviceName, DriverName, PoolName, ShareId, Uid};
use resource_api::node::Node;
use resource_api::quantity::Quantity;
use resource_api::slice::ResourceSlice;
use serde::Deserialize;
use uuid::Uuid;

use super::{FormError, Verdict};
use crate::check::check;
use crate::{
    Cluster, CompiledUnit, Features, Limits, NodeFacts, Plan, Scope, Unallocatable, UnallocatableKind, allocate_on, compile_unit,
};

const FORM: &str = "dray-allocator-cases/1";

/// Uids of holders made up for `allocated`.
const HOLDERS_FROM: u128 = 1 << 64;

#[derive(Deserialize)]
struct CaseFile {
    format: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    id: String,
    features: Vec<String>,
    interrupt: Option<String>,
    node: Node,
    claims: Vec<ResourceClaim>,
    device_classes: Vec<DeviceClass>,
    resource_slices: Vec<ResourceSlice>,
    #[serde(default)]
    allocated: Allocated,
    expect: Expectation,
    expect_all_on: Option<Expectation>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Allocated {
    devices: Vec<DeviceId>,
    shares: Vec<HeldShare>,
    capacity: Vec<HeldCapacity>,
}

#[derive(Deserialize)]
struct HeldShare {
    driver: DriverName,
    pool: PoolName,
    device: DeviceName,
    #[serde(rename = "shareID")]
    share_id: ShareId,
}

#[derive(Deserialize)]
struct HeldCapacity {
    driver: DriverName,
    pool: PoolName,
    device: DeviceName,
    consumed: BTreeMap<String, Quantity>,
}

/// `outcome` is `allocated`, `none` or `error`; the matching field is then there.
#[derive(Deserialize)]
struct Expectation {
    outcome: String,
    #[serde(default)]
    allocations: Vec<ClaimAllocation>,
    error: Option<ExpectedError>,
}

#[derive(Deserialize)]
struct ClaimAllocation {
    claim: String,
    allocation: AllocationResult,
}

#[derive(Deserialize)]
struct ExpectedError {
    kind: String,
    scope: String,
    #[serde(default)]
    refers: BTreeMap<String, String>,
}

/// Runs every case of a file, with its own feature gates and with all of them, at level "same".
///
/// A plan is also put to the independent [`check`]; a second call must give the same answer, whatever the order in which
/// slices and classes were put.
pub fn run_cases(content: &str) -> Result<Vec<Verdict>, FormError> {
    let file: CaseFile = serde_json::from_str(content).map_err(FormError::json("set of cases"))?;
    if file.format != FORM {
        return Err(FormError::OtherForm {
            found: file.format,
            wanted: FORM,
        });
    }
    Ok(file.cases.iter().flat_map(run_case).collect())
}

fn run_case(case: &Case) -> [Verdict; 2] {
    let own = Features::only(case.features.iter().map(String::as_str));
    let all_on = case.expect_all_on.as_ref().unwrap_or(&case.expect);
    [
        Verdict {
            id: case.id.clone(),
            difference: run_with(case, own, &case.expect),
        },
        Verdict {
            id: format!("{} (all gates on)", case.id),
            difference: run_with(case, Features::all(), all_on),
        },
    ]
}

fn run_with(case: &Case, features: Features, expected: &Expectation) -> Option<String> {
    let answer = Answer::of(case, features, false);
    let difference = compare(case, expected, &answer);
    if difference.is_some() {
        return difference;
    }
    let again = Answer::of(case, features, true);
    if answer.outcome.is_ok() != again.outcome.is_ok() || compare(case, expected, &again).is_some() {
        return Some("another answer when slices and classes are put in another order".to_owned());
    }
    if let (Ok(plan), Some(unit)) = (&answer.outcome, &answer.unit) {
        let violations = check(&answer.cluster, unit, plan);
        if !violations.is_empty() {
            return Some(format!("the plan is not valid: {violations:?}"));
        }
    }
    None
}

/// The allocator's answer to a case.
struct Answer {
    cluster: Cluster,
    unit: Option<CompiledUnit>,
    outcome: Result<Plan, Unallocatable>,
}

impl Answer {
    fn of(case: &Case, features: Features, reversed: bool) -> Self {
        let cluster = load(case, features, reversed);
        let numbered = (1..).zip(&case.claims).map(|(number, claim)| {
            let mut claim = claim.clone();
            claim.metadata.uid = Some(Uid(Uuid::from_u128(number)));
            Arc::new(claim)
        });
        let claims: Vec<_> = numbered.collect();
        let stop = AtomicBool::new(case.interrupt.is_some());
        let limits = Limits {
            stop: Some(&stop),
            ..Limits::default()
        };
        match compile_unit(&cluster, &claims) {
            Err(refusal) => Self {
                cluster,
                unit: None,
                outcome: Err(refusal),
            },
            Ok(unit) => {
                let outcome = allocate_on(&cluster, &unit, &case.node.metadata.name, &limits);
                Self {
                    cluster,
                    unit: Some(unit),
                    outcome,
                }
            }
        }
    }
}

fn load(case: &Case, features: Features, reversed: bool) -> Cluster {
    let mut cluster = Cluster::new(features);
    let mut classes: Vec<_> = case.device_classes.iter().cloned().map(Arc::new).collect();
    let mut slices: Vec<_> = case.resource_slices.iter().cloned().map(Arc::new).collect();
    if reversed {
        classes.reverse();
        slices.reverse();
    }
    classes.into_iter().for_each(|class| cluster.put_class(class));
    slices.into_iter().for_each(|slice| cluster.put_slice(slice));
    cluster.put_node(NodeFacts::of(&case.node));
    for (number, result) in (HOLDERS_FROM..).zip(held(&case.allocated)) {
        cluster.take(Uid(Uuid::from_u128(number)), &[result]);
    }
    cluster
}

/// One result per holder. The whole consumption of a device goes to its first share, which is made up if there is none.
fn held(allocated: &Allocated) -> Vec<DeviceRequestAllocationResult> {
    let result = |driver: &DriverName, pool: &PoolName, device: &DeviceName| DeviceRequestAllocationResult {
        driver: driver.clone(),
        pool: pool.clone(),
        device: device.clone(),
        ..Default::default()
    };
    let whole = allocated.devices.iter().map(|id| result(&id.driver, &id.pool, &id.device));
    let mut shares: Vec<_> = allocated
        .shares
        .iter()
        .map(|share| DeviceRequestAllocationResult {
            share_id: Some(share.share_id.clone()),
            ..result(&share.driver, &share.pool, &share.device)
        })
        .collect();
    for capacity in &allocated.capacity {
        let of_device = result(&capacity.driver, &capacity.pool, &capacity.device);
        match shares.iter_mut().find(|share| share.device_id() == of_device.device_id()) {
            Some(share) => share.consumed_capacity = capacity.consumed.clone(),
            None => shares.push(DeviceRequestAllocationResult {
                share_id: Some(ShareId::from("made-up")),
                consumed_capacity: capacity.consumed.clone(),
                ..of_device
            }),
        }
    }
    whole.chain(shares).collect()
}

fn compare(case: &Case, expected: &Expectation, answer: &Answer) -> Option<String> {
    match (expected.outcome.as_str(), &expected.error, &answer.outcome) {
        ("allocated", _, Ok(plan)) => compare_allocations(case, &expected.allocations, plan),
        ("none", _, Err(refusal)) if refusal.kind == UnallocatableKind::DoesNotFit && refusal.fault.is_none() => None,
        ("error", Some(error), Err(refusal)) => compare_errors(error, refusal),
        (outcome, error, got) => {
            let wanted = error.as_ref().map_or(outcome, |error| &error.kind);
            let got = match got {
                Ok(plan) => devices_of(plan),
                Err(refusal) => format!("{:?}: {refusal}", refusal.kind),
            };
            Some(format!("expected {wanted}, got {got}"))
        }
    }
}

fn devices_of(plan: &Plan) -> String {
    let results = plan.claims.iter().flat_map(|(_, allocation)| &allocation.devices.results);
    let devices: Vec<_> = results
        .map(|result| format!("{}={}", result.request, result.device_id()))
        .collect();
    format!("[{}]", devices.join(", "))
}

fn compare_allocations(case: &Case, expected: &[ClaimAllocation], plan: &Plan) -> Option<String> {
    if expected.len() != plan.claims.len() {
        return Some(format!(
            "expected {} claims allocated, got {}",
            expected.len(),
            plan.claims.len()
        ));
    }
    let mut share_ids = BTreeSet::new();
    for ((expected, claim), (_, got)) in expected.iter().zip(&case.claims).zip(&plan.claims) {
        let name = format!("{}/{}", claim.metadata.namespace, claim.metadata.name);
        if expected.claim != name {
            return Some(format!("expected claim {} at the place of {name}", expected.claim));
        }
        let mut got = got.clone();
        for result in &mut got.devices.results {
            let Some(share_id) = &mut result.share_id else { continue };
            if share_id.is_empty() || !share_ids.insert(share_id.clone()) {
                return Some(format!("share id {share_id:?} is not unique"));
            }
            *share_id = ShareId::from("*");
        }
        if got != expected.allocation {
            return Some(format!(
                "{name}: expected {}\n{name}:      got {}",
                json(&expected.allocation),
                json(&got)
            ));
        }
    }
    None
}

fn compare_errors(expected: &ExpectedError, refusal: &Unallocatable) -> Option<String> {
    let (kind, scope) = match (refusal.kind, &refusal.fault) {
        (UnallocatableKind::Cancelled, _) => ("cancelled", "call"),
        (_, Some(fault)) => (
            fault.kind.as_str(),
            match fault.scope {
                Scope::Claim => "claim",
                Scope::Node => "node",
            },
        ),
        (UnallocatableKind::Undecided, None) => ("undecided", "call"),
        (UnallocatableKind::DoesNotFit | UnallocatableKind::ClaimFault, None) => ("none", "node"),
    };
    if (kind, scope) != (expected.kind.as_str(), expected.scope.as_str()) {
        return Some(format!(
            "expected {} ({}), got {kind} ({scope}): {refusal}",
            expected.kind, expected.scope
        ));
    }
    let text = refusal.to_string();
    let missing = expected.refers.values().find(|name| !text.contains(name.as_str()))?;
    Some(format!("expected the text to name {missing:?}, got {text:?}"))
}

fn json(allocation: &AllocationResult) -> String {
    serde_json::to_string(allocation).unwrap_or_else(|error| error.to_string())
}
