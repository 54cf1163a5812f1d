//! Writes of slices: each moves its pool's row along. Pure.

use std::sync::Arc;

use resource_api::ids::PoolId;
use resource_api::object::Kind;
use resource_api::shard::pool_shard;
use store::{Mutation, Op, PoolCheck, PoolDraws, PoolPut, PoolRow, PublishedPool, Write};
use uuid::Uuid;

/// `driver/pool`: what a slice is a part of in the store.
pub(crate) fn part_of(pool: &PoolId) -> Arc<str> {
    format!("{}/{}", pool.driver, pool.pool).into()
}

/// A write of a slice object.
pub(crate) fn write(pool: &PoolId, name: &str, uid: Uuid, op: Op, body: Arc<str>, cause: &str) -> Write {
    Write {
        kind: Kind::ResourceSlice.plural().into(),
        namespace: "".into(),
        name: name.into(),
        uid,
        op,
        body,
        queue: None,
        part_of: Some(part_of(pool)),
        cause: Some(cause.into()),
        trace: None,
    }
}

/// A pool once the writes of a mutation are done.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolAfter<'a> {
    pub(crate) n_slices: usize,
    /// The node that all of it is tied to, if to any.
    pub(crate) node: Option<&'a str>,
    /// What its devices draw on its counters: needed if it has any, or had.
    pub(crate) draws: Option<PoolDraws>,
}

/// Whether a mutation must state what the devices of the pool draw. `published`: all slices that the pool has afterwards.
pub(crate) fn draws(pool: &PoolId, before: Option<&PoolRow>, published: &PublishedPool<'_>) -> Option<PoolDraws> {
    let needed = published.is_counted() || before.is_some_and(|row| row.counted);
    needed.then(|| published.draws(pool))
}

/// The mutation of `writes`, all of one pool, which then is as `after` says.
///
/// `before`: the pool's row as read; if it moved on meanwhile, the mutation loses.
pub(crate) fn mutation(pool: &PoolId, writes: Vec<Write>, before: Option<&PoolRow>, after: PoolAfter<'_>) -> Mutation {
    let last = writes.len().saturating_sub(1);
    Mutation {
        writes,
        pool_checks: vec![PoolCheck {
            driver: pool.driver.as_str().into(),
            pool: pool.pool.as_str().into(),
            inventory: before.map_or(0, |row| row.inventory),
        }],
        pool_puts: vec![PoolPut {
            write: last,
            driver: pool.driver.as_str().into(),
            pool: pool.pool.as_str().into(),
            shard: pool_shard(after.node, &pool.driver, &pool.pool),
            node: after.node.map(Into::into),
            slices: u32::try_from(after.n_slices).unwrap_or(u32::MAX),
        }],
        pool_draws: after.draws.into_iter().collect(),
        ..Mutation::default()
    }
}
