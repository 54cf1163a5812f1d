//! Everything that claims and slices can say, from submission to release: partitions, shares, admin access, taints, alternatives, All
//! and constraints. Two allocators each, so that every step also crosses processes.

use std::time::Duration;

use rpc::dray::v1 as pb;
use rpc::dray::v1::objects_client::ObjectsClient;
use serde_json::{Value, json};

use crate::stack::{DRIVER, Stack};

const NIC: &str = "nic.dray.example";

/// A slice of a pool on one node, of several.
fn slice(name: &str, (driver, node): (&str, &str), (generation, count): (i64, i64), more: Value) -> Value {
    let mut json = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {"driver": driver, "nodeName": node, "pool": {"name": node, "generation": generation, "resourceSliceCount": count}}});
    json["spec"]
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json
}

fn exactly(name: &str, class: &str, more: Value) -> Value {
    let mut json = json!({"name": name, "exactly": {"deviceClassName": class}});
    json["exactly"]
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json
}

fn cel(expression: &str) -> Value {
    json!({"selectors": [{"cel": {"expression": expression}}]})
}

impl Stack {
    /// Submits a unit of one claim.
    async fn claim(&self, client_id: &str, devices: Value) -> String {
        let spec = serde_json::from_value(json!({ "devices": devices })).unwrap();
        let request = pb::SubmitRequest {
            namespace: "team-a".into(),
            client_id: client_id.into(),
            claims: vec![pb::ClaimTemplate {
                spec: Some(rpc::convert::claim_spec_message(&spec).unwrap()),
                ..Default::default()
            }],
            priority: 0,
        };
        self.units().submit(request).await.unwrap().into_inner().unit_uid
    }

    async fn one(&self, client_id: &str, request: Value) -> String {
        self.claim(client_id, json!({ "requests": [request] })).await
    }

    /// The devices that the unit got, as `pool/device`.
    async fn devices(&self, unit: &str) -> Vec<String> {
        let unit = self.wait(unit).await;
        assert_eq!(unit.phase, i32::from(pb::UnitPhase::Allocated), "{unit:?}");
        let devices = unit.claims.iter().flat_map(|claim| &claim.devices);
        devices.map(|d| format!("{}/{}", d.pool, d.device)).collect()
    }

    /// Why the unit waits, once it says so.
    async fn waits(&self, unit: &str) -> String {
        testkit::eventually(Duration::from_secs(20), || async {
            let request = pb::GetUnitRequest { uid: unit.to_owned() };
            let unit = self.units().get(request).await.unwrap().into_inner();
            assert_eq!(unit.phase, i32::from(pb::UnitPhase::Pending), "{unit:?}");
            (!unit.reason.is_empty()).then_some(unit.reason)
        })
        .await
    }

    async fn release(&self, unit: &str) {
        let request = pb::DeleteUnitRequest { uid: unit.to_owned() };
        assert!(self.units().delete(request).await.unwrap().into_inner().released);
    }

    async fn delete(&self, kind: &str, name: &str) {
        let request = pb::DeleteObjectRequest {
            kind: kind.into(),
            name: name.into(),
            ..Default::default()
        };
        ObjectsClient::new(self.channel.clone()).delete(request).await.unwrap();
    }

    /// The stored claim of a unit.
    async fn stored_claim(&self, unit: &str) -> Value {
        let unit = self.wait(unit).await;
        let uid = unit.claims[0].uid.parse().unwrap();
        let stored = self.store.objects_by_uid(&[uid]).await.unwrap().pop().unwrap();
        serde_json::from_str(&stored.body).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_share_the_counters_of_their_board() {
    let stack = Stack::start(2).await;
    stack.class("mig", &format!("device.driver == \"{DRIVER}\"")).await;
    let partition = |name: &str, slots: u32| {
        json!({"name": name, "attributes": {"slots": {"int": slots}},
            "consumesCounters": [{"counterSet": "gpu-0", "counters": {"slots": {"value": slots.to_string()}}}]})
    };
    let board = json!({"sharedCounters": [{"name": "gpu-0", "counters": {"slots": {"value": "7"}}}]});
    stack.apply(&slice("board", (DRIVER, "node-a"), (1, 2), board)).await;
    let partitions = json!({"devices": [partition("mig-7g", 7), partition("mig-3g-0", 3), partition("mig-3g-1", 3),
        partition("mig-1g-0", 1), partition("mig-1g-1", 1)]});
    stack
        .apply(&slice("partitions", (DRIVER, "node-a"), (1, 2), partitions))
        .await;
    let of_size = |slots: u32| {
        exactly(
            "gpu",
            "mig",
            cel(&format!("device.attributes[\"{DRIVER}\"].slots == {slots}")),
        )
    };

    let first = stack.one("3g-a", of_size(3)).await;
    let second = stack.one("3g-b", of_size(3)).await;
    let mut given = [stack.devices(&first).await, stack.devices(&second).await].concat();
    given.sort();
    assert_eq!(given, ["node-a/mig-3g-0", "node-a/mig-3g-1"]);
    let third = stack.one("1g-a", of_size(1)).await;
    assert_eq!(stack.devices(&third).await, ["node-a/mig-1g-0"]);
    // Seven of seven slots are drawn: there is a free device of that size, and it cannot be given.
    let fourth = stack.one("1g-b", of_size(1)).await;
    let whole = stack.one("7g", of_size(7)).await;
    stack.waits(&fourth).await;
    stack.waits(&whole).await;
    stack.assert_clean().await;

    // What another partition gives back serves it, though no device of its size became free.
    stack.release(&first).await;
    assert_eq!(stack.devices(&fourth).await, ["node-a/mig-1g-1"]);
    stack.waits(&whole).await;
    for unit in [&second, &third, &fourth] {
        stack.release(unit).await;
    }
    assert_eq!(stack.devices(&whole).await, ["node-a/mig-7g"]);
    stack.assert_clean().await;
    stack.stop().await;
}

/// A card of 10 gigabit that is handed out in pieces.
fn card(generation: i64, is_shareable: bool) -> Value {
    let mut device =
        json!({"name": "card-0", "allowMultipleAllocations": is_shareable, "capacity": {"bandwidth": {"value": "10G"}}});
    if is_shareable {
        device["capacity"]["bandwidth"]["requestPolicy"] =
            json!({"default": "1G", "validRange": {"min": "1G", "step": "1G", "max": "10G"}});
    }
    slice("card", (NIC, "node-a"), (generation, 1), json!({"devices": [device]}))
}

fn bandwidth(amount: &str) -> Value {
    exactly("nic", "nic", json!({"capacity": {"requests": {"bandwidth": amount}}}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bandwidth_is_shared_until_it_is_gone_and_again_once_it_is_back() {
    let stack = Stack::start(2).await;
    stack.class("nic", &format!("device.driver == \"{NIC}\"")).await;
    stack.apply(&card(1, true)).await;
    let large = stack.one("large", bandwidth("6500M")).await;
    assert_eq!(stack.devices(&large).await, ["node-a/card-0"]);
    let claim = stack.stored_claim(&large).await;
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    assert_eq!(result["consumedCapacity"]["bandwidth"], "7G", "rounded up to the step");
    assert_eq!(result["shareID"].as_str().unwrap().len(), 36);
    let unasked = stack.one("unasked", exactly("nic", "nic", json!({}))).await;
    stack.devices(&unasked).await; // the default, 1G
    let waiting = [
        stack.one("wait-0", bandwidth("3G")).await,
        stack.one("wait-1", bandwidth("3G")).await,
        stack.one("wait-2", bandwidth("3G")).await,
    ];
    for unit in &waiting {
        let reason = stack.waits(unit).await;
        assert!(reason.contains("0 of 1 devices"), "{reason}");
    }
    // 9 of 10 are free again: one release serves three.
    stack.release(&large).await;
    for unit in &waiting {
        assert_eq!(stack.devices(unit).await, ["node-a/card-0"]);
    }
    stack.assert_clean().await;
    let full = stack.one("full", bandwidth("1G")).await;
    stack.waits(&full).await;
    stack.release(&waiting[1]).await;
    stack.devices(&full).await;
    stack.assert_clean().await;
    assert_eq!(stack.store.shares().await.unwrap().len(), 4);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_and_shared_use_exclude_each_other() {
    let stack = Stack::start(2).await;
    stack.class("nic", &format!("device.driver == \"{NIC}\"")).await;
    stack.apply(&card(1, false)).await;
    let whole = stack.one("whole", exactly("nic", "nic", json!({}))).await;
    stack.devices(&whole).await;
    // The driver now shares what is held whole.
    stack.apply(&card(2, true)).await;
    let shared = stack.one("shared", bandwidth("2G")).await;
    stack.waits(&shared).await;
    stack.release(&whole).await;
    stack.devices(&shared).await;
    stack.assert_clean().await;
    // And does not share any more what is out in shares.
    stack.apply(&card(3, false)).await;
    let again = stack.one("again", exactly("nic", "nic", json!({}))).await;
    stack.waits(&again).await;
    stack.release(&shared).await;
    stack.devices(&again).await;
    assert_eq!(stack.store.holdings().await.unwrap().len(), 1);
    stack.assert_clean().await;
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_access_looks_at_what_others_hold_and_holds_nothing() {
    let stack = Stack::start(2).await;
    stack.class("gpu", &format!("device.driver == \"{DRIVER}\"")).await;
    stack.pool("node-a", 1, "A").await;
    let user = stack.one("user", exactly("gpu", "gpu", json!({}))).await;
    assert_eq!(stack.devices(&user).await, ["node-a/gpu-0"]);
    let admin = stack.one("admin", exactly("gpu", "gpu", json!({"adminAccess": true}))).await;
    assert_eq!(stack.devices(&admin).await, ["node-a/gpu-0"]);
    let message = stack.wait(&admin).await;
    assert!(message.claims[0].devices[0].admin_access);
    assert_eq!(stack.store.holdings().await.unwrap().len(), 1);
    assert_eq!(stack.store.held_claims().await.unwrap().len(), 2, "the node prepares both");
    stack.assert_clean().await;
    // The admin's claim stands in nobody's way.
    let next = stack.one("next", exactly("gpu", "gpu", json!({}))).await;
    stack.waits(&next).await;
    stack.release(&user).await;
    assert_eq!(stack.devices(&next).await, ["node-a/gpu-0"]);
    stack.release(&admin).await;
    assert_eq!(stack.store.held_claims().await.unwrap().len(), 1);
    stack.assert_clean().await;
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taints_and_rules_keep_claims_away_that_do_not_tolerate_them() {
    let stack = Stack::start(2).await;
    stack.class("gpu", &format!("device.driver == \"{DRIVER}\"")).await;
    let devices = json!({"devices": [{"name": "gpu-0", "taints": [{"key": "sick", "effect": "NoSchedule"}]}, {"name": "gpu-1"}]});
    stack.apply(&slice("gpus", (DRIVER, "node-a"), (1, 1), devices)).await;
    let rule = |effect: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "drain"},
            "spec": {"deviceSelector": {"driver": DRIVER, "pool": "node-a", "device": "gpu-1"}, "taint": {"key": "drain", "effect": effect}}})
    };
    stack.apply(&rule("NoSchedule")).await;
    let plain = stack.one("plain", exactly("gpu", "gpu", json!({}))).await;
    let reason = stack.waits(&plain).await;
    assert!(reason.contains("taint"), "{reason}");
    let tolerant = json!({"tolerations": [{"key": "sick", "operator": "Exists", "effect": "NoSchedule"}]});
    let tolerant = stack.one("tolerant", exactly("gpu", "gpu", tolerant)).await;
    assert_eq!(stack.devices(&tolerant).await, ["node-a/gpu-0"]);
    // The rule becomes harmless: that wakes who waits.
    stack.apply(&rule("None")).await;
    assert_eq!(stack.devices(&plain).await, ["node-a/gpu-1"]);
    stack.release(&plain).await;
    stack.apply(&rule("NoExecute")).await;
    let second = stack.one("second", exactly("gpu", "gpu", json!({}))).await;
    stack.waits(&second).await;
    stack.delete("devicetaintrules", "drain").await;
    assert_eq!(stack.devices(&second).await, ["node-a/gpu-1"]);
    stack.assert_clean().await;
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alternatives_are_tried_in_their_order() {
    let stack = Stack::start(2).await;
    for model in ["big", "small"] {
        stack
            .class(model, &format!("device.attributes[\"{DRIVER}\"].model == \"{model}\""))
            .await;
    }
    stack.pool("node-a", 1, "big").await;
    stack.pool("node-b", 2, "small").await;
    let request = json!({"name": "gpu", "firstAvailable": [{"name": "one-big", "deviceClassName": "big"},
        {"name": "two-small", "deviceClassName": "small", "count": 2}]});
    let first = stack.one("first", request.clone()).await;
    assert_eq!(stack.devices(&first).await, ["node-a/gpu-0"]);
    let second = stack.one("second", request.clone()).await;
    assert_eq!(stack.devices(&second).await, ["node-b/gpu-0", "node-b/gpu-1"]);
    let claim = stack.stored_claim(&second).await;
    assert_eq!(
        claim["status"]["allocation"]["devices"]["results"][0]["request"],
        "gpu/two-small"
    );
    let third = stack.one("third", request).await;
    stack.waits(&third).await;
    stack.release(&second).await;
    assert_eq!(stack.devices(&third).await.len(), 2);
    stack.assert_clean().await;
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_devices_are_given_together_and_never_of_an_incomplete_pool() {
    let stack = Stack::start(2).await;
    stack.class("gpu", &format!("device.driver == \"{DRIVER}\"")).await;
    let devices = |names: [&str; 2]| json!({"devices": names.map(|name| json!({ "name": name }))});
    stack
        .apply(&slice("first", (DRIVER, "node-a"), (1, 2), devices(["gpu-0", "gpu-1"])))
        .await;
    let all = stack
        .one("all", exactly("gpu", "gpu", json!({"allocationMode": "All"})))
        .await;
    stack.waits(&all).await;
    stack
        .apply(&slice("second", (DRIVER, "node-a"), (1, 2), devices(["gpu-2", "gpu-3"])))
        .await;
    assert_eq!(
        stack.devices(&all).await,
        ["node-a/gpu-0", "node-a/gpu-1", "node-a/gpu-2", "node-a/gpu-3"]
    );
    let single = stack.one("single", exactly("gpu", "gpu", json!({}))).await;
    stack.waits(&single).await;
    stack.release(&all).await;
    assert_eq!(stack.devices(&single).await.len(), 1);
    let all = stack
        .one("all-again", exactly("gpu", "gpu", json!({"allocationMode": "All"})))
        .await;
    stack.waits(&all).await;
    stack.release(&single).await;
    assert_eq!(stack.devices(&all).await.len(), 4);
    stack.assert_clean().await;
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_of_two_drivers_match_by_an_attribute() {
    let stack = Stack::start(2).await;
    stack.class("gpu", &format!("device.driver == \"{DRIVER}\"")).await;
    stack.class("nic", &format!("device.driver == \"{NIC}\"")).await;
    let devices = |prefix: &str, roots: &[&str]| {
        let device = |(index, root): (usize, &&str)| json!({"name": format!("{prefix}-{index}"), "attributes": {"resource.kubernetes.io/pcieRoot": {"string": root}}});
        json!({"devices": roots.iter().enumerate().map(device).collect::<Vec<_>>()})
    };
    stack
        .apply(&slice(
            "gpus",
            (DRIVER, "node-a"),
            (1, 1),
            devices("gpu", &["pci0", "pci1", "pci2"]),
        ))
        .await;
    stack
        .apply(&slice("nics", (NIC, "node-a"), (1, 1), devices("nic", &["pci2", "pci1"])))
        .await;
    let pair = json!({"requests": [exactly("gpu", "gpu", json!({})), exactly("nic", "nic", json!({}))],
        "constraints": [{"requests": ["gpu", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}]});
    let first = stack.claim("first", pair.clone()).await;
    assert_eq!(stack.devices(&first).await, ["node-a/gpu-1", "node-a/nic-1"]);
    let second = stack.claim("second", pair.clone()).await;
    assert_eq!(stack.devices(&second).await, ["node-a/gpu-2", "node-a/nic-0"]);
    let third = stack.claim("third", pair).await;
    stack.waits(&third).await;
    stack.release(&first).await;
    assert_eq!(stack.devices(&third).await, ["node-a/gpu-1", "node-a/nic-1"]);
    stack.assert_clean().await;
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binding_conditions_are_carried_in_the_allocation() {
    let stack = Stack::start(2).await;
    stack.class("fabric", &format!("device.driver == \"{DRIVER}\"")).await;
    let devices = json!({"devices": [{"name": "gpu-0", "bindsToNode": true, "bindingConditions": ["dra.example/attached"],
        "bindingFailureConditions": ["dra.example/broken"]}]});
    stack.apply(&slice("fabric", (DRIVER, "node-a"), (1, 1), devices)).await;
    let unit = stack.one("fabric", exactly("gpu", "fabric", json!({}))).await;
    stack.devices(&unit).await;
    let claim = stack.stored_claim(&unit).await;
    let allocation = &claim["status"]["allocation"];
    let result = &allocation["devices"]["results"][0];
    assert_eq!(result["bindingConditions"], json!(["dra.example/attached"]));
    assert_eq!(result["bindingFailureConditions"], json!(["dra.example/broken"]));
    assert!(
        allocation["allocationTimestamp"].as_str().is_some_and(|at| at.ends_with('Z')),
        "{allocation}"
    );
    stack.assert_clean().await;
    stack.stop().await;
}
