//! Writes of slices: each moves its pool's row along. Pure.

use std::sync::Arc;

use resource_api::ids::PoolId;
use resource_api::object::Kind;
use resource_api::shard::pool_shard;
use store::{Mutation, Op, PoolCheck, PoolPut, PoolRow, Write};
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

/// The mutation of `writes`, all of one pool, which then has `n_slices` slices and is tied to `node` (if to any).
///
/// `before`: the pool's row as read; if it moved on meanwhile, the mutation loses.
pub(crate) fn mutation(
    pool: &PoolId,
    writes: Vec<Write>,
    before: Option<&PoolRow>,
    n_slices: usize,
    node: Option<&str>,
) -> Mutation {
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
            shard: pool_shard(node, &pool.driver, &pool.pool),
            node: node.map(Into::into),
            slices: u32::try_from(n_slices).unwrap_or(u32::MAX),
        }],
        ..Mutation::default()
    }
}
