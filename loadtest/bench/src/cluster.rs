//! The cluster that benches run on: nodes with equal devices, one class, claims of one device.

use rpc::dray::v1 as pb;
use rpc::dray::v1::objects_client::ObjectsClient;
use rpc::dray::v1::pools_client::PoolsClient;
use rpc::resource_v1 as v1;
use tokio::task::JoinSet;
use tonic::transport::Channel;

/// The driver of all devices.
pub(crate) const DRIVER: &str = "gpu.dray.example";
/// Pools published at once.
const AT_ONCE: usize = 64;

/// Publishes the class and `nodes` pools.
pub(crate) async fn publish(channel: &Channel, nodes: usize, devices: usize) -> anyhow::Result<()> {
    let class = serde_json::json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == \"{DRIVER}\"")}}]}});
    ObjectsClient::new(channel.clone())
        .apply(pb::ApplyRequest {
            json: serde_json::to_vec(&class)?,
        })
        .await?;
    let mut publishing = JoinSet::new();
    for n in 0..nodes {
        if publishing.len() >= AT_ONCE
            && let Some(done) = publishing.join_next().await
        {
            done??;
        }
        let mut client = PoolsClient::new(channel.clone());
        let request = pool(&format!("node-{n:05}"), devices);
        publishing.spawn(async move { client.publish(request).await });
    }
    while let Some(done) = publishing.join_next().await {
        done??;
    }
    Ok(())
}

fn pool(node: &str, devices: usize) -> pb::PublishPoolRequest {
    let text = |value: &str| v1::DeviceAttribute {
        string: Some(value.to_owned()),
        ..Default::default()
    };
    let device = |i: usize| v1::Device {
        name: Some(format!("gpu-{i}")),
        attributes: [
            ("model".to_owned(), text("H100")),
            ("uuid".to_owned(), text(&format!("{node}-{i}"))),
            (
                "index".to_owned(),
                v1::DeviceAttribute {
                    int: i64::try_from(i).ok(),
                    ..Default::default()
                },
            ),
        ]
        .into(),
        ..Default::default()
    };
    pb::PublishPoolRequest {
        driver: DRIVER.to_owned(),
        pool: node.to_owned(),
        reach: Some(pb::publish_pool_request::Reach::NodeName(node.to_owned())),
        devices: (0..devices).map(device).collect(),
    }
}

/// A unit of one claim for one device.
pub(crate) fn one_gpu(client_id: String) -> pb::SubmitRequest {
    let exactly = v1::ExactDeviceRequest {
        device_class_name: Some("gpu".to_owned()),
        ..Default::default()
    };
    let request = v1::DeviceRequest {
        name: Some("gpu".to_owned()),
        exactly: Some(exactly),
        ..Default::default()
    };
    let spec = v1::ResourceClaimSpec {
        devices: Some(v1::DeviceClaim {
            requests: vec![request],
            ..Default::default()
        }),
    };
    pb::SubmitRequest {
        namespace: "bench".to_owned(),
        client_id,
        claims: vec![pb::ClaimTemplate {
            spec: Some(spec),
            ..Default::default()
        }],
        priority: 0,
    }
}
