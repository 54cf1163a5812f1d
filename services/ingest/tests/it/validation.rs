//! Bad input: every field error, nothing written.

use rpc::dray::v1 as pb;
use serde_json::{Value, json};
use tonic::Code;

use crate::rig::{Rig, claim, fields, reason, submission, template, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_is_told_all_its_faults_and_writes_nothing() {
    let rig = Rig::new().await;
    let mut request = submission("job", 4);
    request.claims[0] = template("Not A Class");
    request.claims[1].spec = None;
    request.claims[2].name = "UPPER".into();
    let message = request.claims[3].spec.as_mut().unwrap().devices.as_mut().unwrap();
    message.requests[0].exactly.as_mut().unwrap().selectors = vec![rpc::resource_v1::DeviceSelector {
        cel: Some(rpc::resource_v1::CelDeviceSelector {
            expression: Some("device.".into()),
        }),
    }];
    let status = rig.ingest.submit(request.clone()).await.unwrap_err();
    let fields = fields(&status);
    for wanted in [
        "claims[0].spec.devices.requests[0].exactly.deviceClassName",
        "claims[1].spec",
        "claims[2].name",
        "claims[3].spec.devices.requests[0].exactly.selectors[0].cel.expression",
    ] {
        assert!(
            fields.iter().any(|field| field == wanted),
            "{wanted} is missing in {fields:?}"
        );
    }
    assert_eq!(rig.head().await, 0);
    // Nor is the id used up.
    assert!(!rig.ingest.submit(submission("job", 1)).await.unwrap().repeated);

    request.namespace = "Not A Namespace".into();
    request.client_id = "c".repeat(254);
    let status = rig.ingest.submit(request).await.unwrap_err();
    let fields = self::fields(&status);
    assert!(
        fields.contains(&"namespace".to_owned()) && fields.contains(&"client_id".to_owned()),
        "{fields:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_created_changed_and_left_alone() {
    let rig = Rig::new().await;
    let class = |expression: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
               "spec": {"selectors": [{"cel": {"expression": expression}}]}})
    };
    let (outcome, created) = rig.ingest.apply(&class("true")).await.unwrap();
    assert_eq!((outcome.as_str(), created), ("created", 1));
    assert_eq!(
        rig.ingest.apply(&class("true")).await.unwrap(),
        ("unchanged".to_owned(), created)
    );
    assert_eq!(rig.ingest.apply(&class("false")).await.unwrap().0, "configured");
    assert_eq!(rig.head().await, 2);

    let got = pb::GetObjectRequest {
        kind: "deviceclasses".into(),
        namespace: "ignored".into(),
        name: "gpu".into(),
    };
    let got = within(rig.ingest.objects().get(got)).await.unwrap().into_inner();
    let object: Value = serde_json::from_slice(&got.json).unwrap();
    assert_eq!(object["metadata"]["resourceVersion"], "2");
    assert_eq!(object["metadata"]["generation"], 2);
    assert_eq!(object["spec"]["selectors"][0]["cel"]["expression"], "false");

    let gone = pb::DeleteObjectRequest {
        kind: "deviceclasses".into(),
        name: "gpu".into(),
        ..Default::default()
    };
    within(rig.ingest.objects().delete(gone.clone())).await.unwrap();
    assert_eq!(
        within(rig.ingest.objects().delete(gone)).await.unwrap_err().code(),
        Code::NotFound
    );
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_told_their_faults_and_write_nothing() {
    let rig = Rig::new().await;
    let bad = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "Bad Name"},
                     "spec": {"selectors": [{"cel": {"expression": "device."}}, {}]}});
    let status = rig.ingest.apply(&bad).await.unwrap_err();
    let fields = fields(&status);
    assert!(fields.contains(&"metadata.name".to_owned()), "{fields:?}");
    assert!(fields.contains(&"spec.selectors[0].cel.expression".to_owned()), "{fields:?}");
    assert!(
        fields.iter().any(|field| field.starts_with("spec.selectors[1]")),
        "{fields:?}"
    );
    for bad in [
        json!({"kind": "DeviceClass"}),
        json!({"apiVersion": "v1", "kind": "Pod"}),
        json!([1]),
    ] {
        assert_eq!(self::fields(&rig.ingest.apply(&bad).await.unwrap_err()), ["json"]);
    }
    assert_eq!(rig.head().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_cannot_change_their_spec_nor_join_a_unit() {
    let rig = Rig::new().await;
    rig.ingest.apply(&claim("c", json!({}))).await.unwrap();
    let mut other = claim("c", json!({}));
    other["spec"]["devices"]["requests"][0]["exactly"]["count"] = json!(2);
    assert_eq!(fields(&rig.ingest.apply(&other).await.unwrap_err()), ["spec"]);
    let mut joins = claim("d", json!({}));
    joins["metadata"]["annotations"] = json!({"dray.v1/unit": "00000000-0000-0000-0000-000000000001"});
    assert_eq!(
        fields(&rig.ingest.apply(&joins).await.unwrap_err()),
        ["metadata.annotations[dray.v1/unit]"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_units_claim_stays_the_units() {
    let rig = Rig::new().await;
    let mut request = submission("job", 1);
    request.claims[0].name = "train".into();
    let unit = rig.ingest.submit(request).await.unwrap().unit_uid;
    // A file that knows nothing of the unit.
    assert_eq!(
        rig.ingest.apply(&claim("train", json!({"team": "a"}))).await.unwrap().0,
        "configured"
    );
    let stored = rig.store.object("resourceclaims", "team", "train").await.unwrap().unwrap();
    assert!(stored.body.contains(&unit), "{}", stored.body);
    let gone = pb::DeleteObjectRequest {
        kind: "resourceclaims".into(),
        namespace: "team".into(),
        name: "train".into(),
        ..Default::default()
    };
    let status = within(rig.ingest.objects().delete(gone)).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::FailedPrecondition, "IN_USE")
    );
}
