//! Examples of what callers rely on: which node, what a refusal says, what taking and giving back changes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use resource_api::claim::{DeviceRequestAllocationResult, ResourceClaim};
use resource_api::ids::{DeviceId, Uid};
use serde_json::{Value, json};
use structured::{
    Cluster, CompiledUnit, FaultKind, Features, Limits, NodeFacts, NodeOrder, Plan, Policy, Reason, Unallocatable,
    UnallocatableKind, allocate_on, check, compile_unit, explain, place, wake_matches,
};
use uuid::Uuid;

const GPU: &str = "gpu.dray.test";

fn object<T: serde::de::DeserializeOwned>(value: &Value) -> Arc<T> {
    Arc::new(serde_json::from_str(&value.to_string()).expect("test objects are well-formed"))
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(Features::default());
    let selectors = json!([{"cel": {"expression": format!("device.driver == \"{GPU}\"")}}]);
    cluster.put_class(object(
        &json!({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}),
    ));
    cluster.put_class(object(&json!({"metadata": {"name": "any"}})));
    cluster
}

/// A pool on a node, or wherever `place` says, with devices `dev-0` and up.
fn put_pool(cluster: &mut Cluster, pool: &str, place: &Value, n_devices: usize) {
    let devices: Vec<_> = (0..n_devices)
        .map(|at| json!({"name": format!("dev-{at}"), "attributes": {"half": {"int": at / 2}}}))
        .collect();
    let mut spec = json!({"driver": GPU, "devices": devices});
    spec["pool"] = json!({"name": pool, "generation": 1, "resourceSliceCount": 1});
    for (field, value) in place.as_object().expect("an object") {
        spec[field] = value.clone();
    }
    cluster.put_slice(object(&json!({"metadata": {"name": format!("slice-{pool}")}, "spec": spec})));
}

fn put_node(cluster: &mut Cluster, name: &str) {
    cluster.put_node(NodeFacts {
        name: name.to_owned(),
        ..NodeFacts::default()
    });
}

fn nodes_with_gpus(names: &[&str], n_devices: usize) -> Cluster {
    let mut cluster = cluster();
    for name in names {
        put_node(&mut cluster, name);
        put_pool(&mut cluster, name, &json!({"nodeName": name}), n_devices);
    }
    cluster
}

fn uid(number: u128) -> Uid {
    Uid(Uuid::from_u128(number))
}

fn claim(number: u128, devices: &Value) -> Arc<ResourceClaim> {
    let metadata = json!({"namespace": "ns", "name": format!("claim-{number}"), "uid": uid(number)});
    object(&json!({"metadata": metadata, "spec": {"devices": devices}}))
}

fn gpus(count: u64) -> Value {
    json!({"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}}]})
}

fn compile(cluster: &Cluster, devices: &Value) -> CompiledUnit {
    compile_unit(cluster, &[claim(1, devices)]).expect("no fault")
}

fn first_fit(cluster: &Cluster, devices: &Value) -> Result<Plan, Unallocatable> {
    place(cluster, &compile(cluster, devices), Policy::FirstFit, &Limits::default())
}

fn take(cluster: &mut Cluster, number: u128, devices: &Value) -> Result<String, Unallocatable> {
    let unit = compile_unit(cluster, &[claim(number, devices)])?;
    let plan = place(cluster, &unit, Policy::FirstFit, &Limits::default())?;
    assert_eq!(check(cluster, &unit, &plan), []);
    for (uid, allocation) in &plan.claims {
        cluster.take(*uid, &allocation.devices.results);
    }
    Ok(plan.node.to_string())
}

#[test]
fn nodes_are_taken_bytewise_by_name() {
    let cluster = nodes_with_gpus(&["node-9", "node-10"], 1);
    assert_eq!(&*first_fit(&cluster, &gpus(1)).expect("fits").node, "node-10");
}

#[test]
fn replays_take_nodes_as_they_were_put() {
    let mut cluster = Cluster::with_node_order(Features::default(), NodeOrder::AsPut);
    cluster.put_class(object(&json!({"metadata": {"name": "gpu"}})));
    for name in ["node-9", "node-10"] {
        put_node(&mut cluster, name);
        put_pool(&mut cluster, name, &json!({"nodeName": name}), 1);
    }
    assert_eq!(&*first_fit(&cluster, &gpus(1)).expect("fits").node, "node-9");
}

#[test]
fn unschedulable_nodes_are_passed_over_by_place_alone() {
    let mut cluster = nodes_with_gpus(&["a", "b"], 1);
    cluster.put_node(NodeFacts {
        name: "a".to_owned(),
        unschedulable: true,
        ..NodeFacts::default()
    });
    assert_eq!(&*first_fit(&cluster, &gpus(1)).expect("fits").node, "b");
    let unit = compile(&cluster, &gpus(1));
    assert!(allocate_on(&cluster, &unit, "a", &Limits::default()).is_ok());
}

#[test]
fn a_node_exists_as_soon_as_a_slice_names_it_and_no_longer() {
    let mut cluster = cluster();
    put_pool(&mut cluster, "p", &json!({"nodeName": "only-in-a-slice"}), 1);
    assert_eq!(cluster.n_nodes(), 1);
    assert_eq!(&*first_fit(&cluster, &gpus(1)).expect("fits").node, "only-in-a-slice");
    cluster.remove_slice("slice-p");
    assert_eq!(cluster.n_nodes(), 0);
}

#[test]
fn network_devices_go_to_the_first_schedulable_node_and_without_nodes_to_none() {
    let mut cluster = cluster();
    put_pool(&mut cluster, "fabric", &json!({"allNodes": true}), 2);
    assert_eq!(&*first_fit(&cluster, &gpus(1)).expect("fits").node, "");
    put_node(&mut cluster, "b");
    put_node(&mut cluster, "a");
    let plan = first_fit(&cluster, &gpus(1)).expect("fits");
    assert_eq!((&*plan.node, &plan.claims[0].1.node_selector), ("a", &None));
    assert_eq!(&*first_fit(&cluster, &json!({"requests": []})).expect("fits").node, "a");
}

#[test]
fn label_bound_pools_follow_the_labels_of_nodes() {
    let mut cluster = cluster();
    let rack = json!([{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]);
    put_pool(&mut cluster, "rack", &json!({"nodeSelector": {"nodeSelectorTerms": rack}}), 1);
    put_node(&mut cluster, "a");
    put_node(&mut cluster, "b");
    assert!(first_fit(&cluster, &gpus(1)).is_err());
    let labels = [("rack".to_owned(), "r1".to_owned())].into();
    cluster.put_node(NodeFacts {
        name: "b".to_owned(),
        labels,
        ..NodeFacts::default()
    });
    assert_eq!(&*first_fit(&cluster, &gpus(1)).expect("fits").node, "b");
}

#[test]
fn a_full_node_is_found_again_after_a_release() {
    let mut cluster = nodes_with_gpus(&["a", "b"], 2);
    assert_eq!(take(&mut cluster, 1, &gpus(2)).expect("fits"), "a");
    assert_eq!(take(&mut cluster, 2, &gpus(2)).expect("fits"), "b");
    assert!(take(&mut cluster, 3, &gpus(2)).is_err());
    assert_eq!(cluster.release(uid(1)).len(), 2);
    assert_eq!(cluster.release(uid(1)), []);
    assert_eq!(take(&mut cluster, 3, &gpus(2)).expect("fits"), "a");
}

#[test]
fn taking_again_replaces_and_the_same_again_changes_nothing() {
    let mut cluster = nodes_with_gpus(&["a"], 4);
    let plan = first_fit(&cluster, &gpus(3)).expect("fits");
    let results = &plan.claims[0].1.devices.results;
    cluster.take(uid(1), results);
    cluster.take(uid(1), results);
    assert_eq!(cluster.stats().free, 1);
    cluster.take(uid(1), &results[..1]);
    assert_eq!(cluster.stats().free, 3);
    assert_eq!(cluster.holder(&results[0].device_id()), Some(uid(1)));
    assert_eq!(cluster.holder(&results[1].device_id()), None);
}

#[test]
fn what_is_taken_survives_a_new_generation_of_slices() {
    let mut cluster = nodes_with_gpus(&["a"], 2);
    take(&mut cluster, 1, &gpus(1)).expect("fits");
    cluster.remove_slice("slice-a");
    assert!(first_fit(&cluster, &gpus(1)).is_err());
    put_pool(&mut cluster, "a", &json!({"nodeName": "a"}), 2);
    let plan = first_fit(&cluster, &gpus(1)).expect("fits");
    assert_eq!(plan.claims[0].1.devices.results[0].device, "dev-1");
}

#[test]
fn a_refusal_counts_devices_by_rule() {
    let mut cluster = nodes_with_gpus(&["a", "b"], 3);
    take(&mut cluster, 1, &gpus(1)).expect("fits");
    let half = json!([{"cel": {"expression": format!("device.attributes[\"{GPU}\"].half == 0")}}]);
    let mut devices = gpus(3);
    devices["requests"][0]["exactly"]["selectors"] = half;
    let refusal = first_fit(&cluster, &devices).expect_err("only two halves per node");
    assert_eq!(refusal.kind, UnallocatableKind::DoesNotFit);
    let explanation = explain(&cluster, &compile(&cluster, &devices), None, &refusal);
    let reasons = &explanation.requests[0];
    assert_eq!(
        (reasons.devices, reasons.nodes, reasons.fit, reasons.fit_on_one_node),
        (6, 2, 3, 2)
    );
    assert_eq!(reasons.removed, [(Reason::RequestSelector(0), 2), (Reason::Allocated, 1)]);
    assert_eq!(
        explanation.to_string(),
        "3 of 6 devices fit request \"gpu\", at most 2 of 3 on one node: 2 fail selector #0, 1 allocated; would fit on b if \
         selector #0 of request \"gpu\" were dropped (3 devices match then, 2 now)"
    );
}

#[test]
fn a_full_cluster_says_so_in_one_line() {
    let mut cluster = nodes_with_gpus(&["a"], 2);
    take(&mut cluster, 1, &gpus(2)).expect("fits");
    let refusal = first_fit(&cluster, &gpus(1)).expect_err("full");
    let explanation = explain(&cluster, &compile(&cluster, &gpus(1)), None, &refusal);
    assert_eq!(
        explanation.to_string(),
        format!(
            "0 of 2 devices fit request \"gpu\": 2 allocated; would fit on a if device {GPU}/a/dev-0 were freed (held by claim {})",
            uid(1)
        )
    );
}

#[test]
fn requests_that_are_in_each_others_way_are_told_so() {
    let cluster = nodes_with_gpus(&["a"], 3);
    let two = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2});
    let devices = json!({"requests": [{"name": "x", "exactly": two}, {"name": "y", "exactly": two}]});
    let refusal = first_fit(&cluster, &devices).expect_err("four of three");
    let explanation = explain(&cluster, &compile(&cluster, &devices), None, &refusal);
    assert!(explanation.to_string().contains("no node has them together"), "{explanation}");
}

#[test]
fn an_incomplete_pool_is_trouble_of_its_node_alone() {
    let mut cluster = nodes_with_gpus(&["a", "b"], 1);
    put_pool(
        &mut cluster,
        "a",
        &json!({"nodeName": "a", "pool": {"name": "a", "generation": 1, "resourceSliceCount": 2}}),
        1,
    );
    let all = json!({"requests": [{"name": "all", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]});
    assert_eq!(&*first_fit(&cluster, &all).expect("fits").node, "b");
    let unit = compile(&cluster, &all);
    let refusal = allocate_on(&cluster, &unit, "a", &Limits::default()).expect_err("incomplete");
    assert_eq!(refusal.fault.map(|fault| fault.kind), Some(FaultKind::AllPoolIncomplete));
}

#[test]
fn an_unknown_class_is_a_fault_before_any_node_is_tried() {
    let cluster = nodes_with_gpus(&["a"], 1);
    let devices = json!({"requests": [{"name": "gpu", "exactly": {"deviceClassName": "nope", "count": 1}}]});
    let refusal = compile_unit(&cluster, &[claim(1, &devices)]).expect_err("no such class");
    assert_eq!(refusal.kind, UnallocatableKind::ClaimFault);
    assert_eq!(
        refusal.to_string(),
        "claim ns/claim-1, request \"gpu\": device class \"nope\" does not exist"
    );
}

#[test]
fn equal_wishes_have_equal_signatures_whatever_their_names() {
    let cluster = nodes_with_gpus(&["a"], 1);
    let signature = |devices: &Value| compile(&cluster, devices).signature().clone();
    let mut other_name = gpus(2);
    other_name["requests"][0]["name"] = json!("another");
    assert_eq!(signature(&gpus(2)), signature(&other_name));
    assert_ne!(signature(&gpus(2)), signature(&gpus(3)));
}

#[test]
fn a_device_wakes_the_units_that_it_could_serve() {
    let cluster = nodes_with_gpus(&["a"], 4);
    let mut devices = gpus(1);
    devices["requests"][0]["exactly"]["selectors"] =
        json!([{"cel": {"expression": format!("device.attributes[\"{GPU}\"].half == 1")}}]);
    let unit = compile(&cluster, &devices);
    let wakes = |device: &str| wake_matches(&cluster, &unit, &DeviceId::new(GPU, "a", device));
    assert!(wakes("dev-2"));
    assert!(!wakes("dev-0"), "its half is another");
    assert!(!wakes("dev-9"), "it is not published");
}

#[test]
fn a_partition_wakes_the_units_that_its_counters_could_serve() {
    let mut cluster = cluster();
    let device = |name: &str, set: &str, slices: u64| {
        let counters = json!([{"counterSet": set, "counters": {"slices": {"value": slices.to_string()}}}]);
        json!({"name": name, "attributes": {"slices": {"int": slices}}, "consumesCounters": counters})
    };
    let pool = json!({"name": "a", "generation": 1, "resourceSliceCount": 2});
    let sets = json!([{"name": "gpu-0", "counters": {"slices": {"value": "4"}}}, {"name": "gpu-1", "counters": {"slices": {"value": "4"}}}]);
    let devices = json!([
        device("full-0", "gpu-0", 4),
        device("quarter-0", "gpu-0", 1),
        device("quarter-1", "gpu-1", 1)
    ]);
    for (name, field, value) in [("counters", "sharedCounters", sets), ("devices", "devices", devices)] {
        let mut spec = json!({"driver": GPU, "pool": pool, "nodeName": "a"});
        spec[field] = value;
        cluster.put_slice(object(&json!({"metadata": {"name": name}, "spec": spec})));
    }
    let mut whole = gpus(1);
    whole["requests"][0]["exactly"]["selectors"] =
        json!([{"cel": {"expression": format!("device.attributes[\"{GPU}\"].slices == 4")}}]);
    let unit = compile(&cluster, &whole);
    let wakes = |device: &str| wake_matches(&cluster, &unit, &DeviceId::new(GPU, "a", device));
    assert!(wakes("quarter-0"), "it leaves room for the whole");
    assert!(!wakes("quarter-1"), "it is a part of another");
}

#[test]
fn without_partitions_not_even_a_share_of_a_device_with_counters_is_given() {
    let give = |partitionable_devices: bool| {
        let mut cluster = Cluster::new(Features {
            partitionable_devices,
            ..Features::default()
        });
        cluster.put_class(object(&json!({"metadata": {"name": "gpu"}})));
        let pool = json!({"name": "a", "generation": 1, "resourceSliceCount": 2});
        let sets = json!([{"name": "set", "counters": {"slices": {"value": "1"}}}]);
        let draws = json!([{"counterSet": "set", "counters": {"slices": {"value": "1"}}}]);
        let devices = json!([{"name": "dev-0", "allowMultipleAllocations": true, "consumesCounters": draws}]);
        for (name, field, value) in [("counters", "sharedCounters", sets), ("devices", "devices", devices)] {
            let mut spec = json!({"driver": GPU, "pool": pool, "nodeName": "a"});
            spec[field] = value;
            cluster.put_slice(object(&json!({"metadata": {"name": name}, "spec": spec})));
        }
        let share = json!({"request": "gpu", "driver": GPU, "pool": "a", "device": "dev-0", "shareID": uid(7)});
        let share: DeviceRequestAllocationResult = serde_json::from_value(share).expect("a share");
        cluster.take(uid(7), &[share]);
        let answer = first_fit(&cluster, &gpus(1)).map(|plan| plan.node.to_string());
        answer.map_err(|refusal| refusal.kind)
    };
    assert_eq!(give(true), Ok("a".to_owned()), "it is charged already");
    assert_eq!(give(false), Err(UnallocatableKind::DoesNotFit));
}

#[test]
fn claims_of_a_unit_share_a_node_and_its_devices() {
    let cluster = nodes_with_gpus(&["a", "b"], 3);
    let unit = compile_unit(&cluster, &[claim(1, &gpus(2)), claim(2, &gpus(1))]).expect("no fault");
    let plan = place(&cluster, &unit, Policy::FirstFit, &Limits::default()).expect("fits");
    assert_eq!((&*plan.node, plan.claims.len(), plan.pools.len()), ("a", 2, 1));
    assert_eq!(plan.claims[1].1.devices.results[0].device, "dev-2");
    assert_eq!(check(&cluster, &unit, &plan), []);
}

#[test]
fn the_checker_sees_a_device_given_twice() {
    let mut cluster = nodes_with_gpus(&["a"], 2);
    let unit = compile(&cluster, &gpus(1));
    let plan = place(&cluster, &unit, Policy::FirstFit, &Limits::default()).expect("fits");
    cluster.take(uid(9), &plan.claims[0].1.devices.results);
    let violations = check(&cluster, &unit, &plan);
    assert_eq!(violations.len(), 1);
    assert_eq!(
        violations[0].to_string(),
        format!("claim ns/claim-1: device {GPU}/a/dev-0 is held by another claim")
    );
}

#[test]
fn a_budget_that_ends_is_not_a_refusal() {
    let cluster = nodes_with_gpus(&["a"], 4);
    let unit = compile(&cluster, &gpus(4));
    let limits = Limits {
        steps_per_node_max: 2,
        ..Limits::default()
    };
    let refusal = place(&cluster, &unit, Policy::FirstFit, &limits).expect_err("too few steps");
    assert_eq!(refusal.kind, UnallocatableKind::Undecided);
    assert!(
        first_fit(&cluster, &gpus(4)).is_ok(),
        "nothing was remembered against the node"
    );
}

#[test]
fn a_raised_stop_flag_ends_a_decision() {
    let cluster = nodes_with_gpus(&["a"], 1);
    let stop = AtomicBool::new(true);
    let limits = Limits {
        stop: Some(&stop),
        ..Limits::default()
    };
    let refusal = place(&cluster, &compile(&cluster, &gpus(1)), Policy::FirstFit, &limits).expect_err("stopped");
    assert_eq!(refusal.kind, UnallocatableKind::Cancelled);
}

#[test]
fn a_rule_taints_devices_until_it_is_gone() {
    let mut cluster = nodes_with_gpus(&["a", "b"], 1);
    let rule = json!({"metadata": {"name": "drain"}, "spec": {
        "deviceSelector": {"driver": GPU, "pool": "a"}, "taint": {"key": "drain", "effect": "NoSchedule"}}});
    assert_eq!(&*first_fit(&cluster, &gpus(1)).expect("fits").node, "a");
    cluster.put_taint_rule(object(&rule));
    let unit = compile(&cluster, &gpus(1));
    let plan = place(&cluster, &unit, Policy::FirstFit, &Limits::default()).expect("fits");
    assert_eq!((&*plan.node, check(&cluster, &unit, &plan)), ("b", vec![]));
    assert!(!wake_matches(&cluster, &unit, &DeviceId::new(GPU, "a", "dev-0")));
    let mut tolerant = gpus(1);
    tolerant["requests"][0]["exactly"]["tolerations"] = json!([{"key": "drain", "operator": "Exists"}]);
    assert_eq!(&*first_fit(&cluster, &tolerant).expect("fits").node, "a");
    cluster.remove_taint_rule("drain");
    assert_eq!(&*first_fit(&cluster, &gpus(1)).expect("fits").node, "a");
}
