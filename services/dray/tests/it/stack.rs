//! Services in this process, over a database and a NATS server of the test's own.

use std::time::Duration;

use rpc::dray::v1 as pb;
use rpc::dray::v1::objects_client::ObjectsClient;
use rpc::dray::v1::pools_client::PoolsClient;
use rpc::dray::v1::units_client::UnitsClient;
use rpc::resource_v1 as v1;
use store::{Store, StoreConfig};
use testkit::Owned;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

pub(crate) struct Stack {
    pub(crate) store: Store,
    pub(crate) database_url: String,
    pub(crate) nats: Owned<embedded::Nats>,
    pub(crate) channel: Channel,
    running: Vec<(CancellationToken, JoinHandle<()>)>,
}

pub(crate) const DRIVER: &str = "gpu.dray.example";

impl Stack {
    /// Ingest, controller, and as many allocators.
    pub(crate) async fn start(allocators: usize) -> Self {
        let testkit::Stack { database_url, nats } = testkit::stack().await.unwrap();
        let store = Store::connect(&StoreConfig::new(database_url.clone(), "test")).unwrap();
        let config = ingest::Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            ..ingest::Config::new("ingest-1", &database_url, nats.url())
        };
        let deps = ingest::connect(config, prometheus::Registry::new()).await.unwrap();
        let address = deps.address().unwrap();
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        let mut stack = Self {
            store,
            database_url,
            nats,
            channel,
            running: Vec::new(),
        };
        let stop = CancellationToken::new();
        stack.running.push((
            stop.clone(),
            tokio::spawn(async move { ingest::run(deps, stop).await.unwrap() }),
        ));
        stack.controller().await;
        for n in 0..allocators {
            stack.allocator(&format!("allocator-{n}")).await;
        }
        stack
    }

    async fn controller(&mut self) {
        let config = controller::Config::new("controller-1", &self.database_url, self.nats.url());
        let deps = controller::connect(config, prometheus::Registry::new()).await.unwrap();
        let stop = CancellationToken::new();
        self.running.push((
            stop.clone(),
            tokio::spawn(async move { controller::run(deps, stop).await.unwrap() }),
        ));
    }

    /// Starts an allocator; its registry and its stop.
    pub(crate) async fn allocator(&mut self, id: &str) -> (prometheus::Registry, CancellationToken) {
        let registry = prometheus::Registry::new();
        let config = allocator::Config {
            lease_ttl: Duration::from_millis(900),
            ..allocator::Config::new(id, &self.database_url, self.nats.url())
        };
        let deps = allocator::connect(config, registry.clone()).await.unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        self.running.push((
            stop.clone(),
            tokio::spawn(async move { allocator::run(deps, stopped).await.unwrap() }),
        ));
        (registry, stop)
    }

    pub(crate) fn units(&self) -> UnitsClient<Channel> {
        UnitsClient::new(self.channel.clone())
    }

    pub(crate) async fn class(&self, name: &str, expression: &str) {
        let json = serde_json::json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": expression}}]}});
        self.apply(&json).await;
    }

    pub(crate) async fn apply(&self, json: &serde_json::Value) -> pb::ApplyResponse {
        let mut objects = ObjectsClient::new(self.channel.clone());
        objects
            .apply(pb::ApplyRequest {
                json: serde_json::to_vec(json).unwrap(),
            })
            .await
            .unwrap()
            .into_inner()
    }

    /// A pool of the node with this many devices of a model.
    pub(crate) async fn pool(&self, node: &str, n_devices: usize, model: &str) {
        let devices = (0..n_devices)
            .map(|i| v1::Device {
                name: Some(format!("gpu-{i}")),
                attributes: [(
                    "model".to_owned(),
                    v1::DeviceAttribute {
                        string: Some(model.into()),
                        ..Default::default()
                    },
                )]
                .into(),
                ..Default::default()
            })
            .collect();
        let request = pb::PublishPoolRequest {
            driver: DRIVER.into(),
            pool: node.into(),
            reach: Some(pb::publish_pool_request::Reach::NodeName(node.into())),
            devices,
        };
        PoolsClient::new(self.channel.clone()).publish(request).await.unwrap();
    }

    pub(crate) async fn submit(&self, client_id: &str, class: &str, counts: &[i64]) -> pb::SubmitResponse {
        self.units()
            .submit(unit(client_id, class, counts))
            .await
            .unwrap()
            .into_inner()
    }

    pub(crate) async fn wait(&self, uid: &str) -> pb::Unit {
        let request = pb::WaitUnitRequest {
            uid: uid.into(),
            timeout: Some(prost_types::Duration { seconds: 20, nanos: 0 }),
        };
        self.units().wait(request).await.unwrap().into_inner()
    }

    pub(crate) async fn assert_clean(&self) {
        let report = self.store.audit().await.unwrap();
        assert!(report.is_clean(), "{:?}", report.violations);
    }

    pub(crate) async fn stop(self) {
        for (stop, _) in &self.running {
            stop.cancel();
        }
        for (_, task) in self.running {
            task.await.unwrap();
        }
    }
}

/// A unit with one claim per count.
pub(crate) fn unit(client_id: &str, class: &str, counts: &[i64]) -> pb::SubmitRequest {
    let claims = counts
        .iter()
        .map(|count| pb::ClaimTemplate {
            spec: Some(v1::ResourceClaimSpec {
                devices: Some(v1::DeviceClaim {
                    requests: vec![v1::DeviceRequest {
                        name: Some("gpu".into()),
                        exactly: Some(v1::ExactDeviceRequest {
                            device_class_name: Some(class.into()),
                            count: Some(*count),
                            ..Default::default()
                        }),
                        ..Default::default()
                    }],
                    ..Default::default()
                }),
            }),
            ..Default::default()
        })
        .collect();
    pb::SubmitRequest {
        namespace: "team-a".into(),
        client_id: client_id.into(),
        claims,
        priority: 0,
    }
}
