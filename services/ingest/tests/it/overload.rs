//! Too much to do: refused with a time to come back, bounded, and nothing accepted is lost.

use std::time::Duration;

use tokio::task::JoinSet;
use tonic::Code;
use tonic_types::StatusExt;

use crate::rig::{Rig, fields, submission, within};
use crate::watch::WritersLock;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_with_a_time_to_come_back() {
    let rig = Rig::with(|config| config.writes_max = 4).await;
    // No commit ends while the test holds the lock that all writers take.
    let lock = WritersLock::take(&rig.stack.database_url).await;
    let mut calls = JoinSet::new();
    for n in 0..1_500 {
        let mut units = rig.ingest.units();
        calls.spawn(async move {
            units
                .submit(submission(&format!("job-{n}"), 1))
                .await
                .map(tonic::Response::into_inner)
        });
    }
    let mut refused = 0;
    let first = within(calls.join_next()).await.unwrap().unwrap().unwrap_err();
    assert_eq!(first.code(), Code::ResourceExhausted, "{first:?}");
    let retry = first.get_details_retry_info().expect("google.rpc.RetryInfo");
    assert_eq!(retry.retry_delay, Some(Duration::from_millis(200)));
    refused += 1;

    lock.release().await;
    let mut accepted = 0;
    while let Some(call) = within(calls.join_next()).await {
        match call.unwrap() {
            Ok(_) => accepted += 1,
            Err(status) if status.code() == Code::ResourceExhausted => refused += 1,
            Err(status) => panic!("{status:?}"),
        }
    }
    assert_eq!(accepted + refused, 1_500);
    assert_eq!(
        rig.count("units").await,
        accepted,
        "what was accepted is there, what was refused is not"
    );
    assert!(!rig.ingest.submit(submission("later", 1)).await.unwrap().repeated);
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_bounded() {
    let rig = Rig::with(|config| config.waiters_max = 1).await;
    let unit = rig.ingest.submit(submission("job", 1)).await.unwrap().unit_uid;
    let wait = || {
        let (mut units, uid) = (rig.ingest.units(), unit.clone());
        async move { units.wait(rpc::dray::v1::WaitUnitRequest { uid, timeout: None }).await }
    };
    let mut waiting = JoinSet::new();
    waiting.spawn(wait());
    waiting.spawn(wait());
    let refused = within(waiting.join_next()).await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    rig.allocate(&unit, "node-a").await;
    within(waiting.join_next()).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_has_at_most_thirty_two_claims() {
    let rig = Rig::new().await;
    assert_eq!(
        fields(&rig.ingest.submit(submission("job", 33)).await.unwrap_err()),
        ["claims"]
    );
    assert_eq!(rig.ingest.submit(submission("job", 32)).await.unwrap().claim_uids.len(), 32);
}
