//! What an explanation says: reasons, and the nearest miss as a person reads it.

use std::sync::Arc;

use resource_api::claim::{DeviceRequestAllocationResult, ResourceClaim};
use resource_api::ids::{ShareId, Uid};
use resource_api::quantity::{Format, Quantity};
use serde_json::{Value, json};
use structured::{
    Change, Cluster, Explanation, Features, Limits, NearestMiss, NodeFacts, Policy, Reason, Unallocatable, UnallocatableKind,
    allocate_on, compile_unit, explain, place,
};
use uuid::Uuid;

const GPU: &str = "gpu.dray.test";

fn object<T: serde::de::DeserializeOwned>(value: &Value) -> Arc<T> {
    Arc::new(serde_json::from_str(&value.to_string()).expect("test objects are well-formed"))
}

fn uid(number: u128) -> Uid {
    Uid(Uuid::from_u128(number))
}

/// Nodes with one pool each, of the same name.
fn cluster(nodes: &[(&str, Vec<Value>)]) -> Cluster {
    let mut cluster = Cluster::new(Features::all());
    let selectors = json!([{"cel": {"expression": format!("device.driver == \"{GPU}\"")}}]);
    cluster.put_class(object(
        &json!({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}),
    ));
    for (name, devices) in nodes {
        put_node(&mut cluster, name, false);
        let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": GPU, "pool": pool, "nodeName": name, "devices": devices});
        cluster.put_slice(object(&json!({"metadata": {"name": format!("slice-{name}")}, "spec": spec})));
    }
    cluster
}

fn put_node(cluster: &mut Cluster, name: &str, unschedulable: bool) {
    cluster.put_node(NodeFacts {
        name: name.to_owned(),
        unschedulable,
        ..NodeFacts::default()
    });
}

/// `dev-0` and up; `numa` differs every two devices.
fn plain(n_devices: usize) -> Vec<Value> {
    let device = |at| json!({"name": format!("dev-{at}"), "attributes": {"numa": {"int": at / 2}}});
    (0..n_devices).map(device).collect()
}

fn hold(cluster: &mut Cluster, holder: u128, pool: &str, devices: &[usize]) {
    let result = |at: &usize| DeviceRequestAllocationResult {
        driver: GPU.into(),
        pool: pool.into(),
        device: format!("dev-{at}").as_str().into(),
        ..Default::default()
    };
    let results: Vec<_> = devices.iter().map(result).collect();
    cluster.take(uid(holder), &results);
}

fn request(count: u64) -> Value {
    json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count})
}

fn gpus(count: u64) -> Value {
    json!({"requests": [{"name": "gpu", "exactly": request(count)}]})
}

fn explained(cluster: &Cluster, devices: &Value) -> Explanation {
    let metadata = json!({"namespace": "ns", "name": "claim", "uid": uid(1)});
    let claim: Arc<ResourceClaim> = object(&json!({"metadata": metadata, "spec": {"devices": devices}}));
    let unit = compile_unit(cluster, &[claim]).expect("no fault");
    let refusal = place(cluster, &unit, Policy::FirstFit, &Limits::default()).expect_err("it does not fit");
    explain(cluster, &unit, None, &refusal)
}

#[track_caller]
fn check_text(cluster: &Cluster, devices: &Value, expected: &str) {
    let text = explained(cluster, devices).to_string();
    let (_, nearest) = text.rsplit_once("; ").expect("reasons, then the nearest miss");
    assert_eq!(nearest, expected, "{text}");
}

#[test]
fn the_node_that_needs_one_device_back_is_named_with_device_and_holder() {
    let mut cluster = cluster(&[("a", plain(4)), ("b", plain(4)), ("c", plain(4))]);
    hold(&mut cluster, 7, "a", &[0, 1, 2]);
    hold(&mut cluster, 8, "b", &[3]);
    hold(&mut cluster, 9, "c", &[0, 1]);
    let explanation = explained(&cluster, &gpus(4));
    assert_eq!(
        explanation.to_string(),
        "6 of 12 devices fit request \"gpu\", at most 3 of 4 on one node: 6 allocated; would fit on b if device \
         gpu.dray.test/b/dev-3 were freed (held by claim 00000000-0000-0000-0000-000000000008)"
    );
    let Some(NearestMiss::WouldFit { node, changes, .. }) = explanation.nearest_miss else {
        panic!("something would help")
    };
    assert_eq!(&*node, "b");
    assert!(matches!(changes.as_slice(), [Change::FreeDevice { holders, .. }] if *holders == [uid(8)]));
}

#[test]
fn several_devices_to_free_are_counted_and_the_first_named() {
    let mut cluster = cluster(&[("a", plain(8))]);
    hold(&mut cluster, 7, "a", &[0, 1, 2, 3, 4]);
    check_text(
        &cluster,
        &gpus(7),
        "would fit on a if 4 devices were freed (gpu.dray.test/a/dev-0, gpu.dray.test/a/dev-1, gpu.dray.test/a/dev-2 and 1 more)",
    );
}

#[test]
fn free_devices_that_are_there_are_used_first() {
    let mut cluster = cluster(&[("a", plain(8))]);
    hold(&mut cluster, 7, "a", &[0, 1, 2, 3, 4]);
    let Some(NearestMiss::WouldFit { changes, .. }) = explained(&cluster, &gpus(5)).nearest_miss else {
        panic!("something would help")
    };
    assert_eq!(changes.len(), 2, "three of eight are free: {changes:?}");
}

#[test]
fn a_taint_that_is_in_the_way_is_named() {
    let mut devices = plain(2);
    devices[1]["taints"] = json!([{"key": "drain", "value": "soon", "effect": "NoSchedule"}]);
    let cluster = cluster(&[("a", devices)]);
    check_text(
        &cluster,
        &gpus(2),
        "would fit on a if request \"gpu\" tolerated drain=soon:NoSchedule",
    );
}

#[test]
fn two_taints_on_one_device_need_two_tolerations() {
    let mut devices = plain(1);
    devices[0]["taints"] = json!([{"key": "drain", "effect": "NoSchedule"}, {"key": "hot", "effect": "NoExecute"}]);
    let cluster = cluster(&[("a", devices)]);
    check_text(
        &cluster,
        &gpus(1),
        "would fit on a if request \"gpu\" tolerated drain:NoSchedule and request \"gpu\" tolerated hot:NoExecute",
    );
}

#[test]
fn a_node_that_is_not_schedulable_is_told_before_two_devices_but_after_one() {
    let mut cluster = cluster(&[("a", plain(4)), ("b", plain(4))]);
    put_node(&mut cluster, "b", true);
    hold(&mut cluster, 7, "a", &[0, 1]);
    check_text(&cluster, &gpus(4), "would fit on b if the node were schedulable");
    check_text(
        &cluster,
        &gpus(3),
        "would fit on a if device gpu.dray.test/a/dev-0 were freed (held by claim 00000000-0000-0000-0000-000000000007)",
    );
}

#[test]
fn a_pool_that_lacks_slices_is_named() {
    let mut cluster = cluster(&[("a", plain(1))]);
    let pool = json!({"name": "b", "generation": 3, "resourceSliceCount": 2});
    let spec = json!({"driver": GPU, "pool": pool, "nodeName": "b", "devices": plain(2)});
    cluster.put_slice(object(&json!({"metadata": {"name": "slice-b"}, "spec": spec})));
    check_text(&cluster, &gpus(2), "would fit on b if pool gpu.dray.test/b were complete");
}

#[test]
fn a_pool_that_contradicts_itself_is_named_with_what_is_wrong() {
    let twice = vec![plain(1)[0].clone(), plain(1)[0].clone()];
    let cluster = cluster(&[("a", twice)]);
    check_text(
        &cluster,
        &gpus(1),
        "would fit on a if pool gpu.dray.test/a were repaired (device dev-0 is published twice)",
    );
}

#[test]
fn a_constraint_is_told_with_how_far_it_can_be_satisfied() {
    let cluster = cluster(&[("a", plain(4))]);
    let mut devices = gpus(4);
    devices["constraints"] = json!([{"matchAttribute": format!("{GPU}/numa")}]);
    check_text(
        &cluster,
        &devices,
        "would fit on a if the constraint matchAttribute gpu.dray.test/numa were dropped (at most 2 of 4 devices satisfy it)",
    );
}

#[test]
fn a_selector_is_told_with_what_would_match_without_it() {
    let cluster = cluster(&[("a", plain(4))]);
    let mut devices = gpus(3);
    let expression = |numa: u64| json!({"cel": {"expression": format!("device.attributes[\"{GPU}\"].numa >= {numa}")}});
    devices["requests"][0]["exactly"]["selectors"] = json!([expression(0), expression(1)]);
    check_text(
        &cluster,
        &devices,
        "would fit on a if selector #1 of request \"gpu\" were dropped (4 devices match then, 2 now)",
    );
    let Some(NearestMiss::WouldFit { changes, .. }) = explained(&cluster, &devices).nearest_miss else {
        panic!("something would help")
    };
    assert!(matches!(
        changes.as_slice(),
        [Change::DropSelector {
            selector: Reason::RequestSelector(1),
            ..
        }]
    ));
}

#[test]
fn a_shared_device_says_how_much_of_which_capacity_is_missing() {
    let device = json!({"name": "dev-0", "allowMultipleAllocations": true, "capacity": {"bandwidth": {"value": "10Gi"}}});
    let mut cluster = cluster(&[("a", vec![device])]);
    let share = DeviceRequestAllocationResult {
        driver: GPU.into(),
        pool: "a".into(),
        device: "dev-0".into(),
        share_id: Some(ShareId::from("one")),
        consumed_capacity: [("bandwidth".to_owned(), Quantity::from_whole(6 << 30, Format::BinarySi))].into(),
        ..Default::default()
    };
    cluster.take(uid(7), &[share]);
    let mut devices = gpus(1);
    devices["requests"][0]["exactly"]["capacity"] = json!({"requests": {"bandwidth": "5Gi"}});
    check_text(
        &cluster,
        &devices,
        "would fit on a if 1Gi more of capacity bandwidth of device gpu.dray.test/a/dev-0 were free",
    );
    devices["requests"][0]["exactly"]["capacity"] = json!({"requests": {"bandwidth": "12Gi"}});
    check_text(
        &cluster,
        &devices,
        "would fit on a if device gpu.dray.test/a/dev-0 had 8Gi more of capacity bandwidth",
    );
}

#[test]
fn a_shared_counter_says_how_much_it_is_short_of() {
    let draw = json!([{"counterSet": "card", "counters": {"memory": {"value": "4Gi"}}}]);
    let devices: Vec<_> = (0..3)
        .map(|at| json!({"name": format!("dev-{at}"), "consumesCounters": draw}))
        .collect();
    let mut cluster = cluster(&[]);
    let pool = json!({"name": "a", "generation": 1, "resourceSliceCount": 2});
    let sets = json!([{"name": "card", "counters": {"memory": {"value": "10Gi"}}}]);
    for (name, field, value) in [("counters", "sharedCounters", sets), ("devices", "devices", json!(devices))] {
        let mut spec = json!({"driver": GPU, "pool": pool, "nodeName": "a"});
        spec[field] = value;
        cluster.put_slice(object(&json!({"metadata": {"name": name}, "spec": spec})));
    }
    check_text(
        &cluster,
        &gpus(3),
        "would fit on a if counter memory of set card in pool gpu.dray.test/a had 2Gi more",
    );
    // A partition that is held is cheaper to free than memory is to add.
    hold(&mut cluster, 7, "a", &[2]);
    check_text(
        &cluster,
        &gpus(2),
        "would fit on a if device gpu.dray.test/a/dev-2 were freed (held by claim 00000000-0000-0000-0000-000000000007)",
    );
}

#[test]
fn drivers_that_skip_node_operations_need_a_node_that_lets_them() {
    let mut cluster = cluster(&[]);
    let pool = json!({"name": "a", "generation": 1, "resourceSliceCount": 1});
    let mut spec = json!({"driver": GPU, "pool": pool, "nodeName": "a", "devices": plain(1)});
    spec["skipNodeOperations"] = json!(["Prepare", "Unprepare"]);
    cluster.put_slice(object(&json!({"metadata": {"name": "slice"}, "spec": spec})));
    check_text(
        &cluster,
        &gpus(1),
        "would fit on a if the node let drivers skip node operations",
    );
}

#[test]
fn the_alternative_that_would_be_used_is_named() {
    let mut cluster = cluster(&[("a", plain(2))]);
    hold(&mut cluster, 7, "a", &[0]);
    let alternative = |name: &str, count: u64| {
        let mut alternative = request(count);
        alternative["name"] = json!(name);
        alternative
    };
    let devices = json!({"requests": [{"name": "gpu", "firstAvailable": [alternative("many", 4), alternative("two", 2)]}]});
    check_text(
        &cluster,
        &devices,
        "would fit on a with gpu/two if device gpu.dray.test/a/dev-0 were freed (held by claim 00000000-0000-0000-0000-000000000007)",
    );
}

#[test]
fn changes_of_several_sorts_are_told_together() {
    let mut devices = plain(3);
    devices[2]["taints"] = json!([{"key": "drain", "effect": "NoSchedule"}]);
    let mut cluster = cluster(&[("a", devices)]);
    hold(&mut cluster, 7, "a", &[0]);
    check_text(
        &cluster,
        &gpus(3),
        "would fit on a if device gpu.dray.test/a/dev-0 were freed (held by claim 00000000-0000-0000-0000-000000000007) and \
         request \"gpu\" tolerated drain:NoSchedule",
    );
}

#[test]
fn where_there_is_too_little_of_everything_the_node_with_most_is_named() {
    let mut cluster = cluster(&[("a", plain(2)), ("b", plain(5))]);
    hold(&mut cluster, 7, "b", &[0]);
    let explanation = explained(&cluster, &gpus(8));
    assert_eq!(
        explanation.nearest_miss.map(|miss| miss.to_string()),
        Some("b comes closest with 4 of 8 devices for request \"gpu\"".to_owned())
    );
}

#[test]
fn a_pool_that_all_nodes_see_is_counted_once() {
    let mut cluster = cluster(&[("a", plain(1)), ("b", plain(1))]);
    let pool = json!({"name": "fabric", "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "nic.dray.test", "pool": pool, "allNodes": true, "devices": plain(3)});
    cluster.put_slice(object(&json!({"metadata": {"name": "fabric"}, "spec": spec})));
    let explanation = explained(&cluster, &gpus(2));
    let reasons = &explanation.requests[0];
    assert_eq!((reasons.nodes, reasons.devices, reasons.fit), (2, 5, 2));
    assert_eq!(reasons.removed, [(Reason::ClassSelector(0), 3)]);
}

#[test]
fn one_given_node_is_explained_alone() {
    let mut cluster = cluster(&[("a", plain(1)), ("b", plain(2))]);
    hold(&mut cluster, 7, "b", &[0, 1]);
    let metadata = json!({"namespace": "ns", "name": "claim", "uid": uid(1)});
    let claim: Arc<ResourceClaim> = object(&json!({"metadata": metadata, "spec": {"devices": gpus(2)}}));
    let unit = compile_unit(&cluster, &[claim]).expect("no fault");
    let refusal = allocate_on(&cluster, &unit, "b", &Limits::default()).expect_err("held");
    let explanation = explain(&cluster, &unit, Some("b"), &refusal);
    assert_eq!((explanation.requests[0].nodes, explanation.requests[0].devices), (1, 2));
    let stranger = allocate_on(&cluster, &unit, "nowhere", &Limits::default()).expect_err("nothing there");
    let explanation = explain(&cluster, &unit, Some("nowhere"), &stranger);
    assert_eq!(
        explanation.to_string(),
        "0 of 0 devices fit request \"gpu\"; nowhere comes closest with 0 of 2 devices for request \"gpu\""
    );
}

#[test]
fn a_fault_or_an_open_answer_has_no_nearest_miss() {
    let mut cluster = cluster(&[("a", plain(1))]);
    hold(&mut cluster, 7, "a", &[0]);
    let metadata = json!({"namespace": "ns", "name": "claim", "uid": uid(1)});
    let claim: Arc<ResourceClaim> = object(&json!({"metadata": metadata, "spec": {"devices": gpus(1)}}));
    let unit = compile_unit(&cluster, &[claim]).expect("no fault");
    for (kind, text) in [
        (UnallocatableKind::Cancelled, "cancelled by the caller"),
        (
            UnallocatableKind::Undecided,
            "undecided within the search budget; 0 of 1 devices fit request \"gpu\": 1 allocated",
        ),
    ] {
        let explanation = explain(&cluster, &unit, None, &Unallocatable { kind, fault: None });
        assert_eq!((explanation.to_string().as_str(), &explanation.nearest_miss), (text, &None));
    }
}
