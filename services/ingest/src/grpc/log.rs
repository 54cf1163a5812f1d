//! The event log, as it is.

use rpc::dray::v1 as pb;
use rpc::dray::v1::log_server::Log;
use tonic::{Request, Response, Status};

use super::{Context, Streamed, event, kind_of, n_fitting, namespace_of, page_size};
use crate::error;

/// `dray.v1.Log`.
pub(crate) struct LogService(pub(crate) Context);

impl LogService {
    /// What happened to one object.
    async fn story(&self, request: &pb::ReadLogRequest) -> Result<pb::ReadLogResponse, Status> {
        let [kind] = request.kinds.as_slice() else {
            return Err(error::bad_field("kinds", "one kind is needed with a name"));
        };
        let kind = kind_of(kind)?;
        let namespace = namespace_of(kind, &request.namespace);
        let limit = page_size(request.limit);
        let story = self
            .0
            .store
            .story(kind.plural(), namespace, &request.name, request.after_sequence, limit);
        let rows = story.await.map_err(error::from_store)?;
        let rows = &rows[..n_fitting(rows.iter().map(|row| row.body.len()))];
        let sequence = rows.last().map_or(request.after_sequence, |row| row.sequence);
        Ok(pb::ReadLogResponse {
            events: rows.iter().map(event).collect(),
            sequence,
        })
    }
}

#[tonic::async_trait]
impl Log for LogService {
    async fn head(&self, _: Request<pb::HeadRequest>) -> Result<Response<pb::HeadResponse>, Status> {
        let head = self.0.store.head().await.map_err(error::from_store)?;
        Ok(Response::new(pb::HeadResponse {
            sequence: head.sequence,
            horizon: head.horizon,
        }))
    }

    async fn read(&self, request: Request<pb::ReadLogRequest>) -> Result<Response<pb::ReadLogResponse>, Status> {
        let request = request.into_inner();
        if !request.name.is_empty() {
            return self.story(&request).await.map(Response::new);
        }
        let kinds = plurals(&request.kinds)?;
        let limit = page_size(request.limit);
        let (rows, sequence) = self
            .0
            .store
            .events_after(&kinds, request.after_sequence, limit)
            .await
            .map_err(error::from_store)?;
        // After the events: what retention removed before they were read is below this horizon.
        let head = self.0.store.head().await.map_err(error::from_store)?;
        if request.after_sequence < head.horizon {
            return Err(error::expired(request.after_sequence, head.horizon));
        }
        let fitting = &rows[..n_fitting(rows.iter().map(|row| row.body.len()))];
        let sequence = match fitting.last() {
            Some(last) if fitting.len() < rows.len() => last.sequence,
            _ => sequence,
        };
        Ok(Response::new(pb::ReadLogResponse {
            events: fitting.iter().map(event).collect(),
            sequence,
        }))
    }

    type FollowStream = Streamed<pb::Event>;

    async fn follow(&self, request: Request<pb::FollowLogRequest>) -> Result<Response<Self::FollowStream>, Status> {
        let request = request.into_inner();
        let kinds = plurals(&request.kinds)?;
        let Context { store, live, .. } = self.0.clone();
        let follow = async move |out| {
            live.follow_log(&store, &kinds, request.after_sequence, |row| Some(event(row)), &out)
                .await
        };
        Ok(self.0.stream(follow))
    }
}

fn plurals(kinds: &[String]) -> Result<Vec<&'static str>, Status> {
    kinds.iter().map(|kind| kind_of(kind).map(|kind| kind.plural())).collect()
}
