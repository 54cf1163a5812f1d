//! Submit → allocated → released → the next one.

use std::collections::BTreeSet;
use std::time::Duration;

use rpc::dray::v1 as pb;

use crate::stack::{DRIVER, Stack, unit};

fn devices(unit: &pb::Unit) -> Vec<String> {
    unit.claims
        .iter()
        .flat_map(|c| c.devices.iter().map(|d| format!("{}/{}/{}", d.driver, d.pool, d.device)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_is_allocated_on_one_node_and_its_devices_go_to_the_next_when_it_is_deleted() {
    let stack = Stack::start(1).await;
    stack.class("gpu", &format!("device.driver == \"{DRIVER}\"")).await;
    stack.pool("node-a", 1, "A").await;
    stack.pool("node-b", 4, "A").await;

    // Two claims that only node-b can hold together.
    let first = stack.submit("job-1", "gpu", &[2, 1]).await;
    let first = stack.wait(&first.unit_uid).await;
    assert_eq!(first.phase, i32::from(pb::UnitPhase::Allocated), "{first:?}");
    assert_eq!(first.node, "node-b");
    assert_eq!(devices(&first).len(), 3);

    // Three more do not fit now; the reason says so.
    let second = stack.submit("job-2", "gpu", &[3]).await;
    testkit::eventually(Duration::from_secs(20), || async {
        let unit = stack
            .units()
            .get(pb::GetUnitRequest {
                uid: second.unit_uid.clone(),
            })
            .await
            .unwrap()
            .into_inner();
        (!unit.reason.is_empty()).then_some(unit.reason)
    })
    .await;
    stack.assert_clean().await;

    let released = stack
        .units()
        .delete(pb::DeleteUnitRequest { uid: first.uid.clone() })
        .await
        .unwrap()
        .into_inner();
    assert!(released.released, "no agent answers for the node");
    let second = stack.wait(&second.unit_uid).await;
    assert_eq!(second.phase, i32::from(pb::UnitPhase::Allocated), "{second:?}");
    assert_eq!(second.node, "node-b");
    stack.assert_clean().await;
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_names_every_field_and_writes_nothing() {
    use tonic_types::StatusExt;
    let stack = Stack::start(0).await;
    let before = stack.store.head().await.unwrap();
    let mut request = unit("job", "gpu", &[0, 1]);
    for (claim, name) in request.claims.iter_mut().zip(["UPPER", "fine"]) {
        claim.name = name.into();
    }
    let spec = request.claims[1].spec.as_mut().unwrap().devices.as_mut().unwrap();
    spec.requests[0].exactly.as_mut().unwrap().device_class_name = Some(String::new());
    spec.requests[0].exactly.as_mut().unwrap().count = Some(-1);
    let status = stack.units().submit(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    let fields: BTreeSet<String> = status
        .get_error_details()
        .bad_request()
        .unwrap()
        .field_violations
        .iter()
        .map(|v| v.field.clone())
        .collect();
    for field in [
        "claims[0].name",
        "claims[1].spec.devices.requests[0].exactly.deviceClassName",
        "claims[1].spec.devices.requests[0].exactly.count",
    ] {
        assert!(fields.contains(field), "{field} is missing in {fields:?}");
    }
    assert_eq!(stack.store.head().await.unwrap(), before);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_get_the_recorded_answer_and_another_body_is_refused() {
    let stack = Stack::start(0).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut units = stack.units();
        calls.spawn(async move { units.submit(unit("job", "gpu", &[1])).await.unwrap().into_inner() });
    }
    let answers = calls.join_all().await;
    assert_eq!(answers.iter().filter(|a| !a.repeated).count(), 1);
    let uids: BTreeSet<_> = answers
        .iter()
        .map(|a| (a.unit_uid.clone(), a.claim_uids.clone(), a.sequence))
        .collect();
    assert_eq!(uids.len(), 1, "all get the same answer");

    let other = stack.units().submit(unit("job", "gpu", &[2])).await.unwrap_err();
    assert_eq!(other.code(), tonic::Code::AlreadyExists);
    stack
        .units()
        .delete(pb::DeleteUnitRequest {
            uid: answers[0].unit_uid.clone(),
        })
        .await
        .unwrap();
    let after = stack.submit("job", "gpu", &[1]).await;
    assert!(after.repeated, "also after the unit is gone");
    assert_eq!(after.unit_uid, answers[0].unit_uid);
    stack.assert_clean().await;
    stack.stop().await;
}
