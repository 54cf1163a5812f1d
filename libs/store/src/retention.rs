//! Bounds the log: old events go, except each live object's last one; old submission records go when their unit is gone.

use std::time::Duration;

use sqlx::Row;

use crate::{Store, StoreError};

impl Store {
    /// Raises the horizon to the newest event older than `keep`, then removes at most `limit` events and commit rows below it.
    /// Returns how many events were removed. The horizon moves first: nobody is told that a removed event is still there.
    pub async fn trim_log(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        let row = sqlx::query(
            "WITH lock AS MATERIALIZED (SELECT dray_writer_lock() AS held)
             UPDATE log_head h SET horizon = greatest(h.horizon, coalesce(
                 (SELECT max(c.last) FROM commits c WHERE c.at < clock_timestamp() - $1 * interval '1 millisecond'), 0))
             FROM lock RETURNING h.horizon",
        )
        .bind(keep_ms)
        .fetch_one(&self.pool)
        .await?;
        let horizon: i64 = row.try_get("horizon")?;
        let removed = sqlx::query(
            "DELETE FROM events WHERE seq IN (
                 SELECT e.seq FROM events e WHERE e.seq <= $1 AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.uid = e.uid AND o.seq = e.seq)
                 ORDER BY e.seq LIMIT $2)",
        )
        .bind(horizon)
        .bind(i64::from(limit))
        .execute(&self.pool)
        .await?
        .rows_affected();
        sqlx::query("DELETE FROM commits WHERE batch IN (SELECT batch FROM commits WHERE last <= $1 ORDER BY first LIMIT $2)")
            .bind(horizon)
            .bind(i64::from(limit))
            .execute(&self.pool)
            .await?;
        Ok(removed)
    }

    /// Removes at most `limit` submission records older than `keep` whose unit is gone, and what agents said about claims that are gone.
    pub async fn trim_records(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        let records = sqlx::query(
            "DELETE FROM submissions WHERE (namespace, client_id) IN (
                 SELECT s.namespace, s.client_id FROM submissions s
                 WHERE s.created_at < clock_timestamp() - $1 * interval '1 millisecond'
                   AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.uid = s.unit_uid) ORDER BY s.created_at LIMIT $2)",
        )
        .bind(keep_ms)
        .bind(i64::from(limit))
        .execute(&self.pool)
        .await?
        .rows_affected();
        sqlx::query(
            "DELETE FROM prepared WHERE (claim_uid, allocation_seq) IN (
                 SELECT p.claim_uid, p.allocation_seq FROM prepared p
                 WHERE p.at < clock_timestamp() - $1 * interval '1 millisecond'
                   AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.uid = p.claim_uid)
                   AND NOT EXISTS (SELECT 1 FROM claim_uses h WHERE h.claim_uid = p.claim_uid) LIMIT $2)",
        )
        .bind(keep_ms)
        .bind(i64::from(limit))
        .execute(&self.pool)
        .await?;
        Ok(records)
    }
}
