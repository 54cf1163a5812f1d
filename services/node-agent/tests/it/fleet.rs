//! One process for many nodes.

use bus::messages::ClaimState;
use node_agent::fleet::{self, Config, Follow};
use prometheus::Registry;
use testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::rig::{Rig, SOON};

const NODES: u32 = 2_500;

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_registers_publishes_prepares_and_lets_go() {
    let rig = Rig::new().await;
    let mut config = Config::new("fleet", rig.server.url(), rig.nats.url(), NODES);
    config.devices_per_node = 2;
    config.labels.insert("zone".to_owned(), "z-1".to_owned());
    let deps = fleet::connect(config, Registry::new()).await.unwrap();
    let (progress, stop) = (deps.progress(), CancellationToken::new());
    let running = tokio::spawn(fleet::run(deps, stop.clone()));

    eventually(SOON, || async {
        let now = *progress.borrow();
        if now.synced && now.pools_published == NODES {
            Ok(())
        } else {
            Err(now)
        }
    })
    .await;
    let nodes: Vec<_> = rig
        .server
        .registered
        .lock()
        .unwrap()
        .iter()
        .flat_map(|request| request.nodes.clone())
        .collect();
    assert_eq!(nodes.len(), NODES as usize);
    assert_eq!(nodes[7].labels["zone"], "z-1");
    assert_eq!(rig.server.pools.lock().unwrap()["fleet-00007"].devices.len(), 2);

    let allocate = |n: u32| {
        rig.server
            .allocate(&format!("fleet-{n:05}"), &format!("c-{n}"), "gpu.dray.example", "gpu-0")
    };
    let claims: Vec<String> = (0..200).map(allocate).collect();
    for uid in &claims {
        rig.until(uid, ClaimState::Prepared).await;
    }
    claims.iter().for_each(|uid| rig.server.delete(uid));
    for uid in &claims {
        rig.until(uid, ClaimState::Unprepared).await;
    }
    eventually(SOON, || async {
        let now = *progress.borrow();
        if now.prepared == 0 && now.reports_waiting == 0 {
            Ok(())
        } else {
            Err(now)
        }
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(rig.server.given_back.lock().unwrap().len(), NODES as usize);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_following_fleet_stands_for_the_nodes_of_published_pools() {
    let rig = Rig::new().await;
    let followed = "gpu.dray.example";
    for name in ["b", "a", "c"] {
        rig.server.write_slice(followed, name, Some(name));
    }
    rig.server.write_slice(followed, "shared", None);
    rig.server.write_slice("other.example", "d", Some("d"));
    rig.server.labels.lock().unwrap().insert("c".to_owned(), "z-3".to_owned());
    let mut config = Config::new("fleet", rig.server.url(), rig.nats.url(), 0);
    config.follow = Some(Follow {
        drivers: [followed.into()].into(),
    });
    config.labels.insert("made".to_owned(), "up".to_owned());
    let deps = fleet::connect(config, Registry::new()).await.unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(fleet::run(deps, stop.clone()));
    let first = rig.server.allocate("b", "first", followed, "gpu-0");
    rig.until(&first, ClaimState::Prepared).await;

    // Later pools are found, also those that were published while the server was away.
    rig.server.write_slice(followed, "e", Some("e"));
    let second = rig.server.allocate("e", "second", followed, "gpu-0");
    eventually(SOON, || async { last_registered(&rig).contains(&"e".to_owned()) }).await;
    rig.until(&second, ClaimState::Prepared).await;
    let state = rig.server.state.borrow().clone();
    rig.server.restart_with(state);
    rig.server.write_slice(followed, "f", Some("f"));
    rig.server.write_slice(followed, "f-again", Some("f"));
    eventually(SOON, || async { last_registered(&rig) == ["a", "b", "c", "e", "f"] }).await;

    let registered = rig.server.registered.lock().unwrap().last().unwrap().clone();
    let node = |name: &str| registered.nodes.iter().find(|node| node.name == name).unwrap();
    assert_eq!((node("a").labels["made"].as_str(), node("a").unschedulable), ("up", false));
    assert_eq!((node("c").labels["zone"].as_str(), node("c").unschedulable), ("z-3", true));
    assert!(!node("c").labels.contains_key("made"), "a known node keeps its labels");
    rig.server.delete(&first);
    rig.until(&first, ClaimState::Unprepared).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(rig.server.given_back.lock().unwrap().len(), 5);
}

/// The nodes of the last registration, sorted.
fn last_registered(rig: &Rig) -> Vec<String> {
    let registered = rig.server.registered.lock().unwrap();
    let last = registered.last().map(|request| request.nodes.clone()).unwrap_or_default();
    let mut names: Vec<String> = last.into_iter().map(|node| node.name).collect();
    names.sort();
    names
}
