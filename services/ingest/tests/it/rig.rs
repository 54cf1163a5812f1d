//! Services under test, their clients, and the parts that other services play: allocating, and looking into the store.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusConfig};
use ingest::{Config, IngestError};
use prometheus::Registry;
use resource_api::claim::{AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim};
use resource_api::unit::{Unit, UnitPhase};
use rpc::dray::v1 as pb;
use rpc::dray::v1::agents_client::AgentsClient;
use rpc::dray::v1::log_client::LogClient;
use rpc::dray::v1::objects_client::ObjectsClient;
use rpc::dray::v1::pools_client::PoolsClient;
use rpc::dray::v1::units_client::UnitsClient;
use serde_json::{Value, json};
use store::{Mutation, Op, Outcome, Store, StoreConfig, Stored, Take, UnitQueue, Write, Writer, WriterConfig};
use testkit::Stack;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::Channel;
use tonic_types::StatusExt;
use uuid::Uuid;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
pub(crate) const DRIVER: &str = "gpu.dray.example";

/// A running ingest.
pub(crate) struct Ingest {
    pub(crate) channel: Channel,
    pub(crate) stop: CancellationToken,
    pub(crate) running: JoinHandle<Result<(), IngestError>>,
    pub(crate) registry: Registry,
}

/// Servers, one ingest, and hands on the store.
pub(crate) struct Rig {
    pub(crate) stack: Stack,
    pub(crate) ingest: Ingest,
    pub(crate) store: Store,
    writer: Writer,
    _tasks: JoinSet<()>,
}

pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(DEADLINE, future).await.expect("it takes too long")
}

/// Starts an ingest on the servers of `stack`.
pub(crate) async fn ingest(stack: &Stack, change: impl FnOnce(&mut Config)) -> Ingest {
    let mut config = Config::new("ingest-test", &stack.database_url, stack.nats.url());
    config.listen = ([127, 0, 0, 1], 0).into();
    change(&mut config);
    let registry = Registry::new();
    let deps = ingest::connect(config, registry.clone()).await.unwrap();
    let address = format!("http://{}", deps.address().unwrap());
    let stop = CancellationToken::new();
    let running = tokio::spawn(ingest::run(deps, stop.clone()));
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    Ingest {
        channel,
        stop,
        running,
        registry,
    }
}

impl Ingest {
    pub(crate) fn units(&self) -> UnitsClient<Channel> {
        UnitsClient::new(self.channel.clone())
    }
    pub(crate) fn objects(&self) -> ObjectsClient<Channel> {
        ObjectsClient::new(self.channel.clone())
    }
    pub(crate) fn pools(&self) -> PoolsClient<Channel> {
        PoolsClient::new(self.channel.clone())
    }
    pub(crate) fn log(&self) -> LogClient<Channel> {
        LogClient::new(self.channel.clone())
    }
    pub(crate) fn agents(&self) -> AgentsClient<Channel> {
        AgentsClient::new(self.channel.clone())
    }

    /// Creates or changes an object; its outcome and sequence.
    pub(crate) async fn apply(&self, object: &Value) -> Result<(String, u64), Status> {
        let request = pb::ApplyRequest {
            json: serde_json::to_vec(object).unwrap(),
        };
        let response = within(self.objects().apply(request)).await?.into_inner();
        Ok((response.outcome, response.object.unwrap().sequence))
    }

    pub(crate) async fn submit(&self, request: pb::SubmitRequest) -> Result<pb::SubmitResponse, Status> {
        within(self.units().submit(request)).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn delete(&self, unit: &str) -> Result<pb::DeleteUnitResponse, Status> {
        let request = pb::DeleteUnitRequest { uid: unit.to_owned() };
        within(self.units().delete(request)).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn get(&self, unit: &str) -> Result<pb::Unit, Status> {
        within(self.units().get(pb::GetUnitRequest { uid: unit.to_owned() }))
            .await
            .map(tonic::Response::into_inner)
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        drop(self.channel);
        within(self.running).await.unwrap().unwrap();
    }
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let stack = testkit::stack().await.unwrap();
        let ingest = ingest(&stack, change).await;
        let store = Store::connect(&StoreConfig::new(&stack.database_url, "test")).unwrap();
        let bus = Bus::connect(BusConfig::new(stack.nats.url()), "test").await.unwrap();
        let mut tasks = JoinSet::new();
        let (announce, committed) = mpsc::channel(follower::ANNOUNCE_QUEUE_MAX);
        tasks.spawn(follower::announce(bus, "test".into(), committed));
        let writer = Writer::spawn(
            store.clone(),
            WriterConfig::new("test"),
            Some(announce),
            &mut tasks,
            CancellationToken::new(),
        );
        Self {
            stack,
            ingest,
            store,
            writer,
            _tasks: tasks,
        }
    }

    pub(crate) async fn head(&self) -> u64 {
        self.store.head().await.unwrap().sequence
    }

    pub(crate) async fn count(&self, kind: &str) -> usize {
        self.store.list_all(kind).await.unwrap().0.len()
    }

    /// Nothing in the tables contradicts anything else.
    pub(crate) async fn assert_clean(&self) {
        let report = self.store.audit().await.unwrap();
        assert!(report.is_clean(), "{:?}", report.violations);
    }

    /// Plays the allocator: gives each claim of the unit one device of `node`, named after the claim's place.
    pub(crate) async fn allocate(&self, unit: &str, node: &str) -> u64 {
        self.try_allocate(unit, node).await.expect("nobody else changes the unit")
    }

    /// As [`Rig::allocate`]; `None` if something has changed or gone meanwhile.
    pub(crate) async fn try_allocate(&self, unit: &str, node: &str) -> Option<u64> {
        let uid: Uuid = unit.parse().unwrap();
        let stored = self.store.objects_by_uid(&[uid]).await.unwrap().pop()?;
        let mut unit: Unit = serde_json::from_str(&stored.body).unwrap();
        let mut mutation = Mutation::default();
        for (index, claim) in unit.spec.claims.iter().enumerate() {
            let stored = self.store.objects_by_uid(&[claim.uid.0]).await.unwrap().pop()?;
            let mut object: ResourceClaim = serde_json::from_str(&stored.body).unwrap();
            let device = format!("{}-{index}", &uid.simple().to_string()[24..]);
            object.status.allocation = Some(AllocationResult {
                devices: DeviceAllocationResult {
                    results: vec![DeviceRequestAllocationResult {
                        request: "gpu".into(),
                        driver: DRIVER.into(),
                        pool: node.into(),
                        device: device.as_str().into(),
                        ..Default::default()
                    }],
                    ..Default::default()
                },
                ..Default::default()
            });
            mutation.takes.push(Take {
                write: index,
                driver: DRIVER.into(),
                pool: node.into(),
                device: device.into(),
                claim: claim.uid.0,
            });
            mutation
                .writes
                .push(update(&stored, serde_json::to_string(&object).unwrap(), None));
        }
        unit.status.phase = UnitPhase::Allocated;
        unit.status.node = Some(node.to_owned());
        let queue = UnitQueue {
            home_shard: unit.spec.home_shard,
            priority: unit.spec.priority,
            pending: false,
        };
        mutation
            .writes
            .push(update(&stored, serde_json::to_string(&unit).unwrap(), Some(queue)));
        match self.writer.commit(mutation).await.unwrap() {
            Outcome::Won { sequences } => sequences.first().copied(),
            _ => None,
        }
    }
}

fn update(stored: &Stored, body: String, queue: Option<UnitQueue>) -> Write {
    Write {
        kind: stored.kind.to_string().into(),
        namespace: stored.namespace.clone(),
        name: stored.name.clone(),
        uid: stored.uid,
        op: Op::Update {
            expected: Some(stored.sequence),
        },
        body: Arc::from(body),
        queue,
        part_of: None,
        cause: Some("allocated".into()),
        trace: None,
    }
}

/// A submission of claims for one device each.
pub(crate) fn submission(client_id: &str, n_claims: usize) -> pb::SubmitRequest {
    pb::SubmitRequest {
        namespace: "team".into(),
        client_id: client_id.into(),
        claims: vec![template("gpu"); n_claims],
        priority: 0,
    }
}

pub(crate) fn template(class: &str) -> pb::ClaimTemplate {
    let spec = serde_json::from_value(json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": class}}]}}));
    pb::ClaimTemplate {
        spec: Some(rpc::convert::claim_spec_message(&spec.unwrap()).unwrap()),
        ..Default::default()
    }
}

pub(crate) fn claim(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
    })
}

/// The fields that an INVALID_ARGUMENT complains about.
pub(crate) fn fields(status: &Status) -> Vec<String> {
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status:?}");
    let request = status.get_details_bad_request().expect("google.rpc.BadRequest");
    request
        .field_violations
        .into_iter()
        .map(|violation| violation.field)
        .collect()
}

/// The reason in google.rpc.ErrorInfo.
pub(crate) fn reason(status: &Status) -> String {
    let info = status.get_details_error_info().expect("google.rpc.ErrorInfo");
    assert_eq!(info.domain, "dray.v1");
    info.reason
}
