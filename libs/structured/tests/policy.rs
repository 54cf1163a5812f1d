//! Policies: what each prefers, and that none finds more or less than first fit.

mod generated;

use std::sync::Arc;

use generated::{Dice, claim, device, object, put_classes};
use proptest::prelude::*;
use resource_api::claim::{DeviceRequestAllocationResult, ResourceClaim};
use resource_api::ids::{DeviceId, Uid};
use serde_json::{Value, json};
use structured::{
    Cluster, CompiledUnit, Features, Limits, NodeFacts, Plan, Policy, UnallocatableKind, allocate_on, check, compile_unit, place,
};
use uuid::Uuid;

const GPU: &str = "gpu.dray.test";

fn uid(number: u128) -> Uid {
    Uid(Uuid::from_u128(number))
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(Features::all());
    put_classes(&mut cluster);
    cluster
}

fn put_pool(cluster: &mut Cluster, node: &str, devices: &[Value]) {
    cluster.put_node(NodeFacts {
        name: node.to_owned(),
        ..NodeFacts::default()
    });
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": GPU, "pool": pool, "nodeName": node, "devices": devices});
    cluster.put_slice(object(&json!({"metadata": {"name": format!("slice-{node}")}, "spec": spec})));
}

/// `dev-0` and up; `numa` differs every two devices.
fn plain(n_devices: usize) -> Vec<Value> {
    let device = |at| json!({"name": format!("dev-{at}"), "attributes": {"numa": {"int": at / 2}}});
    (0..n_devices).map(device).collect()
}

fn hold(cluster: &mut Cluster, holder: u128, node: &str, devices: &[usize]) {
    let result = |at: &usize| DeviceRequestAllocationResult {
        driver: GPU.into(),
        pool: node.into(),
        device: format!("dev-{at}").as_str().into(),
        ..Default::default()
    };
    cluster.take(uid(holder), &devices.iter().map(result).collect::<Vec<_>>());
}

fn gpus(count: u64) -> Value {
    let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count});
    json!({"requests": [{"name": "gpu", "exactly": exactly}]})
}

fn compile(cluster: &Cluster, devices: &Value) -> CompiledUnit {
    let metadata = json!({"namespace": "ns", "name": "claim", "uid": uid(1)});
    let claim: ResourceClaim = object(&json!({"metadata": metadata, "spec": {"devices": devices}}));
    compile_unit(cluster, &[Arc::new(claim)]).expect("no fault")
}

#[track_caller]
fn check_node(cluster: &Cluster, devices: &Value, policy: Policy, expected: &str) {
    let unit = compile(cluster, devices);
    let plan = place(cluster, &unit, policy, &Limits::default()).expect("fits");
    assert_eq!(&*plan.node, expected, "{policy:?}");
    assert_eq!(check(cluster, &unit, &plan), []);
}

/// Four nodes of eight: `a` is whole, `b` has 3 left, `c` has 6, `d` is full.
fn four_nodes() -> Cluster {
    let mut cluster = cluster();
    for node in ["a", "b", "c", "d"] {
        put_pool(&mut cluster, node, &plain(8));
    }
    hold(&mut cluster, 10, "b", &[0, 1, 2, 3, 4]);
    hold(&mut cluster, 11, "c", &[0, 1]);
    hold(&mut cluster, 12, "d", &[0, 1, 2, 3, 4, 5, 6, 7]);
    cluster
}

#[test]
fn pack_takes_the_fullest_node_that_fits_and_spread_the_emptiest() {
    let cluster = four_nodes();
    check_node(&cluster, &gpus(2), Policy::FirstFit, "a");
    check_node(&cluster, &gpus(2), Policy::Pack, "b");
    check_node(&cluster, &gpus(4), Policy::Pack, "c");
    check_node(&cluster, &gpus(7), Policy::Pack, "a");
    check_node(&cluster, &gpus(2), Policy::Spread, "a");
}

#[test]
fn spread_fills_evenly_in_order() {
    let mut cluster = cluster();
    for node in ["a", "b", "c"] {
        put_pool(&mut cluster, node, &plain(2));
    }
    let mut nodes = Vec::new();
    for number in 20..26 {
        let unit = compile(&cluster, &gpus(1));
        let plan = place(&cluster, &unit, Policy::Spread, &Limits::default()).expect("fits");
        cluster.take(uid(number), &plan.claims[0].1.devices.results);
        nodes.push(plan.node.to_string());
    }
    assert_eq!(nodes, ["a", "b", "c", "a", "b", "c"]);
}

#[test]
fn only_devices_that_the_unit_could_use_count() {
    let mut cluster = cluster();
    let coloured = |colour: &str, n_devices: usize| -> Vec<Value> {
        let device = |at| json!({"name": format!("dev-{at}"), "attributes": {"colour": {"string": colour}}});
        (0..n_devices).map(device).collect()
    };
    let mut mixed = coloured("red", 1);
    mixed.extend((1..8).map(|at| json!({"name": format!("dev-{at}"), "attributes": {"colour": {"string": "blue"}}})));
    put_pool(&mut cluster, "a", &coloured("red", 4));
    put_pool(&mut cluster, "b", &mixed);
    let mut devices = gpus(1);
    let expression = format!("device.attributes[\"{GPU}\"].colour == \"red\"");
    devices["requests"][0]["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
    check_node(&cluster, &devices, Policy::Pack, "b");
    check_node(&cluster, &devices, Policy::Spread, "a");
}

#[test]
fn least_fragmentation_prefers_what_it_uses_up_then_what_is_broken_already() {
    let mut cluster = four_nodes();
    check_node(&cluster, &gpus(3), Policy::LeastFragmentation, "b");
    check_node(&cluster, &gpus(6), Policy::LeastFragmentation, "c");
    check_node(&cluster, &gpus(8), Policy::LeastFragmentation, "a");
    check_node(&cluster, &gpus(4), Policy::LeastFragmentation, "c");
    // A small node that is used whole breaks nothing.
    put_pool(&mut cluster, "e", &plain(4));
    check_node(&cluster, &gpus(4), Policy::LeastFragmentation, "e");
}

#[test]
fn least_fragmentation_keeps_groups_that_match_whole() {
    let mut cluster = cluster();
    put_pool(&mut cluster, "a", &plain(4));
    put_pool(&mut cluster, "b", &plain(6));
    // On `a` one of each pair is held and nothing but singles is left; on `b` one pair is broken.
    hold(&mut cluster, 10, "a", &[0]);
    hold(&mut cluster, 11, "b", &[1]);
    let mut pair = gpus(2);
    pair["constraints"] = json!([{"matchAttribute": format!("{GPU}/numa")}]);
    check_node(&cluster, &pair, Policy::LeastFragmentation, "a");
    let mut single = gpus(1);
    single["constraints"] = json!([{"matchAttribute": format!("{GPU}/numa")}]);
    // First fit within the node: `a` gives dev-1, whose pair is broken; `b` would give dev-0, broken too, and leave more.
    check_node(&cluster, &single, Policy::LeastFragmentation, "a");
    hold(&mut cluster, 12, "a", &[1]);
    check_node(&cluster, &single, Policy::LeastFragmentation, "b");
}

#[test]
fn least_fragmentation_leaves_untouched_cards_whole() {
    let mut cluster = cluster();
    for node in ["a", "b"] {
        cluster.put_node(NodeFacts {
            name: node.to_owned(),
            ..NodeFacts::default()
        });
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 2});
        let set = |name: &str| json!({"name": name, "counters": {"memory": {"value": "2"}}});
        let draw = |card: usize| json!([{"counterSet": format!("card-{card}"), "counters": {"memory": {"value": "1"}}}]);
        let devices: Vec<_> = (0..4)
            .map(|at| json!({"name": format!("dev-{at}"), "consumesCounters": draw(at / 2)}))
            .collect();
        for (part, field, value) in [
            ("counters", "sharedCounters", json!([set("card-0"), set("card-1")])),
            ("devices", "devices", json!(devices)),
        ] {
            let mut spec = json!({"driver": GPU, "pool": pool, "nodeName": node});
            spec[field] = value;
            cluster.put_slice(object(&json!({"metadata": {"name": format!("{node}-{part}")}, "spec": spec})));
        }
    }
    // On `a` the next half comes from an untouched card, on `b` from one that is in use; `a` has fewer halves left.
    hold(&mut cluster, 10, "a", &[0, 1]);
    hold(&mut cluster, 11, "b", &[1]);
    check_node(&cluster, &gpus(1), Policy::Pack, "a");
    check_node(&cluster, &gpus(1), Policy::LeastFragmentation, "b");
}

#[test]
fn unschedulable_and_full_nodes_are_no_choice_under_any_policy() {
    let mut cluster = four_nodes();
    cluster.put_node(NodeFacts {
        name: "a".to_owned(),
        unschedulable: true,
        ..NodeFacts::default()
    });
    for policy in [Policy::FirstFit, Policy::Pack, Policy::Spread, Policy::LeastFragmentation] {
        check_node(&cluster, &gpus(6), policy, "c");
        let unit = compile(&cluster, &gpus(7));
        let refusal = place(&cluster, &unit, policy, &Limits::default()).expect_err("only `a` has so many");
        assert_eq!(refusal.kind, UnallocatableKind::DoesNotFit);
    }
}

#[test]
fn policies_are_known_by_name() {
    for policy in Policy::ALL {
        assert_eq!(policy.as_str().parse(), Ok(policy));
    }
    let unknown = "fastest".parse::<Policy>().expect_err("no such policy");
    assert_eq!(
        unknown.to_string(),
        "unknown policy \"fastest\": known are first-fit, pack, spread, least-fragmentation"
    );
}

/// A random cluster of a few nodes with what is needed to look at it from outside.
struct Fleet {
    cluster: Cluster,
    nodes: Vec<(String, Vec<Value>)>,
    claim: Value,
}

fn fleet(seed: u64) -> Fleet {
    let mut dice = Dice(seed);
    let mut cluster = cluster();
    let mut nodes = Vec::new();
    for at in 0..2 + dice.below(4) {
        let name = format!("node-{at}");
        let mut devices: Vec<_> = (0..1 + dice.below(6))
            .map(|at| device(&mut dice, at, &json!({}), false))
            .collect();
        for device in &mut devices {
            // Held devices are held whole, so that "free" has one meaning.
            device.as_object_mut().expect("an object").remove("allowMultipleAllocations");
            if let Some(units) = device.pointer_mut("/capacity/units") {
                units.as_object_mut().expect("an object").remove("requestPolicy");
            }
        }
        put_pool(&mut cluster, &name, &devices);
        let held: Vec<_> = (0..devices.len()).filter(|_| dice.one_in(3)).collect();
        if !held.is_empty() {
            hold(&mut cluster, u128::from(100 + at), &name, &held);
        }
        nodes.push((name, devices));
    }
    let claim = claim(&mut dice, 0, Features::all());
    Fleet { cluster, nodes, claim }
}

impl Fleet {
    fn unit(&self) -> Option<CompiledUnit> {
        compile_unit(&self.cluster, &[Arc::new(object(&self.claim))]).ok()
    }

    /// Free devices of a node that some request or alternative selects, judged by the objects' text.
    fn n_free(&self, node: &str) -> usize {
        let (_, devices) = self.nodes.iter().find(|(name, _)| name == node).expect("a node of the fleet");
        let requests = self.claim["spec"]["devices"]["requests"].as_array().expect("requests");
        let choices: Vec<&Value> = requests
            .iter()
            .flat_map(|request| match request.get("exactly") {
                Some(exactly) => vec![exactly],
                None => request["firstAvailable"].as_array().expect("alternatives").iter().collect(),
            })
            .collect();
        let selects = |choice: &Value, device: &Value| {
            let model = device["attributes"]["model"]["string"]
                .as_str()
                .expect("every device has a model");
            let expression = choice.pointer("/selectors/0/cel/expression").and_then(Value::as_str);
            expression.is_none_or(|expression| expression.contains(&format!("\"{model}\"")))
        };
        let is_free = |device: &Value| {
            let name = device["name"].as_str().expect("every device has a name");
            self.cluster.holder(&DeviceId::new(GPU, node, name)).is_none()
        };
        let counts = |device: &&Value| is_free(device) && choices.iter().any(|choice| selects(choice, device));
        devices.iter().filter(counts).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_finds_a_valid_plan_exactly_if_first_fit_does(seed in any::<u64>()) {
        let fleet = fleet(seed);
        let Some(unit) = fleet.unit() else { return Ok(()) };
        let answer = |policy| place(&fleet.cluster, &unit, policy, &Limits::default());
        let first: Result<Plan, _> = answer(Policy::FirstFit);
        for policy in [Policy::Pack, Policy::Spread, Policy::LeastFragmentation] {
            let other = answer(policy);
            // A fault of the claim shows when a node is opened; which one comes first is the policy's choice.
            let is_fault = |answer: &Result<Plan, structured::Unallocatable>| {
                answer.as_ref().is_err_and(|refusal| refusal.kind == UnallocatableKind::ClaimFault)
            };
            if is_fault(&first) || is_fault(&other) {
                continue;
            }
            prop_assert_eq!(first.is_ok(), other.is_ok(), "seed {} {:?}", seed, policy);
            if let Ok(plan) = &other {
                prop_assert_eq!(check(&fleet.cluster, &unit, plan), vec![], "seed {} {:?}", seed, policy);
                prop_assert_eq!(&other, &answer(policy), "asked again: seed {} {:?}", seed, policy);
                let on_node = allocate_on(&fleet.cluster, &unit, &plan.node, &Limits::default());
                prop_assert_eq!(&on_node.ok(), &Some(plan.clone()), "the devices are those of first fit: seed {}", seed);
            }
        }
    }

    #[test]
    fn pack_and_spread_take_the_extreme_node(seed in any::<u64>()) {
        let fleet = fleet(seed);
        let Some(unit) = fleet.unit() else { return Ok(()) };
        let fits = |node: &&(String, Vec<Value>)| allocate_on(&fleet.cluster, &unit, &node.0, &Limits::default()).is_ok();
        let fitting: Vec<_> = fleet.nodes.iter().filter(fits).map(|(name, _)| name.as_str()).collect();
        let expected = [
            (Policy::Pack, fitting.iter().min_by_key(|node| fleet.n_free(node))),
            (Policy::Spread, fitting.iter().rev().max_by_key(|node| fleet.n_free(node))),
        ];
        for (policy, expected) in expected {
            match place(&fleet.cluster, &unit, policy, &Limits::default()) {
                Ok(plan) => prop_assert_eq!(Some(&&*plan.node), expected, "seed {} {:?}", seed, policy),
                Err(refusal) if refusal.kind == UnallocatableKind::ClaimFault => {}
                Err(_) => prop_assert_eq!(None, expected, "seed {} {:?}", seed, policy),
            }
        }
    }
}
