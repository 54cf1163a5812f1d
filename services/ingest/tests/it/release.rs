//! Deleting units: at once where no agent answers for the node, else once it has let go. Repeating it is harmless.

use std::time::Duration;

use rpc::dray::v1 as pb;
use store::HeldClaim;
use tokio::task::JoinSet;
use tonic::Code;

use crate::rig::{Rig, submission};

async fn held(rig: &Rig) -> Vec<HeldClaim> {
    rig.store.held_claims().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_unit_goes_at_once() {
    let rig = Rig::new().await;
    let unit = rig.ingest.submit(submission("job", 2)).await.unwrap().unit_uid;
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let (mut units, uid) = (rig.ingest.units(), unit.clone());
        calls.spawn(async move { units.delete(pb::DeleteUnitRequest { uid }).await.unwrap().into_inner() });
    }
    assert!(calls.join_all().await.iter().all(|answer| answer.released));
    assert_eq!((rig.count("units").await, rig.count("resourceclaims").await), (0, 0));
    assert_eq!(rig.head().await, 6, "made once, deleted once");
    assert_eq!(rig.ingest.get(&unit).await.unwrap_err().code(), Code::NotFound);
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_free_at_once_where_nobody_prepares() {
    let rig = Rig::new().await;
    let unit = rig.ingest.submit(submission("job", 2)).await.unwrap().unit_uid;
    rig.allocate(&unit, "node-a").await;
    assert_eq!(held(&rig).await.len(), 2);
    assert!(rig.ingest.delete(&unit).await.unwrap().released);
    assert_eq!((held(&rig).await.len(), rig.count("resourceclaims").await), (0, 0));
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_stay_held_until_the_agent_has_let_go() {
    let rig = Rig::new().await;
    rig.store.register_agents("agent", "1", &["node-a".to_owned()]).await.unwrap();
    let unit = rig.ingest.submit(submission("job", 2)).await.unwrap().unit_uid;
    rig.allocate(&unit, "node-a").await;
    let deleted = rig.ingest.delete(&unit).await.unwrap();
    assert!(!deleted.released);
    assert!(held(&rig).await.iter().all(|claim| claim.draining) && held(&rig).await.len() == 2);
    let releasing = rig.ingest.get(&unit).await.unwrap();
    assert_eq!(
        (releasing.phase, releasing.sequence),
        (pb::UnitPhase::Releasing.into(), deleted.sequence)
    );
    assert!(
        held(&rig)
            .await
            .iter()
            .all(|claim| claim.body.as_deref().is_some_and(|body| body.contains("deletionTimestamp")))
    );

    let head = rig.head().await;
    assert_eq!(rig.ingest.delete(&unit).await.unwrap(), deleted, "again: the same");
    assert_eq!(rig.head().await, head);
    rig.assert_clean().await;

    // An agent that is gone for good lets go by being deregistered.
    rig.store.deregister_agents("agent", &["node-a".to_owned()]).await.unwrap();
    assert!(rig.ingest.delete(&unit).await.unwrap().released);
    assert_eq!((held(&rig).await.len(), rig.count("units").await), (0, 0));
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_races_with_allocating() {
    let rig = Rig::new().await;
    for n in 0..20 {
        let unit = rig.ingest.submit(submission(&format!("job-{n}"), 1)).await.unwrap().unit_uid;
        let (deleted, _) = tokio::join!(rig.ingest.delete(&unit), rig.try_allocate(&unit, "node-a"));
        assert!(deleted.unwrap().released);
        assert_eq!((held(&rig).await.len(), rig.count("units").await), (0, 0));
    }
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_uid_is_told() {
    let rig = Rig::new().await;
    assert_eq!(crate::rig::fields(&rig.ingest.delete("x").await.unwrap_err()), ["uid"]);
    let unknown = uuid::Uuid::now_v7().to_string();
    assert!(
        rig.ingest.delete(&unknown).await.unwrap().released,
        "deleting what is gone is no error"
    );
    assert!(
        tokio::time::timeout(Duration::from_secs(5), rig.ingest.get(&unknown))
            .await
            .unwrap()
            .is_err()
    );
}
