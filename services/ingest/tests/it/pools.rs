//! Pools: replaced as a whole, in one commit, by one of many publishers.

use std::collections::BTreeSet;

use resource_api::slice::ResourceSlice;
use rpc::dray::v1 as pb;
use rpc::dray::v1::publish_pool_request::Reach;
use serde_json::json;
use store::Operation;
use tokio::task::JoinSet;
use tonic::Status;

use crate::rig::{DRIVER, Ingest, Rig, fields, within};

fn pool(pool: &str, n_devices: usize, model: &str) -> pb::PublishPoolRequest {
    let device = |i: usize| {
        let device = serde_json::from_value(json!({"name": format!("gpu-{i}"), "attributes": {"model": {"string": model}}}));
        rpc::convert::device_message(&device.unwrap()).unwrap()
    };
    pb::PublishPoolRequest {
        driver: DRIVER.into(),
        pool: pool.into(),
        reach: Some(Reach::NodeName("node-a".into())),
        devices: (0..n_devices).map(device).collect(),
    }
}

async fn publish(ingest: &Ingest, request: pb::PublishPoolRequest) -> Result<pb::PublishPoolResponse, Status> {
    within(ingest.pools().publish(request)).await.map(tonic::Response::into_inner)
}

async fn slices(rig: &Rig) -> Vec<ResourceSlice> {
    let (stored, _) = rig.store.list_all("resourceslices").await.unwrap();
    stored.iter().map(|s| serde_json::from_str(&s.body).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_published_replaced_and_withdrawn() {
    let rig = Rig::new().await;
    let first = publish(&rig.ingest, pool("p", 300, "A")).await.unwrap();
    assert_eq!(
        (first.generation, first.slices, first.sequence, first.unchanged),
        (1, 3, 3, false)
    );
    let row = rig.store.pool(DRIVER, "p").await.unwrap().unwrap();
    assert_eq!((row.slices, row.inventory, row.node.as_deref()), (3, 3, Some("node-a")));
    assert_eq!(row.shard, resource_api::shard::node_shard("node-a"));

    let same = publish(&rig.ingest, pool("p", 300, "A")).await.unwrap();
    assert_eq!((same.generation, same.sequence, same.unchanged), (1, 3, true));
    assert_eq!(rig.head().await, 3);

    let second = publish(&rig.ingest, pool("p", 130, "B")).await.unwrap();
    assert_eq!((second.generation, second.slices, second.unchanged), (2, 2, false));
    let (events, _) = rig.store.events_after(&[], 3, 10).await.unwrap();
    let operations: Vec<_> = events.iter().map(|e| e.operation).collect();
    assert_eq!(operations, [Operation::Deleted, Operation::Modified, Operation::Modified]);
    assert!(
        slices(&rig)
            .await
            .iter()
            .all(|s| s.spec.pool.generation == 2 && s.spec.pool.resource_slice_count == 2)
    );

    let gone = pb::WithdrawPoolRequest {
        driver: DRIVER.into(),
        pool: "p".into(),
    };
    within(rig.ingest.pools().withdraw(gone.clone())).await.unwrap();
    assert_eq!(
        (slices(&rig).await.len(), rig.store.pool(DRIVER, "p").await.unwrap()),
        (0, None)
    );
    within(rig.ingest.pools().withdraw(gone)).await.unwrap();
    assert!(publish(&rig.ingest, pool("p", 1, "C")).await.is_ok(), "it may come back");
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_publishers_never_mix() {
    let rig = Rig::new().await;
    let mut calls = JoinSet::new();
    for n in 0..6 {
        let mut pools = rig.ingest.pools();
        let request = pool("p", 130 + n * 60, &format!("model-{n}"));
        calls.spawn(async move {
            // Whoever keeps losing is told to come back.
            while let Err(status) = pools.publish(request.clone()).await {
                assert_eq!(status.code(), tonic::Code::Aborted, "{status:?}");
            }
        });
    }
    within(calls.join_all()).await;
    let slices = slices(&rig).await;
    let models: BTreeSet<_> = slices
        .iter()
        .flat_map(|s| s.spec.devices())
        .map(|d| format!("{:?}", d.attributes["model"]))
        .collect();
    assert_eq!(models.len(), 1, "one publisher's devices only");
    let states: BTreeSet<_> = slices
        .iter()
        .map(|s| (s.spec.pool.generation, s.spec.pool.resource_slice_count))
        .collect();
    assert_eq!(states, BTreeSet::from([(6, i64::try_from(slices.len()).unwrap())]));
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_pool_writes_nothing() {
    let rig = Rig::new().await;
    let mut bad = pool("p", 140, "A");
    bad.devices[135].name = Some("Not A Label".into());
    bad.devices[136].attributes.clear();
    bad.devices[7].name = Some("gpu-8".into());
    assert_eq!(
        fields(&publish(&rig.ingest, bad.clone()).await.unwrap_err()),
        ["devices[8].name"]
    );
    bad.devices[7].name = Some("other".into());
    assert_eq!(fields(&publish(&rig.ingest, bad).await.unwrap_err()), ["devices[135].name"]);
    assert_eq!(rig.head().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_objects_are_listed_in_pages_that_fit_a_message() {
    let rig = Rig::new().await;
    let mut large = pool("p", 128 * 40, "A");
    for (index, device) in large.devices.iter_mut().enumerate() {
        let value = rpc::resource_v1::DeviceAttribute {
            string: Some(format!("{index:060}")),
            ..Default::default()
        };
        device
            .attributes
            .extend((0..20).map(|n| (format!("filler_{n}"), value.clone())));
    }
    publish(&rig.ingest, large).await.unwrap();
    let (mut page_token, mut names, mut n_pages) = (String::new(), BTreeSet::new(), 0);
    loop {
        let request = pb::ListObjectsRequest {
            kind: "resourceslices".into(),
            page_size: 5_000,
            page_token,
            ..Default::default()
        };
        let page = within(rig.ingest.objects().list(request)).await.unwrap().into_inner();
        n_pages += 1;
        names.extend(page.objects.into_iter().map(|object| object.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names.len(), 40);
    assert!(n_pages > 1, "all of it is larger than a message may be");
    let read = within(rig.ingest.log().read(pb::ReadLogRequest::default()))
        .await
        .unwrap()
        .into_inner();
    assert!(read.events.len() < 40 && read.sequence == read.events.last().unwrap().sequence);
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_without_end_are_cut() {
    let rig = Rig::new().await;
    let mut bad = pool("p", 5_000, "A");
    bad.devices
        .iter_mut()
        .for_each(|device| device.name = Some(format!("Not A Label {}", "x".repeat(40))));
    let status = publish(&rig.ingest, bad).await.unwrap_err();
    let fields = fields(&status);
    assert!((20..256).contains(&fields.len()), "{}", fields.len());
    assert!(
        status.message().contains("256 or more fields are wrong"),
        "{}",
        status.message()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_applied_one_by_one_make_a_pool_too() {
    let rig = Rig::new().await;
    let slice = |name: &str, device: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
               "spec": {"driver": DRIVER, "nodeName": "node-a", "devices": [{"name": device}],
                        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2}}})
    };
    let row = || async {
        rig.store
            .pool(DRIVER, "p")
            .await
            .unwrap()
            .map(|row| (row.slices, row.inventory))
    };
    rig.ingest.apply(&slice("a", "gpu-0")).await.unwrap();
    rig.ingest.apply(&slice("b", "gpu-1")).await.unwrap();
    assert_eq!(row().await, Some((2, 2)));
    assert_eq!(
        rig.ingest.apply(&slice("b", "gpu-2")).await.unwrap(),
        ("configured".to_owned(), 3)
    );
    assert_eq!(row().await, Some((2, 3)));
    for (name, left) in [("a", Some((1, 4))), ("b", None)] {
        let gone = pb::DeleteObjectRequest {
            kind: "resourceslices".into(),
            name: name.into(),
            ..Default::default()
        };
        within(rig.ingest.objects().delete(gone)).await.unwrap();
        assert_eq!(row().await, left);
    }
    rig.assert_clean().await;
}
