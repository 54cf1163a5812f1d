//! The decision: an allocation result per claim, complete to the last field, so that nothing is left to choose when it
//! is committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use resource_api::claim::{
    AllocationConfigSource, AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult,
    DeviceRequestAllocationResult,
};
use resource_api::ids::{PoolId, ShareId, Uid};
use resource_api::node::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use crate::fault::{Fault, FaultKind};
use crate::features::Features;
use crate::node_view::NodeView;
use crate::request::{Choice, ClaimRequest, CompiledUnit, names_request};
use crate::search::Pick;

/// What to write: one result per claim of the unit, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The node that all claims can be used on; empty if no node is known.
    pub node: Arc<str>,
    /// Claim and allocation, in the order of the unit.
    pub claims: Vec<(Uid, AllocationResult)>,
    /// The pools that devices come from, sorted: their versions must still hold when the plan is committed.
    pub pools: Vec<PoolId>,
    /// Search steps it took.
    pub steps: u64,
}

/// Writes the picks of a finished search down. Fault: a device's node selector that no allocation can express.
pub(crate) fn build(
    unit: &CompiledUnit,
    node: &NodeView<'_>,
    features: Features,
    picks: &[Pick],
    steps: u64,
) -> Result<Plan, Fault> {
    let mut claims = Vec::with_capacity(unit.claims.len());
    for (at, claim) in unit.claims.iter().enumerate() {
        let own: Vec<_> = picks.iter().filter(|pick| pick.claim == at).collect();
        let results = own
            .iter()
            .enumerate()
            .map(|(n, pick)| result(unit, node, features, pick, (at, n)))
            .collect();
        let allocation = AllocationResult {
            devices: DeviceAllocationResult {
                results,
                config: configs(unit, claim, &own),
            },
            node_selector: node_selector(node, &own)?,
            allocation_timestamp: None,
        };
        claims.push((claim.uid, allocation));
    }
    let mut pools: Vec<_> = picks.iter().map(|pick| node.locate(pick.position).1.id.clone()).collect();
    pools.sort();
    pools.dedup();
    Ok(Plan {
        node: node.name.into(),
        claims,
        pools,
        steps,
    })
}

fn result(
    unit: &CompiledUnit,
    node: &NodeView<'_>,
    features: Features,
    pick: &Pick,
    (claim_at, nth): (usize, usize),
) -> DeviceRequestAllocationResult {
    let choice = &unit.choices[pick.choice];
    let (_, pool, local) = node.locate(pick.position);
    let device = pool.device(local);
    let kind = &device.kind().device;
    let bound = features.binding_conditions;
    let consumed_capacity = match (&pick.share, pool.capacity_of(local)) {
        (Some(share), Some(facts)) => facts
            .names()
            .map(str::to_owned)
            .zip(share.quantities.iter().cloned())
            .collect(),
        _ => BTreeMap::new(),
    };
    DeviceRequestAllocationResult {
        request: choice.name.clone(),
        driver: pool.id.driver.clone(),
        pool: pool.id.pool.clone(),
        device: device.name.clone(),
        admin_access: choice.admin_access.then_some(true),
        tolerations: choice.tolerations.clone(),
        binding_conditions: if bound { kind.binding_conditions.clone() } else { Vec::new() },
        binding_failure_conditions: if bound {
            kind.binding_failure_conditions.clone()
        } else {
            Vec::new()
        },
        share_id: pick
            .share
            .is_some()
            .then(|| share_id(unit.claims[claim_at].uid, claim_at, nth)),
        consumed_capacity,
        skip_node_operations: pool.skip_node_operations(local).to_vec(),
    }
}

/// A UUID that no other result has: the claim's uid spread out, together with the result's place in the unit.
///
/// Derived rather than drawn, so that the same input gives the same plan.
fn share_id(claim: Uid, claim_at: usize, nth: usize) -> ShareId {
    const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let place = ((claim_at as u128) << 32) | (nth as u128 + 1);
    let mixed = (claim.0.as_u128() ^ place.wrapping_mul(SPREAD)).wrapping_mul(SPREAD);
    let mixed = mixed ^ (mixed >> 67);
    let id = uuid::Builder::from_random_bytes(mixed.wrapping_mul(SPREAD).to_be_bytes()).into_uuid();
    ShareId::from(id.to_string())
}

/// Configuration of the classes in use, then of the claim; names of requests only where they narrow something.
fn configs(unit: &CompiledUnit, claim: &ClaimRequest, picks: &[&Pick]) -> Vec<DeviceAllocationConfiguration> {
    let chosen = chosen(unit, claim, picks);
    let mut configs: Vec<DeviceAllocationConfiguration> = Vec::new();
    let mut of_class: BTreeMap<&str, std::ops::Range<usize>> = BTreeMap::new();
    for choice in &chosen {
        let Some(class) = &choice.class else { continue };
        if let Some(range) = of_class.get(class.metadata.name.as_str()) {
            configs[range.clone()]
                .iter_mut()
                .for_each(|config| config.requests.push(choice.name.clone()));
            continue;
        }
        let first = configs.len();
        configs.extend(class.spec.config.iter().map(|config| DeviceAllocationConfiguration {
            source: AllocationConfigSource::FromClass,
            requests: vec![choice.name.clone()],
            opaque: config.opaque.clone(),
        }));
        of_class.insert(&class.metadata.name, first..configs.len());
    }
    let of_claim =
        claim.source.spec.devices.config.iter().filter(|config| {
            config.requests.is_empty() || chosen.iter().any(|choice| names_request(&config.requests, &choice.name))
        });
    configs.extend(of_claim.map(|config| DeviceAllocationConfiguration {
        source: AllocationConfigSource::FromClaim,
        requests: config.requests.clone(),
        opaque: config.opaque.clone(),
    }));
    for config in &mut configs {
        if chosen.iter().all(|choice| names_request(&config.requests, &choice.name)) {
            config.requests.clear();
        }
    }
    configs
}

/// Per request of the claim the choice that was used. A request that needs nothing keeps its first.
fn chosen<'a>(unit: &'a CompiledUnit, claim: &ClaimRequest, picks: &[&Pick]) -> Vec<&'a Choice> {
    let used = |choice: &Choice| picks.iter().any(|pick| pick.choice == choice.id);
    let of_request = claim.requests.iter().filter_map(|request| {
        let choices = &unit.choices[request.choices.clone()];
        choices.iter().find(|choice| used(choice)).or_else(|| choices.first())
    });
    of_request.collect()
}

/// Where a claim's devices can be used; `None`: everywhere.
fn node_selector(node: &NodeView<'_>, picks: &[&Pick]) -> Result<Option<NodeSelector>, Fault> {
    let mut merged = NodeSelectorTerm::default();
    for pick in picks {
        let (_, pool, local) = node.locate(pick.position);
        let (device, spec) = (&pool.device(local).kind().device, pool.slice(local));
        let per_device = spec.per_device_node_selection == Some(true);
        let named = |name: &Option<String>| name.as_ref().is_some_and(|name| !name.is_empty());
        let is_local = named(&spec.node_name) || (per_device && named(&device.node_name));
        if is_local || device.binds_to_node == Some(true) {
            return Ok(Some(NodeSelector::for_node(node.name)));
        }
        let (everywhere, selector) = match per_device {
            true => (device.all_nodes, &device.node_selector),
            false => (spec.all_nodes, &spec.node_selector),
        };
        let Some(selector) = selector.as_ref().filter(|_| everywhere != Some(true)) else {
            continue;
        };
        match selector.node_selector_terms.as_slice() {
            [] => {}
            [term] => {
                term.match_fields
                    .iter()
                    .for_each(|requirement| add(&mut merged.match_fields, requirement));
                term.match_expressions
                    .iter()
                    .for_each(|requirement| add(&mut merged.match_expressions, requirement));
            }
            _ => {
                let text = format!("device {}: its node selector has more than one term", pool.device_id(local));
                return Err(Fault::claim(FaultKind::BadNodeSelector, text));
            }
        }
    }
    let is_empty = merged.match_fields.is_empty() && merged.match_expressions.is_empty();
    Ok((!is_empty).then(|| NodeSelector {
        node_selector_terms: vec![merged],
    }))
}

/// Adds a requirement unless an equal one is there; the order of values does not matter.
fn add(requirements: &mut Vec<NodeSelectorRequirement>, new: &NodeSelectorRequirement) {
    let is_subset = |a: &[String], b: &[String]| a.iter().all(|value| b.contains(value));
    let is_known = requirements.iter().any(|old| {
        old.key == new.key
            && old.operator == new.operator
            && is_subset(&old.values, &new.values)
            && is_subset(&new.values, &old.values)
    });
    if !is_known {
        requirements.push(new.clone());
    }
}
