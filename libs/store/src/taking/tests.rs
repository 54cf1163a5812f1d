use super::*;

fn slice(generation: i64, spec: serde_json::Value) -> ResourceSlice {
    let mut json = serde_json::json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {"driver": "gpu.example", "pool": {"name": "node-a", "generation": generation, "resourceSliceCount": 1}, "nodeName": "node-a"}
    });
    let target = json["spec"].as_object_mut().expect("an object");
    target.extend(spec.as_object().expect("an object").clone());
    serde_json::from_value(json).expect("a slice")
}

fn board(generation: i64) -> Vec<ResourceSlice> {
    let partition = |name: &str, slots: &str| serde_json::json!({"name": name, "consumesCounters": [{"counterSet": "gpu-0", "counters": {"slots": {"value": slots}, "memory": {"value": "500m"}}}]});
    vec![
        slice(
            generation,
            serde_json::json!({"sharedCounters": [{"name": "gpu-0", "counters": {"slots": {"value": "7"}, "memory": {"value": "2"}}}]}),
        ),
        slice(
            generation,
            serde_json::json!({"devices": [partition("p-4", "4"), partition("p-1", "1"),
                {"name": "nic", "allowMultipleAllocations": true, "capacity": {"bandwidth": {"value": "10G"}}}]}),
        ),
    ]
}

fn result(device: &str, share: Option<(&str, &[(&str, &str)])>) -> DeviceRequestAllocationResult {
    DeviceRequestAllocationResult {
        request: "r".into(),
        driver: "gpu.example".into(),
        pool: "node-a".into(),
        device: device.into(),
        share_id: share.map(|(id, _)| id.into()),
        consumed_capacity: share
            .into_iter()
            .flat_map(|(_, consumed)| consumed)
            .map(|(name, amount)| ((*name).to_owned(), amount.parse().expect("a quantity")))
            .collect(),
        ..DeviceRequestAllocationResult::default()
    }
}

#[track_caller]
fn taken(slices: &[ResourceSlice], results: &[DeviceRequestAllocationResult]) -> Result<Mutation, TakeError> {
    let pools = BTreeMap::from([(slices[0].pool_id(), PublishedPool::of(slices))]);
    let mut mutation = Mutation::default();
    mutation.take(0, Uuid::from_u128(1), results, &pools).map(|()| mutation)
}

#[test]
fn whole_devices_draw_on_counters_and_shares_consume_capacity() {
    let results = [result("p-4", None), result("nic", Some(("id-1", &[("bandwidth", "2500M")])))];
    let mutation = taken(&board(1), &results).expect("takable");
    assert_eq!(mutation.takes.len(), 1);
    let draws: Vec<_> = mutation
        .draws
        .iter()
        .map(|d| (d.device.as_ref(), d.counter.as_ref(), d.amount.to_string(), d.top.to_string()))
        .collect();
    assert_eq!(
        draws,
        [
            ("p-4", "memory", "500m".to_owned(), "2".to_owned()),
            ("p-4", "slots", "4".to_owned(), "7".to_owned())
        ]
    );
    let [share] = mutation.shares.as_slice() else {
        panic!("one share")
    };
    assert_eq!(share.consumed.len(), 1);
    assert_eq!(share.consumed[0].amount.to_string(), "2500M");
    assert_eq!(share.consumed[0].top.as_ref().map(Quantity::to_string), Some("10G".into()));
}

#[test]
fn admin_access_takes_nothing_and_is_present() {
    let admin = DeviceRequestAllocationResult {
        admin_access: Some(true),
        ..result("p-4", None)
    };
    let mutation = taken(&board(1), &[admin.clone(), admin]).expect("takable");
    assert_eq!(
        (mutation.takes.len(), mutation.draws.len(), mutation.presences.len()),
        (0, 0, 1)
    );
    let nothing = taken(&board(1), &[]).expect("takable");
    assert_eq!(nothing.presences.len(), 1, "an allocation without devices is present too");
    assert!(nothing.presences[0].device.is_empty());
}

#[test]
fn results_that_contradict_each_other_or_the_pool_are_refused_by_place() {
    let share = |id, amount| result("nic", Some((id, &[("bandwidth", amount)])));
    let refused = |results: &[DeviceRequestAllocationResult]| {
        let error = taken(&board(1), results).expect_err("refused");
        (error.result(), error.to_string())
    };
    assert_eq!(
        refused(&[result("p-1", None), result("p-1", None)]),
        (1, "device gpu.example/node-a/p-1 is allocated twice".into())
    );
    assert_eq!(
        refused(&[share("id-1", "1"), result("nic", None)]),
        (1, "device gpu.example/node-a/nic is allocated whole and in shares".into())
    );
    assert_eq!(
        refused(&[result("nic", None), share("id-1", "1")]),
        (1, "device gpu.example/node-a/nic is allocated whole and in shares".into())
    );
    assert_eq!(
        refused(&[share("id-1", "1"), share("id-1", "2")]),
        (1, "share id-1 of device gpu.example/node-a/nic is allocated twice".into())
    );
    assert_eq!(
        refused(&[share("id-1", "-1")]),
        (
            0,
            "capacity bandwidth of device gpu.example/node-a/nic cannot be consumed by a negative amount".into()
        )
    );
    assert_eq!(
        refused(&[result("nic", Some(("id-1", &[("queues", "1")])))]),
        (0, "device gpu.example/node-a/nic has no capacity queues".into())
    );
}

#[test]
fn only_the_newest_generation_counts() {
    let mut slices = board(1);
    slices.push(slice(2, serde_json::json!({"devices": [{"name": "p-4"}]})));
    let published = PublishedPool::of(&slices);
    assert!(!published.is_counted());
    assert!(published.device("p-1").is_none());
    let mutation = taken(&slices, &[result("p-4", None)]).expect("takable");
    assert!(mutation.draws.is_empty());
    // What nobody publishes can be taken whole, and its shares have no bound to state.
    let mutation = taken(&slices, &[result("nic", Some(("id-1", &[("bandwidth", "1")])))]).expect("takable");
    assert_eq!(mutation.shares[0].consumed[0].top, None);
}

#[test]
fn a_pool_states_what_all_its_devices_draw() {
    let slices = board(3);
    let stated = PublishedPool::of(&slices).draws(&slices[0].pool_id());
    assert!(stated.counted);
    let rows: Vec<_> = stated
        .draws
        .iter()
        .map(|d| format!("{} {}/{} {}", d.device, d.counter_set, d.counter, d.amount))
        .collect();
    assert_eq!(
        rows,
        [
            "p-4 gpu-0/memory 500m",
            "p-4 gpu-0/slots 4",
            "p-1 gpu-0/memory 500m",
            "p-1 gpu-0/slots 1"
        ]
    );
}
