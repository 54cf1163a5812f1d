//! Feature gates: one set for all processes, switched at a position of the log, without restart.

use rpc::dray::v1 as pb;
use rpc::dray::v1::gates_client::GatesClient;
use serde_json::{Value, json};
use store::{GATES_KIND, GatesAt};
use tokio::task::JoinSet;

use crate::stack::{DRIVER, Stack};

const GATE: &str = "DRAConsumableCapacity";

impl Stack {
    async fn switch(&self, settings: &[(&str, bool)]) -> Result<pb::SwitchGatesResponse, tonic::Status> {
        let gates = settings.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
        let request = pb::SwitchGatesRequest { gates };
        let answer = GatesClient::new(self.channel.clone()).switch(request).await;
        answer.map(tonic::Response::into_inner)
    }
}

fn cards(n: usize) -> Value {
    let card = |n| {
        json!({"name": format!("card-{n}"), "allowMultipleAllocations": true, "capacity": {"bandwidth": {"value": "10G",
            "requestPolicy": {"default": "1G", "validRange": {"min": "1G"}}}}})
    };
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "cards"}, "spec": {"driver": DRIVER,
        "nodeName": "node-a", "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
        "devices": (0..n).map(card).collect::<Vec<_>>()}})
}

fn spec() -> Value {
    json!({"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nic", "capacity": {"requests": {"bandwidth": "4G"}}}}]}})
}

fn claim(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "team-a", "labels": labels}, "spec": spec()})
}

fn submission(client_id: &str) -> pb::SubmitRequest {
    let spec = serde_json::from_value(spec()).unwrap();
    pb::SubmitRequest {
        namespace: "team-a".into(),
        client_id: client_id.into(),
        claims: vec![pb::ClaimTemplate {
            spec: Some(rpc::convert::claim_spec_message(&spec).unwrap()),
            ..Default::default()
        }],
        priority: 0,
    }
}

/// Whether the applied object asks for an amount.
fn asks(applied: &pb::ApplyResponse) -> bool {
    let json: Value = serde_json::from_slice(&applied.object.as_ref().unwrap().json).unwrap();
    json.pointer("/spec/devices/requests/0/exactly/capacity").is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gated_field_is_dropped_kept_and_back_as_the_gate_says() {
    let stack = Stack::start(2).await;
    stack.class("nic", &format!("device.driver == \"{DRIVER}\"")).await;
    stack.apply(&cards(1)).await;
    assert!(asks(&stack.apply(&claim("kept", json!({}))).await));

    let off = stack.switch(&[(GATE, false)]).await.unwrap();
    assert!(!off.unchanged);
    assert!(
        !asks(&stack.apply(&claim("dropped", json!({}))).await),
        "a new object loses the field"
    );
    assert!(
        asks(&stack.apply(&claim("kept", json!({"a": "b"}))).await),
        "a stored one keeps it"
    );
    // While it is off, what could be shared is given whole.
    let whole = stack.units().submit(submission("whole")).await.unwrap().into_inner();
    let unit = stack.wait(&whole.unit_uid).await;
    assert_eq!(unit.claims[0].devices[0].share_id, "", "{unit:?}");
    let delete = pb::DeleteUnitRequest { uid: whole.unit_uid };
    stack.units().delete(delete).await.unwrap();

    let on = stack.switch(&[(GATE, true)]).await.unwrap();
    assert!(on.position > off.position);
    for n in 0..2 {
        let shared = stack
            .units()
            .submit(submission(&format!("shared-{n}")))
            .await
            .unwrap()
            .into_inner();
        assert!(shared.sequence > on.position);
        let unit = stack.wait(&shared.unit_uid).await;
        let device = &unit.claims[0].devices[0];
        assert!(!device.share_id.is_empty(), "{unit:?}");
        assert_eq!(device.consumed_capacity["bandwidth"], "4G");
    }
    let again = stack.switch(&[(GATE, true)]).await.unwrap();
    assert_eq!((again.unchanged, again.position), (true, on.position));

    let listed = GatesClient::new(stack.channel.clone())
        .list(pb::ListGatesRequest {})
        .await
        .unwrap()
        .into_inner();
    let gate = listed.gates.iter().find(|gate| gate.name == GATE).unwrap();
    assert_eq!((gate.on, gate.on_by_default, gate.since), (true, true, on.position));
    let other = listed.gates.iter().find(|gate| gate.name == "DRADerivedAttributes").unwrap();
    assert_eq!((other.on, other.since), (false, 0));
    stack.assert_clean().await;
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_switched_is_named_and_nothing_is_switched() {
    use tonic_types::StatusExt;
    let stack = Stack::start(0).await;
    let before = stack.store.head().await.unwrap();
    let refused = async |settings: &[(&str, bool)]| {
        let status = stack.switch(settings).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        let faults = status.get_error_details().bad_request().unwrap().field_violations.clone();
        faults
            .into_iter()
            .map(|fault| format!("{}: {}", fault.field, fault.description))
            .collect::<Vec<_>>()
    };
    let faults = refused(&[("DRAMagic", true), ("DRAAdminAccess", false), ("DRADerivedAttributes", true)]).await;
    assert_eq!(
        faults,
        [
            "gates[DRAAdminAccess]: feature gate DRAAdminAccess cannot be switched off",
            "gates[DRAMagic]: no feature gate \"DRAMagic\""
        ]
    );
    let faults = refused(&[(GATE, false), ("DRAFractionalCapacityRange", true)]).await;
    assert_eq!(
        faults,
        ["gates: feature gate DRAFractionalCapacityRange needs DRAConsumableCapacity, which is off"]
    );
    assert_eq!(stack.store.head().await.unwrap(), before);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_write_of_the_log_was_made_under_the_gates_of_its_position() {
    const UNITS: usize = 120;
    let stack = Stack::start(2).await;
    stack.class("nic", &format!("device.driver == \"{DRIVER}\"")).await;
    // More than can be needed, whole or in shares: everybody is served at once, under whichever gates.
    for generation in 1..=3 {
        let mut slice = cards(64);
        slice["metadata"]["name"] = json!(format!("cards-{generation}"));
        slice["spec"]["pool"]["name"] = json!(format!("pool-{generation}"));
        slice["spec"]["nodeName"] = json!(format!("node-{generation}"));
        stack.apply(&slice).await;
    }
    // From here on both allocators decide.
    let first = stack.units().submit(submission("first")).await.unwrap().into_inner();
    stack.wait(&first.unit_uid).await;
    let mut submitting = JoinSet::new();
    for n in 1..UNITS {
        let mut units = stack.units();
        submitting.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(n as u64 * 15)).await;
            units.submit(submission(&format!("unit-{n}"))).await.unwrap().into_inner()
        });
    }
    let mut on = true;
    let mut submitted = vec![first];
    while let Some(done) = submitting.join_next().await {
        submitted.push(done.unwrap());
        if submitted.len() % 12 == 0 {
            on = !on;
            stack.switch(&[(GATE, on)]).await.unwrap();
        }
    }
    for answer in &submitted {
        let unit = stack.wait(&answer.unit_uid).await;
        assert_eq!(unit.phase, i32::from(pb::UnitPhase::Allocated), "{unit:?}");
    }
    let mut is_on = true;
    let mut seen = [[0; 2]; 2];
    let (mut position, head) = (0, stack.store.head().await.unwrap().sequence);
    while position < head {
        let (events, upto) = stack.store.events_after(&[], position, 5_000).await.unwrap();
        for event in &events {
            if event.kind.as_ref() == GATES_KIND {
                let gates = GatesAt::read(&event.body, event.sequence).unwrap().gates;
                is_on = gates.on().any(|gate| gate.name() == GATE);
            }
            if event.kind.as_ref() != "resourceclaims" {
                continue;
            }
            let says = match event.operation {
                store::Operation::Added => event.body.contains("\"capacity\":"),
                _ => event.body.contains("\"shareID\":"),
            };
            assert_eq!(says, is_on, "at {}: {}", event.sequence, event.body);
            seen[usize::from(event.operation != store::Operation::Added)][usize::from(is_on)] += 1;
        }
        position = upto;
    }
    assert_eq!(seen.iter().flatten().sum::<i32>() as usize, UNITS * 2);
    assert!(seen.iter().flatten().all(|n| *n > 5), "both states were seen: {seen:?}");
    stack.assert_clean().await;
    stack.stop().await;
}
