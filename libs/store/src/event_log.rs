//! Reading the log. A reader that has seen sequence n has seen every event up to n: sequences appear in commit order.

use std::sync::Arc;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::{Store, StoreError};

/// What an event did to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Added,
    Modified,
    Deleted,
}

impl Operation {
    pub(crate) fn from_code(code: i16) -> Result<Self, StoreError> {
        match code {
            0 => Ok(Self::Added),
            1 => Ok(Self::Modified),
            2 => Ok(Self::Deleted),
            other => Err(StoreError::Corrupt(format!("event operation {other}"))),
        }
    }
}

/// One row of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    pub sequence: u64,
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uuid,
    pub operation: Operation,
    /// Milliseconds since 1970, by the database's clock.
    pub at_ms: i64,
    pub body: Arc<str>,
    pub cause: Option<Arc<str>>,
    pub trace: Option<Arc<str>>,
    /// Which process wrote it; only filled by [`Store::story`].
    pub writer: Option<Arc<str>>,
}

/// Where the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The last sequence given.
    pub sequence: u64,
    /// Events up to here may be gone.
    pub horizon: u64,
}

const COLUMNS: &str = "e.seq, e.kind, e.namespace, e.name, e.uid, e.op, (extract(epoch FROM e.at) * 1000)::bigint AS at_ms, e.body, e.cause, e.trace";

pub(crate) fn to_u64(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Sequences fit `bigint` for as long as a million events a second are written for 290,000 years.
pub(crate) fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn event_from(row: &PgRow) -> Result<EventRow, StoreError> {
    Ok(EventRow {
        sequence: to_u64(row.try_get("seq")?),
        kind: row.try_get::<&str, _>("kind")?.into(),
        namespace: row.try_get::<&str, _>("namespace")?.into(),
        name: row.try_get::<&str, _>("name")?.into(),
        uid: row.try_get("uid")?,
        operation: Operation::from_code(row.try_get("op")?)?,
        at_ms: row.try_get("at_ms")?,
        body: row.try_get::<&str, _>("body")?.into(),
        cause: row.try_get::<Option<&str>, _>("cause")?.map(Into::into),
        trace: row.try_get::<Option<&str>, _>("trace")?.map(Into::into),
        writer: None,
    })
}

impl Store {
    /// The head of the log.
    pub async fn head(&self) -> Result<Head, StoreError> {
        let row = sqlx::query("SELECT seq, horizon FROM log_head").fetch_one(&self.pool).await?;
        Ok(Head {
            sequence: to_u64(row.try_get("seq")?),
            horizon: to_u64(row.try_get("horizon")?),
        })
    }

    /// The last sequence of each kind, and the head, in one snapshot.
    pub async fn kind_heads(&self) -> Result<(Vec<(String, u64)>, u64), StoreError> {
        let rows = sqlx::query("SELECT k.kind, k.seq, h.seq AS head FROM log_head h LEFT JOIN kind_heads k ON true")
            .fetch_all(&self.pool)
            .await?;
        let mut head = 0;
        let mut kinds = Vec::with_capacity(rows.len());
        for row in &rows {
            head = to_u64(row.try_get("head")?);
            if let Some(kind) = row.try_get::<Option<String>, _>("kind")? {
                kinds.push((kind, to_u64(row.try_get("seq")?)));
            }
        }
        Ok((kinds, head))
    }

    /// Up to `limit` events after `after` of `kinds` (empty: all), in order, and the position read up to: every event of these kinds
    /// up to there is in the answer or was before it.
    ///
    /// The walk is bounded (the primary key's next 50,000 rows), so a rare kind in a long log costs several calls, never one long one.
    pub async fn events_after(&self, kinds: &[&str], after: u64, limit: u32) -> Result<(Vec<EventRow>, u64), StoreError> {
        const WALK_MAX: i64 = 50_000;
        let sql = format!(
            "SELECT {COLUMNS}, h.seq AS head FROM log_head h
             LEFT JOIN LATERAL (SELECT * FROM events x WHERE x.seq > $1 AND x.seq <= $1 + $4
                                AND (cardinality($2::text[]) = 0 OR x.kind = ANY ($2)) ORDER BY x.seq LIMIT $3) e ON true
             ORDER BY e.seq"
        );
        let after_i = to_i64(after);
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(after_i)
            .bind(kinds)
            .bind(i64::from(limit))
            .bind(WALK_MAX)
            .fetch_all(&self.pool)
            .await?;
        let mut head = after;
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            head = to_u64(row.try_get("head")?);
            if row.try_get::<Option<i64>, _>("seq")?.is_some() {
                events.push(event_from(row)?);
            }
        }
        let walked = to_u64(after_i.saturating_add(WALK_MAX));
        let upto = match events.last() {
            Some(last) if events.len() >= limit as usize => last.sequence,
            _ => head.min(walked).max(after),
        };
        Ok((events, upto))
    }

    /// What happened to one object, oldest first, also after its deletion; at most `limit` events after `after`.
    pub async fn story(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>, StoreError> {
        // Uids are looked up first, so that the walk over events uses events_uid.
        let sql = format!(
            "SELECT {COLUMNS}, (SELECT c.writer FROM commits c WHERE c.first <= e.seq AND c.last >= e.seq ORDER BY c.first DESC LIMIT 1) AS writer
             FROM events e WHERE e.uid = ANY (ARRAY(
                SELECT o.uid FROM objects o WHERE o.kind = $1 AND o.namespace = $2 AND o.name = $3
                UNION SELECT d.uid FROM events d WHERE d.kind = $1 AND d.namespace = $2 AND d.name = $3 AND d.op = 2))
             AND e.seq > $4 ORDER BY e.seq LIMIT $5"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(kind)
            .bind(namespace)
            .bind(name)
            .bind(to_i64(after))
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await?;
        rows.iter()
            .map(|row| {
                let mut event = event_from(row)?;
                event.writer = row.try_get::<Option<&str>, _>("writer")?.map(Into::into);
                Ok(event)
            })
            .collect()
    }
}
