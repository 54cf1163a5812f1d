//! Preparing, unpreparing, restarts, drivers that refuse, hang or are not there.

use std::time::Duration;

use bus::messages::ClaimState;
use node_agent::sim_driver::{Faults, Record};
use testkit::eventually;

use crate::rig::{DRIVER, NODE, Rig, SOON, calls};
use crate::server::State;

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_prepared_reported_and_unprepared() {
    let rig = Rig::new().await;
    let driver = rig.driver(Faults::default()).await;
    let agent = rig.agent().await;
    let uid = rig.allocate("c", "gpu-3");
    rig.until(&uid, ClaimState::Prepared).await;

    let report = rig.controller.report(&uid).unwrap();
    assert_eq!((report.node.as_str(), report.devices.len()), (NODE, 1));
    let device = &report.devices[0];
    assert_eq!(
        (device.driver.as_str(), device.pool.as_str(), device.device.as_str()),
        (DRIVER, NODE, "gpu-3")
    );
    assert_eq!(device.cdi_device_ids, ["gpu.dray.example/gpu=node-a-gpu-3"]);
    assert_eq!(device.request_names, ["gpu"]);
    assert_eq!(driver.shown.prepared(), std::slice::from_ref(&uid));

    rig.server.delete(&uid);
    rig.until_released(&uid).await;
    assert!(driver.shown.prepared().is_empty());
    assert_eq!(driver.calls(&uid), (1, 1));

    let registered = rig.server.registered.lock().unwrap()[0].clone();
    assert_eq!(
        (registered.agent_id.as_str(), registered.nodes[0].name.as_str()),
        (NODE, NODE)
    );
    assert!(!registered.epoch.is_empty());
    eventually(SOON, || async {
        rig.server.pools.lock().unwrap().get(NODE).map(|pool| pool.devices.len()) == Some(8)
    })
    .await;
    let shown = driver.stop().await;
    agent.stop().await;
    assert_eq!(calls(&shown, &uid), (1, 1));
    assert_eq!(
        std::fs::read_dir(rig.registry()).unwrap().count(),
        0,
        "a driver takes its socket with it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_does_not_prepare_again_and_can_unprepare() {
    let rig = Rig::new().await;
    let driver = rig.driver(Faults::default()).await;
    let agent = rig.agent().await;
    let (stays, goes) = (rig.allocate("stays", "gpu-0"), rig.allocate("goes", "gpu-1"));
    rig.until(&stays, ClaimState::Prepared).await;
    rig.until(&goes, ClaimState::Prepared).await;
    agent.kill().await;

    rig.server.delete(&goes);
    let agent = rig.agent().await;
    rig.until_released(&goes).await;
    assert_eq!(driver.calls(&stays), (1, 0));
    assert_eq!(driver.calls(&goes), (1, 1));
    let epochs: Vec<String> = rig
        .server
        .registered
        .lock()
        .unwrap()
        .iter()
        .map(|r| r.epoch.clone())
        .collect();
    assert!(
        epochs.windows(2).all(|pair| pair[0] == pair[1]),
        "the state was not lost: {epochs:?}"
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_agent_may_have_prepared_is_undone() {
    let rig = Rig::new().await;
    let driver = rig
        .driver(Faults {
            latency: Duration::from_millis(300),
            ..Faults::default()
        })
        .await;
    let agent = rig.agent().await;
    let uid = rig.allocate("c", "gpu-0");
    eventually(SOON, || async { driver.calls(&uid).0 == 1 }).await;
    agent.kill().await;
    rig.server.delete(&uid);

    let agent = rig.agent().await;
    rig.until_released(&uid).await;
    assert!(driver.calls(&uid).1 >= 1, "the driver was asked to undo it");
    assert!(driver.shown.prepared().is_empty());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_prepare_does_not_win_after_unprepare() {
    let rig = Rig::new().await;
    let faults = Faults {
        refuse_prepares: 3,
        latency: Duration::from_millis(50),
        ..Faults::default()
    };
    let driver = rig.driver(faults).await;
    let agent = rig.agent().await;
    let uid = rig.allocate("c", "gpu-0");
    let refused = |record: &Record| *record == Record::PrepareRefused(uid.clone());
    eventually(SOON, || async {
        driver.shown.records().iter().filter(|record| refused(record)).count() >= 2
    })
    .await;
    rig.server.delete(&uid);
    rig.until_released(&uid).await;

    // Later claims go through the same agent: when they are prepared, a late retry would have had its chance.
    for name in ["later-1", "later-2"] {
        let later = rig.allocate(name, "gpu-1");
        rig.until(&later, ClaimState::Prepared).await;
        rig.server.delete(&later);
        rig.until_released(&later).await;
    }
    let records = driver.shown.records();
    let undone = records
        .iter()
        .position(|record| *record == Record::UnprepareDone(uid.clone()))
        .unwrap();
    assert!(!records[undone..].contains(&Record::PrepareBegan(uid.clone())), "{records:?}");
    assert!(driver.shown.prepared().is_empty());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepare_that_hangs_is_given_up_and_undone() {
    let rig = Rig::new().await;
    let driver = rig
        .driver(Faults {
            latency: Duration::from_secs(600),
            ..Faults::default()
        })
        .await;
    let mut config = rig.config();
    config.call_timeout = Duration::from_millis(300);
    let agent = rig.agent_with(config).await;
    let uid = rig.allocate("c", "gpu-0");
    let hung = |why: &String| why.contains("NodePrepareResources");
    eventually(SOON, || async { rig.controller.failures(&uid).iter().any(hung) }).await;

    rig.server.delete(&uid);
    eventually(SOON, || async { driver.calls(&uid).1 >= 2 }).await;
    assert!(rig.server.knows(&uid), "not let go while unprepare hangs");
    driver.shown.set_faults(Faults::default());
    rig.until_released(&uid).await;
    assert!(driver.shown.prepared().is_empty());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_the_claim_and_refusals_are_reported_and_tried_again() {
    let rig = Rig::new().await;
    let driver = rig
        .driver(Faults {
            skip_prepares: 1,
            refuse_unprepares: 2,
            ..Faults::default()
        })
        .await;
    let agent = rig.agent().await;
    let uid = rig.allocate("c", "gpu-0");
    rig.until(&uid, ClaimState::Prepared).await;
    assert_eq!(driver.calls(&uid).0, 2);
    rig.server.delete(&uid);
    rig.until_released(&uid).await;
    assert_eq!(driver.calls(&uid).1, 3);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_its_driver_and_says_so() {
    let rig = Rig::new().await;
    let agent = rig.agent().await;
    let (waits, deleted) = (rig.allocate("waits", "gpu-0"), rig.allocate("deleted", "gpu-1"));
    rig.until(&waits, ClaimState::Failed).await;
    rig.until(&deleted, ClaimState::Failed).await;
    assert_eq!(
        rig.controller.failures(&waits)[0],
        format!("DRA driver {DRIVER} is not registered")
    );
    rig.server.delete(&deleted);
    rig.until_released(&deleted).await;

    let driver = rig.driver(Faults::default()).await;
    rig.until(&waits, ClaimState::Prepared).await;
    assert_eq!(driver.calls(&deleted), (0, 0), "nothing to undo where nothing was sent");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_went_away_is_waited_for_until_it_has_unprepared() {
    let rig = Rig::new().await;
    let driver = rig.driver(Faults::default()).await;
    let agent = rig.agent().await;
    let uid = rig.allocate("c", "gpu-0");
    rig.until(&uid, ClaimState::Prepared).await;
    driver.stop().await;
    rig.server.delete(&uid);
    rig.until(&uid, ClaimState::Failed).await;
    assert!(rig.server.knows(&uid));

    let driver = rig.driver(Faults::default()).await;
    assert_eq!(driver.shown.prepared(), std::slice::from_ref(&uid), "the driver remembers it");
    rig.until_released(&uid).await;
    assert!(driver.shown.prepared().is_empty());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_crashed_is_found_again_at_the_same_path() {
    let rig = Rig::new().await;
    let first = rig.driver(Faults::default()).await;
    let agent = rig.agent().await;
    let uid = rig.allocate("c", "gpu-0");
    rig.until(&uid, ClaimState::Prepared).await;
    // The second takes the path over while the first still listens, as after a crash nobody cleans up.
    let second = rig.driver(Faults::default()).await;
    rig.server.delete(&uid);
    rig.until_released(&uid).await;
    assert_eq!((first.calls(&uid).1, second.calls(&uid).1), (0, 1));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_repeated_until_they_are_answered() {
    let rig = Rig::new().await;
    let driver = rig.driver(Faults::default()).await;
    let agent = rig.agent().await;
    rig.controller.answering.send_replace(false);
    let uid = rig.allocate("c", "gpu-0");
    eventually(SOON, || async { rig.controller.said(&uid) >= 2 }).await;
    rig.controller.answering.send_replace(true);
    rig.until(&uid, ClaimState::Prepared).await;
    assert_eq!(driver.calls(&uid).0, 1, "only the report is repeated");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lags_does_not_bring_a_claim_back() {
    let rig = Rig::new().await;
    let driver = rig.driver(Faults::default()).await;
    let agent = rig.agent().await;
    let uid = rig.allocate("c", "gpu-0");
    let before: State = rig.server.state.borrow().clone();
    rig.until(&uid, ClaimState::Prepared).await;
    rig.server.delete(&uid);
    rig.until_released(&uid).await;
    let after: State = rig.server.state.borrow().clone();

    let registrations = rig.server.registered.lock().unwrap().len();
    rig.server.restart_with(before);
    eventually(SOON, || async {
        rig.server.registered.lock().unwrap().len() >= registrations + 2
    })
    .await;
    assert_eq!(driver.calls(&uid), (1, 1), "the older list was refused");

    rig.server.restart_with(after);
    let next = rig.allocate("next", "gpu-0");
    rig.until(&next, ClaimState::Prepared).await;
    assert_eq!(driver.calls(&uid), (1, 1));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_the_same_name_is_another_claim() {
    let rig = Rig::new().await;
    let driver = rig.driver(Faults::default()).await;
    let agent = rig.agent().await;
    let old = rig.allocate("c", "gpu-0");
    rig.until(&old, ClaimState::Prepared).await;
    rig.server.delete(&old);
    rig.until_released(&old).await;
    let new = rig.allocate("c", "gpu-1");
    rig.until(&new, ClaimState::Prepared).await;
    assert_eq!(driver.shown.prepared(), [new]);
    agent.stop().await;
}
