//! Every SQL statement of Dray: objects, the event log, what is held, leases. Postgres is the only source of truth.
//!
//! Reads are single statements (one snapshot each). Writes go through [`Writer`], which commits concurrent mutations together
//! with one call of the stored function `dray_commit`. No transaction is ever held by a request, so a request that is cancelled
//! leaves nothing behind on a pooled connection.

mod agents;
mod audit;
mod commit;
mod connect;
mod error;
mod event_log;
mod gates;
mod leases;
mod mutation;
mod objects;
mod pools;
mod retention;
mod taking;
mod writer;

pub use agents::{AgentRow, HeldClaim, PreparedRow};
pub use audit::{AuditReport, Violation};
pub use commit::{Committed, CommittedEvent, KindBatch};
pub use connect::{Store, StoreConfig, migrate};
pub use error::{Remedy, StoreError};
pub use event_log::{EventRow, Head, Operation};
pub use gates::{GATES_KIND, GateSetting, GateSwitch, GatesAt};
pub use leases::{Lease, Member};
pub use mutation::{
    Consumed, DeviceDraw, Draw, Fence, Kind, Mutation, Op, Outcome, PoolCheck, PoolDraws, PoolPut, Presence, Release,
    ReleaseMode, Submission, Take, TakeShare, UnitQueue, Write,
};
pub use objects::{Cursor, Page, PendingUnit, Stored};
pub use pools::{HoldingRow, PoolRow, ShareRow};
pub use taking::{PublishedPool, TakeError};
pub use writer::{Writer, WriterConfig};
