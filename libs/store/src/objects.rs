//! Reading objects: by name, by uid, in pages, and the units that wait.

use std::sync::Arc;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::event_log::{to_i64, to_u64};
use crate::{Store, StoreError};

/// An object as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uuid,
    /// resourceVersion.
    pub sequence: u64,
    pub created_sequence: u64,
    /// JSON without `metadata.resourceVersion`.
    pub body: Arc<str>,
}

/// Where a page ended: the next one starts after this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub namespace: String,
    pub name: String,
}

/// Part of a list.
#[derive(Clone, Debug)]
pub struct Page {
    pub items: Vec<Stored>,
    /// Set if there is more.
    pub next: Option<Cursor>,
    /// Everything up to this position is in the page's range.
    pub sequence: u64,
}

/// A unit that waits, with its claims.
#[derive(Clone, Debug)]
pub struct PendingUnit {
    pub unit: Stored,
    pub priority: i32,
    pub home_shard: u16,
}

fn stored_from(row: &PgRow) -> Result<Stored, StoreError> {
    Ok(Stored {
        kind: row.try_get::<&str, _>("kind")?.into(),
        namespace: row.try_get::<&str, _>("namespace")?.into(),
        name: row.try_get::<&str, _>("name")?.into(),
        uid: row.try_get("uid")?,
        sequence: to_u64(row.try_get("seq")?),
        created_sequence: to_u64(row.try_get("created_seq")?),
        body: row.try_get::<&str, _>("body")?.into(),
    })
}

impl Store {
    /// The object of that name, if any.
    pub async fn object(&self, kind: &str, namespace: &str, name: &str) -> Result<Option<Stored>, StoreError> {
        let row = sqlx::query(
            "SELECT kind, namespace, name, uid, seq, created_seq, body FROM objects WHERE kind = $1 AND namespace = $2 AND name = $3",
        )
        .bind(kind)
        .bind(namespace)
        .bind(name)
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref().map(stored_from).transpose()
    }

    /// The objects of these uids, in no order; unknown ones are left out.
    pub async fn objects_by_uid(&self, uids: &[Uuid]) -> Result<Vec<Stored>, StoreError> {
        let rows = sqlx::query("SELECT kind, namespace, name, uid, seq, created_seq, body FROM objects WHERE uid = ANY ($1)")
            .bind(uids)
            .fetch_all(&self.pool)
            .await?;
        rows.iter().map(stored_from).collect()
    }

    /// The objects of a kind that are parts of something, e.g. the slices of a pool (`driver/pool`), by name.
    pub async fn parts_of(&self, kind: &str, whole: &str) -> Result<Vec<Stored>, StoreError> {
        let rows = sqlx::query(
            "SELECT kind, namespace, name, uid, seq, created_seq, body FROM objects WHERE kind = $1 AND part_of = $2 ORDER BY name",
        )
        .bind(kind)
        .bind(whole)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(stored_from).collect()
    }

    /// Up to `limit` objects of a kind (and namespace) in the order of namespace and name, starting after `after`.
    pub async fn list(
        &self,
        kind: &str,
        namespace: Option<&str>,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page, StoreError> {
        let (after_ns, after_name) = after.map_or(("", ""), |c| (c.namespace.as_str(), c.name.as_str()));
        let rows = sqlx::query(
            "SELECT h.seq AS head, o.* FROM log_head h LEFT JOIN LATERAL (
                 SELECT kind, namespace, name, uid, seq, created_seq, body FROM objects
                 WHERE kind = $1 AND ($2::text IS NULL OR namespace = $2) AND (namespace, name) > ($3, $4)
                 ORDER BY namespace, name LIMIT $5) o ON true",
        )
        .bind(kind)
        .bind(namespace)
        .bind(after_ns)
        .bind(after_name)
        .bind(i64::from(limit) + 1)
        .fetch_all(&self.pool)
        .await?;
        let mut sequence = 0;
        let mut items = Vec::with_capacity(rows.len());
        for row in &rows {
            sequence = to_u64(row.try_get("head")?);
            if row.try_get::<Option<Uuid>, _>("uid")?.is_some() {
                items.push(stored_from(row)?);
            }
        }
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = if more {
            items.last().map(|l| Cursor {
                namespace: l.namespace.to_string(),
                name: l.name.to_string(),
            })
        } else {
            None
        };
        Ok(Page { items, next, sequence })
    }

    /// All objects of a kind, page by page, and the log position before the first page: applying the log's events from there on
    /// to these (newest sequence wins) gives the present.
    pub async fn list_all(&self, kind: &str) -> Result<(Vec<Stored>, u64), StoreError> {
        const PAGE: u32 = 5_000;
        let mut all = Vec::new();
        let mut from = None;
        let mut cursor: Option<Cursor> = None;
        loop {
            let page = self.list(kind, None, cursor.as_ref(), PAGE).await?;
            from.get_or_insert(page.sequence);
            all.extend(page.items);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok((all, from.unwrap_or(0))),
            }
        }
    }

    /// Units of these home shards that wait, at most `limit`, created after `after`, oldest first.
    /// Uses the index objects_pending.
    pub async fn pending_units(&self, shards: &[u16], after: u64, limit: u32) -> Result<Vec<PendingUnit>, StoreError> {
        let shards: Vec<i32> = shards.iter().map(|s| i32::from(*s)).collect();
        let rows = sqlx::query(
            "SELECT kind, namespace, name, uid, seq, created_seq, body, priority, home_shard FROM objects
             WHERE pending AND home_shard = ANY ($1) AND created_seq > $2 ORDER BY created_seq LIMIT $3",
        )
        .bind(&shards)
        .bind(to_i64(after))
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(PendingUnit {
                    unit: stored_from(row)?,
                    priority: row.try_get::<Option<i32>, _>("priority")?.unwrap_or(0),
                    home_shard: row
                        .try_get::<Option<i16>, _>("home_shard")?
                        .and_then(|s| u16::try_from(s).ok())
                        .unwrap_or(0),
                })
            })
            .collect()
    }
}
