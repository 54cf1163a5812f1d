//! Bounds the memory of requests whose writes are under way: the writer's queue counts mutations, this counts their bytes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::error;

/// Bytes of requests between arrival and answer, at most.
const BYTES_MAX: u32 = 256 << 20;
/// What a request counts at least: small ones carry their bookkeeping.
const BYTES_MIN: u32 = 512;

/// Room for requests; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    room: Arc<Semaphore>,
}

/// Room that a request has taken; given back when dropped.
#[derive(Debug)]
pub(crate) struct Room {
    _bytes: OwnedSemaphorePermit,
}

impl Intake {
    /// All of it free.
    pub(crate) fn new() -> Self {
        Self {
            room: Arc::new(Semaphore::new(BYTES_MAX as usize)),
        }
    }

    /// Takes room for a request at once. Error: RESOURCE_EXHAUSTED.
    pub(crate) fn try_take(&self, size_bytes: usize) -> Result<Room, Status> {
        let taken = Arc::clone(&self.room).try_acquire_many_owned(counted(size_bytes));
        taken
            .map(|bytes| Room { _bytes: bytes })
            .map_err(|_| error::overloaded("too many bytes of requests are waiting; try again"))
    }

    /// Takes room as soon as there is some; for callers with flow control of their own.
    pub(crate) async fn take(&self, size_bytes: usize) -> Result<Room, Status> {
        let taken = Arc::clone(&self.room).acquire_many_owned(counted(size_bytes)).await;
        taken.map(|bytes| Room { _bytes: bytes }).map_err(|_| error::stopping())
    }
}

/// One request never asks for more than there is.
fn counted(size_bytes: usize) -> u32 {
    u32::try_from(size_bytes).unwrap_or(u32::MAX).clamp(BYTES_MIN, BYTES_MAX)
}
