//! Scenarios: Kubernetes-shaped objects in `input.yaml`, expectations in `expect.json`. Runs the parts `allocate`,
//! `consumed` and `allocationConfig`, which concern the allocator alone.
//!
//! Objects whose admission is expected to be refused are left out, as they would be by a server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use resource_api::claim::{AllocationMode, AllocationResult, ResourceClaim};
use resource_api::class::DeviceClass;
use resource_api::ids::Uid;
use resource_api::node::Node;
use resource_api::quantity::Quantity;
use resource_api::slice::ResourceSlice;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use super::{FormError, Verdict};
use crate::check::check;
use crate::{
    Cluster, CompiledUnit, Features, Limits, NodeFacts, Plan, Policy, Unallocatable, UnallocatableKind, allocate_on,
    compile_unit, explain, place,
};

/// `expect.json`, as far as it is looked at here.
#[derive(Deserialize)]
struct Expect {
    #[serde(default)]
    features: Vec<String>,
    #[serde(default)]
    allocate: Vec<Allocate>,
    #[serde(default)]
    consumed: BTreeMap<String, BTreeMap<String, Quantity>>,
    #[serde(default)]
    admission: Vec<Admission>,
    #[serde(default, rename = "allocationConfig")]
    allocation_config: BTreeMap<String, Value>,
    /// By node or claim.
    #[serde(default, rename = "reasonMustMention")]
    reason_must_mention: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Admission {
    object: String,
    outcome: String,
}

/// One check: these claims together on this node.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allocate {
    claims: Vec<String>,
    node: String,
    outcome: String,
    #[serde(default)]
    without: Vec<String>,
    #[serde(default)]
    one_of: Vec<BTreeMap<String, Vec<String>>>,
}

/// The objects of a scenario.
#[derive(Default)]
struct Objects {
    nodes: Vec<Node>,
    classes: Vec<Arc<DeviceClass>>,
    slices: Vec<Arc<ResourceSlice>>,
    claims: BTreeMap<String, Arc<ResourceClaim>>,
}

/// Runs the allocator's parts of one scenario; empty if it has none.
pub fn run_scenario(name: &str, input: &str, expect: &str) -> Result<Vec<Verdict>, FormError> {
    let expect: Expect = serde_json::from_str(expect).map_err(FormError::json("expect.json"))?;
    if expect.allocate.is_empty() {
        return Ok(Vec::new());
    }
    let refused: BTreeSet<_> = expect
        .admission
        .iter()
        .filter(|admission| admission.outcome == "rejected")
        .map(|admission| admission.object.as_str())
        .collect();
    let objects = Objects::read(input, &refused)?;
    let mut features = Features::default();
    expect.features.iter().for_each(|gate| features.switch_on(gate));
    Ok(expect
        .allocate
        .iter()
        .map(|check| {
            let id = format!("{name}: {} on {}", check.claims.join(" + "), check.node);
            Verdict {
                id,
                difference: run_check(&objects, features, &expect, check),
            }
        })
        .collect())
}

impl Objects {
    fn read(input: &str, refused: &BTreeSet<&str>) -> Result<Self, FormError> {
        let mut objects = Self::default();
        for document in serde_yaml_ng::Deserializer::from_str(input) {
            let document = Value::deserialize(document).map_err(|source| FormError::MalformedYaml {
                what: "input.yaml",
                source,
            })?;
            let text = |path: &str| document.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (kind, namespace, name) = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
            let full = if namespace.is_empty() {
                format!("{kind}/{name}")
            } else {
                format!("{kind}/{namespace}/{name}")
            };
            if refused.contains(full.as_str()) {
                continue;
            }
            match kind.as_str() {
                "Node" => objects.nodes.push(decode(document)?),
                "DeviceClass" => objects.classes.push(Arc::new(decode(document)?)),
                "ResourceSlice" => objects.slices.push(Arc::new(decode(document)?)),
                "ResourceClaim" => {
                    let mut claim: ResourceClaim = decode(document)?;
                    default(&mut claim);
                    claim.metadata.uid = Some(Uid(Uuid::from_u128(objects.claims.len() as u128 + 1)));
                    objects.claims.insert(format!("{namespace}/{name}"), Arc::new(claim));
                }
                _ => {}
            }
        }
        Ok(objects)
    }

    /// The state that all claims outside of the check make.
    fn cluster(&self, features: Features, check: &Allocate) -> Cluster {
        let mut cluster = Cluster::new(features);
        self.nodes.iter().for_each(|node| cluster.put_node(NodeFacts::of(node)));
        self.classes.iter().for_each(|class| cluster.put_class(Arc::clone(class)));
        self.slices.iter().for_each(|slice| cluster.put_slice(Arc::clone(slice)));
        for (name, claim) in &self.claims {
            if let Some(allocation) = &claim.status.allocation
                && !check.claims.contains(name)
                && !check.without.contains(name)
            {
                cluster.take(claim.metadata.uid.unwrap_or_default(), &allocation.devices.results);
            }
        }
        cluster
    }
}

fn decode<T: DeserializeOwned>(document: Value) -> Result<T, FormError> {
    // Through text, because raw JSON inside of objects keeps its text.
    serde_json::from_str(&document.to_string()).map_err(FormError::json("object of input.yaml"))
}

/// What a server defaults on create and the allocator relies on.
fn default(claim: &mut ResourceClaim) {
    let settle = |mode: &mut AllocationMode, count: &mut i64| {
        if mode.is_empty() {
            *mode = AllocationMode::ExactCount;
        }
        if *mode == AllocationMode::ExactCount && *count == 0 {
            *count = 1;
        }
    };
    for request in &mut claim.spec.devices.requests {
        if let Some(exactly) = &mut request.exactly {
            settle(&mut exactly.allocation_mode, &mut exactly.count);
        }
        for alternative in &mut request.first_available {
            settle(&mut alternative.allocation_mode, &mut alternative.count);
        }
    }
}

fn run_check(objects: &Objects, features: Features, expect: &Expect, wanted: &Allocate) -> Option<String> {
    let cluster = objects.cluster(features, wanted);
    let claims: Option<Vec<_>> = wanted.claims.iter().map(|name| objects.claims.get(name).cloned()).collect();
    let Some(claims) = claims else {
        return Some("a claim of the check is not in input.yaml".to_owned());
    };
    let unit = compile_unit(&cluster, &claims);
    let answer = unit
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|unit| allocate_on(&cluster, unit, &wanted.node, &Limits::default()));
    let (outcome, text) = match (&answer, &unit) {
        (Ok(plan), _) => ("allocated", format!("{:?}", devices_by_claim(wanted, plan))),
        (Err(refusal), Ok(unit)) => {
            let explanation = explain(&cluster, unit, Some(&wanted.node), refusal);
            (outcome_of(refusal), explanation.to_string())
        }
        (Err(refusal), Err(_)) => (outcome_of(refusal), refusal.to_string()),
    };
    if !wanted.outcome.split('|').any(|accepted| accepted == outcome) {
        return Some(format!("expected {}, got {outcome}: {text}", wanted.outcome));
    }
    let (Ok(plan), Ok(unit)) = (&answer, &unit) else {
        return unmentioned(expect, &wanted.node, &text).or_else(|| check_reason(expect, wanted, &cluster, unit.as_ref().ok()?));
    };
    let got = devices_by_claim(wanted, plan);
    if !wanted.one_of.is_empty() && !wanted.one_of.iter().any(|accepted| sorted(accepted) == got) {
        return Some(format!("expected one of {:?}\n     got {got:?}", wanted.one_of));
    }
    let violations = check(&cluster, unit, plan);
    if !violations.is_empty() {
        return Some(format!("the plan is not valid: {violations:?}"));
    }
    let [claim] = wanted.claims.as_slice() else { return None };
    let allocation = &plan.claims.first()?.1;
    check_consumed(allocation, expect.consumed.get(claim))
        .or_else(|| check_config(allocation, expect.allocation_config.get(claim)))
}

fn unmentioned(expect: &Expect, of: &str, text: &str) -> Option<String> {
    let words = expect.reason_must_mention.get(of)?;
    let missing = words.iter().find(|word| !text.contains(word.as_str()))?;
    Some(format!("expected the reason to mention {missing:?}, got {text:?}"))
}

/// What a claim alone is told when no node is prescribed.
fn check_reason(expect: &Expect, wanted: &Allocate, cluster: &Cluster, unit: &CompiledUnit) -> Option<String> {
    let [claim] = wanted.claims.as_slice() else { return None };
    let refusal = place(cluster, unit, Policy::FirstFit, &Limits::default()).err()?;
    unmentioned(expect, claim, &explain(cluster, unit, None, &refusal).to_string())
}

/// Trouble of a pool is confined to the nodes that see it: there the claim does not fit, elsewhere it may.
fn outcome_of(refusal: &Unallocatable) -> &'static str {
    let pool_trouble = refusal.fault.as_ref().is_some_and(|fault| fault.kind.is_pool_trouble());
    match refusal.kind {
        UnallocatableKind::ClaimFault if !pool_trouble => "error",
        UnallocatableKind::ClaimFault | UnallocatableKind::DoesNotFit => "unschedulable",
        UnallocatableKind::Undecided => "undecided",
        UnallocatableKind::Cancelled => "cancelled",
    }
}

fn devices_by_claim(wanted: &Allocate, plan: &Plan) -> BTreeMap<String, Vec<String>> {
    let devices = |allocation: &AllocationResult| {
        let results = allocation.devices.results.iter();
        let mut devices: Vec<_> = results
            .map(|result| format!("{}={}", result.request, result.device_id()))
            .collect();
        devices.sort();
        devices
    };
    wanted
        .claims
        .iter()
        .cloned()
        .zip(plan.claims.iter().map(|(_, allocation)| devices(allocation)))
        .collect()
}

fn sorted(accepted: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
    let mut accepted = accepted.clone();
    accepted.values_mut().for_each(|devices| devices.sort());
    accepted
}

fn check_consumed(allocation: &AllocationResult, expected: Option<&BTreeMap<String, Quantity>>) -> Option<String> {
    let expected = expected?;
    let wrong = allocation
        .devices
        .results
        .iter()
        .find(|result| result.consumed_capacity != *expected)?;
    Some(format!(
        "expected consumedCapacity {expected:?}, got {:?}",
        wrong.consumed_capacity
    ))
}

/// `allocationConfig` names each entry by the `tag` in its parameters.
fn check_config(allocation: &AllocationResult, expected: Option<&Value>) -> Option<String> {
    let expected = expected?;
    let entries = allocation.devices.config.iter().map(|config| {
        let parameters = config.opaque.as_ref().and_then(|opaque| opaque.parameters.as_ref());
        let parameters: Value = parameters
            .and_then(|raw| serde_json::from_str(raw.as_sent()).ok())
            .unwrap_or_default();
        serde_json::json!({ "source": config.source.as_str(), "requests": config.requests, "tag": parameters["tag"] })
    });
    let got = Value::Array(entries.collect());
    (got != *expected).then(|| format!("expected config {expected}\n     got config {got}"))
}
