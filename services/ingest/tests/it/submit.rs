//! Submitting: durable, once, and the same answer for every repeat.

use std::time::Duration;

use rpc::dray::v1 as pb;
use store::Operation;
use tokio::task::JoinSet;
use tonic::Code;

use crate::rig::{Ingest, Rig, ingest, reason, submission, template, within};

async fn submit_often(ingests: &[&Ingest], request: &pb::SubmitRequest, n: usize) -> Vec<pb::SubmitResponse> {
    let mut calls = JoinSet::new();
    for index in 0..n {
        let mut units = ingests[index % ingests.len()].units();
        let request = request.clone();
        calls.spawn(async move { units.submit(request).await.unwrap().into_inner() });
    }
    within(calls.join_all()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_is_there_once_it_is_answered() {
    let rig = Rig::new().await;
    let answer = rig.ingest.submit(submission("job", 2)).await.unwrap();
    assert_eq!(
        (answer.claim_uids.len(), answer.claim_names.len(), answer.repeated),
        (2, 2, false)
    );
    assert_eq!(rig.head().await, answer.sequence);

    let unit = rig.ingest.get(&answer.unit_uid).await.unwrap();
    assert_eq!(
        (unit.namespace.as_str(), unit.client_id.as_str(), unit.sequence),
        ("team", "job", answer.sequence)
    );
    assert_eq!(unit.phase, i32::from(pb::UnitPhase::Pending));
    assert_eq!(
        unit.claims.iter().map(|c| c.uid.clone()).collect::<Vec<_>>(),
        answer.claim_uids
    );
    let pending = rig
        .store
        .pending_units(&[u16::try_from(unit.home_shard).unwrap()], 0, 10)
        .await
        .unwrap();
    assert_eq!(pending.len(), 1, "its home shard finds it");

    let (events, _) = rig.store.events_after(&[], 0, 10).await.unwrap();
    let kinds: Vec<_> = events.iter().map(|e| (e.kind.as_ref(), e.operation)).collect();
    let added = Operation::Added;
    assert_eq!(
        kinds,
        [("resourceclaims", added), ("resourceclaims", added), ("units", added)]
    );
    let claim = rig
        .store
        .object("resourceclaims", "team", &answer.claim_names[0])
        .await
        .unwrap()
        .unwrap();
    assert!(
        claim.body.contains(&format!("\"dray.v1/unit\":\"{}\"", answer.unit_uid)),
        "{}",
        claim.body
    );
    assert!(claim.body.contains("\"creationTimestamp\""));
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_trace_goes_into_the_log() {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let rig = Rig::new().await;
    let mut request = tonic::Request::new(submission("job", 1));
    request.metadata_mut().insert("traceparent", TRACE.parse().unwrap());
    within(rig.ingest.units().submit(request)).await.unwrap();
    rig.ingest.submit(submission("untraced", 1)).await.unwrap();
    let (events, _) = rig.store.events_after(&[], 0, 10).await.unwrap();
    let traces: Vec<_> = events.iter().map(|event| event.trace.as_deref()).collect();
    assert_eq!(traces, [Some(TRACE), Some(TRACE), None, None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_repeats_at_two_ingests_get_one_answer() {
    let rig = Rig::new().await;
    let other = ingest(&rig.stack, |config| config.id = "other".into()).await;
    for round in 0..10 {
        let request = submission(&format!("job-{round}"), 3);
        let answers = submit_often(&[&rig.ingest, &other], &request, 16).await;
        let first: Vec<_> = answers.iter().filter(|answer| !answer.repeated).collect();
        assert_eq!(first.len(), 1, "one of them made it");
        for answer in &answers {
            let same = pb::SubmitResponse {
                repeated: answer.repeated,
                sequence: answer.sequence,
                ..first[0].clone()
            };
            assert_eq!(*answer, same);
        }
    }
    assert_eq!((rig.count("units").await, rig.count("resourceclaims").await), (10, 30));
    rig.assert_clean().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_answered_after_deletion_and_restart() {
    let mut rig = Rig::new().await;
    let first = rig.ingest.submit(submission("job", 1)).await.unwrap();
    assert!(rig.ingest.delete(&first.unit_uid).await.unwrap().released);
    let replacement = ingest(&rig.stack, |_| {}).await;
    std::mem::replace(&mut rig.ingest, replacement).end().await;

    let again = rig.ingest.submit(submission("job", 1)).await.unwrap();
    assert!(again.repeated);
    assert_eq!((&again.unit_uid, &again.claim_uids), (&first.unit_uid, &first.claim_uids));
    assert_eq!(rig.count("units").await, 0, "nothing is made again");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_body_under_an_id_is_refused() {
    let rig = Rig::new().await;
    rig.ingest.submit(submission("job", 1)).await.unwrap();
    let mut bodies = vec![submission("job", 2)];
    bodies.push(pb::SubmitRequest {
        priority: 7,
        ..submission("job", 1)
    });
    bodies.push(pb::SubmitRequest {
        claims: vec![template("other")],
        ..submission("job", 1)
    });
    for body in bodies {
        let status = rig.ingest.submit(body).await.unwrap_err();
        assert_eq!(
            (status.code(), reason(&status).as_str()),
            (Code::AlreadyExists, "CLIENT_ID_REUSED")
        );
    }
    let elsewhere = pb::SubmitRequest {
        namespace: "other".into(),
        ..submission("job", 2)
    };
    assert!(
        !rig.ingest.submit(elsewhere).await.unwrap().repeated,
        "ids are a namespace's own"
    );
    assert_eq!(rig.count("units").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_name_is_taken_once() {
    let rig = Rig::new().await;
    let named = |id: &str| {
        let mut request = submission(id, 1);
        request.claims[0].name = "train".into();
        request
    };
    rig.ingest.submit(named("a")).await.unwrap();
    let before = rig.head().await;
    let status = rig.ingest.submit(named("b")).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::AlreadyExists, "ALREADY_EXISTS")
    );
    assert_eq!(rig.head().await, before);
    // The id was not used up by the refusal.
    assert!(!rig.ingest.submit(submission("b", 1)).await.unwrap().repeated);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_id_every_submission_is_another() {
    let rig = Rig::new().await;
    let first = rig.ingest.submit(submission("", 1)).await.unwrap();
    let second = rig.ingest.submit(submission("", 1)).await.unwrap();
    assert_ne!(first.unit_uid, second.unit_uid);
    assert_eq!(rig.ingest.get(&first.unit_uid).await.unwrap().client_id, first.unit_uid);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_with_the_allocation() {
    let rig = Rig::new().await;
    let unit = rig.ingest.submit(submission("job", 2)).await.unwrap().unit_uid;
    let wait = |seconds: i64| {
        let timeout = Some(prost_types::Duration {
            seconds,
            nanos: 50_000_000,
        });
        let (mut units, uid) = (rig.ingest.units(), unit.clone());
        async move {
            within(units.wait(pb::WaitUnitRequest { uid, timeout }))
                .await
                .map(tonic::Response::into_inner)
        }
    };
    assert_eq!(
        wait(0).await.unwrap().phase,
        i32::from(pb::UnitPhase::Pending),
        "as it is when time is up"
    );

    let waiting = tokio::spawn(wait(60));
    testkit::eventually(Duration::from_secs(10), || async { waiters(&rig.ingest) == 1.0 }).await;
    rig.allocate(&unit, "node-a").await;
    let allocated = within(waiting).await.unwrap().unwrap();
    assert_eq!(
        (allocated.phase, allocated.node.as_str()),
        (pb::UnitPhase::Allocated.into(), "node-a")
    );
    assert!(allocated.claims.iter().all(|claim| claim.devices.len() == 1), "{allocated:?}");
    assert_eq!(wait(60).await.unwrap(), allocated, "at once when it is allocated already");
    assert_eq!(waiters(&rig.ingest), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_unit_that_goes_is_not_found() {
    let rig = Rig::new().await;
    let unit = rig.ingest.submit(submission("job", 1)).await.unwrap().unit_uid;
    let (mut units, uid) = (rig.ingest.units(), unit.clone());
    let waiting = tokio::spawn(async move { units.wait(pb::WaitUnitRequest { uid, timeout: None }).await });
    testkit::eventually(Duration::from_secs(10), || async { waiters(&rig.ingest) == 1.0 }).await;
    rig.ingest.delete(&unit).await.unwrap();
    assert_eq!(within(waiting).await.unwrap().unwrap_err().code(), Code::NotFound);
    let again = pb::WaitUnitRequest {
        uid: unit,
        timeout: None,
    };
    assert_eq!(
        within(rig.ingest.units().wait(again)).await.unwrap_err().code(),
        Code::NotFound
    );
}

fn waiters(ingest: &Ingest) -> f64 {
    let families = ingest.registry.gather();
    let family = families
        .iter()
        .find(|family| family.name() == "dray_ingest_waiters")
        .expect("it is registered");
    family.get_metric()[0].get_gauge().get_value()
}
