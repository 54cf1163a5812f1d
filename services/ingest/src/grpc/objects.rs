//! Objects of every kind, in Kubernetes' JSON.

use resource_api::object::{AnyObject, Kind};
use resource_api::slice::ResourceSlice;
use rpc::dray::v1 as pb;
use rpc::dray::v1::objects_server::Objects;
use store::{EventRow, Mutation, Op, Outcome, Stored, Write};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{Context, Streamed, TRIES_MAX, decode_cursor, encode_cursor, event, kind_of, now, object, page_size, stream};
use crate::admission::Admitted;
use crate::{error, live, slices};

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
    async fn stored(&self, kind: &str, namespace: &str, name: &str) -> Result<Option<Stored>, Status> {
        self.0.store.object(kind, namespace, name).await.map_err(error::from_store)
    }

    async fn try_apply(&self, mut wanted: AnyObject) -> Result<Applied, Status> {
        let kind = wanted.kind();
        if kind == Kind::Unit {
            return Err(error::bad_field("kind", "units are made with Units.Submit"));
        }
        if wanted.metadata().name.is_empty() && !wanted.metadata().generate_name.is_empty() {
            let suffix = Uuid::new_v4().simple().to_string();
            wanted.metadata_mut().name = format!("{}{}", wanted.metadata().generate_name, &suffix[..5]);
        }
        if kind.is_namespaced() && wanted.metadata().namespace.is_empty() {
            wanted.metadata_mut().namespace = "default".to_owned();
        }
        let namespace = if kind.is_namespaced() { wanted.metadata().namespace.clone() } else { String::new() };
        match self.stored(kind.plural(), &namespace, &wanted.metadata().name).await? {
            None => self.create(wanted).await,
            Some(old) => self.update(wanted, old).await,
        }
    }

    async fn create(&self, wanted: AnyObject) -> Result<Applied, Status> {
        let uid = Uuid::now_v7();
        let admitted = self.0.admission.create(wanted, uid, now()).map_err(|e| refused(&e))?;
        let write = write_of(&admitted, uid, Op::Create, "applied");
        Ok(match self.commit(&admitted, None, write).await? {
            Some(stored) => Applied::Created(stored),
            None => Applied::Lost,
        })
    }

    async fn update(&self, mut wanted: AnyObject, old: Stored) -> Result<Applied, Status> {
        let before = AnyObject::decode_as(wanted.kind(), old.body.as_bytes()).map_err(|e| Status::internal(e.to_string()))?;
        wanted.metadata_mut().resource_version = None;
        let admitted = self.0.admission.update(wanted, &before, now()).map_err(|e| refused(&e))?;
        if admitted.body() == old.body {
            return Ok(Applied::Unchanged(old));
        }
        let write = write_of(&admitted, old.uid, Op::Update { expected: Some(old.sequence) }, "applied");
        Ok(match self.commit(&admitted, Some(&old), write).await? {
            Some(stored) => Applied::Configured(stored),
            None => Applied::Lost,
        })
    }

    /// The object as stored, or nothing if the write lost.
    async fn commit(&self, admitted: &Admitted, old: Option<&Stored>, write: Write) -> Result<Option<Stored>, Status> {
        let body = write.body.clone();
        let stored = |sequence| Stored {
            kind: write.kind.as_ref().into(),
            namespace: write.namespace.clone(),
            name: write.name.clone(),
            uid: write.uid,
            sequence,
            created_sequence: old.map_or(sequence, |o| o.created_sequence),
            body,
        };
        let mutation = match admitted.object() {
            AnyObject::ResourceSlice(slice) => self.slice_write(slice, old.is_none(), write.clone()).await?,
            _ => Mutation { writes: vec![write.clone()], ..Mutation::default() },
        };
        match self.0.writer.try_commit(mutation).await.map_err(error::from_store)? {
            Outcome::Won { sequences } => Ok(Some(stored(sequences.first().copied().unwrap_or(0)))),
            _ => Ok(None),
        }
    }

    async fn slice_write(&self, slice: &ResourceSlice, is_new: bool, mut write: Write) -> Result<Mutation, Status> {
        let pool = slice.pool_id();
        let row = self.0.store.pool(&pool.driver, &pool.pool).await.map_err(error::from_store)?;
        let before = row.as_ref().map_or(0, |row| row.slices as usize);
        write.part_of = Some(slices::part_of(&pool));
        let node = match &row {
            // A pool that has slices already is tied to a node only if this one is tied to the same.
            Some(row) => row.node.as_deref().filter(|node| slice.spec.node_name.as_deref() == Some(*node)),
            None => slice.spec.node_name.as_deref(),
        };
        Ok(slices::mutation(&pool, vec![write], row.as_ref(), before + usize::from(is_new), node))
    }

    async fn try_delete(&self, stored: &Stored) -> Result<Option<u64>, Status> {
        let write = Write {
            kind: stored.kind.to_string().into(),
            namespace: stored.namespace.clone(),
            name: stored.name.clone(),
            uid: stored.uid,
            op: Op::Delete { expected: Some(stored.sequence) },
            body: stored.body.clone(),
            queue: None,
            part_of: None,
            cause: Some("deleted".into()),
            trace: None,
        };
        let mutation = match AnyObject::decode_as(kind(stored)?, stored.body.as_bytes()) {
            Ok(AnyObject::ResourceSlice(slice)) => {
                let pool = slice.pool_id();
                let row = self.0.store.pool(&pool.driver, &pool.pool).await.map_err(error::from_store)?;
                let left = row.as_ref().map_or(0, |row| row.slices.saturating_sub(1) as usize);
                let node = row.as_ref().and_then(|row| row.node.as_deref());
                slices::mutation(&pool, vec![write], row.as_ref(), left, node)
            }
            Ok(AnyObject::Unit(_)) => return Err(error::bad_field("kind", "units are deleted with Units.Delete")),
            Ok(AnyObject::ResourceClaim(claim)) if claim.metadata.annotations.contains_key(resource_api::unit::UNIT_ANNOTATION) => {
                return Err(error::aborted(format!("claim {} belongs to a unit; delete the unit", stored.name)));
            }
            Ok(AnyObject::ResourceClaim(claim)) if claim.status.allocation.is_some() => {
                return Err(error::aborted(format!("claim {} is allocated; release it first", stored.name)));
            }
            _ => Mutation { writes: vec![write], ..Mutation::default() },
        };
        match self.0.writer.try_commit(mutation).await.map_err(error::from_store)? {
            Outcome::Won { sequences } => Ok(Some(sequences.first().copied().unwrap_or(0))),
            _ => Ok(None),
        }
    }
}

fn kind(stored: &Stored) -> Result<Kind, Status> {
    Kind::from_plural(&stored.kind).ok_or_else(|| Status::internal("a stored object is of no known kind"))
}

fn refused(errors: &[resource_api::field_path::FieldError]) -> Status {
    error::invalid(&errors.iter().map(|e| (String::new(), e.clone())).collect::<Vec<_>>())
}

fn write_of(admitted: &Admitted, uid: Uuid, op: Op, cause: &str) -> Write {
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
        cause: Some(cause.into()),
        trace: None,
    }
}

#[tonic::async_trait]
impl Objects for ObjectsService {
    async fn apply(&self, request: Request<pb::ApplyRequest>) -> Result<Response<pb::ApplyResponse>, Status> {
        let json = request.into_inner().json;
        let wanted = AnyObject::decode(&json).map_err(|e| {
            let cause = std::error::Error::source(&e).map(|c| format!(": {c}")).unwrap_or_default();
            error::bad_field("json", format!("{e}{cause}"))
        })?;
        for _ in 0..TRIES_MAX {
            let (stored, outcome) = match self.try_apply(wanted.clone()).await? {
                Applied::Created(stored) => (stored, "created"),
                Applied::Configured(stored) => (stored, "configured"),
                Applied::Unchanged(stored) => (stored, "unchanged"),
                Applied::Lost => continue,
            };
            return Ok(Response::new(pb::ApplyResponse { object: Some(object(&stored)), outcome: outcome.to_owned() }));
        }
        Err(error::aborted("the object keeps changing; try again"))
    }

    async fn get(&self, request: Request<pb::GetObjectRequest>) -> Result<Response<pb::Object>, Status> {
        let request = request.into_inner();
        let kind = kind_of(&request.kind)?;
        let stored = self.stored(kind, &request.namespace, &request.name).await?;
        stored.as_ref().map(object).map(Response::new).ok_or_else(|| error::not_found(&format!("{kind} {:?}", request.name)))
    }

    async fn list(&self, request: Request<pb::ListObjectsRequest>) -> Result<Response<pb::ListObjectsResponse>, Status> {
        let request = request.into_inner();
        let namespace = (!request.namespace.is_empty()).then_some(request.namespace.as_str());
        let cursor = decode_cursor(&request.page_token)?;
        let page = self
            .0
            .store
            .list(kind_of(&request.kind)?, namespace, cursor.as_ref(), page_size(request.page_size))
            .await
            .map_err(error::from_store)?;
        Ok(Response::new(pb::ListObjectsResponse {
            objects: page.items.iter().map(object).collect(),
            next_page_token: encode_cursor(page.next),
            sequence: page.sequence,
        }))
    }

    async fn delete(&self, request: Request<pb::DeleteObjectRequest>) -> Result<Response<pb::DeleteObjectResponse>, Status> {
        let request = request.into_inner();
        let kind = kind_of(&request.kind)?;
        for _ in 0..TRIES_MAX {
            let Some(stored) = self.stored(kind, &request.namespace, &request.name).await? else {
                return Err(error::not_found(&format!("{kind} {:?}", request.name)));
            };
            if !request.uid.is_empty() && request.uid != stored.uid.to_string() {
                return Err(error::aborted(format!("{kind} {:?} is another object: uid {}", request.name, stored.uid)));
            }
            if let Some(sequence) = self.try_delete(&stored).await? {
                return Ok(Response::new(pb::DeleteObjectResponse { sequence }));
            }
        }
        Err(error::aborted("the object keeps changing; try again"))
    }

    type WatchStream = Streamed<pb::Event>;

    async fn watch(&self, request: Request<pb::WatchObjectsRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let request = request.into_inner();
        let kind = kind_of(&request.kind)?;
        let Context { store, live, .. } = self.0.clone();
        let namespace = request.namespace;
        let make = move |row: EventRow| (namespace.is_empty() || row.namespace.as_ref() == namespace).then(|| Ok(event(&row)));
        Ok(stream(|out| tokio::spawn(live::follow_kind(store, live, kind, request.after_sequence, out)), make))
    }
}
