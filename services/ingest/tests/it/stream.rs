//! Submitting many over one stream.

use std::collections::BTreeMap;

use rpc::dray::v1 as pb;
use rpc::dray::v1::submit_stream_response::Result as Answered;
use tonic::Code;

use crate::rig::{Rig, submission, template, within};

async fn submit_all(rig: &Rig, requests: Vec<pb::SubmitRequest>) -> BTreeMap<String, Answered> {
    let mut answers = within(rig.ingest.units().submit_stream(tokio_stream::iter(requests)))
        .await
        .unwrap()
        .into_inner();
    let mut by_id = BTreeMap::new();
    while let Some(answer) = within(answers.message()).await.unwrap() {
        assert_eq!(answer.namespace, "team");
        assert!(
            by_id.insert(answer.client_id, answer.result.unwrap()).is_none(),
            "one answer each"
        );
    }
    by_id
}

#[tokio::test(flavor = "multi_thread")]
async fn every_submission_is_answered_by_its_id() {
    let rig = Rig::new().await;
    let requests: Vec<_> = (0..3_000).map(|n| submission(&format!("job-{n:04}"), 1 + n % 2)).collect();
    let answers = submit_all(&rig, requests.clone()).await;
    assert_eq!(answers.len(), 3_000);
    for (index, (id, answer)) in answers.iter().enumerate() {
        let Answered::Accepted(accepted) = answer else {
            panic!("{id}: {answer:?}")
        };
        assert!(!accepted.repeated);
        assert_eq!(accepted.claim_uids.len(), 1 + index % 2);
    }
    let again = submit_all(&rig, requests[..200].to_vec()).await;
    for (id, answer) in &again {
        let (Answered::Accepted(repeat), Answered::Accepted(first)) = (answer, &answers[id]) else {
            panic!("{answer:?}")
        };
        assert!(repeat.repeated && repeat.unit_uid == first.unit_uid, "{id}");
    }
    assert_eq!(rig.count("units").await, 3_000);
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_do_not_end_the_stream() {
    let rig = Rig::new().await;
    let mut bad = submission("bad", 2);
    bad.claims[1] = template("Not A Class");
    let reused = submission("good", 2);
    // The id is used before: within one stream, only answers could tell two of one id apart.
    rig.ingest.submit(submission("good", 1)).await.unwrap();
    let answers = submit_all(&rig, vec![bad, reused, submission("last", 1)]).await;

    let Answered::Refused(refusal) = &answers["bad"] else {
        panic!("{answers:?}")
    };
    assert_eq!(refusal.code, i32::from(Code::InvalidArgument));
    let violation = &refusal.field_violations[0];
    assert_eq!(violation.field, "claims[1].spec.devices.requests[0].exactly.deviceClassName");
    assert_eq!(violation.reason, "FieldValueInvalid");
    let Answered::Refused(refusal) = &answers["good"] else {
        panic!("{answers:?}")
    };
    assert_eq!(refusal.code, i32::from(Code::AlreadyExists));
    assert!(matches!(answers["last"], Answered::Accepted(_)));
}
