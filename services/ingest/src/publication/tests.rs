use std::cell::Cell;

use serde_json::{Value, json};
use store::GatesAt;

use super::*;

fn device(value: Value) -> rpc::resource_v1::Device {
    let device: Device = serde_json::from_value(value).expect("a device");
    convert::device_message(&device).expect("a message")
}

fn plain(n_devices: usize) -> PublishPoolRequest {
    PublishPoolRequest {
        driver: "gpu.dray.example".into(),
        pool: "node-a".into(),
        reach: Some(Reach::NodeName("node-a".into())),
        devices: (0..n_devices).map(|i| device(json!({"name": format!("gpu-{i}")}))).collect(),
    }
}

fn decided_at(request: &PublishPoolRequest, found: FoundPool, second: i64) -> Result<Decision, Vec<Violation>> {
    let next = Cell::new(0);
    let fresh = || {
        next.set(next.get() + 1);
        Uuid::from_u128(next.get())
    };
    decide(
        &Admission::new(GatesAt::default()),
        &Publication::read(request)?,
        found,
        fresh,
        time(second),
    )
}

fn time(second: i64) -> Time {
    Time::new(jiff::Timestamp::new(second, 0).expect("a time"))
}

fn decided(request: &PublishPoolRequest, found: FoundPool) -> Decision {
    decided_at(request, found, 0).expect("valid")
}

/// The pool once the mutation has won.
fn applied(decision: &Decision) -> FoundPool {
    let mut found = FoundPool::default();
    let writes = &decision.mutation.as_ref().expect("something is written").writes;
    for (index, write) in writes.iter().enumerate() {
        if matches!(write.op, Op::Delete { .. }) {
            continue;
        }
        let stored = Stored {
            kind: "resourceslices".into(),
            namespace: "".into(),
            name: write.name.clone(),
            uid: write.uid,
            sequence: 100 + index as u64,
            created_sequence: 1,
            body: write.body.clone(),
        };
        let slice = serde_json::from_str(&write.body).expect("a slice");
        found.slices.insert(write.name.to_string(), (stored, slice));
    }
    found
}

fn fields(request: &PublishPoolRequest) -> Vec<String> {
    let violations = decided_at(request, FoundPool::default(), 0).expect_err("it breaks rules");
    violations.into_iter().map(|v| v.field).collect()
}

#[test]
fn devices_are_split_into_slices_of_one_generation() {
    let decision = decided(&plain(300), FoundPool::default());
    assert_eq!((decision.generation, decision.n_slices), (1, 3));
    let found = applied(&decision);
    let sizes: Vec<_> = found.slices.values().map(|(_, slice)| slice.spec.devices().len()).collect();
    assert_eq!(sizes, [128, 128, 44]);
    assert!(
        found
            .slices
            .values()
            .all(|(_, s)| s.spec.pool.generation == 1 && s.spec.pool.resource_slice_count == 3)
    );
    let put = &decision.mutation.expect("a write").pool_puts[0];
    assert_eq!((put.write, put.slices, put.node.as_deref()), (2, 3, Some("node-a")));
}

#[test]
fn one_tainted_device_halves_the_slices() {
    let mut request = plain(100);
    request.devices[7] = device(json!({"name": "gpu-7", "taints": [{"key": "k", "effect": "NoSchedule"}]}));
    assert_eq!(decided(&request, FoundPool::default()).n_slices, 2);
}

#[test]
fn the_same_again_writes_nothing_also_when_taints_have_times() {
    let mut request = plain(3);
    request.devices[1] = device(json!({"name": "gpu-1", "taints": [{"key": "k", "effect": "NoSchedule"}]}));
    let first = decided(&request, FoundPool::default());
    let again = decided_at(&request, applied(&first), 3_600).expect("valid");
    assert!(again.mutation.is_none());
    assert_eq!((again.generation, again.n_slices), (1, 1));
}

#[test]
fn a_change_raises_the_generation_of_all_slices_and_deletes_what_is_left_over() {
    let first = applied(&decided(&plain(300), FoundPool::default()));
    let second = decided(&plain(200), first);
    assert_eq!((second.generation, second.n_slices), (2, 2));
    let ops: Vec<_> = second
        .mutation
        .as_ref()
        .expect("a write")
        .writes
        .iter()
        .map(|w| w.op)
        .collect();
    assert!(
        matches!(ops.as_slice(), [Op::Delete { .. }, Op::Update { .. }, Op::Update { .. }]),
        "{ops:?}"
    );
    assert!(
        applied(&second)
            .slices
            .values()
            .all(|(_, s)| s.spec.pool.generation == 2 && s.spec.pool.resource_slice_count == 2)
    );
}

#[test]
fn a_pool_that_moves_to_another_node_gets_other_slices() {
    let first = applied(&decided(&plain(1), FoundPool::default()));
    let mut moved = plain(1);
    moved.reach = Some(Reach::NodeName("node-b".into()));
    let second = decided(&moved, first);
    let ops: Vec<_> = second.mutation.expect("a write").writes.iter().map(|w| w.op).collect();
    assert!(matches!(ops.as_slice(), [Op::Delete { .. }, Op::Create]), "{ops:?}");
    assert_eq!(second.generation, 2);
}

#[test]
fn violations_name_the_place_in_the_request() {
    let mut request = plain(200);
    request.devices[150] = device(json!({"name": "Not A Label"}));
    request.driver = "not a driver".into();
    request.reach = Some(Reach::NodeName("NODE".into()));
    let fields = fields(&request);
    assert!(fields.iter().any(|f| f == "devices[150].name"), "{fields:?}");
    assert_eq!(
        fields.iter().filter(|f| *f == "driver").count(),
        1,
        "told once, not once a slice: {fields:?}"
    );
    assert!(fields.iter().any(|f| f == "node_name"), "{fields:?}");
}

#[test]
fn device_names_are_unique_in_the_pool_not_only_in_a_slice() {
    let mut request = plain(200);
    request.devices[199] = device(json!({"name": "gpu-0"}));
    request.reach = None;
    assert_eq!(fields(&request), ["reach", "devices[199].name"]);
}

#[test]
fn names_are_object_names_and_never_shared() {
    let pool = |driver: &str, pool: &str| PoolId {
        driver: driver.into(),
        pool: pool.into(),
    };
    let a = name_prefix(&pool("gpu.example", "Rack/1"), None);
    assert!(a.starts_with("gpu-example-rack-1-"), "{a}");
    assert_ne!(a, name_prefix(&pool("gpu.example", "rack.1"), None));
    assert_ne!(a, name_prefix(&pool("gpu.example", "Rack/1"), Some("n")));
    assert!(name_prefix(&pool(&"d".repeat(63), &"p".repeat(253)), None).len() < 80);
}
