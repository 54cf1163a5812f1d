//! For node agents: registration, and what should be prepared on their nodes.

use std::collections::{BTreeMap, HashMap, HashSet};

use resource_api::meta::ObjectMeta;
use resource_api::node::{Node, NodeSpec};
use resource_api::object::AnyObject;
use resource_api::unit::{Unit, UnitPhase};
use rpc::dray::v1 as pb;
use rpc::dray::v1::agents_server::Agents;
use store::{EventRow, Mutation, Op, Operation, Outcome, Store, Write};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{Context, STREAM_MAX, Streamed, TRIES_MAX, now};
use crate::{error, live};

/// Claims in one message.
const CLAIMS_PER_MESSAGE: usize = 256;

/// `dray.v1.Agents`.
pub(crate) struct AgentsService(pub(crate) Context);

impl AgentsService {
    /// Creates or updates the Node objects; returns the last sequence written, or nothing if a write lost.
    async fn put_nodes(&self, wanted: &[pb::AgentNode]) -> Result<Option<u64>, Status> {
        let stored: HashMap<String, store::Stored> = self.nodes_named(wanted).await?;
        let mut mutations = Vec::new();
        for node in wanted {
            let object = AnyObject::from(Node {
                metadata: ObjectMeta { labels: node.labels.clone().into_iter().collect(), ..ObjectMeta::named("", &node.name) },
                spec: NodeSpec { unschedulable: node.unschedulable, ..NodeSpec::default() },
                ..Node::default()
            });
            let (uid, op, admitted) = match stored.get(&node.name) {
                Some(old) => {
                    let before = AnyObject::decode_as(object.kind(), old.body.as_bytes()).map_err(|e| Status::internal(e.to_string()))?;
                    (old.uid, Op::Update { expected: Some(old.sequence) }, self.0.admission.update(object, &before, now()))
                }
                None => {
                    let uid = Uuid::now_v7();
                    (uid, Op::Create, self.0.admission.create(object, uid, now()))
                }
            };
            let admitted = admitted.map_err(|errors| {
                error::invalid(&errors.into_iter().map(|e| (format!("nodes[{}]", node.name), e)).collect::<Vec<_>>())
            })?;
            let body = admitted.body();
            if stored.get(&node.name).is_some_and(|old| old.body == body) {
                continue;
            }
            let write = Write {
                kind: "nodes".into(),
                namespace: "".into(),
                name: node.name.as_str().into(),
                uid,
                op,
                body,
                queue: None,
                part_of: None,
                cause: Some("registered".into()),
                trace: None,
            };
            mutations.push(Mutation { writes: vec![write], ..Mutation::default() });
        }
        let mut last = 0;
        for outcome in self.0.writer.commit_all(mutations).await {
            match outcome.map_err(error::from_store)? {
                Outcome::Won { sequences } => last = last.max(sequences.first().copied().unwrap_or(0)),
                _ => return Ok(None),
            }
        }
        Ok(Some(last))
    }

    async fn nodes_named(&self, wanted: &[pb::AgentNode]) -> Result<HashMap<String, store::Stored>, Status> {
        let mut found = HashMap::new();
        if wanted.len() <= 16 {
            for node in wanted {
                if let Some(stored) = self.0.store.object("nodes", "", &node.name).await.map_err(error::from_store)? {
                    found.insert(node.name.clone(), stored);
                }
            }
            return Ok(found);
        }
        let names: HashSet<&str> = wanted.iter().map(|n| n.name.as_str()).collect();
        let (all, _) = self.0.store.list_all("nodes").await.map_err(error::from_store)?;
        found.extend(all.into_iter().filter(|n| names.contains(n.name.as_ref())).map(|n| (n.name.to_string(), n)));
        Ok(found)
    }
}

/// What an agent has been told.
struct Told {
    store: Store,
    nodes: HashSet<String>,
    /// Claims that were wanted, by unit.
    wanted: HashMap<Uuid, Vec<pb::DesiredClaim>>,
    out: mpsc::Sender<Result<pb::DesiredClaims, Status>>,
}

impl Told {
    /// What holds devices now.
    async fn start(&mut self) -> Result<bool, Status> {
        let (units, sequence) = self.store.list_all("units").await.map_err(error::from_store)?;
        let mut here: Vec<(Uuid, Unit)> = Vec::new();
        for stored in units {
            let Ok(unit) = serde_json::from_str::<Unit>(&stored.body) else { continue };
            if unit.status.node.as_ref().is_some_and(|node| self.nodes.contains(node)) {
                here.push((stored.uid, unit));
            }
        }
        let mut claims = Vec::new();
        for chunk in here.chunks(CLAIMS_PER_MESSAGE) {
            claims.extend(self.claims_of(chunk, None).await?);
        }
        for chunk in claims.chunks(CLAIMS_PER_MESSAGE) {
            if !self.send(sequence, false, chunk.to_vec()).await {
                return Ok(false);
            }
        }
        Ok(self.send(sequence, true, Vec::new()).await)
    }

    /// A unit on one of the nodes changed.
    async fn on_event(&mut self, event: &EventRow) -> Result<bool, Status> {
        let Ok(unit) = serde_json::from_str::<Unit>(&event.body) else { return Ok(true) };
        if !unit.status.node.as_ref().is_some_and(|node| self.nodes.contains(node)) {
            return Ok(true);
        }
        let gone = event.operation == Operation::Deleted || unit.status.phase == UnitPhase::Releasing;
        let claims = if gone {
            let mut claims = match self.wanted.remove(&event.uid) {
                Some(claims) => claims,
                None => self.claims_of(&[(event.uid, unit)], event.trace.as_deref()).await?,
            };
            claims.iter_mut().for_each(|claim| claim.wanted = false);
            claims
        } else {
            self.claims_of(&[(event.uid, unit)], event.trace.as_deref()).await?
        };
        Ok(claims.is_empty() || self.send(event.sequence, false, claims).await)
    }

    /// The claims of units, with their allocation's sequence, as far as they still hold devices.
    async fn claims_of(&mut self, units: &[(Uuid, Unit)], trace: Option<&str>) -> Result<Vec<pb::DesiredClaim>, Status> {
        let uids: Vec<Uuid> = units.iter().flat_map(|(_, unit)| unit.spec.claims.iter().map(|c| c.uid.0)).collect();
        let held: BTreeMap<Uuid, (u64, bool)> = self
            .store
            .allocation_sequences(&uids)
            .await
            .map_err(error::from_store)?
            .into_iter()
            .map(|(uid, sequence, draining)| (uid, (sequence, draining)))
            .collect();
        let bodies: HashMap<Uuid, store::Stored> =
            self.store.objects_by_uid(&uids).await.map_err(error::from_store)?.into_iter().map(|s| (s.uid, s)).collect();
        let mut all = Vec::new();
        for (unit_uid, unit) in units {
            let mut claims = Vec::new();
            for claim in &unit.spec.claims {
                let (Some((sequence, draining)), Some(stored)) = (held.get(&claim.uid.0), bodies.get(&claim.uid.0)) else { continue };
                claims.push(pb::DesiredClaim {
                    node: unit.status.node.clone().unwrap_or_default(),
                    namespace: stored.namespace.to_string(),
                    name: stored.name.to_string(),
                    uid: claim.uid.to_string(),
                    allocation_sequence: *sequence,
                    wanted: !draining,
                    devices: super::units::devices_of(&stored.body)?,
                    traceparent: trace.unwrap_or_default().to_owned(),
                });
            }
            if claims.iter().any(|c| c.wanted) {
                self.wanted.insert(*unit_uid, claims.clone());
            }
            all.extend(claims);
        }
        Ok(all)
    }

    async fn send(&self, sequence: u64, synced: bool, claims: Vec<pb::DesiredClaim>) -> bool {
        self.out.send(Ok(pb::DesiredClaims { sequence, synced, claims })).await.is_ok()
    }
}

#[tonic::async_trait]
impl Agents for AgentsService {
    async fn register(&self, request: Request<pb::RegisterAgentsRequest>) -> Result<Response<pb::RegisterAgentsResponse>, Status> {
        let request = request.into_inner();
        if request.agent_id.is_empty() {
            return Err(error::bad_field("agent_id", "Required value"));
        }
        for _ in 0..TRIES_MAX {
            let Some(written) = self.put_nodes(&request.nodes).await? else { continue };
            let names: Vec<String> = request.nodes.iter().map(|n| n.name.clone()).collect();
            self.0.store.register_agents(&request.agent_id, &request.epoch, &names).await.map_err(error::from_store)?;
            return Ok(Response::new(pb::RegisterAgentsResponse { sequence: written }));
        }
        Err(error::aborted("the nodes keep changing; try again"))
    }

    async fn deregister(&self, request: Request<pb::DeregisterAgentsRequest>) -> Result<Response<pb::DeregisterAgentsResponse>, Status> {
        let request = request.into_inner();
        self.0.store.deregister_agents(&request.agent_id, &request.nodes).await.map_err(error::from_store)?;
        Ok(Response::new(pb::DeregisterAgentsResponse {}))
    }

    type DesiredStream = Streamed<pb::DesiredClaims>;

    async fn desired(&self, request: Request<pb::DesiredRequest>) -> Result<Response<Self::DesiredStream>, Status> {
        let agent_id = request.into_inner().agent_id;
        let Context { store, live, .. } = self.0.clone();
        let agents = store.agents().await.map_err(error::from_store)?;
        let nodes: HashSet<String> = agents.into_iter().filter(|a| a.agent_id == agent_id).map(|a| a.node).collect();
        if nodes.is_empty() {
            return Err(error::not_found(&format!("a registration of agent {agent_id:?}")));
        }
        let (out, messages) = mpsc::channel(STREAM_MAX);
        let mut told = Told { store: store.clone(), nodes, wanted: HashMap::new(), out };
        let tell = async move {
            let told_all = async {
                // The head first: what changes while the start is read comes again as an event, which does no harm.
                let from = told.store.head().await.map_err(error::from_store)?.sequence;
                if !told.start().await? {
                    return Ok(());
                }
                let (rows_out, mut rows) = mpsc::channel(STREAM_MAX);
                let reader = tokio::spawn(live::follow_kind(store, live, "units", from, rows_out));
                while let Some(row) = rows.recv().await {
                    if !told.on_event(&row?).await? {
                        break;
                    }
                }
                reader.abort();
                Ok::<_, Status>(())
            };
            if let Err(status) = told_all.await {
                drop(told.out.send(Err(status)).await);
            }
        };
        drop(tokio::spawn(tell)); // ends with the stream
        Ok(Response::new(tokio_stream::wrappers::ReceiverStream::new(messages)))
    }
}
