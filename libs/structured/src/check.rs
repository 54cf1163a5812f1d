//! An independent verifier of plans: what must hold of any allocation, whoever made it, checked from the objects alone.
//!
//! Shares no code with the search: pools, counters, capacity and constraints are worked out again, slowly and plainly. For
//! tests, for `debug_assert!`, and for looking at live data. Says nothing about whether a plan is the *first* fit.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use device_selectors::{DeviceView, Mode, Options, Selector};
use resource_api::claim::{
    AllocationMode, DeviceRequest, DeviceRequestAllocationResult, DeviceSelector, DeviceSubRequest, ExactDeviceRequest,
    ResourceClaim,
};
use resource_api::device::{AttributeValue, Device, DeviceCapacity};
use resource_api::ids::{DeviceId, PoolId, Uid};
use resource_api::meta::TextMap;
use resource_api::node::{self, NodeView};
use resource_api::quantity::Quantity;
use resource_api::slice::ResourceSlice;
use resource_api::taint::{DeviceTaintEffect, DeviceToleration, DeviceTolerationOperator};

use crate::cluster::Cluster;
use crate::features::Features;
use crate::holdings::DeviceUse;
use crate::limits::RESULTS_PER_CLAIM_MAX;
use crate::plan::Plan;
use crate::pool::Pool;
use crate::request::CompiledUnit;
use crate::selectors::derive;

/// A rule that a plan breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// What is wrong, naming request, device or counter.
    pub problem: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim {}: {}", self.claim, self.problem)
    }
}

/// Everything that is wrong with a plan; empty if it may be committed.
///
/// What the plan's own claims hold in the cluster is left out of account, so a plan can be checked before or after
/// [`Cluster::take`]. Cost: grows with the pools involved, and compiles every selector anew.
#[must_use]
pub fn check(cluster: &Cluster, unit: &CompiledUnit, plan: &Plan) -> Vec<Violation> {
    let restored = restore_visible(cluster, plan);
    let mut checker = Checker::new(cluster, &restored, unit, plan);
    let claims: Vec<_> = unit.claims.iter().map(|claim| &*claim.source).collect();
    if claims.len() != plan.claims.len() {
        checker.add(
            &ResourceClaim::default(),
            format!("{} of {} claims have a result", plan.claims.len(), claims.len()),
        );
        return checker.violations;
    }
    for (claim, (_, allocation)) in claims.iter().zip(&plan.claims) {
        checker.check_claim(claim, &allocation.devices.results);
        checker.check_node_selector(claim, allocation.node_selector.as_ref());
    }
    let results: Vec<_> = claims
        .iter()
        .zip(&plan.claims)
        .flat_map(|(claim, (_, allocation))| allocation.devices.results.iter().map(|result| (*claim, result)))
        .collect();
    checker.check_exclusive(&results);
    checker.check_capacity(&results);
    checker.check_counters(&results);
    checker.check_share_ids(&results);
    checker.violations
}

/// The slices of the pools that the plan's node can see, as objects.
fn restore_visible(cluster: &Cluster, plan: &Plan) -> BTreeMap<PoolId, Vec<ResourceSlice>> {
    let own = cluster.node_number(&plan.node).and_then(|node| cluster.node(node));
    let own = own.into_iter().flat_map(|node| node.pools().iter().copied());
    let pools = own.chain(cluster.wide_pools()).map(|pool| cluster.pool(pool));
    let restore = |pool: &Pool| pool.slices().iter().map(|entry| entry.slice.restore()).collect();
    pools.map(|pool| (pool.id.clone(), restore(pool))).collect()
}

/// What `exactly` and an alternative have in common.
struct Wanted<'a> {
    name: String,
    class: &'a str,
    selectors: &'a [DeviceSelector],
    mode: &'a AllocationMode,
    count: i64,
    admin: bool,
    tolerations: &'a [DeviceToleration],
    capacity: BTreeMap<String, Quantity>,
    derived: Vec<(String, String)>,
}

impl<'a> Wanted<'a> {
    fn exactly(name: &str, exactly: &'a ExactDeviceRequest) -> Self {
        Self {
            name: name.to_owned(),
            class: &exactly.device_class_name,
            selectors: &exactly.selectors,
            mode: &exactly.allocation_mode,
            count: exactly.count,
            admin: exactly.admin_access == Some(true),
            tolerations: &exactly.tolerations,
            capacity: exactly
                .capacity
                .iter()
                .flat_map(|capacity| capacity.requests.clone())
                .collect(),
            derived: exactly
                .derived_attributes
                .iter()
                .map(|d| (d.name.clone(), d.expression.clone()))
                .collect(),
        }
    }

    fn alternative(request: &str, alternative: &'a DeviceSubRequest) -> Self {
        Self {
            name: format!("{request}/{}", alternative.name),
            class: &alternative.device_class_name,
            selectors: &alternative.selectors,
            mode: &alternative.allocation_mode,
            count: alternative.count,
            admin: false,
            tolerations: &alternative.tolerations,
            capacity: alternative
                .capacity
                .iter()
                .flat_map(|capacity| capacity.requests.clone())
                .collect(),
            derived: alternative
                .derived_attributes
                .iter()
                .map(|d| (d.name.clone(), d.expression.clone()))
                .collect(),
        }
    }

    fn all_of(request: &'a DeviceRequest) -> Vec<Self> {
        match &request.exactly {
            Some(exactly) => vec![Self::exactly(&request.name, exactly)],
            None => request
                .first_available
                .iter()
                .map(|other| Self::alternative(&request.name, other))
                .collect(),
        }
    }
}

/// A device that the node can use, with the slice it is in.
#[derive(Clone, Copy)]
struct Published<'a> {
    slice: &'a ResourceSlice,
    device: &'a Device,
}

struct Checker<'a> {
    cluster: &'a Cluster,
    /// The slices of the pools that the plan's node can see.
    slices: &'a BTreeMap<PoolId, Vec<ResourceSlice>>,
    features: Features,
    node: NodeView<'a>,
    supports_skipped: bool,
    own: BTreeSet<Uid>,
    /// By expression; `None`: it does not compile.
    selectors: RefCell<BTreeMap<String, Option<Selector>>>,
    violations: Vec<Violation>,
}

impl<'a> Checker<'a> {
    fn new(cluster: &'a Cluster, slices: &'a BTreeMap<PoolId, Vec<ResourceSlice>>, unit: &CompiledUnit, plan: &'a Plan) -> Self {
        static NO_LABELS: TextMap = TextMap::new();
        let facts = cluster.node_facts(&plan.node);
        let declared = facts.iter().flat_map(|facts| &facts.declared_features);
        Self {
            cluster,
            slices,
            features: cluster.features(),
            node: NodeView {
                name: &plan.node,
                labels: facts.map_or(&NO_LABELS, |facts| &facts.labels),
            },
            supports_skipped: declared.into_iter().any(|feature| feature == "DRAOptionalNodeOperations"),
            own: unit.claim_uids().collect(),
            selectors: RefCell::default(),
            violations: Vec::new(),
        }
    }

    fn add(&mut self, claim: &ResourceClaim, problem: impl Into<String>) {
        let claim = format!("{}/{}", claim.metadata.namespace, claim.metadata.name);
        self.violations.push(Violation {
            claim,
            problem: problem.into(),
        });
    }

    fn check_claim(&mut self, claim: &ResourceClaim, results: &[DeviceRequestAllocationResult]) {
        if results.len() > RESULTS_PER_CLAIM_MAX {
            self.add(
                claim,
                format!("{} results, at most {RESULTS_PER_CLAIM_MAX} are allowed", results.len()),
            );
        }
        let mut rest = results;
        let mut under_constraints = Vec::new();
        for request in &claim.spec.devices.requests {
            let is_own = |result: &DeviceRequestAllocationResult| result.request.split('/').next() == Some(request.name.as_str());
            let n_own = rest.iter().take_while(|result| is_own(result)).count();
            let (own, later) = rest.split_at(n_own);
            rest = later;
            let choices = Wanted::all_of(request);
            let chosen = match own.first() {
                Some(first) => choices.iter().find(|choice| choice.name == first.request),
                None => choices
                    .iter()
                    .find(|choice| choice.mode != &AllocationMode::All && choice.count == 0),
            };
            let Some(chosen) = chosen else {
                self.add(
                    claim,
                    format!("request {:?} is not answered by one of its choices", request.name),
                );
                continue;
            };
            self.check_request(claim, chosen, own);
            under_constraints.extend(own.iter().map(|result| (chosen.derived.clone(), result)));
        }
        if !rest.is_empty() {
            self.add(claim, format!("{} results belong to no request in order", rest.len()));
        }
        self.check_constraints(claim, &under_constraints);
    }

    fn check_request(&mut self, claim: &ResourceClaim, wanted: &Wanted<'_>, results: &[DeviceRequestAllocationResult]) {
        let name = &wanted.name;
        let mut devices = BTreeSet::new();
        for result in results {
            let id = result.device_id();
            if result.request != *name {
                self.add(claim, format!("request {name:?} mixes alternatives"));
            }
            if !devices.insert(id.clone()) {
                self.add(claim, format!("request {name:?} has device {id} twice"));
            }
            if result.admin_access.unwrap_or(false) != wanted.admin {
                self.add(
                    claim,
                    format!("request {name:?}: adminAccess of device {id} is not as requested"),
                );
            }
            match self.published(&id) {
                None => self.add(claim, format!("device {id} is not usable on node {:?}", self.node.name)),
                Some(published) => self.check_device(claim, wanted, &id, published),
            }
        }
        let expected = match wanted.mode {
            AllocationMode::All => self.all_devices(wanted),
            _ if devices.len() as u64 == u64::try_from(wanted.count.max(i64::from(wanted.mode.is_empty()))).unwrap_or(0) => {
                return;
            }
            _ => BTreeSet::new(),
        };
        if wanted.mode != &AllocationMode::All {
            self.add(
                claim,
                format!("request {name:?} wants {} devices and has {}", wanted.count, devices.len()),
            );
        } else if devices != expected {
            self.add(
                claim,
                format!(
                    "request {name:?} wants all {} devices and has {}",
                    expected.len(),
                    devices.len()
                ),
            );
        }
    }

    fn check_device(&mut self, claim: &ResourceClaim, wanted: &Wanted<'_>, id: &DeviceId, published: Published<'_>) {
        let Published { slice, device } = published;
        if !self.is_selected(wanted, published) {
            self.add(claim, format!("request {:?}: device {id} is not selected", wanted.name));
        }
        let blocking = |taint: &&resource_api::taint::DeviceTaint| {
            matches!(taint.effect, DeviceTaintEffect::NoSchedule | DeviceTaintEffect::NoExecute)
        };
        let pool = id.pool_id();
        let rules = self.cluster.taint_rules_of(&pool).filter(|rule| {
            let selector = rule.spec.device_selector.as_ref();
            let device_name = selector.and_then(|selector| selector.device.as_ref());
            device_name.is_none_or(|name| *name == device.name)
        });
        let by_rules = rules.map(|rule| &rule.spec.taint);
        let tolerated = device.taints.iter().chain(by_rules).filter(blocking).all(|taint| {
            wanted.tolerations.iter().any(|toleration| {
                let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
                let key = toleration.key.is_empty() || toleration.key == taint.key;
                let exists = toleration.operator == DeviceTolerationOperator::Exists;
                let equal = toleration.operator == DeviceTolerationOperator::Equal || toleration.operator.is_empty();
                effect && key && (exists || (equal && toleration.value == taint.value))
            })
        });
        if self.features.device_taints && !tolerated {
            self.add(
                claim,
                format!("request {:?}: device {id} has a taint that is not tolerated", wanted.name),
            );
        }
        let may_skip = self.features.optional_node_operations && self.supports_skipped;
        if !may_skip && !slice.spec.skip_node_operations.is_empty() {
            self.add(
                claim,
                format!("device {id} skips node operations, which the node does not support"),
            );
        }
        if !device.consumes_counters.is_empty() && !self.features.partitionable_devices {
            self.add(claim, format!("device {id} draws on counters, which are switched off"));
        }
    }

    fn is_selected(&self, wanted: &Wanted<'_>, Published { slice, device }: Published<'_>) -> bool {
        if !self.features.binding_conditions && !device.binding_conditions.is_empty() {
            return false;
        }
        let Some(class) = self.cluster.class(wanted.class) else {
            return false;
        };
        class
            .spec
            .selectors
            .iter()
            .chain(wanted.selectors)
            .filter_map(|selector| selector.cel.as_ref())
            .all(|cel| {
                let mut selectors = self.selectors.borrow_mut();
                let selector = selectors
                    .entry(cel.expression.clone())
                    .or_insert_with(|| Selector::compile(&cel.expression, Mode::Stored, Options::default()).ok());
                let answer = selector
                    .as_ref()
                    .map(|selector| selector.matches(&DeviceView::new(&slice.spec.driver, device)));
                matches!(answer, Some(Ok(true)))
            })
    }

    /// Every device that a request in mode All must have.
    fn all_devices(&self, wanted: &Wanted<'_>) -> BTreeSet<DeviceId> {
        let mut all = BTreeSet::new();
        for pool in self.slices.keys() {
            for published in self.devices_of(pool).unwrap_or_default() {
                let could_hold = !self.features.consumable_capacity
                    || wanted.capacity.iter().all(|(name, amount)| {
                        let capacity = published.device.capacity.get(name);
                        capacity.is_some_and(|capacity| self.could_hold(capacity, amount))
                    });
                if could_hold && self.is_selected(wanted, published) {
                    let PoolId { driver, pool } = pool.clone();
                    all.insert(DeviceId {
                        driver,
                        pool,
                        device: published.device.name.clone(),
                    });
                }
            }
        }
        all
    }

    /// Whether the amount, raised to what the policy allows, fits the empty device.
    fn could_hold(&self, capacity: &DeviceCapacity, amount: &Quantity) -> bool {
        let policy = capacity.request_policy.as_ref();
        let values = policy.map_or(&[][..], |policy| &policy.valid_values);
        let raised = match policy.and_then(|policy| policy.valid_range.as_ref()) {
            Some(range) => {
                let min = range.min.clone().unwrap_or_default();
                let raised = match &range.step {
                    _ if *amount <= min => min,
                    None => amount.clone(),
                    Some(step) => self.next_step(amount, &min, step),
                };
                if range.max.as_ref().is_some_and(|max| raised > *max) {
                    return false;
                }
                raised
            }
            None if values.is_empty() => amount.clone(),
            None => match values.iter().find(|value| *value >= amount) {
                Some(value) => value.clone(),
                None => return false,
            },
        };
        raised <= capacity.value
    }

    /// The least `min + k·step` that is not below the amount; in whole numbers unless fractions are switched on.
    fn next_step(&self, amount: &Quantity, min: &Quantity, step: &Quantity) -> Quantity {
        let unit = |quantity: &Quantity| match self.features.fractional_capacity_range {
            true => quantity.clone(),
            false => Quantity::from_whole(quantity.round_up().unwrap_or(i64::MAX), quantity.format()),
        };
        let (amount, min, step) = (unit(amount), unit(min), unit(step));
        match amount.minus(&min).steps_up(&step) {
            Some(steps) => min.plus(&step.times(&Quantity::from_whole(steps, step.format()))),
            None => amount,
        }
    }

    fn published(&self, id: &DeviceId) -> Option<Published<'a>> {
        self.devices_of(&id.pool_id())?
            .into_iter()
            .find(|published| published.device.name == id.device)
    }

    /// The devices of a pool that the node can use; `None`: the pool is incomplete, invalid or not there.
    fn devices_of(&self, pool: &PoolId) -> Option<Vec<Published<'a>>> {
        let all: Vec<&ResourceSlice> = self.slices.get(pool)?.iter().filter(|slice| self.exists(slice)).collect();
        let seen: Vec<&ResourceSlice> = all.iter().copied().filter(|slice| self.sees(slice)).collect();
        let newest = seen.iter().map(|slice| slice.spec.pool.generation).max()?;
        let kept: Vec<_> = seen
            .into_iter()
            .filter(|slice| slice.spec.pool.generation == newest)
            .collect();
        let declared = kept.first()?.spec.pool.resource_slice_count;
        let same_generation = all.iter().filter(|slice| slice.spec.pool.generation == newest).count();
        let has_newer = all.iter().any(|slice| slice.spec.pool.generation > newest);
        let complete_here = kept.len() as i64 == declared;
        if !complete_here && (has_newer || same_generation as i64 != declared) {
            return None;
        }
        let devices: Vec<_> = kept
            .iter()
            .filter(|slice| slice.spec.shared_counters().is_empty())
            .flat_map(|slice| slice.spec.devices().iter().map(|device| Published { slice, device }))
            .collect();
        let names: BTreeSet<_> = devices.iter().map(|published| &published.device.name).collect();
        if names.len() != devices.len() {
            return None;
        }
        let mine = |published: &Published<'_>| {
            published.slice.spec.per_device_node_selection != Some(true) || self.matches_device(published.device)
        };
        Some(devices.into_iter().filter(mine).collect())
    }

    /// Slices that a feature hides altogether are as good as not there.
    fn exists(&self, slice: &ResourceSlice) -> bool {
        let groups = slice.spec.devices().iter().flat_map(|device| &device.consumes_counters);
        self.features.compatibility_groups || groups.into_iter().all(|draw| draw.compatibility_groups.is_empty())
    }

    fn sees(&self, slice: &ResourceSlice) -> bool {
        let spec = &slice.spec;
        let needs_partitions = spec.per_device_node_selection.is_some() || !spec.shared_counters().is_empty();
        if needs_partitions && !self.features.partitionable_devices {
            return false;
        }
        if let Some(name) = spec.node_name.as_ref().filter(|name| !name.is_empty()) {
            return name == self.node.name;
        }
        if spec.all_nodes == Some(true) {
            return true;
        }
        if let Some(selector) = &spec.node_selector {
            return node::matches(selector, self.node).unwrap_or(false);
        }
        spec.per_device_node_selection == Some(true) && spec.devices().iter().any(|device| self.matches_device(device))
    }

    fn matches_device(&self, device: &Device) -> bool {
        if let Some(name) = device.node_name.as_ref().filter(|name| !name.is_empty()) {
            return name == self.node.name;
        }
        device.all_nodes == Some(true)
            || device
                .node_selector
                .as_ref()
                .is_some_and(|selector| node::matches(selector, self.node).unwrap_or(false))
    }

    fn check_node_selector(&mut self, claim: &ResourceClaim, selector: Option<&node::NodeSelector>) {
        let matches = selector.is_none_or(|selector| node::matches(selector, self.node).unwrap_or(false));
        if !matches {
            self.add(claim, format!("its node selector does not match node {:?}", self.node.name));
        }
    }

    fn check_constraints(&mut self, claim: &ResourceClaim, results: &[(Vec<(String, String)>, &DeviceRequestAllocationResult)]) {
        for constraint in &claim.spec.devices.constraints {
            let covered = results.iter().filter(|(_, result)| {
                constraint.requests.is_empty()
                    || constraint
                        .requests
                        .iter()
                        .any(|name| *name == result.request || Some(name.as_str()) == result.request.split('/').next())
            });
            let attribute = constraint.match_attribute.as_ref().or(constraint.distinct_attribute.as_ref());
            let Some(attribute) = attribute else { continue };
            let values: Vec<_> = covered
                .map(|(derived, result)| self.value(derived, result, attribute))
                .collect();
            let Some(values) = values.into_iter().collect::<Option<Vec<_>>>() else {
                self.add(claim, format!("a device lacks attribute {attribute} of a constraint"));
                continue;
            };
            let holds = if constraint.match_attribute.is_some() {
                all_match(&values)
            } else {
                all_distinct(&values)
            };
            if !holds {
                self.add(claim, format!("the constraint on {attribute} does not hold"));
            }
        }
    }

    fn value(
        &self,
        derived: &[(String, String)],
        result: &DeviceRequestAllocationResult,
        attribute: &str,
    ) -> Option<BTreeSet<String>> {
        let Published { device, .. } = self.published(&result.device_id())?;
        if let Some((_, expression)) = derived.iter().find(|(name, _)| name == attribute) {
            let value = derive(expression, &result.driver, device).ok()?;
            return Some(texts(value.value()?, self.features.list_type_attributes));
        }
        let bare = attribute
            .split_once('/')
            .filter(|(domain, _)| result.driver == **domain)
            .map(|(_, name)| name);
        let found = device.attributes.get(attribute).or_else(|| device.attributes.get(bare?))?;
        Some(texts(found.value()?, self.features.list_type_attributes))
    }

    fn check_exclusive(&mut self, results: &[(&ResourceClaim, &DeviceRequestAllocationResult)]) {
        for (at, (claim, result)) in results.iter().enumerate() {
            let id = result.device_id();
            let is_admin = result.admin_access == Some(true);
            if result.share_id.is_some() {
                continue;
            }
            if !is_admin && self.others_hold(&id) {
                self.add(claim, format!("device {id} is held by another claim"));
            }
            for (earlier_claim, earlier) in &results[..at] {
                let same_claim = std::ptr::eq(*earlier_claim, *claim);
                if earlier.device_id() == id && (!is_admin || same_claim) {
                    self.add(claim, format!("device {id} is given twice in this plan"));
                }
            }
        }
    }

    /// Held whole by, or shared with, a claim that is not of this plan.
    fn others_hold(&self, id: &DeviceId) -> bool {
        self.others(id)
            .is_some_and(|used| used.is_held(self.features) || used.has_share(self.features))
    }

    /// What claims that are not of this plan have of the device.
    fn others(&self, id: &DeviceId) -> Option<DeviceUse> {
        let mut used = self.cluster.pool_by_id(&id.pool_id())?.uses.get(&id.device)?.clone();
        self.own.iter().for_each(|claim| used.remove(*claim));
        (!used.is_empty()).then_some(used)
    }

    fn check_capacity(&mut self, results: &[(&ResourceClaim, &DeviceRequestAllocationResult)]) {
        if !self.features.consumable_capacity {
            return;
        }
        let mut sums: BTreeMap<(DeviceId, String), Quantity> = BTreeMap::new();
        for (claim, result) in results {
            let id = result.device_id();
            let Some(Published { device, .. }) = self.published(&id) else {
                continue;
            };
            if device.is_shareable() != result.share_id.is_some() {
                self.add(
                    claim,
                    format!("device {id} is given as a share exactly if it is not shareable"),
                );
            }
            let names: BTreeSet<_> = device.capacity.keys().collect();
            if device.is_shareable() && names != result.consumed_capacity.keys().collect() {
                self.add(claim, format!("device {id}: consumedCapacity does not name all capacities"));
            }
            for (name, consumed) in &result.consumed_capacity {
                let sum = sums.entry((id.clone(), name.clone())).or_default();
                *sum = sum.plus(consumed);
            }
            self.check_requested(claim, result, device);
        }
        for ((id, name), sum) in sums {
            let Some(Published { device, .. }) = self.published(&id) else {
                continue;
            };
            let held = self.others(&id).map_or(Quantity::ZERO, |used| {
                Quantity::from_nanos(used.consumed(&name).nanos(), Default::default())
            });
            let value = device.capacity.get(&name).map(|capacity| &capacity.value);
            if value.is_none_or(|value| sum.plus(&held) > *value) {
                let claim = results
                    .iter()
                    .find(|(_, result)| result.device_id() == id)
                    .map(|(claim, _)| *claim);
                self.add(
                    claim.unwrap_or(&ResourceClaim::default()),
                    format!("capacity {name} of device {id} is overdrawn"),
                );
            }
        }
    }

    /// At least what was requested is given.
    fn check_requested(&mut self, claim: &ResourceClaim, result: &DeviceRequestAllocationResult, device: &Device) {
        let requests = claim.spec.devices.requests.iter().flat_map(Wanted::all_of);
        let Some(wanted) = requests.into_iter().find(|wanted| wanted.name == result.request) else {
            return;
        };
        for (name, amount) in &wanted.capacity {
            let given = match device.is_shareable() {
                true => result.consumed_capacity.get(name),
                false => device.capacity.get(name).map(|capacity| &capacity.value),
            };
            if given.is_none_or(|given| given < amount) {
                self.add(
                    claim,
                    format!("device {}: less of capacity {name} than requested", result.device_id()),
                );
            }
        }
    }

    fn check_counters(&mut self, results: &[(&ResourceClaim, &DeviceRequestAllocationResult)]) {
        if !self.features.partitionable_devices {
            return;
        }
        let pools: BTreeSet<_> = results.iter().map(|(_, result)| result.pool_id()).collect();
        for id in pools {
            let Some(slices) = self.slices.get(&id) else { continue };
            let own: Vec<_> = results.iter().filter(|(_, result)| result.pool_id() == id).collect();
            let draws = |result: &DeviceRequestAllocationResult| {
                self.published(&result.device_id())
                    .is_some_and(|published| !published.device.consumes_counters.is_empty())
            };
            let fresh = own
                .iter()
                .any(|(_, result)| draws(result) && self.others(&result.device_id()).is_none());
            let Some((claim, _)) = own.first().filter(|_| fresh) else {
                continue;
            };
            if let Some(problem) = self.overdrawn(&id, slices, &own) {
                self.add(claim, problem);
            }
            if let Some(problem) = self.incompatible(&id, slices, &own) {
                self.add(claim, problem);
            }
        }
    }

    /// The first counter of the pool on which held and newly taken devices together draw more than is published.
    fn overdrawn(
        &self,
        pool: &PoolId,
        slices: &[ResourceSlice],
        own: &[&(&ResourceClaim, &DeviceRequestAllocationResult)],
    ) -> Option<String> {
        let generation = own.iter().find_map(|(_, result)| {
            self.published(&result.device_id())
                .map(|published| published.slice.spec.pool.generation)
        })?;
        let slices: Vec<_> = slices
            .iter()
            .filter(|slice| slice.spec.pool.generation == generation && self.exists(slice))
            .collect();
        let mut left: BTreeMap<(&str, &str), Quantity> = BTreeMap::new();
        for set in slices.iter().flat_map(|slice| slice.spec.shared_counters()) {
            for (name, counter) in &set.counters {
                left.insert((&set.name, name), counter.value.clone());
            }
        }
        let plain = slices.iter().filter(|slice| slice.spec.shared_counters().is_empty());
        for device in plain.flat_map(|slice| slice.spec.devices()) {
            let PoolId { driver, pool } = pool.clone();
            let id = DeviceId {
                driver,
                pool,
                device: device.name.clone(),
            };
            // Admin results charge as well, in addition to the holder.
            let n_charges = usize::from(
                self.others(&id)
                    .is_some_and(|used| used.is_held(self.features) || used.has_share(self.features)),
            ) + own
                .iter()
                .filter(|(_, result)| result.device_id() == id && result.share_id.is_none())
                .count()
                + usize::from(
                    self.others(&id).is_none_or(|used| !used.has_share(self.features))
                        && own
                            .iter()
                            .any(|(_, result)| result.device_id() == id && result.share_id.is_some()),
                );
            for (draw, _) in device
                .consumes_counters
                .iter()
                .flat_map(|draw| std::iter::repeat_n((draw, ()), n_charges))
            {
                for (name, counter) in &draw.counters {
                    let amount = left.get_mut(&(draw.counter_set.as_str(), name.as_str()))?;
                    *amount = amount.minus(&counter.value);
                }
            }
        }
        let ((set, counter), _) = left.iter().find(|(_, amount)| amount.signum() < 0)?;
        Some(format!("counter {counter} of set {set} in pool {pool} is overdrawn"))
    }

    /// A counter set whose held and newly taken devices have no compatibility group in common.
    fn incompatible(
        &self,
        pool: &PoolId,
        slices: &[ResourceSlice],
        own: &[&(&ResourceClaim, &DeviceRequestAllocationResult)],
    ) -> Option<String> {
        if !self.features.compatibility_groups {
            return None;
        }
        let mut groups_of_set: BTreeMap<&str, Vec<BTreeSet<&str>>> = BTreeMap::new();
        let mut fresh_sets = BTreeSet::new();
        for device in slices.iter().flat_map(|slice| slice.spec.devices()) {
            let PoolId { driver, pool } = pool.clone();
            let id = DeviceId {
                driver,
                pool,
                device: device.name.clone(),
            };
            let is_held = self.others(&id).is_some();
            let is_own = own.iter().any(|(_, result)| result.device_id() == id);
            for draw in device.consumes_counters.iter().filter(|_| is_held || is_own) {
                let groups = draw.compatibility_groups.iter().map(String::as_str).collect();
                groups_of_set.entry(&draw.counter_set).or_default().push(groups);
                if !is_held {
                    fresh_sets.insert(draw.counter_set.as_str());
                }
            }
        }
        let disagrees = |groups: &[BTreeSet<&str>]| {
            let common = groups
                .iter()
                .skip(1)
                .fold(groups[0].clone(), |common, own| common.intersection(own).copied().collect());
            common.is_empty() && groups.iter().any(|own| !own.is_empty())
        };
        let (set, _) = groups_of_set
            .iter()
            .find(|(set, groups)| fresh_sets.contains(*set) && disagrees(groups))?;
        Some(format!(
            "devices on counter set {set} of pool {pool} have no compatibility group in common"
        ))
    }

    fn check_share_ids(&mut self, results: &[(&ResourceClaim, &DeviceRequestAllocationResult)]) {
        let mut seen = BTreeSet::new();
        for (claim, result) in results {
            let Some(share_id) = &result.share_id else { continue };
            if share_id.is_empty() || !seen.insert(share_id) {
                self.add(
                    claim,
                    format!("share id {share_id:?} of device {} is not unique", result.device_id()),
                );
            }
        }
    }
}

/// A value as a set of texts that carry their kind; without list support a list is one odd value.
fn texts(value: AttributeValue<'_>, lists: bool) -> BTreeSet<String> {
    let many = |texts: Vec<String>| match lists {
        true => texts.into_iter().collect(),
        false => BTreeSet::from([format!("{LIST}{}", texts.join(","))]),
    };
    match value {
        AttributeValue::Int(int) => BTreeSet::from([format!("int {int}")]),
        AttributeValue::Bool(bool) => BTreeSet::from([format!("bool {bool}")]),
        AttributeValue::String(text) => BTreeSet::from([format!("string {text}")]),
        AttributeValue::Version(text) => BTreeSet::from([format!("version {text}")]),
        AttributeValue::Ints(ints) => many(ints.iter().map(|int| format!("int {int}")).collect()),
        AttributeValue::Bools(bools) => many(bools.iter().map(|bool| format!("bool {bool}")).collect()),
        AttributeValue::Strings(texts) => many(texts.iter().map(|text| format!("string {text}")).collect()),
        AttributeValue::Versions(texts) => many(texts.iter().map(|text| format!("version {text}")).collect()),
    }
}

/// Marks a list while lists are not supported: such a value matches nothing and may only come first.
const LIST: &str = "list ";

fn is_odd(value: &BTreeSet<String>) -> bool {
    value.iter().any(|text| text.starts_with(LIST))
}

fn all_match(values: &[BTreeSet<String>]) -> bool {
    let Some(first) = values.first() else { return true };
    let common = values
        .iter()
        .fold(first.clone(), |common, value| common.intersection(value).cloned().collect());
    values.len() == 1 || (!common.is_empty() && !values.iter().any(is_odd))
}

fn all_distinct(values: &[BTreeSet<String>]) -> bool {
    let are_disjoint = |at: usize, value: &BTreeSet<String>| values[..at].iter().all(|other| other.is_disjoint(value));
    values
        .iter()
        .enumerate()
        .all(|(at, value)| are_disjoint(at, value) && (at == 0 || !is_odd(value)))
}
