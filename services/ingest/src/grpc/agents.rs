//! For node agents: registration, and what should be prepared on their nodes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use resource_api::meta::ObjectMeta;
use resource_api::node::{Node, NodeSpec};
use resource_api::object::{AnyObject, Kind};
use resource_api::unit::{UNIT_ANNOTATION, Unit, UnitPhase};
use rpc::dray::v1 as pb;
use rpc::dray::v1::agents_server::Agents;
use store::{EventRow, HeldClaim, Mutation, Op, Operation, Outcome, Store, Stored, Write};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::units::devices_of;
use super::{Context, STREAM_MAX, Streamed, TRIES_MAX, now, trace_of};
use crate::error;
use crate::live::Live;
use crate::violation::{Violation, add};

/// Claims in one message.
const CLAIMS_PER_MESSAGE: usize = 256;
/// Unit events that are looked up together.
const EVENTS_PER_READ: usize = 256;
/// Above this many nodes, all are read at once instead of one by one.
const NODES_READ_SINGLY_MAX: usize = 16;
/// What a report says of devices that still are, or may be, prepared. See `store::PreparedRow`.
const UNPREPARED: i16 = 2;

/// `dray.v1.Agents`.
pub(crate) struct AgentsService(pub(crate) Context);

impl AgentsService {
    /// Creates or updates the Node objects; returns the last sequence written (0: none), or nothing if a write lost.
    async fn put_nodes(&self, wanted: &[pb::AgentNode], trace: Option<&Arc<str>>) -> Result<Option<u64>, Status> {
        let stored = self.nodes_named(wanted).await?;
        let mut violations = Vec::new();
        let mut mutations = Vec::new();
        for (index, node) in wanted.iter().enumerate() {
            match self.node_write(node, stored.get(&node.name), trace)? {
                Ok(None) => {}
                Ok(Some(write)) => mutations.push(Mutation {
                    writes: vec![write],
                    ..Mutation::default()
                }),
                Err(errors) => {
                    errors
                        .iter()
                        .for_each(|e| add(&mut violations, Violation::new(node_field(index, &e.path), e)));
                }
            }
        }
        if !violations.is_empty() {
            return Err(error::invalid(&violations));
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

    /// The write that makes the node so; `None` if it is so already. What others say about a node (annotations, taints) stays.
    fn node_write(
        &self,
        node: &pb::AgentNode,
        stored: Option<&Stored>,
        trace: Option<&Arc<str>>,
    ) -> Result<Result<Option<Write>, Vec<resource_api::field_path::FieldError>>, Status> {
        let labels = node.labels.clone().into_iter().collect();
        let (uid, op, admitted) = match stored {
            Some(old) => {
                let mut object: Node = serde_json::from_str(&old.body).map_err(|e| error::unreadable("node", &e))?;
                let before = AnyObject::from(object.clone());
                object.metadata.labels = labels;
                object.spec.unschedulable = node.unschedulable;
                (
                    old.uid,
                    Op::Update {
                        expected: Some(old.sequence),
                    },
                    self.0.gatekeeper.admission().update(object.into(), &before, now()),
                )
            }
            None => {
                let object = Node {
                    metadata: ObjectMeta {
                        labels,
                        ..ObjectMeta::named("", &node.name)
                    },
                    spec: NodeSpec {
                        unschedulable: node.unschedulable,
                        ..NodeSpec::default()
                    },
                    ..Node::default()
                };
                let uid = Uuid::now_v7();
                (
                    uid,
                    Op::Create,
                    self.0.gatekeeper.admission().create(object.into(), uid, now()),
                )
            }
        };
        let body = match admitted {
            Ok(admitted) => admitted.body(),
            Err(errors) => return Ok(Err(errors)),
        };
        if stored.is_some_and(|old| old.body == body) {
            return Ok(Ok(None));
        }
        Ok(Ok(Some(Write {
            kind: Kind::Node.plural().into(),
            namespace: "".into(),
            name: node.name.as_str().into(),
            uid,
            op,
            body,
            queue: None,
            part_of: None,
            cause: Some("registered".into()),
            trace: trace.cloned(),
        })))
    }

    async fn nodes_named(&self, wanted: &[pb::AgentNode]) -> Result<HashMap<String, Stored>, Status> {
        let plural = Kind::Node.plural();
        let mut found = HashMap::new();
        if wanted.len() <= NODES_READ_SINGLY_MAX {
            for node in wanted {
                if let Some(stored) = self.0.store.object(plural, "", &node.name).await.map_err(error::from_store)? {
                    found.insert(node.name.clone(), stored);
                }
            }
            return Ok(found);
        }
        let names: HashSet<&str> = wanted.iter().map(|n| n.name.as_str()).collect();
        let (all, _) = self.0.store.list_all(plural).await.map_err(error::from_store)?;
        found.extend(
            all.into_iter()
                .filter(|n| names.contains(n.name.as_ref()))
                .map(|n| (n.name.to_string(), n)),
        );
        Ok(found)
    }

    /// Claims of these nodes for which the agent still owes its word: prepared and not unprepared, or draining.
    async fn owed(&self, nodes: &HashSet<String>) -> Result<usize, Status> {
        let held = self.0.store.held_claims().await.map_err(error::from_store)?;
        let units: Vec<Uuid> = held.iter().filter_map(unit_of_claim).collect();
        let units = self.0.store.objects_by_uid(&units).await.map_err(error::from_store)?;
        let here: HashSet<Uuid> = units
            .iter()
            .filter(|u| node_of(&u.body).is_some_and(|n| nodes.contains(&n)))
            .map(|u| u.uid)
            .collect();
        let held: Vec<&HeldClaim> = held
            .iter()
            .filter(|claim| unit_of_claim(claim).is_some_and(|unit| here.contains(&unit)))
            .collect();
        let uids: Vec<Uuid> = held.iter().map(|claim| claim.claim_uid).collect();
        let reports = self.0.store.prepared(&uids).await.map_err(error::from_store)?;
        let reports: HashMap<(Uuid, u64), i16> = reports
            .into_iter()
            .map(|r| ((r.claim_uid, r.allocation_sequence), r.state))
            .collect();
        let owes = |claim: &&&HeldClaim| match reports.get(&(claim.claim_uid, claim.allocation_sequence)) {
            Some(&state) => state != UNPREPARED,
            None => claim.draining,
        };
        Ok(held.iter().filter(owes).count())
    }
}

/// Where a node's field is in the request.
fn node_field(index: usize, path: &str) -> String {
    let path = path
        .strip_prefix("metadata.")
        .or_else(|| path.strip_prefix("spec."))
        .unwrap_or(path);
    format!("nodes[{index}].{path}")
}

fn unit_of_claim(claim: &HeldClaim) -> Option<Uuid> {
    let claim: resource_api::claim::ResourceClaim = serde_json::from_str(claim.body.as_deref()?).ok()?;
    claim.metadata.annotations.get(UNIT_ANNOTATION)?.parse().ok()
}

/// The node of a unit's JSON.
fn node_of(body: &str) -> Option<String> {
    // Most units that are looked at here wait and have none: not worth parsing.
    if !body.contains("\"node\":\"") {
        return None;
    }
    serde_json::from_str::<Unit>(body).ok()?.status.node
}

/// A unit on one of an agent's nodes.
struct UnitHere {
    uid: Uuid,
    unit: Unit,
    trace: Option<Arc<str>>,
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
    /// Tells what holds devices now, then every change, until the agent leaves.
    async fn run(mut self, live: Live) -> Result<(), Status> {
        // The head first: what changes while the start is read comes again as an event, which does no harm.
        let from = self.store.head().await.map_err(error::from_store)?.sequence;
        self.start().await?;
        let (rows_out, mut rows) = mpsc::channel(STREAM_MAX);
        let store = self.store.clone();
        let follow = live.follow_kind(
            &store,
            Kind::Unit.plural(),
            from,
            |row: &EventRow| Some(row.clone()),
            &rows_out,
        );
        let tell = async {
            let mut events = Vec::with_capacity(EVENTS_PER_READ);
            while rows.recv_many(&mut events, EVENTS_PER_READ).await > 0 {
                let events: Result<Vec<EventRow>, Status> = events.drain(..).collect();
                self.on_events(&events?).await?;
            }
            Ok(())
        };
        tokio::select! {
            ended = follow => ended,
            ended = tell => ended,
        }
    }

    async fn start(&mut self) -> Result<(), Status> {
        let (units, sequence) = self.store.list_all(Kind::Unit.plural()).await.map_err(error::from_store)?;
        let here: Vec<UnitHere> = units
            .iter()
            .filter_map(|stored| self.here(stored.uid, &stored.body, None))
            .collect();
        for chunk in here.chunks(CLAIMS_PER_MESSAGE) {
            let claims = self.claims_of(chunk).await?;
            self.send(sequence, claims).await;
        }
        drop(
            self.out
                .send(Ok(pb::DesiredClaims {
                    sequence,
                    synced: true,
                    claims: Vec::new(),
                }))
                .await,
        ); // an agent that left is noticed elsewhere
        Ok(())
    }

    fn here(&self, uid: Uuid, body: &str, trace: Option<Arc<str>>) -> Option<UnitHere> {
        let node = node_of(body)?;
        if !self.nodes.contains(&node) {
            return None;
        }
        Some(UnitHere {
            uid,
            unit: serde_json::from_str(body).ok()?,
            trace,
        })
    }

    /// Units on the agent's nodes changed. Several events of one unit are told as what is true after the last of them.
    async fn on_events(&mut self, events: &[EventRow]) -> Result<(), Status> {
        let Some(last) = events.last() else { return Ok(()) };
        let mut gone = Vec::new();
        let mut changed: BTreeMap<Uuid, UnitHere> = BTreeMap::new();
        for event in events {
            let Some(here) = self.here(event.uid, &event.body, event.trace.clone()) else {
                continue;
            };
            if event.operation == Operation::Deleted || here.unit.status.phase == UnitPhase::Releasing {
                // What was told as wanted is taken back by name, also when nothing of it is left to be read.
                gone.extend(self.wanted.remove(&event.uid).unwrap_or_default());
            }
            if event.operation == Operation::Deleted {
                changed.remove(&event.uid);
            } else {
                changed.insert(event.uid, here);
            }
        }
        gone.iter_mut().for_each(|claim| claim.wanted = false);
        let changed: Vec<UnitHere> = changed.into_values().collect();
        let mut claims = gone;
        claims.extend(self.claims_of(&changed).await?);
        self.send(last.sequence, claims).await;
        Ok(())
    }

    /// The claims of units, with their allocation's sequence, as far as they still hold devices.
    async fn claims_of(&mut self, units: &[UnitHere]) -> Result<Vec<pb::DesiredClaim>, Status> {
        let uids: Vec<Uuid> = units
            .iter()
            .flat_map(|here| here.unit.spec.claims.iter().map(|c| c.uid.0))
            .collect();
        if uids.is_empty() {
            return Ok(Vec::new());
        }
        // Objects first: what is held now was allocated by what was read before, or by nothing that is told here.
        let bodies = self.store.objects_by_uid(&uids).await.map_err(error::from_store)?;
        let bodies: HashMap<Uuid, Stored> = bodies.into_iter().map(|s| (s.uid, s)).collect();
        let held = self.store.allocation_sequences(&uids).await.map_err(error::from_store)?;
        let held: HashMap<Uuid, (u64, bool)> = held
            .into_iter()
            .map(|(uid, sequence, drains)| (uid, (sequence, drains)))
            .collect();
        let mut all = Vec::new();
        for here in units {
            let mut claims = Vec::new();
            for claim in &here.unit.spec.claims {
                let (Some((sequence, drains)), Some(stored)) = (held.get(&claim.uid.0), bodies.get(&claim.uid.0)) else {
                    continue;
                };
                claims.push(pb::DesiredClaim {
                    node: here.unit.status.node.clone().unwrap_or_default(),
                    namespace: stored.namespace.to_string(),
                    name: stored.name.to_string(),
                    uid: claim.uid.to_string(),
                    allocation_sequence: *sequence,
                    wanted: !drains,
                    devices: devices_of(&stored.body)?,
                    traceparent: here.trace.as_deref().unwrap_or_default().to_owned(),
                });
            }
            if claims.iter().any(|c| c.wanted) {
                self.wanted.insert(here.uid, claims.clone());
            }
            all.extend(claims);
        }
        Ok(all)
    }

    /// An agent that left is noticed by the stream, not here.
    async fn send(&self, sequence: u64, mut claims: Vec<pb::DesiredClaim>) {
        while !claims.is_empty() {
            let rest = claims.split_off(claims.len().min(CLAIMS_PER_MESSAGE));
            drop(
                self.out
                    .send(Ok(pb::DesiredClaims {
                        sequence,
                        synced: false,
                        claims,
                    }))
                    .await,
            );
            claims = rest;
        }
    }
}

#[tonic::async_trait]
impl Agents for AgentsService {
    async fn register(
        &self,
        request: Request<pb::RegisterAgentsRequest>,
    ) -> Result<Response<pb::RegisterAgentsResponse>, Status> {
        let trace = trace_of(request.metadata());
        let request = request.into_inner();
        if request.agent_id.is_empty() {
            return Err(error::invalid(&[Violation::required("agent_id")]));
        }
        let names: Vec<String> = request.nodes.iter().map(|n| n.name.clone()).collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                return Err(error::invalid(&[Violation::duplicate(format!("nodes[{index}].name"), name)]));
            }
        }
        for _ in 0..TRIES_MAX {
            let Some(sequence) = self.put_nodes(&request.nodes, trace.as_ref()).await? else {
                continue;
            };
            self.0
                .store
                .register_agents(&request.agent_id, &request.epoch, &names)
                .await
                .map_err(error::from_store)?;
            return Ok(Response::new(pb::RegisterAgentsResponse { sequence }));
        }
        Err(error::aborted("the nodes keep changing; try again"))
    }

    async fn deregister(
        &self,
        request: Request<pb::DeregisterAgentsRequest>,
    ) -> Result<Response<pb::DeregisterAgentsResponse>, Status> {
        let pb::DeregisterAgentsRequest { agent_id, nodes } = request.into_inner();
        let owed = self.owed(&nodes.iter().cloned().collect()).await?;
        if owed > 0 {
            return Err(error::in_use(format!(
                "{owed} claims on these nodes are prepared or wait to be unprepared"
            )));
        }
        self.0
            .store
            .deregister_agents(&agent_id, &nodes)
            .await
            .map_err(error::from_store)?;
        Ok(Response::new(pb::DeregisterAgentsResponse {}))
    }

    type DesiredStream = Streamed<pb::DesiredClaims>;

    async fn desired(&self, request: Request<pb::DesiredRequest>) -> Result<Response<Self::DesiredStream>, Status> {
        let agent_id = request.into_inner().agent_id;
        let Context { store, live, .. } = self.0.clone();
        let agents = store.agents().await.map_err(error::from_store)?;
        let nodes: HashSet<String> = agents
            .into_iter()
            .filter(|a| a.agent_id == agent_id)
            .map(|a| a.node)
            .collect();
        if nodes.is_empty() {
            return Err(error::not_found(&format!("a registration of agent {agent_id:?}")));
        }
        let tell = async move |out| {
            Told {
                store,
                nodes,
                wanted: HashMap::new(),
                out,
            }
            .run(live)
            .await
        };
        Ok(self.0.stream(tell))
    }
}
