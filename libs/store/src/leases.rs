//! Who is alive, and who decides for which shard. Expiry is judged by Postgres's clock alone; the heartbeat is another row than the
//! epoch, so beating never waits for a commit.

use std::time::Duration;

use sqlx::Row;

use crate::event_log::to_u64;
use crate::{Store, StoreError};

/// A living member of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: String,
}

/// A shard's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub shard: u16,
    pub epoch: u64,
    pub owner: Option<String>,
    /// The owner beats.
    pub alive: bool,
}

impl Store {
    /// Says that `id` of `service` is alive for `ttl` from now. Returns all living members, sorted.
    pub async fn beat(&self, service: &str, id: &str, ttl: Duration) -> Result<Vec<Member>, StoreError> {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let rows = sqlx::query(
            "WITH mine AS (
                 INSERT INTO members (service, id, beat_at, ttl) VALUES ($1, $2, clock_timestamp(), $3 * interval '1 millisecond')
                 ON CONFLICT (service, id) DO UPDATE SET beat_at = excluded.beat_at, ttl = excluded.ttl RETURNING id)
             SELECT id FROM members WHERE service = $1 AND beat_at + ttl > clock_timestamp() UNION SELECT id FROM mine ORDER BY id",
        )
        .bind(service)
        .bind(id)
        .bind(ttl_ms)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(|row| Ok(Member { id: row.try_get("id")? })).collect()
    }

    /// Leaves the service at once, and forgets members that have been silent for ten lifetimes.
    pub async fn leave(&self, service: &str, id: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM members WHERE service = $1 AND (id = $2 OR beat_at + 10 * ttl < clock_timestamp())")
            .bind(service)
            .bind(id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// All leases, by shard.
    pub async fn shard_leases(&self) -> Result<Vec<Lease>, StoreError> {
        let rows = sqlx::query(
            "SELECT l.shard, l.epoch, l.owner, coalesce(m.beat_at + m.ttl > clock_timestamp(), false) AS alive
             FROM shard_leases l LEFT JOIN members m ON m.service = 'allocator' AND m.id = l.owner ORDER BY l.shard",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(Lease {
                    shard: u16::try_from(row.try_get::<i16, _>("shard")?).unwrap_or(0),
                    epoch: to_u64(row.try_get("epoch")?),
                    owner: row.try_get("owner")?,
                    alive: row.try_get("alive")?,
                })
            })
            .collect()
    }

    /// Takes those of `shards` that are free (no owner, or one that no longer beats). Returns what was taken with its new epoch.
    /// The caller must beat. State read after this call includes everything that earlier epochs committed.
    pub async fn take_shards(&self, owner: &str, shards: &[u16]) -> Result<Vec<(u16, u64)>, StoreError> {
        let rows = sqlx::query("SELECT shard, epoch FROM dray_take_shards($1, $2)")
            .bind(owner)
            .bind(as_i32(shards))
            .fetch_all(&self.pool)
            .await?;
        rows.iter()
            .map(|row| {
                Ok((
                    u16::try_from(row.try_get::<i32, _>("shard")?).unwrap_or(0),
                    to_u64(row.try_get("epoch")?),
                ))
            })
            .collect()
    }

    /// Lets `shards` go. Nothing of this owner commits for them afterwards.
    pub async fn release_shards(&self, owner: &str, shards: &[u16]) -> Result<(), StoreError> {
        sqlx::query("SELECT dray_release_shards($1, $2)")
            .bind(owner)
            .bind(as_i32(shards))
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

fn as_i32(shards: &[u16]) -> Vec<i32> {
    shards.iter().map(|s| i32::from(*s)).collect()
}
