//! Units: submit, wait, watch, release.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use resource_api::claim::ResourceClaim;
use resource_api::object::Kind;
use resource_api::unit::{Unit, UnitPhase};
use rpc::dray::v1 as pb;
use rpc::dray::v1::submit_stream_response::Result as StreamResult;
use rpc::dray::v1::units_server::Units;
use store::{EventRow, Operation, Outcome, PreparedRow, StoreError, Stored};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status, Streaming};
use tonic_types::StatusExt;
use tracing::{Instrument, Span};
use uuid::Uuid;

use super::{Context, PageToken, Streamed, TRIES_MAX, cut, is_in, join_trace, now, operation, page_size, parse_uid, trace_of};
use crate::error;
use crate::intake::Room;
use crate::release::{self, Found};
use crate::submission::{self, Answer, Arrival, Prepared};
use crate::violation::Violation;

/// Submissions of one stream whose commits are under way; more wait in the stream (flow control).
const STREAM_IN_FLIGHT: usize = 1_024;
/// Bounds of a wait.
const WAIT_DEFAULT: Duration = Duration::from_secs(30);
const WAIT_MAX: Duration = Duration::from_secs(600);

/// `dray.v1.Units`.
#[derive(Clone)]
pub(crate) struct UnitsService(pub(crate) Context);

/// A submission of a stream on its way to its answer.
struct Submitted {
    request: pb::SubmitRequest,
    progress: Progress,
}

enum Progress {
    Committing {
        answer: Answer,
        outcome: oneshot::Receiver<Result<Outcome, StoreError>>,
        _room: Room,
        /// Ends with the answer.
        _span: Span,
    },
    Refused(pb::Refusal),
}

impl UnitsService {
    fn prepare(&self, request: &pb::SubmitRequest, trace: Option<Arc<str>>) -> Result<Prepared, Vec<Violation>> {
        let admission = self.0.gatekeeper.admission();
        submission::prepare(&admission, request, Uuid::now_v7, &Arrival { now: now(), trace })
    }

    fn count(&self, outcome: &str) {
        self.0.metrics.submissions.with_label_values(&[outcome]).inc();
    }

    /// The answer to a submission's outcome.
    fn answer(&self, request: (&str, &str), answer: Answer, outcome: Outcome) -> Result<pb::SubmitResponse, Status> {
        let (namespace, client_id) = request;
        self.count(match outcome {
            Outcome::Won { .. } => "accepted",
            Outcome::Repeated { .. } => "repeated",
            _ => "refused",
        });
        match outcome {
            Outcome::Won { sequences } => Ok(answer.into_response(sequences.last().copied().unwrap_or(0), false)),
            Outcome::Repeated { answer, sequence } => {
                let answer = Answer::from_record(&answer).map_err(|e| error::unreadable("submission record", &e))?;
                Ok(answer.into_response(sequence, true))
            }
            Outcome::IdReused => Err(error::id_reused(client_id, namespace)),
            Outcome::Exists { name } => Err(error::already_exists(format!(
                "claim {name:?} exists in namespace {namespace:?}"
            ))),
            other => Err(error::aborted(format!("the submission lost: {other:?}; repeat it"))),
        }
    }

    async fn submit_one(&self, request: &pb::SubmitRequest, trace: Option<Arc<str>>) -> Result<pb::SubmitResponse, Status> {
        let _room = self.0.intake.try_take(request.encoded_len())?;
        for _ in 0..TRIES_MAX {
            let Prepared { mutation, answer } = self.prepare(request, trace.clone()).map_err(|violations| {
                self.count("refused");
                error::invalid(&violations)
            })?;
            match self.0.writer.try_commit(mutation).await.map_err(error::from_store)? {
                // It certainly lost, but why is forgotten: the next try tells.
                Outcome::Lost => {}
                lost @ Outcome::GatesChanged { .. } => self.0.heed(&lost).await?,
                outcome => return self.answer((&request.namespace, &request.client_id), answer, outcome),
            }
        }
        Err(error::aborted("the submission keeps losing its answer; repeat it"))
    }

    /// Takes submissions from a stream until its client is done, its answers are not read any more, or the service stops.
    async fn read_submissions(
        &self,
        mut requests: Streaming<pb::SubmitRequest>,
        trace: Option<Arc<str>>,
        submitted: mpsc::Sender<Submitted>,
    ) -> Result<(), Status> {
        loop {
            let request = tokio::select! {
                biased;
                () = self.0.stop.cancelled() => return Err(error::stopping()),
                () = submitted.closed() => return Ok(()),
                request = requests.message() => request,
            };
            // An error is a client that broke off; what it sent before stands.
            let Ok(Some(request)) = request else { return Ok(()) };
            let progress = self.begin(&request, trace.clone()).await;
            if submitted.send(Submitted { request, progress }).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Waits for room in the writer's queue: the stream's own flow control slows its client down.
    async fn begin(&self, request: &pb::SubmitRequest, trace: Option<Arc<str>>) -> Progress {
        let span = span_of(request);
        let trace = join_trace(&span, trace);
        let Prepared { mutation, answer } = match self.prepare(request, trace) {
            Ok(prepared) => prepared,
            Err(violations) => return Progress::Refused(refusal(&error::invalid(&violations), &violations)),
        };
        let room = match self.0.intake.take(request.encoded_len()).await {
            Ok(room) => room,
            Err(status) => return Progress::Refused(refusal(&status, &[])),
        };
        match self.0.writer.enqueue_waiting(mutation).await {
            Ok(outcome) => Progress::Committing {
                answer,
                outcome,
                _room: room,
                _span: span,
            },
            Err(error) => Progress::Refused(refusal(&error::from_store(error), &[])),
        }
    }

    /// Answers in the order of submission: commits are in that order too, nearly.
    async fn answer_submissions(
        &self,
        mut submitted: mpsc::Receiver<Submitted>,
        out: &mpsc::Sender<Result<pb::SubmitStreamResponse, Status>>,
    ) {
        while let Some(Submitted { request, progress }) = submitted.recv().await {
            let result = match progress {
                Progress::Committing { answer, outcome, .. } => match self.conclude(&request, answer, outcome).await {
                    Ok(accepted) => StreamResult::Accepted(accepted),
                    Err(status) => StreamResult::Refused(refusal(&status, &[])),
                },
                Progress::Refused(refusal) => {
                    self.count("refused");
                    StreamResult::Refused(refusal)
                }
            };
            if out
                .send(Ok(pb::SubmitStreamResponse {
                    client_id: request.client_id,
                    namespace: request.namespace,
                    result: Some(result),
                }))
                .await
                .is_err()
            {
                return;
            }
        }
    }

    /// The answer to a submission of a stream, which is prepared anew if feature gates were switched under it.
    async fn conclude(
        &self,
        request: &pb::SubmitRequest,
        answer: Answer,
        outcome: oneshot::Receiver<Result<Outcome, StoreError>>,
    ) -> Result<pb::SubmitResponse, Status> {
        let outcome = outcome.await.unwrap_or(Err(StoreError::CommitUnknown));
        match outcome.map_err(error::from_store)? {
            lost @ (Outcome::GatesChanged { .. } | Outcome::Lost) => {
                self.0.heed(&lost).await?;
                self.submit_one(request, None).await
            }
            outcome => self.answer((&request.namespace, &request.client_id), answer, outcome),
        }
    }

    async fn stored(&self, uid: Uuid) -> Result<Option<Stored>, Status> {
        let found = self.0.store.objects_by_uid(&[uid]).await.map_err(error::from_store)?;
        Ok(found.into_iter().find(|object| object.kind.as_ref() == Kind::Unit.plural()))
    }

    async fn read(&self, uid: Uuid) -> Result<pb::Unit, Status> {
        let stored = self.stored(uid).await?.ok_or_else(|| unknown(uid))?;
        self.with_claims(vec![(stored.uid, stored.sequence, unit_of(&stored.body)?)])
            .await?
            .pop()
            .ok_or_else(|| unknown(uid))
    }

    /// Messages of units, with the devices of their claims as they are now.
    async fn with_claims(&self, units: Vec<(Uuid, u64, Unit)>) -> Result<Vec<pb::Unit>, Status> {
        let allocated = units.iter().filter(|(_, _, unit)| unit.status.phase != UnitPhase::Pending);
        let uids: Vec<Uuid> = allocated
            .flat_map(|(_, _, unit)| unit.spec.claims.iter().map(|c| c.uid.0))
            .collect();
        let mut devices = HashMap::new();
        if !uids.is_empty() {
            for claim in self.0.store.objects_by_uid(&uids).await.map_err(error::from_store)? {
                devices.insert(claim.uid, devices_of(&claim.body)?);
            }
        }
        let mut prepared: HashMap<Uuid, PreparedRow> = HashMap::new();
        if !uids.is_empty() {
            // In the order of allocations: the last one counts.
            for row in self.0.store.prepared(&uids).await.map_err(error::from_store)? {
                prepared.insert(row.claim_uid, row);
            }
        }
        Ok(units
            .iter()
            .map(|(uid, sequence, unit)| {
                let mut message = message(unit, *uid, *sequence, &devices);
                for (claim, named) in message.claims.iter_mut().zip(&unit.spec.claims) {
                    if let Some(row) = prepared.get(&named.uid.0) {
                        claim.prepared = prepared_text(row);
                        claim.cdi_device_ids = cdi_ids(row);
                    }
                }
                message
            })
            .collect())
    }

    /// One try to delete: `None` if it lost a race.
    async fn try_delete(&self, uid: Uuid, trace: Option<&Arc<str>>) -> Result<Option<pb::DeleteUnitResponse>, Status> {
        let Some(stored) = self.stored(uid).await? else {
            // Gone: deleting it again is no error.
            return Ok(Some(pb::DeleteUnitResponse {
                sequence: 0,
                released: true,
            }));
        };
        let unit = unit_of(&stored.body)?;
        let uids: Vec<Uuid> = unit.spec.claims.iter().map(|c| c.uid.0).collect();
        let claims = self.0.store.objects_by_uid(&uids).await.map_err(error::from_store)?;
        let found = Found { stored, unit, claims };
        let mut released = true;
        let mut outcome = self
            .0
            .writer
            .try_commit(release::at_once(&found, trace))
            .await
            .map_err(error::from_store)?;
        if let Outcome::AgentPresent { .. } = outcome {
            if found.unit.status.phase == UnitPhase::Releasing {
                return Ok(Some(pb::DeleteUnitResponse {
                    sequence: found.stored.sequence,
                    released: false,
                }));
            }
            released = false;
            let mutation = release::once_unprepared(&found, now(), trace).map_err(|e| error::unreadable("claim", &e))?;
            outcome = self.0.writer.try_commit(mutation).await.map_err(error::from_store)?;
        }
        match outcome {
            Outcome::Won { sequences } => Ok(Some(pb::DeleteUnitResponse {
                sequence: sequences.last().copied().unwrap_or(0),
                released,
            })),
            _ => Ok(None),
        }
    }
}

/// The first span of the journey from submission to preparation.
fn span_of(request: &pb::SubmitRequest) -> Span {
    tracing::info_span!("ingest.unit.submit", unit.namespace = %request.namespace, unit.client_id = %request.client_id)
}

fn unknown(uid: Uuid) -> Status {
    error::not_found(&format!("unit {uid}"))
}

fn unit_of(body: &str) -> Result<Unit, Status> {
    serde_json::from_str(body).map_err(|e| error::unreadable("unit", &e))
}

/// The devices that a claim's JSON says it is allocated.
/// What an agent said, in a word or two.
fn prepared_text(row: &PreparedRow) -> String {
    match row.state {
        1 => "prepared".to_owned(),
        2 => "unprepared".to_owned(),
        _ => format!("failed: {}", row.message),
    }
}

fn cdi_ids(row: &PreparedRow) -> Vec<String> {
    let devices: Vec<serde_json::Value> = serde_json::from_str(&row.devices).unwrap_or_default();
    let ids = devices.iter().filter_map(|device| device.get("cdiDeviceIDs")?.as_array());
    ids.flatten().filter_map(|id| id.as_str().map(str::to_owned)).collect()
}

pub(super) fn devices_of(body: &str) -> Result<Vec<pb::AllocatedDevice>, Status> {
    let claim: ResourceClaim = serde_json::from_str(body).map_err(|e| error::unreadable("claim", &e))?;
    let results = claim.status.allocation.map(|a| a.devices.results).unwrap_or_default();
    let device = |r: resource_api::claim::DeviceRequestAllocationResult| pb::AllocatedDevice {
        request: r.request,
        driver: r.driver.as_str().to_owned(),
        pool: r.pool.as_str().to_owned(),
        device: r.device.as_str().to_owned(),
        admin_access: r.admin_access.unwrap_or(false),
        share_id: r.share_id.map(|id| id.as_str().to_owned()).unwrap_or_default(),
        consumed_capacity: r
            .consumed_capacity
            .into_iter()
            .map(|(name, amount)| (name, amount.to_string()))
            .collect(),
    };
    Ok(results.into_iter().map(device).collect())
}

fn message(unit: &Unit, uid: Uuid, sequence: u64, devices: &HashMap<Uuid, Vec<pb::AllocatedDevice>>) -> pb::Unit {
    let phase = match &unit.status.phase {
        UnitPhase::Pending => pb::UnitPhase::Pending,
        UnitPhase::Allocated => pb::UnitPhase::Allocated,
        UnitPhase::Releasing => pb::UnitPhase::Releasing,
        UnitPhase::Other(_) => pb::UnitPhase::Unspecified,
    };
    let claim = |claim: &resource_api::unit::UnitClaim| pb::UnitClaim {
        name: claim.name.clone(),
        uid: claim.uid.to_string(),
        devices: devices.get(&claim.uid.0).cloned().unwrap_or_default(),
        ..pb::UnitClaim::default()
    };
    pb::Unit {
        uid: uid.to_string(),
        namespace: unit.metadata.namespace.clone(),
        client_id: unit.spec.client_id.clone(),
        priority: unit.spec.priority,
        claims: unit.spec.claims.iter().map(claim).collect(),
        phase: phase.into(),
        node: unit.status.node.clone().unwrap_or_default(),
        reason: unit.status.reason.clone().unwrap_or_default(),
        sequence,
        created: unit
            .metadata
            .creation_timestamp
            .map(|t| super::timestamp(t.timestamp().as_millisecond())),
        home_shard: u32::from(unit.spec.home_shard),
        explanation: unit.status.explanation.as_ref().map(super::explanation::message),
    }
}

/// A status as a message of a stream that goes on.
fn refusal(status: &Status, violations: &[Violation]) -> pb::Refusal {
    let violation = |v: &Violation| pb::FieldViolation {
        field: v.field.clone(),
        description: v.description.clone(),
        reason: v.reason.to_owned(),
    };
    let retry_after = status.get_details_retry_info().and_then(|info| info.retry_delay);
    pb::Refusal {
        code: status.code().into(),
        message: status.message().to_owned(),
        field_violations: violations.iter().map(violation).collect(),
        retry_after: retry_after.and_then(|delay| prost_types::Duration::try_from(delay).ok()),
    }
}

#[tonic::async_trait]
impl Units for UnitsService {
    async fn submit(&self, request: Request<pb::SubmitRequest>) -> Result<Response<pb::SubmitResponse>, Status> {
        let trace = trace_of(request.metadata());
        let request = request.into_inner();
        let span = span_of(&request);
        let trace = join_trace(&span, trace);
        self.submit_one(&request, trace).instrument(span).await.map(Response::new)
    }

    type SubmitStreamStream = Streamed<pb::SubmitStreamResponse>;

    async fn submit_stream(
        &self,
        request: Request<Streaming<pb::SubmitRequest>>,
    ) -> Result<Response<Self::SubmitStreamStream>, Status> {
        let trace = trace_of(request.metadata());
        let requests = request.into_inner();
        let service = self.clone();
        Ok(self.0.stream_to_the_end(async move |out: mpsc::Sender<_>| {
            let (submitted, to_answer) = mpsc::channel(STREAM_IN_FLIGHT);
            let read = service.read_submissions(requests, trace, submitted);
            let (ended, ()) = tokio::join!(read, service.answer_submissions(to_answer, &out));
            ended
        }))
    }

    async fn get(&self, request: Request<pb::GetUnitRequest>) -> Result<Response<pb::Unit>, Status> {
        let uid = parse_uid("uid", &request.into_inner().uid)?;
        self.read(uid).await.map(Response::new)
    }

    async fn list(&self, request: Request<pb::ListUnitsRequest>) -> Result<Response<pb::ListUnitsResponse>, Status> {
        let request = request.into_inner();
        let namespace = (!request.namespace.is_empty()).then_some(request.namespace.as_str());
        let token = PageToken::decode(&request.page_token)?;
        let cursor = token.as_ref().map(|token| &token.cursor);
        let page = self
            .0
            .store
            .list(Kind::Unit.plural(), namespace, cursor, page_size(request.page_size));
        let mut page = page.await.map_err(error::from_store)?;
        cut(&mut page);
        let (next_page_token, sequence) = PageToken::after(&page, token.as_ref());
        let units = page
            .items
            .iter()
            .map(|s| Ok((s.uid, s.sequence, unit_of(&s.body)?)))
            .collect::<Result<_, Status>>()?;
        let units = self.with_claims(units).await?;
        Ok(Response::new(pb::ListUnitsResponse {
            units,
            next_page_token,
            sequence,
        }))
    }

    async fn wait(&self, request: Request<pb::WaitUnitRequest>) -> Result<Response<pb::Unit>, Status> {
        let request = request.into_inner();
        let uid = parse_uid("uid", &request.uid)?;
        let timeout = request
            .timeout
            .and_then(|t| Duration::try_from(t).ok())
            .unwrap_or(WAIT_DEFAULT)
            .min(WAIT_MAX);
        let mut waiter = self.0.live.wait_for(uid)?;
        let unit = self.read(uid).await?;
        if unit.phase != i32::from(pb::UnitPhase::Pending) {
            return Ok(Response::new(unit));
        }
        let settled = tokio::select! {
            settled = waiter.settled() => settled.ok_or_else(error::stopping)?,
            () = tokio::time::sleep(timeout) => return self.read(uid).await.map(Response::new),
            () = self.0.stop.cancelled() => return Err(error::stopping()),
        };
        if settled.operation == Operation::Deleted {
            return Err(unknown(uid));
        }
        let mut units = self
            .with_claims(vec![(uid, settled.sequence, unit_of(&settled.body)?)])
            .await?;
        units.pop().map(Response::new).ok_or_else(|| unknown(uid))
    }

    type WatchStream = Streamed<pb::UnitEvent>;

    async fn watch(&self, request: Request<pb::WatchUnitsRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let pb::WatchUnitsRequest {
            namespace,
            after_sequence,
        } = request.into_inner();
        let Context { store, live, .. } = self.0.clone();
        let make = move |row: &EventRow| {
            // A unit that cannot be read is logged and left out: the stream must not end for all others.
            let unit = is_in(&namespace, row).then(|| unit_of(&row.body).ok()).flatten()?;
            Some(pb::UnitEvent {
                sequence: row.sequence,
                operation: operation(row.operation).to_owned(),
                unit: Some(message(&unit, row.uid, row.sequence, &HashMap::new())),
            })
        };
        let follow = async move |out| {
            live.follow_kind(&store, Kind::Unit.plural(), after_sequence, make, &out)
                .await
        };
        Ok(self.0.stream(follow))
    }

    async fn delete(&self, request: Request<pb::DeleteUnitRequest>) -> Result<Response<pb::DeleteUnitResponse>, Status> {
        let trace = trace_of(request.metadata());
        let uid = parse_uid("uid", &request.into_inner().uid)?;
        for _ in 0..TRIES_MAX {
            if let Some(response) = self.try_delete(uid, trace.as_ref()).await? {
                return Ok(Response::new(response));
            }
        }
        Err(error::aborted(format!("unit {uid} keeps changing; try again")))
    }
}
