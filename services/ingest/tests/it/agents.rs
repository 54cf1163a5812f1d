//! What agents are told: registration, what is wanted on their nodes, and the end of it.

use rpc::dray::v1 as pb;
use serde_json::Value;
use store::PreparedRow;
use tonic::{Code, Streaming};

use crate::rig::{Rig, fields, reason, submission, within};

fn registration(nodes: &[&str]) -> pb::RegisterAgentsRequest {
    let node = |name: &&str| pb::AgentNode {
        name: (*name).to_owned(),
        labels: [("rack".to_owned(), "1".to_owned())].into(),
        unschedulable: false,
    };
    pb::RegisterAgentsRequest {
        agent_id: "agent".into(),
        epoch: "1".into(),
        nodes: nodes.iter().map(node).collect(),
    }
}

async fn desired(rig: &Rig) -> Streaming<pb::DesiredClaims> {
    let request = pb::DesiredRequest {
        agent_id: "agent".into(),
    };
    within(rig.ingest.agents().desired(request)).await.unwrap().into_inner()
}

async fn next(stream: &mut Streaming<pb::DesiredClaims>) -> pb::DesiredClaims {
    within(stream.message()).await.unwrap().expect("the stream goes on")
}

/// Everything up to `synced`.
async fn list(stream: &mut Streaming<pb::DesiredClaims>) -> Vec<pb::DesiredClaim> {
    let mut claims = Vec::new();
    loop {
        let message = next(stream).await;
        claims.extend(message.claims);
        if message.synced {
            return claims;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn registering_makes_nodes_and_keeps_what_others_say_about_them() {
    let rig = Rig::new().await;
    let names: Vec<String> = (0..30).map(|n| format!("node-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    within(rig.ingest.agents().register(registration(&names))).await.unwrap();
    assert_eq!((rig.count("nodes").await, rig.store.agents().await.unwrap().len()), (30, 30));
    let head = rig.head().await;
    within(rig.ingest.agents().register(registration(&names))).await.unwrap();
    assert_eq!(rig.head().await, head, "nothing changed");

    let node = rig.store.object("nodes", "", "node-3").await.unwrap().unwrap();
    let mut object: Value = serde_json::from_str(&node.body).unwrap();
    object["metadata"]["annotations"] = serde_json::json!({"seen": "yes"});
    rig.ingest.apply(&object).await.unwrap();
    let mut drained = registration(&["node-3"]);
    drained.nodes[0].unschedulable = true;
    within(rig.ingest.agents().register(drained)).await.unwrap();
    let node = rig.store.object("nodes", "", "node-3").await.unwrap().unwrap();
    let object: Value = serde_json::from_str(&node.body).unwrap();
    assert_eq!(
        (&object["metadata"]["annotations"]["seen"], &object["spec"]["unschedulable"]),
        (&"yes".into(), &true.into())
    );
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_registrations_write_nothing() {
    let rig = Rig::new().await;
    let mut request = registration(&["ok", "NOT OK"]);
    request.nodes[0].labels = [("bad key".to_owned(), String::new())].into();
    let status = within(rig.ingest.agents().register(request)).await.unwrap_err();
    let fields = fields(&status);
    assert!(fields.contains(&"nodes[1].name".to_owned()), "{fields:?}");
    assert!(fields.iter().any(|field| field.starts_with("nodes[0].labels")), "{fields:?}");
    assert_eq!((rig.head().await, rig.store.agents().await.unwrap().len()), (0, 0));
    let status = within(rig.ingest.agents().desired(pb::DesiredRequest {
        agent_id: "agent".into(),
    }))
    .await
    .unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_hears_what_is_wanted_and_what_no_longer_is() {
    let rig = Rig::new().await;
    within(rig.ingest.agents().register(registration(&["node-a"]))).await.unwrap();
    let before = rig.ingest.submit(submission("before", 1)).await.unwrap();
    let sequence = rig.allocate(&before.unit_uid, "node-a").await;
    let elsewhere = rig.ingest.submit(submission("elsewhere", 1)).await.unwrap();
    rig.allocate(&elsewhere.unit_uid, "node-b").await;

    let mut stream = desired(&rig).await;
    let first = list(&mut stream).await;
    assert_eq!(first.len(), 1);
    assert_eq!(
        (&first[0].uid, first[0].allocation_sequence, first[0].wanted),
        (&before.claim_uids[0], sequence, true)
    );
    assert_eq!((first[0].node.as_str(), first[0].devices.len()), ("node-a", 1));

    let after = rig.ingest.submit(submission("after", 2)).await.unwrap();
    rig.allocate(&after.unit_uid, "node-a").await;
    let message = next(&mut stream).await;
    assert!(!message.synced && message.claims.iter().all(|claim| claim.wanted));
    assert_eq!(
        message.claims.iter().map(|c| c.uid.clone()).collect::<Vec<_>>(),
        after.claim_uids
    );

    assert!(!rig.ingest.delete(&before.unit_uid).await.unwrap().released);
    let message = next(&mut stream).await;
    assert!(
        message
            .claims
            .iter()
            .all(|claim| !claim.wanted && claim.uid == before.claim_uids[0] && claim.allocation_sequence == sequence)
    );

    // An agent that comes again is told the same from the start.
    let mut again = list(&mut desired(&rig).await).await;
    again.sort_by_key(|claim| claim.wanted);
    let wanted: Vec<_> = again.iter().map(|claim| claim.wanted).collect();
    assert_eq!(wanted, [false, true, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_taken_back_once_nothing_is_owed() {
    let rig = Rig::new().await;
    within(rig.ingest.agents().register(registration(&["node-a", "node-b"])))
        .await
        .unwrap();
    let unit = rig.ingest.submit(submission("job", 1)).await.unwrap();
    let allocation_sequence = rig.allocate(&unit.unit_uid, "node-a").await;
    let report = |state| PreparedRow {
        claim_uid: unit.claim_uids[0].parse().unwrap(),
        allocation_sequence,
        node: "node-a".into(),
        state,
        message: String::new(),
        devices: "[]".into(),
    };
    let leave = |node: &str| {
        let mut agents = rig.ingest.agents();
        let request = pb::DeregisterAgentsRequest {
            agent_id: "agent".into(),
            nodes: vec![node.to_owned()],
        };
        async move { within(agents.deregister(request)).await }
    };
    rig.store.put_prepared(&[report(1)]).await.unwrap();
    let refused = leave("node-a").await.unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::FailedPrecondition, "IN_USE")
    );
    leave("node-b").await.unwrap();
    rig.store.put_prepared(&[report(2)]).await.unwrap();
    leave("node-a").await.unwrap();
    assert!(rig.store.agents().await.unwrap().is_empty());
}
