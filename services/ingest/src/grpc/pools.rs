//! Pools, published as a whole.

use std::sync::Arc;

use prost::Message;
use resource_api::ids::PoolId;
use resource_api::object::Kind;
use rpc::dray::v1 as pb;
use rpc::dray::v1::pools_server::Pools;
use store::{Outcome, PublishedPool};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{Context, TRIES_MAX, now};
use crate::error;
use crate::publication::{FoundPool, Publication, decide, deletions};
use crate::slices::{self, PoolAfter};
use crate::violation::Violation;

/// `dray.v1.Pools`.
pub(crate) struct PoolsService(pub(crate) Context);

impl PoolsService {
    /// The row first: if slices change after it was read, the mutation that is made from both loses.
    async fn find(&self, pool: &PoolId) -> Result<FoundPool, Status> {
        let row = self.0.store.pool(&pool.driver, &pool.pool).await.map_err(error::from_store)?;
        let stored = self
            .0
            .store
            .parts_of(Kind::ResourceSlice.plural(), &slices::part_of(pool))
            .await
            .map_err(error::from_store)?;
        let mut found = FoundPool {
            row,
            ..FoundPool::default()
        };
        for object in stored {
            let slice = serde_json::from_str(&object.body).map_err(|e| error::unreadable("slice", &e))?;
            found.slices.insert(object.name.to_string(), (object, slice));
        }
        Ok(found)
    }

    /// One try: `None` if it lost a race.
    async fn try_publish(&self, wanted: &Arc<Publication>) -> Result<Option<pb::PublishPoolResponse>, Status> {
        let found = self.find(&wanted.pool).await?;
        let unchanged_at = found.row.as_ref().map_or(0, |row| row.inventory);
        let (admission, wanted) = (self.0.gatekeeper.admission(), Arc::clone(wanted));
        let decision = apart(move || decide(&admission, &wanted, found, Uuid::now_v7, now())).await?;
        let unchanged = decision.mutation.is_none();
        let sequence = match decision.mutation {
            None => unchanged_at,
            Some(mutation) => match self.0.writer.try_commit(mutation).await.map_err(error::from_store)? {
                Outcome::Won { sequences } => sequences.last().copied().unwrap_or(0),
                lost => {
                    self.0.heed(&lost).await?;
                    return Ok(None);
                }
            },
        };
        let slices = u32::try_from(decision.n_slices).unwrap_or(u32::MAX);
        Ok(Some(pb::PublishPoolResponse {
            generation: decision.generation,
            slices,
            sequence,
            unchanged,
        }))
    }

    /// One try: `None` if it lost a race. A pool that is not there stays so, at sequence 0.
    async fn try_withdraw(&self, pool: &PoolId) -> Result<Option<u64>, Status> {
        let found = self.find(pool).await?;
        let Some(row) = &found.row else { return Ok(Some(0)) };
        let writes = deletions(pool, found.slices.values().map(|(stored, _)| stored), "withdrawn");
        if writes.is_empty() {
            return Ok(None); // its slices went between the two reads
        }
        let after = PoolAfter {
            n_slices: 0,
            node: row.node.as_deref(),
            draws: slices::draws(pool, Some(row), &PublishedPool::default()),
        };
        let mutation = slices::mutation(pool, writes, Some(row), after);
        match self.0.writer.try_commit(mutation).await.map_err(error::from_store)? {
            Outcome::Won { sequences } => Ok(Some(sequences.last().copied().unwrap_or(0))),
            _ => Ok(None),
        }
    }
}

/// Reading and checking thousands of devices takes a while, which the runtime's threads must not wait for.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T, Vec<Violation>> + Send + 'static) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|violations| error::invalid(&violations)),
        Err(_) => Err(error::stopping()),
    }
}

#[tonic::async_trait]
impl Pools for PoolsService {
    async fn publish(&self, request: Request<pb::PublishPoolRequest>) -> Result<Response<pb::PublishPoolResponse>, Status> {
        let request = request.into_inner();
        let _room = self.0.intake.try_take(request.encoded_len())?;
        let wanted = Arc::new(apart(move || Publication::read(&request)).await?);
        for _ in 0..TRIES_MAX {
            if let Some(response) = self.try_publish(&wanted).await? {
                return Ok(Response::new(response));
            }
        }
        Err(error::aborted("the pool is being published by somebody else too; try again"))
    }

    async fn withdraw(&self, request: Request<pb::WithdrawPoolRequest>) -> Result<Response<pb::WithdrawPoolResponse>, Status> {
        let request = request.into_inner();
        let pool = PoolId {
            driver: request.driver.as_str().into(),
            pool: request.pool.as_str().into(),
        };
        for _ in 0..TRIES_MAX {
            if let Some(sequence) = self.try_withdraw(&pool).await? {
                return Ok(Response::new(pb::WithdrawPoolResponse { sequence }));
            }
        }
        Err(error::aborted("the pool keeps changing; try again"))
    }
}
