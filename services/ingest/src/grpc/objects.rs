//! Objects of every kind, in Kubernetes' JSON.

use std::sync::Arc;

use resource_api::ids::{PoolId, Sequence};
use resource_api::object::{AnyObject, Kind};
use resource_api::slice::ResourceSlice;
use resource_api::unit::UNIT_ANNOTATION;
use rpc::dray::v1 as pb;
use rpc::dray::v1::objects_server::Objects;
use store::{EventRow, Mutation, Op, Outcome, PoolDraws, PoolRow, PublishedPool, Stored, Write};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{
    Context, PAGE_SLICES_MAX, PageToken, Streamed, TRIES_MAX, cut, event, is_in, kind_of, namespace_of, now, object, page_size,
    trace_of,
};
use crate::admission::{Admission, Admitted};
use crate::error;
use crate::slices::{self, PoolAfter};
use crate::violation::{Violation, of_object};

/// Characters that make a generated name, as in Kubernetes.
const GENERATED_LENGTH: usize = 5;

/// `dray.v1.Objects`.
pub(crate) struct ObjectsService(pub(crate) Context);

/// What an applied object came to.
enum Applied {
    Created(Stored),
    Configured(Stored),
    Unchanged(Stored),
    /// Somebody was faster: look again.
    Lost,
}

impl ObjectsService {
    async fn stored(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Stored>, Status> {
        self.0
            .store
            .object(kind.plural(), namespace_of(kind, namespace), name)
            .await
            .map_err(error::from_store)
    }

    async fn try_apply(&self, mut wanted: AnyObject, trace: Option<Arc<str>>) -> Result<Applied, Status> {
        let kind = wanted.kind();
        if kind == Kind::Unit {
            return Err(error::bad_field("kind", "units are made with Units.Submit"));
        }
        let metadata = wanted.metadata_mut();
        if metadata.name.is_empty() && !metadata.generate_name.is_empty() {
            let random = Uuid::new_v4().simple().to_string();
            metadata.name = format!("{}{}", metadata.generate_name, &random[..GENERATED_LENGTH]);
        }
        metadata.namespace = namespace_of(kind, &metadata.namespace).to_owned();
        let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
        match self.stored(kind, &namespace, &name).await? {
            None => self.create(wanted, trace).await,
            Some(old) => self.update(wanted, old, trace).await,
        }
    }

    async fn create(&self, wanted: AnyObject, trace: Option<Arc<str>>) -> Result<Applied, Status> {
        check_unit_annotation(&wanted, None)?;
        let uid = Uuid::now_v7();
        let admission = self.0.gatekeeper.admission();
        let admitted = admission
            .create(wanted, uid, now())
            .map_err(|e| error::invalid(&of_object(&e)))?;
        let write = write_of(&admitted, uid, Op::Create, trace);
        Ok(self
            .commit(&admission, &admitted, None, write)
            .await?
            .map_or(Applied::Lost, Applied::Created))
    }

    async fn update(&self, mut wanted: AnyObject, old: Stored, trace: Option<Arc<str>>) -> Result<Applied, Status> {
        let before = decode(&old)?;
        if let Some(unit) = before.metadata().annotations.get(UNIT_ANNOTATION) {
            // Whoever applies a file does not know it.
            wanted
                .metadata_mut()
                .annotations
                .entry(UNIT_ANNOTATION.to_owned())
                .or_insert_with(|| unit.clone());
        }
        check_unit_annotation(&wanted, Some(&before))?;
        // A version says which state the caller has seen; without one, it is the state that is here.
        let seen = *wanted.metadata_mut().resource_version.get_or_insert(Sequence(old.sequence));
        if seen != Sequence(old.sequence) {
            return Err(error::aborted(format!(
                "{} {:?} is at resourceVersion {}, not {seen}: read it again",
                old.kind, old.name, old.sequence
            )));
        }
        let admission = self.0.gatekeeper.admission();
        let admitted = admission
            .update(wanted, &before, now())
            .map_err(|e| error::invalid(&of_object(&e)))?;
        if admitted.body() == old.body {
            return Ok(Applied::Unchanged(old));
        }
        let write = write_of(
            &admitted,
            old.uid,
            Op::Update {
                expected: Some(old.sequence),
            },
            trace,
        );
        Ok(self
            .commit(&admission, &admitted, Some(&old), write)
            .await?
            .map_or(Applied::Lost, Applied::Configured))
    }

    /// The object as stored, or nothing if the write lost.
    async fn commit(
        &self,
        admission: &Admission,
        admitted: &Admitted,
        old: Option<&Stored>,
        write: Write,
    ) -> Result<Option<Stored>, Status> {
        let mut mutation = match admitted.object() {
            AnyObject::ResourceSlice(slice) => self.slice_write(slice, old.is_none(), write.clone()).await?,
            _ => Mutation {
                writes: vec![write.clone()],
                ..Mutation::default()
            },
        };
        mutation.gates = Some(admission.position());
        let outcome = self.0.writer.try_commit(mutation).await.map_err(error::from_store)?;
        let Outcome::Won { sequences } = outcome else {
            self.0.heed(&outcome).await?;
            return Ok(None);
        };
        let sequence = sequences.first().copied().unwrap_or(0);
        Ok(Some(Stored {
            kind: write.kind.as_ref().into(),
            namespace: write.namespace,
            name: write.name,
            uid: write.uid,
            sequence,
            created_sequence: old.map_or(sequence, |old| old.created_sequence),
            body: write.body,
        }))
    }

    /// What writing a slice takes: its pool's row moves along.
    pub(crate) async fn slice_write(&self, slice: &ResourceSlice, is_new: bool, mut write: Write) -> Result<Mutation, Status> {
        let pool = slice.pool_id();
        let row = self.0.store.pool(&pool.driver, &pool.pool).await.map_err(error::from_store)?;
        let n_before = row.as_ref().map_or(0, |row| row.slices as usize);
        write.part_of = Some(slices::part_of(&pool));
        let node = match &row {
            // A pool that has slices already is tied to a node only if this one is tied to the same.
            Some(row) => row
                .node
                .as_deref()
                .filter(|node| slice.spec.node_name.as_deref() == Some(*node)),
            None => slice.spec.node_name.as_deref(),
        };
        let after = PoolAfter {
            n_slices: n_before + usize::from(is_new),
            node,
            draws: self.draws_with(&pool, row.as_ref(), &write.name, Some(slice)).await?,
        };
        Ok(slices::mutation(&pool, vec![write], row.as_ref(), after))
    }

    /// What removing a slice takes.
    pub(crate) async fn slice_removal(&self, slice: &ResourceSlice, write: Write) -> Result<Mutation, Status> {
        let pool = slice.pool_id();
        let row = self.0.store.pool(&pool.driver, &pool.pool).await.map_err(error::from_store)?;
        let n_left = row.as_ref().map_or(0, |row| row.slices.saturating_sub(1) as usize);
        let after = PoolAfter {
            n_slices: n_left,
            node: row.as_ref().and_then(|row| row.node.as_deref()),
            draws: self.draws_with(&pool, row.as_ref(), &write.name, None).await?,
        };
        Ok(slices::mutation(&pool, vec![write], row.as_ref(), after))
    }

    /// What the devices of the pool draw once its slice `name` is `slice`, or gone. Read after the row: if others change meanwhile, the
    /// mutation loses.
    async fn draws_with(
        &self,
        pool: &PoolId,
        row: Option<&PoolRow>,
        name: &str,
        slice: Option<&ResourceSlice>,
    ) -> Result<Option<PoolDraws>, Status> {
        let has_counters = slice.is_some_and(|slice| !slice.spec.shared_counters().is_empty());
        if !has_counters && !row.is_some_and(|row| row.counted) {
            return Ok(None);
        }
        let stored = self
            .0
            .store
            .parts_of(Kind::ResourceSlice.plural(), &slices::part_of(pool))
            .await
            .map_err(error::from_store)?;
        let mut others = Vec::with_capacity(stored.len());
        for other in stored.iter().filter(|other| other.name.as_ref() != name) {
            let other: ResourceSlice = serde_json::from_str(&other.body).map_err(|e| error::unreadable("slice", &e))?;
            others.push(other);
        }
        let published = PublishedPool::of(others.iter().chain(slice));
        Ok(slices::draws(pool, row, &published))
    }

    /// One try to delete: `None` if it lost a race.
    async fn try_delete(&self, stored: &Stored, trace: Option<Arc<str>>) -> Result<Option<u64>, Status> {
        let write = Write {
            kind: stored.kind.to_string().into(),
            namespace: stored.namespace.clone(),
            name: stored.name.clone(),
            uid: stored.uid,
            op: Op::Delete {
                expected: Some(stored.sequence),
            },
            body: stored.body.clone(),
            queue: None,
            part_of: None,
            cause: Some("deleted".into()),
            trace,
        };
        let mutation = match decode(stored)? {
            AnyObject::ResourceSlice(slice) => self.slice_removal(&slice, write).await?,
            AnyObject::Unit(_) => return Err(error::bad_field("kind", "units are deleted with Units.Delete")),
            AnyObject::ResourceClaim(claim) => {
                if let Some(unit) = claim.metadata.annotations.get(UNIT_ANNOTATION) {
                    return Err(error::in_use(format!(
                        "claim {:?} is part of unit {unit}: delete the unit",
                        stored.name
                    )));
                }
                if claim.status.allocation.is_some() {
                    return Err(error::in_use(format!(
                        "claim {:?} holds devices: its consumers must go first",
                        stored.name
                    )));
                }
                Mutation {
                    writes: vec![write],
                    ..Mutation::default()
                }
            }
            AnyObject::DeviceClass(_)
            | AnyObject::ResourceClaimTemplate(_)
            | AnyObject::DeviceTaintRule(_)
            | AnyObject::ResourcePoolStatusRequest(_)
            | AnyObject::Node(_) => Mutation {
                writes: vec![write],
                ..Mutation::default()
            },
        };
        match self.0.writer.try_commit(mutation).await.map_err(error::from_store)? {
            Outcome::Won { sequences } => Ok(Some(sequences.first().copied().unwrap_or(0))),
            _ => Ok(None),
        }
    }
}

fn decode(stored: &Stored) -> Result<AnyObject, Status> {
    let kind = Kind::from_plural(&stored.kind).ok_or_else(|| Status::internal("a stored object is of no known kind"))?;
    AnyObject::decode_as(kind, stored.body.as_bytes()).map_err(|e| {
        tracing::error!(kind = %stored.kind, name = %stored.name, error = %e, "a stored object cannot be read");
        Status::internal(format!("a stored {kind} cannot be read; see the service's log"))
    })
}

/// Only a submission makes a claim part of a unit, and nothing takes it out again.
fn check_unit_annotation(wanted: &AnyObject, before: Option<&AnyObject>) -> Result<(), Status> {
    let unit_of = |object: &AnyObject| object.metadata().annotations.get(UNIT_ANNOTATION).cloned();
    if wanted.kind() != Kind::ResourceClaim || unit_of(wanted) == before.and_then(unit_of) {
        return Ok(());
    }
    let description = "Forbidden: only submitting a unit sets it".to_owned();
    let field = format!("metadata.annotations[{UNIT_ANNOTATION}]");
    Err(error::invalid(&[Violation {
        field,
        description,
        reason: "FieldValueForbidden",
    }]))
}

fn write_of(admitted: &Admitted, uid: Uuid, op: Op, trace: Option<Arc<str>>) -> Write {
    let metadata = admitted.object().metadata();
    Write {
        kind: admitted.object().kind().plural().into(),
        namespace: metadata.namespace.as_str().into(),
        name: metadata.name.as_str().into(),
        uid,
        op,
        body: admitted.body(),
        queue: None,
        part_of: None,
        cause: Some("applied".into()),
        trace,
    }
}

#[tonic::async_trait]
impl Objects for ObjectsService {
    async fn apply(&self, request: Request<pb::ApplyRequest>) -> Result<Response<pb::ApplyResponse>, Status> {
        let trace = trace_of(request.metadata());
        let json = request.into_inner().json;
        let _room = self.0.intake.try_take(json.len())?;
        let wanted = AnyObject::decode(&json).map_err(|e| {
            let cause = std::error::Error::source(&e).map(|c| format!(": {c}")).unwrap_or_default();
            error::bad_field("json", format!("{e}{cause}"))
        })?;
        for _ in 0..TRIES_MAX {
            let (stored, outcome) = match self.try_apply(wanted.clone(), trace.clone()).await? {
                Applied::Created(stored) => (stored, "created"),
                Applied::Configured(stored) => (stored, "configured"),
                Applied::Unchanged(stored) => (stored, "unchanged"),
                Applied::Lost => continue,
            };
            return Ok(Response::new(pb::ApplyResponse {
                object: Some(object(&stored)),
                outcome: outcome.to_owned(),
            }));
        }
        Err(error::aborted("the object keeps changing; try again"))
    }

    async fn get(&self, request: Request<pb::GetObjectRequest>) -> Result<Response<pb::Object>, Status> {
        let request = request.into_inner();
        let kind = kind_of(&request.kind)?;
        let stored = self.stored(kind, &request.namespace, &request.name).await?;
        let found = stored.as_ref().map(object).map(Response::new);
        found.ok_or_else(|| error::not_found(&format!("{} {:?}", kind.plural(), request.name)))
    }

    async fn list(&self, request: Request<pb::ListObjectsRequest>) -> Result<Response<pb::ListObjectsResponse>, Status> {
        let request = request.into_inner();
        let kind = kind_of(&request.kind)?;
        let namespace = (kind.is_namespaced() && !request.namespace.is_empty()).then_some(request.namespace.as_str());
        let token = PageToken::decode(&request.page_token)?;
        let cursor = token.as_ref().map(|token| &token.cursor);
        let limit = page_size(request.page_size);
        let limit = if kind == Kind::ResourceSlice {
            limit.min(PAGE_SLICES_MAX)
        } else {
            limit
        };
        let mut page = self
            .0
            .store
            .list(kind.plural(), namespace, cursor, limit)
            .await
            .map_err(error::from_store)?;
        cut(&mut page);
        let (next_page_token, sequence) = PageToken::after(&page, token.as_ref());
        Ok(Response::new(pb::ListObjectsResponse {
            objects: page.items.iter().map(object).collect(),
            next_page_token,
            sequence,
        }))
    }

    async fn delete(&self, request: Request<pb::DeleteObjectRequest>) -> Result<Response<pb::DeleteObjectResponse>, Status> {
        let trace = trace_of(request.metadata());
        let request = request.into_inner();
        let kind = kind_of(&request.kind)?;
        for _ in 0..TRIES_MAX {
            let Some(stored) = self.stored(kind, &request.namespace, &request.name).await? else {
                return Err(error::not_found(&format!("{} {:?}", kind.plural(), request.name)));
            };
            if !request.uid.is_empty() && request.uid != stored.uid.to_string() {
                return Err(error::aborted(format!(
                    "{} {:?} is another object: uid {}",
                    kind.plural(),
                    request.name,
                    stored.uid
                )));
            }
            if let Some(sequence) = self.try_delete(&stored, trace.clone()).await? {
                return Ok(Response::new(pb::DeleteObjectResponse { sequence }));
            }
        }
        Err(error::aborted("the object keeps changing; try again"))
    }

    type WatchStream = Streamed<pb::Event>;

    async fn watch(&self, request: Request<pb::WatchObjectsRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let pb::WatchObjectsRequest {
            kind,
            namespace,
            after_sequence,
        } = request.into_inner();
        let kind = kind_of(&kind)?;
        let Context { store, live, .. } = self.0.clone();
        let namespace = if kind.is_namespaced() { namespace } else { String::new() };
        let make = move |row: &EventRow| is_in(&namespace, row).then(|| event(row));
        let follow = async move |out| live.follow_kind(&store, kind.plural(), after_sequence, make, &out).await;
        Ok(self.0.stream(follow))
    }
}
