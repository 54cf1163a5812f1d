//! Pools (which shard decides about them, at which inventory version) and the devices that are held.

use std::sync::Arc;

use sqlx::Row;
use uuid::Uuid;

use crate::event_log::to_u64;
use crate::{Store, StoreError};

/// A pool's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRow {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub shard: u16,
    pub node: Option<Arc<str>>,
    /// Sequence of the last slice write.
    pub inventory: u64,
    pub slices: u32,
    /// It has counters: writes of its slices must state what its devices draw.
    pub counted: bool,
}

/// A device that a claim holds whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldingRow {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub device: Arc<str>,
    pub claim_uid: Uuid,
    /// The allocation's event.
    pub sequence: u64,
    pub draining: bool,
}

/// A share that is out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRow {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
    pub device: Arc<str>,
    pub share_id: Arc<str>,
    pub claim_uid: Uuid,
    /// The allocation's event.
    pub sequence: u64,
    pub draining: bool,
}

impl Store {
    /// One pool.
    pub async fn pool(&self, driver: &str, pool: &str) -> Result<Option<PoolRow>, StoreError> {
        let row = sqlx::query(
            "SELECT driver, pool, shard, node, inventory, slices, counted FROM pools WHERE driver = $1 AND pool = $2",
        )
        .bind(driver)
        .bind(pool)
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref().map(pool_from).transpose()
    }

    /// All pools. Small rows: a hundred thousand pools are some ten megabytes.
    pub async fn pools(&self) -> Result<Vec<PoolRow>, StoreError> {
        let rows = sqlx::query("SELECT driver, pool, shard, node, inventory, slices, counted FROM pools")
            .fetch_all(&self.pool)
            .await?;
        rows.iter().map(pool_from).collect()
    }

    /// All devices that are held whole.
    pub async fn holdings(&self) -> Result<Vec<HoldingRow>, StoreError> {
        let rows = sqlx::query("SELECT driver, pool, device, claim_uid, seq, draining FROM holdings WHERE claim_uid IS NOT NULL")
            .fetch_all(&self.pool)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(HoldingRow {
                    driver: row.try_get::<&str, _>("driver")?.into(),
                    pool: row.try_get::<&str, _>("pool")?.into(),
                    device: row.try_get::<&str, _>("device")?.into(),
                    claim_uid: row.try_get("claim_uid")?,
                    sequence: to_u64(row.try_get("seq")?),
                    draining: row.try_get("draining")?,
                })
            })
            .collect()
    }

    /// All shares that are out.
    pub async fn shares(&self) -> Result<Vec<ShareRow>, StoreError> {
        let rows = sqlx::query("SELECT driver, pool, device, share_id, claim_uid, seq, draining FROM shares")
            .fetch_all(&self.pool)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(ShareRow {
                    driver: row.try_get::<&str, _>("driver")?.into(),
                    pool: row.try_get::<&str, _>("pool")?.into(),
                    device: row.try_get::<&str, _>("device")?.into(),
                    share_id: row.try_get::<&str, _>("share_id")?.into(),
                    claim_uid: row.try_get("claim_uid")?,
                    sequence: to_u64(row.try_get("seq")?),
                    draining: row.try_get("draining")?,
                })
            })
            .collect()
    }
}

fn pool_from(row: &sqlx::postgres::PgRow) -> Result<PoolRow, StoreError> {
    Ok(PoolRow {
        driver: row.try_get::<&str, _>("driver")?.into(),
        pool: row.try_get::<&str, _>("pool")?.into(),
        shard: u16::try_from(row.try_get::<i16, _>("shard")?).unwrap_or(0),
        node: row.try_get::<Option<&str>, _>("node")?.map(Into::into),
        inventory: to_u64(row.try_get("inventory")?),
        slices: u32::try_from(row.try_get::<i32, _>("slices")?).unwrap_or(0),
        counted: row.try_get("counted")?,
    })
}
