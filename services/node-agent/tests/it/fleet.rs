//! One process for many nodes.

use bus::messages::ClaimState;
use node_agent::fleet::{self, Config};
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
