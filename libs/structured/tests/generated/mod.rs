//! Random small clusters, and a brute-force oracle that tries every assignment in the order of first fit.

#![allow(dead_code, reason = "every binary of tests uses another part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use resource_api::claim::{
    AllocationMode, AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim,
};
use resource_api::class::DeviceClass;
use resource_api::ids::{ShareId, Uid};
use resource_api::quantity::{Format, Quantity};
use resource_api::slice::ResourceSlice;
use serde_json::{Value, json};
use structured::{Cluster, CompiledUnit, Features, NodeFacts, Plan, check};
use uuid::Uuid;

pub(crate) const NODE: &str = "host-1";

/// Assignments after which the oracle gives a case up.
pub(crate) const ASSIGNMENTS_MAX: usize = 300;

/// A small deterministic source of choices (splitmix64), so that one number names a whole case.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.below(from.len() as u64)).expect("small")]
    }
}

/// One generated case.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) features: Features,
    pub(crate) slices: Vec<Arc<ResourceSlice>>,
    pub(crate) claims: Vec<Arc<ResourceClaim>>,
    pub(crate) held: Vec<DeviceRequestAllocationResult>,
}

pub(crate) fn object<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_str(&value.to_string()).expect("generated objects are well-formed")
}

pub(crate) fn generate(seed: u64) -> Case {
    let mut dice = Dice(seed);
    let features = if dice.one_in(4) {
        Features::default()
    } else {
        Features::all()
    };
    let mut slices = Vec::new();
    let mut held = Vec::new();
    for pool in 0..1 + dice.below(3) {
        let driver = dice.pick(&["gpu.dray.test", "nic.dray.test"]);
        let name = format!("pool-{pool}");
        let with_counters = dice.one_in(3);
        let n_slices = 1 + u64::from(with_counters);
        let mut spec = json!({"driver": driver, "pool": {"name": name, "generation": 1, "resourceSliceCount": n_slices}});
        match dice.below(4) {
            0 => spec["allNodes"] = json!(true),
            1 => spec["perDeviceNodeSelection"] = json!(true),
            _ => spec["nodeName"] = json!(NODE),
        }
        if with_counters {
            let counters = json!({"lanes": {"value": (1 + dice.below(4)).to_string()}, "memory": {"value": "3Gi"}});
            let mut counter_spec = spec.clone();
            counter_spec
                .as_object_mut()
                .expect("an object")
                .remove("perDeviceNodeSelection");
            if counter_spec.get("nodeName").is_none() {
                counter_spec["allNodes"] = json!(true);
            }
            counter_spec["sharedCounters"] = json!([{"name": "set", "counters": counters}]);
            slices.push(json!({"metadata": {"name": format!("{name}-counters")}, "spec": counter_spec}));
        }
        let devices: Vec<_> = (0..1 + dice.below(4))
            .map(|at| device(&mut dice, at, &spec, with_counters))
            .collect();
        for device in &devices {
            let shareable = device.get("allowMultipleAllocations").is_some();
            if dice.one_in(5) {
                let share = (shareable && features.consumable_capacity).then(|| ShareId::from("held"));
                let consumed = share.iter().filter(|_| device.get("capacity").is_some());
                held.push(DeviceRequestAllocationResult {
                    driver: driver.into(),
                    pool: name.as_str().into(),
                    device: device["name"].as_str().expect("named").into(),
                    consumed_capacity: consumed.map(|_| ("units".to_owned(), whole(1))).collect(),
                    share_id: share,
                    ..Default::default()
                });
            }
        }
        spec["devices"] = json!(devices);
        slices.push(json!({"metadata": {"name": format!("{name}-devices")}, "spec": spec}));
    }
    let n_claims = 1 + dice.below(2);
    let claims = (0..n_claims)
        .map(|at| Arc::new(object::<ResourceClaim>(&claim(&mut dice, at, features))))
        .collect();
    Case {
        features,
        slices: slices.iter().map(|slice| Arc::new(object(slice))).collect(),
        claims,
        held,
    }
}

pub(crate) fn device(dice: &mut Dice, at: u64, slice: &Value, with_counters: bool) -> Value {
    let mut device = json!({"name": format!("dev-{at}")});
    let mut attributes = json!({"model": {"string": dice.pick(&["a", "b"])}});
    match dice.below(4) {
        0 => {}
        1 => attributes["resource.kubernetes.io/numa"] = json!({"ints": [dice.below(2), 2]}),
        _ => attributes["resource.kubernetes.io/numa"] = json!({"int": dice.below(2)}),
    }
    device["attributes"] = attributes;
    if slice.get("perDeviceNodeSelection").is_some() {
        device["nodeName"] = json!(dice.pick(&[NODE, NODE, "host-2"]));
    }
    if with_counters && !dice.one_in(4) {
        let mut draw = json!({"counterSet": "set", "counters": {"lanes": {"value": dice.below(3).to_string()}}});
        if dice.one_in(2) {
            draw["counters"]["memory"] = json!({"value": "1Gi"});
        }
        if dice.one_in(4) {
            draw["compatibilityGroups"] = json!([dice.pick(&["x", "y"])]);
        }
        device["consumesCounters"] = json!([draw]);
    }
    if dice.one_in(4) {
        device["taints"] = json!([{"key": "broken", "effect": dice.pick(&["NoSchedule", "NoExecute", "None"])}]);
    }
    if dice.one_in(3) {
        device["allowMultipleAllocations"] = json!(true);
    }
    if dice.one_in(3) {
        device["capacity"] = json!({"units": {"value": (1 + dice.below(4)).to_string()}});
        if device.get("allowMultipleAllocations").is_some() && dice.one_in(2) {
            let policy = json!({"default": "1", "validRange": {"min": "1", "step": "2"}});
            device["capacity"]["units"]["requestPolicy"] = policy;
        }
    }
    if dice.one_in(8) {
        device["bindingConditions"] = json!(["ready"]);
        device["bindingFailureConditions"] = json!(["failed"]);
    }
    device
}

pub(crate) fn claim(dice: &mut Dice, at: u64, features: Features) -> Value {
    let n_requests = 1 + dice.below(2);
    let requests: Vec<_> = (0..n_requests)
        .map(|number| {
            let name = format!("r{number}");
            if dice.one_in(4) {
                let alternatives: Vec<_> = (0..2)
                    .map(|other| {
                        let mut wanted = wanted(dice);
                        wanted["name"] = json!(format!("alt{other}"));
                        wanted
                    })
                    .collect();
                json!({"name": name, "firstAvailable": alternatives})
            } else {
                let mut wanted = wanted(dice);
                if dice.one_in(6) {
                    wanted["adminAccess"] = json!(true);
                }
                json!({"name": name, "exactly": wanted})
            }
        })
        .collect();
    let mut devices = json!({"requests": requests});
    if dice.one_in(2) {
        let rule = if features.consumable_capacity {
            dice.pick(&["matchAttribute", "distinctAttribute"])
        } else {
            "matchAttribute"
        };
        let attribute = dice.pick(&["resource.kubernetes.io/numa", "gpu.dray.test/model"]);
        let mut constraint = json!({rule: attribute});
        if dice.one_in(2) {
            constraint["requests"] = json!(["r0"]);
        }
        devices["constraints"] = json!([constraint]);
    }
    let uid = Uuid::from_u128(u128::from(at) + 1).to_string();
    json!({"metadata": {"namespace": "ns", "name": format!("claim-{at}"), "uid": uid}, "spec": {"devices": devices}})
}

pub(crate) fn wanted(dice: &mut Dice) -> Value {
    let mut wanted = json!({"deviceClassName": dice.pick(&["any", "any", "gpu"]), "allocationMode": "ExactCount"});
    wanted["count"] = json!(1 + dice.below(3));
    if dice.one_in(8) {
        wanted["allocationMode"] = json!("All");
        wanted.as_object_mut().expect("an object").remove("count");
    }
    if dice.one_in(3) {
        let model = dice.pick(&["a", "b"]);
        let expression = format!("device.attributes[device.driver].model == \"{model}\"");
        wanted["selectors"] = json!([{"cel": {"expression": expression}}]);
    }
    if dice.one_in(3) {
        wanted["tolerations"] = json!([{"operator": "Exists"}]);
    }
    if dice.one_in(4) {
        wanted["capacity"] = json!({"requests": {"units": (1 + dice.below(3)).to_string()}});
    }
    wanted
}

pub(crate) fn put_classes(cluster: &mut Cluster) {
    let gpu = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == \"gpu.dray.test\""}}]}});
    cluster.put_class(Arc::new(object::<DeviceClass>(&gpu)));
    cluster.put_class(Arc::new(object::<DeviceClass>(&json!({"metadata": {"name": "any"}}))));
}

pub(crate) fn load(case: &Case, reversed: bool) -> Cluster {
    let mut cluster = Cluster::new(case.features);
    put_classes(&mut cluster);
    cluster.put_node(NodeFacts {
        name: NODE.to_owned(),
        ..NodeFacts::default()
    });
    let mut slices = case.slices.clone();
    if reversed {
        slices.reverse();
    }
    slices.into_iter().for_each(|slice| cluster.put_slice(slice));
    for (number, result) in (100..).zip(&case.held) {
        cluster.take(Uid(Uuid::from_u128(number)), std::slice::from_ref(result));
    }
    cluster
}

pub(crate) fn whole(number: i64) -> Quantity {
    Quantity::from_whole(number, Format::DecimalSi)
}

/// The devices in the order of the model, as (slice, index).
pub(crate) fn ordered(case: &Case) -> Vec<(Arc<ResourceSlice>, usize)> {
    let mut pools: BTreeMap<_, Vec<Arc<ResourceSlice>>> = BTreeMap::new();
    for slice in &case.slices {
        pools.entry(slice.pool_id()).or_default().push(Arc::clone(slice));
    }
    let mut pools: Vec<_> = pools.into_iter().collect();
    pools.sort_by_key(|(id, slices)| {
        let devices = slices.iter().flat_map(|slice| slice.spec.devices());
        (
            devices.into_iter().any(|device| !device.binding_conditions.is_empty()),
            id.clone(),
        )
    });
    let mut devices = Vec::new();
    for (_, mut slices) in pools {
        slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        for slice in slices {
            devices.extend((0..slice.spec.devices().len()).map(|index| (Arc::clone(&slice), index)));
        }
    }
    devices
}

/// One way to satisfy a request.
pub(crate) struct Choice {
    pub(crate) name: String,
    pub(crate) count: Option<usize>,
    pub(crate) admin: bool,
    pub(crate) capacity: BTreeMap<String, Quantity>,
}

pub(crate) fn choices(claim: &ResourceClaim) -> Vec<Vec<Choice>> {
    let count =
        |mode: &AllocationMode, count: i64| (mode != &AllocationMode::All).then(|| usize::try_from(count).expect("small"));
    let requests = claim.spec.devices.requests.iter().map(|request| match &request.exactly {
        Some(exactly) => vec![Choice {
            name: request.name.clone(),
            count: count(&exactly.allocation_mode, exactly.count),
            admin: exactly.admin_access == Some(true),
            capacity: exactly.capacity.clone().unwrap_or_default().requests,
        }],
        None => request
            .first_available
            .iter()
            .map(|alternative| Choice {
                name: format!("{}/{}", request.name, alternative.name),
                count: count(&alternative.allocation_mode, alternative.count),
                admin: false,
                capacity: alternative.capacity.clone().unwrap_or_default().requests,
            })
            .collect(),
    });
    requests.collect()
}

/// Tries every assignment in order; the first that the checker accepts.
pub(crate) struct Oracle<'a> {
    pub(crate) case: &'a Case,
    pub(crate) cluster: &'a Cluster,
    pub(crate) unit: &'a CompiledUnit,
    pub(crate) devices: Vec<(Arc<ResourceSlice>, usize)>,
    pub(crate) choices: Vec<Vec<Choice>>,
    pub(crate) results: Vec<Vec<DeviceRequestAllocationResult>>,
    pub(crate) tried: usize,
}

impl<'a> Oracle<'a> {
    pub(crate) fn of(case: &'a Case, cluster: &'a Cluster, unit: &'a CompiledUnit) -> Self {
        Self {
            case,
            cluster,
            unit,
            devices: ordered(case),
            choices: Vec::new(),
            results: vec![Vec::new(); case.claims.len()],
            tried: 0,
        }
    }

    /// `None`: too many assignments to say.
    pub(crate) fn first_fit(mut self) -> Option<Option<Vec<String>>> {
        let found = self.request(0, 0);
        (self.tried < ASSIGNMENTS_MAX).then(|| found.then(|| names(&self.results)))
    }

    fn request(&mut self, claim: usize, request: usize) -> bool {
        if claim == self.case.claims.len() {
            return self.is_valid();
        }
        if request == 0 {
            self.choices = choices(&self.case.claims[claim]);
        }
        if request == self.choices.len() {
            let own = std::mem::take(&mut self.choices);
            let found = self.request(claim + 1, 0);
            self.choices = own;
            return found;
        }
        (0..self.choices[request].len()).any(|choice| self.devices(claim, request, choice, 0, 0))
    }

    fn devices(&mut self, claim: usize, request: usize, choice: usize, taken: usize, from: usize) -> bool {
        if self.tried >= ASSIGNMENTS_MAX {
            return false;
        }
        let count = self.choices[request][choice].count;
        // In mode All the checker knows which set is right; try every subset in order.
        let complete = count.is_none_or(|count| count == taken) && (count.is_some() || taken > 0);
        if complete && self.request(claim, request + 1) {
            return true;
        }
        if count == Some(taken) {
            return false;
        }
        for at in from..self.devices.len() {
            let result = self.result(request, choice, at);
            self.results[claim].push(result);
            if self.devices(claim, request, choice, taken + 1, at + 1) {
                return true;
            }
            self.results[claim].pop();
        }
        false
    }

    fn result(&self, request: usize, choice: usize, at: usize) -> DeviceRequestAllocationResult {
        let choice = &self.choices[request][choice];
        let (slice, index) = &self.devices[at];
        let device = &slice.spec.devices()[*index];
        let is_share = device.is_shareable() && self.case.features.consumable_capacity;
        let consumed = device.capacity.iter().filter(|_| is_share).map(|(name, capacity)| {
            let policy = capacity.request_policy.as_ref();
            let amount = match (choice.capacity.get(name), policy) {
                (None, None) => capacity.value.clone(),
                (None, Some(_)) => whole(1),
                (Some(asked), None) => asked.clone(),
                // Steps of two from one: the next odd number.
                (Some(asked), Some(_)) => whole(asked.as_whole().expect("whole") | 1),
            };
            (name.clone(), amount)
        });
        let n_results: usize = self.results.iter().map(Vec::len).sum();
        DeviceRequestAllocationResult {
            request: choice.name.clone(),
            driver: slice.spec.driver.clone(),
            pool: slice.spec.pool.name.clone(),
            device: device.name.clone(),
            admin_access: choice.admin.then_some(true),
            share_id: is_share.then(|| ShareId::from(format!("share-{n_results}"))),
            consumed_capacity: consumed.collect(),
            ..Default::default()
        }
    }

    fn is_valid(&mut self) -> bool {
        self.tried += 1;
        let claims = self.results.iter().zip(self.unit.claim_uids()).map(|(results, uid)| {
            let devices = DeviceAllocationResult {
                results: results.clone(),
                config: Vec::new(),
            };
            (
                uid,
                AllocationResult {
                    devices,
                    ..Default::default()
                },
            )
        });
        let plan = Plan {
            node: NODE.into(),
            claims: claims.collect(),
            pools: Vec::new(),
            steps: 0,
        };
        check(self.cluster, self.unit, &plan).is_empty()
    }
}

pub(crate) fn names(results: &[Vec<DeviceRequestAllocationResult>]) -> Vec<String> {
    results
        .iter()
        .flatten()
        .map(|result| format!("{}={}", result.request, result.device_id()))
        .collect()
}

pub(crate) fn names_of_plan(plan: &Plan) -> Vec<String> {
    let results: Vec<_> = plan
        .claims
        .iter()
        .map(|(_, allocation)| allocation.devices.results.clone())
        .collect();
    names(&results)
}

pub(crate) fn json_of<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("objects serialize")
}

pub(crate) fn describe(case: &Case) -> String {
    let slices: Vec<_> = case.slices.iter().map(json_of).collect();
    let claims: Vec<_> = case.claims.iter().map(json_of).collect();
    let held: Vec<_> = case.held.iter().map(json_of).collect();
    format!(
        "slices:\n{}\nclaims:\n{}\nheld:\n{}",
        slices.join("\n"),
        claims.join("\n"),
        held.join("\n")
    )
}
