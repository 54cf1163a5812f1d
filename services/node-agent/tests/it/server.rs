//! `dray.v1` as far as agents use it, with a state that the test sets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures::{Stream, StreamExt};
use rpc::dray::v1 as pb;
use rpc::dray::v1::agents_server::{Agents, AgentsServer};
use rpc::dray::v1::objects_server::{Objects, ObjectsServer};
use rpc::dray::v1::pools_server::{Pools, PoolsServer};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::{TcpListenerStream, WatchStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// By (uid, allocation sequence).
type Claims = BTreeMap<(String, u64), pb::DesiredClaim>;

#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) position: u64,
    pub(crate) claims: Claims,
}

/// The server; clones share it.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) state: watch::Sender<State>,
    pub(crate) registered: Arc<Mutex<Vec<pb::RegisterAgentsRequest>>>,
    pub(crate) pools: Arc<Mutex<BTreeMap<String, pb::PublishPoolRequest>>>,
    pub(crate) given_back: Arc<Mutex<Vec<String>>>,
    /// Every slice that was written, as the log has it.
    pub(crate) slices: watch::Sender<Vec<pb::Event>>,
    /// Labels of the nodes that are known before anyone registers them.
    pub(crate) labels: Arc<Mutex<BTreeMap<String, String>>>,
    pub(crate) address: SocketAddr,
    /// Streams end with it.
    life: Arc<Mutex<CancellationToken>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self {
            state: watch::Sender::new(State::default()),
            registered: Arc::default(),
            pools: Arc::default(),
            given_back: Arc::default(),
            slices: watch::Sender::default(),
            labels: Arc::default(),
            address,
            life: Arc::default(),
        };
        let router = tonic::transport::Server::builder()
            .add_service(AgentsServer::new(server.clone()))
            .add_service(ObjectsServer::new(server.clone()))
            .add_service(PoolsServer::new(server.clone()));
        tokio::spawn(async move {
            router.serve_with_incoming(TcpListenerStream::new(listener)).await.ok();
        });
        server
    }

    /// Ends all streams; their successors come from a server with this state.
    pub(crate) fn restart_with(&self, state: State) {
        let old = std::mem::take(&mut *self.life.lock().unwrap());
        // What is still on its way ends with the old life, so that it never shows the new state.
        let mut next = Some(state);
        self.state.send_if_modified(|state| {
            old.cancel();
            *state = next.take().unwrap();
            false
        });
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Allocates `device` of `driver` to a new claim; returns the claim's uid.
    pub(crate) fn allocate(&self, node: &str, name: &str, driver: &str, device: &str) -> String {
        let uid = uuid::Uuid::now_v7().to_string();
        self.state.send_modify(|state| {
            state.position += 1;
            let given = pb::AllocatedDevice {
                request: "gpu".into(),
                driver: driver.into(),
                pool: node.into(),
                device: device.into(),
                ..pb::AllocatedDevice::default()
            };
            let claim = pb::DesiredClaim {
                node: node.into(),
                namespace: "team".into(),
                name: name.into(),
                uid: uid.clone(),
                allocation_sequence: state.position,
                wanted: true,
                devices: vec![given],
                traceparent: String::new(),
            };
            state.claims.insert((uid.clone(), state.position), claim);
        });
        uid
    }

    /// A driver's pool has a slice, on `node` alone if it is named.
    pub(crate) fn write_slice(&self, driver: &str, pool: &str, node: Option<&str>) {
        let json = json!({"metadata": {"name": pool}, "spec": {"driver": driver, "pool": {"name": pool}, "nodeName": node}});
        self.slices.send_modify(|slices| {
            slices.push(pb::Event {
                sequence: slices.len() as u64 + 1,
                object: Some(object(pool, &json)),
                ..pb::Event::default()
            });
        });
    }

    /// The claim is not wanted any more; it stays in the list until the agent has let go.
    pub(crate) fn delete(&self, uid: &str) {
        self.state.send_modify(|state| {
            state.position += 1;
            state
                .claims
                .values_mut()
                .filter(|claim| claim.uid == uid)
                .for_each(|claim| claim.wanted = false);
        });
    }

    /// The agent let go.
    pub(crate) fn release(&self, uid: &str, sequence: u64) {
        self.state.send_modify(|state| {
            state.claims.remove(&(uid.to_owned(), sequence));
        });
    }

    pub(crate) fn knows(&self, uid: &str) -> bool {
        self.state.borrow().claims.keys().any(|(known, _)| known == uid)
    }
}

fn object(name: &str, json: &serde_json::Value) -> pb::Object {
    pb::Object {
        name: name.to_owned(),
        json: json.to_string().into_bytes(),
        ..pb::Object::default()
    }
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Agents for Server {
    async fn register(
        &self,
        request: Request<pb::RegisterAgentsRequest>,
    ) -> Result<Response<pb::RegisterAgentsResponse>, Status> {
        self.registered.lock().unwrap().push(request.into_inner());
        Ok(Response::new(pb::RegisterAgentsResponse { sequence: 1 }))
    }

    async fn deregister(
        &self,
        request: Request<pb::DeregisterAgentsRequest>,
    ) -> Result<Response<pb::DeregisterAgentsResponse>, Status> {
        self.given_back.lock().unwrap().extend(request.into_inner().nodes);
        Ok(Response::new(pb::DeregisterAgentsResponse {}))
    }

    type DesiredStream = Messages<pb::DesiredClaims>;

    /// The list comes in two messages, so that half of it is never taken for the whole.
    async fn desired(&self, _: Request<pb::DesiredRequest>) -> Result<Response<Self::DesiredStream>, Status> {
        let mut first = true;
        let messages = WatchStream::new(self.state.subscribe()).map(move |state| {
            let all: Vec<_> = state.claims.into_values().collect();
            let whole = pb::DesiredClaims {
                sequence: state.position,
                synced: true,
                claims: all.clone(),
            };
            if !std::mem::take(&mut first) {
                return vec![Ok(whole)];
            }
            let (begin, end) = all.split_at(all.len() / 2);
            let part = pb::DesiredClaims {
                sequence: state.position,
                synced: false,
                claims: begin.to_vec(),
            };
            vec![
                Ok(part),
                Ok(pb::DesiredClaims {
                    claims: end.to_vec(),
                    ..whole
                }),
            ]
        });
        let life = self.life.lock().unwrap().clone();
        Ok(Response::new(Box::pin(
            messages.flat_map(futures::stream::iter).take_until(life.cancelled_owned()),
        )))
    }
}

#[tonic::async_trait]
impl Objects for Server {
    async fn get(&self, request: Request<pb::GetObjectRequest>) -> Result<Response<pb::Object>, Status> {
        let request = request.into_inner();
        let state = self.state.borrow();
        let claim = state
            .claims
            .values()
            .find(|claim| claim.namespace == request.namespace && claim.name == request.name);
        let claim = claim.ok_or_else(|| Status::not_found(format!("resourceclaims {:?} not found", request.name)))?;
        let result = |device: &pb::AllocatedDevice| json!({"request": device.request, "driver": device.driver, "pool": device.pool, "device": device.device});
        let results: Vec<_> = claim.devices.iter().map(result).collect();
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
            "spec": {}, "status": {"allocation": {"devices": {"results": results}}},
        });
        Ok(Response::new(pb::Object {
            json: object.to_string().into_bytes(),
            ..pb::Object::default()
        }))
    }

    async fn apply(&self, _: Request<pb::ApplyRequest>) -> Result<Response<pb::ApplyResponse>, Status> {
        Err(Status::unimplemented("not for agents"))
    }

    /// In pages of two, all as of the head.
    async fn list(&self, request: Request<pb::ListObjectsRequest>) -> Result<Response<pb::ListObjectsResponse>, Status> {
        let request = request.into_inner();
        let slices = self.slices.borrow().clone();
        let objects: Vec<pb::Object> = match request.kind.as_str() {
            "resourceslices" => slices.iter().filter_map(|event| event.object.clone()).collect(),
            "nodes" => {
                let labels = self.labels.lock().unwrap();
                let node = |(name, zone): (&String, &String)| {
                    object(
                        name,
                        &json!({"metadata": {"name": name, "labels": {"zone": zone}}, "spec": {"unschedulable": true}}),
                    )
                };
                labels.iter().map(node).collect()
            }
            _ => return Err(Status::invalid_argument("kind")),
        };
        let begin: usize = request.page_token.parse().unwrap_or_default();
        let end = (begin + 2).min(objects.len());
        Ok(Response::new(pb::ListObjectsResponse {
            objects: objects[begin..end].to_vec(),
            next_page_token: if end < objects.len() { end.to_string() } else { String::new() },
            sequence: slices.len() as u64,
        }))
    }

    async fn delete(&self, _: Request<pb::DeleteObjectRequest>) -> Result<Response<pb::DeleteObjectResponse>, Status> {
        Err(Status::unimplemented("not for agents"))
    }

    type WatchStream = Messages<pb::Event>;

    async fn watch(&self, request: Request<pb::WatchObjectsRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let mut told = request.into_inner().after_sequence as usize;
        let events = WatchStream::new(self.slices.subscribe()).map(move |slices| {
            let new: Vec<_> = slices[told..].iter().cloned().map(Ok).collect();
            told = slices.len();
            new
        });
        let life = self.life.lock().unwrap().clone();
        Ok(Response::new(Box::pin(
            events.flat_map(futures::stream::iter).take_until(life.cancelled_owned()),
        )))
    }
}

#[tonic::async_trait]
impl Pools for Server {
    async fn publish(&self, request: Request<pb::PublishPoolRequest>) -> Result<Response<pb::PublishPoolResponse>, Status> {
        let pool = request.into_inner();
        self.pools.lock().unwrap().insert(pool.pool.clone(), pool);
        Ok(Response::new(pb::PublishPoolResponse {
            generation: 1,
            slices: 1,
            sequence: 1,
            unchanged: false,
        }))
    }

    async fn withdraw(&self, _: Request<pb::WithdrawPoolRequest>) -> Result<Response<pb::WithdrawPoolResponse>, Status> {
        Err(Status::unimplemented("not for agents"))
    }
}
