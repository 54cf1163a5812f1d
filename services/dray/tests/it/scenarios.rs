//! Faults that users of other systems met: two allocators and one device (scenario 38), an event that wakes everything (scenario 42).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rpc::dray::v1 as pb;
use store::Operation;
use tokio::task::JoinSet;

use crate::stack::{DRIVER, Stack, unit};

async fn phases(stack: &Stack) -> (usize, usize) {
    let (units, _) = stack.store.list_all("units").await.unwrap();
    let pending = units.iter().filter(|u| u.body.contains("\"phase\":\"Pending\"")).count();
    (units.len() - pending, pending)
}

/// Replays the whole log: no device is in two claims at any position, no claim is allocated twice without letting go.
async fn assert_log_never_doubles(stack: &Stack) {
    let mut holder: HashMap<String, String> = HashMap::new();
    let mut held: HashMap<String, Vec<String>> = HashMap::new();
    let mut position = 0;
    loop {
        let (events, upto) = stack.store.events_after(&["resourceclaims"], position, 2_000).await.unwrap();
        for event in &events {
            let claim: serde_json::Value = serde_json::from_str(&event.body).unwrap();
            let results = claim
                .pointer("/status/allocation/devices/results")
                .and_then(|r| r.as_array())
                .cloned()
                .unwrap_or_default();
            let name = event.name.to_string();
            let devices: Vec<String> = match event.operation {
                Operation::Deleted => Vec::new(),
                _ => results
                    .iter()
                    .map(|r| format!("{}/{}/{}", r["driver"], r["pool"], r["device"]))
                    .collect(),
            };
            for device in held.remove(&name).unwrap_or_default() {
                assert!(
                    event.operation == Operation::Deleted || devices.contains(&device),
                    "{name} changed its devices"
                );
                holder.remove(&device);
            }
            for device in &devices {
                assert_eq!(
                    holder.insert(device.clone(), name.clone()),
                    None,
                    "{device} is in two claims at {}",
                    event.sequence
                );
            }
            held.insert(name, devices);
        }
        if events.is_empty() && upto >= stack.store.head().await.unwrap().sequence {
            return;
        }
        position = upto;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_allocators_never_give_a_device_twice_and_serve_who_waits() {
    let mut stack = Stack::start(4).await;
    stack.class("any-gpu", &format!("device.driver == \"{DRIVER}\"")).await;
    for node in ["node-a", "node-b", "node-c", "node-d"] {
        stack.pool(node, 8, "A").await;
    }
    let mut submitting = JoinSet::new();
    for n in 0..100 {
        let mut units = stack.units();
        submitting.spawn(async move {
            units
                .submit(unit(&format!("work-{n:03}"), "any-gpu", &[1]))
                .await
                .unwrap()
                .into_inner()
        });
    }
    submitting.join_all().await;
    testkit::eventually(Duration::from_secs(30), || async {
        let now = phases(&stack).await;
        if now == (32, 68) { Ok(()) } else { Err(now) }
    })
    .await;
    stack.assert_clean().await;

    // Ten go: exactly ten of those who wait are served, whoever owns them.
    let (units, _) = stack.store.list_all("units").await.unwrap();
    let allocated: Vec<String> = units
        .iter()
        .filter(|u| !u.body.contains("\"phase\":\"Pending\""))
        .map(|u| u.uid.to_string())
        .collect();
    for uid in allocated.iter().take(10) {
        stack
            .units()
            .delete(pb::DeleteUnitRequest { uid: uid.clone() })
            .await
            .unwrap();
    }
    testkit::eventually(Duration::from_secs(20), || async {
        let now = phases(&stack).await;
        if now == (32, 58) { Ok(()) } else { Err(now) }
    })
    .await;
    // An allocator leaves; its shards and what waits in them move without anybody's help.
    let (_, gone) = stack.allocator("allocator-late").await;
    gone.cancel();
    for uid in allocated.iter().skip(10).take(10) {
        stack
            .units()
            .delete(pb::DeleteUnitRequest { uid: uid.clone() })
            .await
            .unwrap();
    }
    testkit::eventually(Duration::from_secs(30), || async {
        let now = phases(&stack).await;
        if now == (32, 48) { Ok(()) } else { Err(now) }
    })
    .await;
    stack.assert_clean().await;
    assert_log_never_doubles(&stack).await;
    stack.stop().await;
}

/// Searches run for units of a class, by all allocators of the test.
fn attempts(registry: &prometheus::Registry, class: &str) -> u64 {
    let families = registry.gather();
    let family = families.iter().find(|f| f.name() == "dray_allocation_attempts_total");
    let counted = family.into_iter().flat_map(|f| f.get_metric());
    let of_class = counted.filter(|m| m.get_label().iter().any(|l| l.value() == class));
    of_class.map(|m| m.get_counter().get_value() as u64).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_change_wakes_only_those_whom_it_could_help() {
    const WAITING: usize = 1_000;
    let mut stack = Stack::start(0).await;
    let (registry, _) = stack.allocator("only").await;
    for model in ["common", "rare"] {
        let expression = format!("device.driver == \"{DRIVER}\" && device.attributes[\"{DRIVER}\"].model == \"{model}\"");
        stack.class(model, &expression).await;
    }
    stack.pool("node-a", 1, "common").await;
    let mut submitting = JoinSet::new();
    for n in 0..WAITING {
        let mut units = stack.units();
        submitting.spawn(async move {
            units
                .submit(unit(&format!("rare-{n:04}"), "rare", &[1]))
                .await
                .unwrap()
                .into_inner()
        });
    }
    submitting.join_all().await;
    testkit::eventually(Duration::from_secs(60), || async {
        let (units, _) = stack.store.list_all("units").await.unwrap();
        let told = units.iter().filter(|u| u.body.contains("\"reason\":")).count();
        if told == WAITING { Ok(()) } else { Err(told) }
    })
    .await;

    let before = attempts(&registry, "rare");
    for n in 0..50 {
        let submitted = stack.submit(&format!("churn-{n}"), "common", &[1]).await;
        let unit = stack.wait(&submitted.unit_uid).await;
        assert_eq!(unit.phase, i32::from(pb::UnitPhase::Allocated), "{unit:?}");
        stack
            .units()
            .delete(pb::DeleteUnitRequest { uid: submitted.unit_uid })
            .await
            .unwrap();
    }
    assert_eq!(attempts(&registry, "rare"), before, "nothing that happened could help them");

    let (units, _) = stack.store.list_all("units").await.unwrap();
    let oldest = units.iter().min_by_key(|u| u.created_sequence).unwrap().uid.to_string();
    let published = Instant::now();
    stack.pool("node-b", 1, "rare").await;
    let first = stack.wait(&oldest).await;
    assert_eq!(first.phase, i32::from(pb::UnitPhase::Allocated), "the oldest gets it");
    tracing::info!(took = ?published.elapsed(), "served");
    assert_eq!(phases(&stack).await, (1, WAITING - 1));
    assert!(
        attempts(&registry, "rare") - before <= 10,
        "{} attempts",
        attempts(&registry, "rare") - before
    );

    // It is released: exactly one other gets it, the next oldest.
    let next = units
        .iter()
        .filter(|u| u.uid.to_string() != oldest)
        .min_by_key(|u| u.created_sequence)
        .unwrap()
        .uid
        .to_string();
    stack.units().delete(pb::DeleteUnitRequest { uid: oldest }).await.unwrap();
    let second = stack.wait(&next).await;
    assert_eq!(second.phase, i32::from(pb::UnitPhase::Allocated));
    assert_eq!(phases(&stack).await, (1, WAITING - 2));
    assert!(attempts(&registry, "rare") - before <= 10);
    stack.stop().await;
}
