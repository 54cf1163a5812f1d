//! Proves the invariants from the tables alone, in one snapshot. Each check is one statement that returns offending rows.

mod uses;

use sqlx::Row;

use crate::event_log::to_u64;
use crate::{Store, StoreError};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which check.
    pub check: &'static str,
    /// What was found.
    pub found: String,
}

/// What an audit looked at and found.
#[derive(Clone, Debug, Default)]
pub struct AuditReport {
    /// (what, how many) that were looked at.
    pub counted: Vec<(&'static str, u64)>,
    pub violations: Vec<Violation>,
    /// What is out of order but not by our doing: drivers that shrank what was given away already.
    pub remarks: Vec<Violation>,
    /// Names of all checks, in order.
    pub checks: Vec<&'static str>,
}

impl AuditReport {
    /// No check found anything.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

/// At most this many offending rows of one check are reported.
const SHOWN_MAX: i64 = 20;

fn checks() -> Vec<(&'static str, String)> {
    let mut all = uses::checks();
    all.extend(log_and_objects());
    all
}

fn log_and_objects() -> Vec<(&'static str, String)> {
    vec![
        (
            "the log has no gap above its horizon",
            "SELECT 'sequence ' || g.missing || ' is missing' AS found FROM (
                 SELECT e.seq + 1 AS missing, lead(e.seq) OVER (ORDER BY e.seq) AS next, h.seq AS head
                 FROM log_head h, events e WHERE e.seq > h.horizon) g
             WHERE coalesce(g.next, g.head + 1) <> g.missing
             UNION ALL
             SELECT 'sequence ' || h.horizon + 1 || ' is missing' FROM log_head h
             WHERE h.seq > h.horizon AND NOT EXISTS (SELECT 1 FROM events e WHERE e.seq = h.horizon + 1)"
                .to_owned(),
        ),
        (
            "the log does not go past its head",
            "SELECT 'sequence ' || max(e.seq) || ' is past the head ' || h.seq AS found FROM events e, log_head h GROUP BY h.seq HAVING max(e.seq) > h.seq".to_owned(),
        ),
        (
            "every object equals its last event",
            "SELECT o.kind || ' ' || o.namespace || '/' || o.name || ' at ' || o.seq ||
                    CASE WHEN e.seq IS NULL THEN ' has no event' WHEN e.op = 2 THEN ' was deleted by its event' ELSE ' differs from its event' END AS found
             FROM objects o LEFT JOIN events e ON e.seq = o.seq AND e.uid = o.uid WHERE e.seq IS NULL OR e.op = 2 OR e.body <> o.body"
                .to_owned(),
        ),
        (
            "no object has an event after its last one",
            "SELECT o.kind || ' ' || o.namespace || '/' || o.name || ' is at ' || o.seq || ', the log at ' || e.seq AS found
             FROM objects o JOIN events e ON e.uid = o.uid AND e.seq > o.seq"
                .to_owned(),
        ),
        (
            "each kind's head is its last event",
            "SELECT k.kind || ' is at ' || k.seq AS found FROM kind_heads k, log_head h
             WHERE k.seq > h.horizon AND k.seq <> (SELECT max(e.seq) FROM events e WHERE e.kind = k.kind)"
                .to_owned(),
        ),
        (
            "commits cover the log without overlap",
            "SELECT 'commit ' || c.first || '..' || c.last || ' follows ' || c.before AS found FROM (
                 SELECT c.first, c.last, lag(c.last) OVER (ORDER BY c.first, c.last) AS before FROM commits c, log_head h
                 WHERE c.last > h.horizon AND c.last >= c.first) c WHERE c.before IS NOT NULL AND c.first <> c.before + 1"
                .to_owned(),
        ),
        (
            "a claim was not allocated twice without letting go in between",
            "SELECT e.namespace || '/' || e.name || ' was allocated anew at ' || e.seq AS found FROM (
                 SELECT namespace, name, seq, uid, body::jsonb #> '{status,allocation}' AS now,
                        lag(body::jsonb #> '{status,allocation}') OVER (PARTITION BY uid ORDER BY seq) AS before
                 FROM events WHERE kind = 'resourceclaims') e
             WHERE e.now IS NOT NULL AND e.before IS NOT NULL AND e.now <> e.before"
                .to_owned(),
        ),
        (
            "a unit waits if and only if it says so",
            "SELECT o.namespace || '/' || o.name AS found FROM objects o
             WHERE o.kind = 'units' AND o.pending <> ((o.body::jsonb #>> '{status,phase}') = 'Pending')"
                .to_owned(),
        ),
        (
            "an allocated unit has all its claims allocated",
            "SELECT o.namespace || '/' || o.name || ' claim ' || (c ->> 'name') AS found
             FROM objects o, jsonb_array_elements(o.body::jsonb #> '{spec,claims}') AS c
             WHERE o.kind = 'units' AND (o.body::jsonb #>> '{status,phase}') = 'Allocated'
               AND NOT EXISTS (SELECT 1 FROM objects k WHERE k.uid = (c ->> 'uid')::uuid AND k.kind = 'resourceclaims'
                               AND k.body::jsonb #> '{status,allocation}' IS NOT NULL)"
                .to_owned(),
        ),
        (
            "each pool counts its slices",
            "SELECT coalesce(p.driver, s.driver) || '/' || coalesce(p.pool, s.pool) || ' has ' || coalesce(s.n, 0) || ' slices, says ' || coalesce(p.slices, 0) AS found
             FROM pools p FULL JOIN (SELECT body::jsonb #>> '{spec,driver}' AS driver, body::jsonb #>> '{spec,pool,name}' AS pool, count(*) AS n
                 FROM objects WHERE kind = 'resourceslices' GROUP BY 1, 2) s ON s.driver = p.driver AND s.pool = p.pool
             WHERE coalesce(p.slices, 0) <> coalesce(s.n, 0)"
                .to_owned(),
        ),
        (
            "a submission record exists for each unit",
            "SELECT o.namespace || '/' || o.name AS found FROM objects o WHERE o.kind = 'units'
             AND coalesce(o.body::jsonb #>> '{spec,clientId}', '') <> ''
             AND NOT EXISTS (SELECT 1 FROM submissions s WHERE s.namespace = o.namespace AND s.client_id = o.body::jsonb #>> '{spec,clientId}')"
                .to_owned(),
        ),
    ]
}

impl Store {
    /// Runs all checks in one snapshot on a connection of its own, without the statement timeout: an audit of a large database takes
    /// as long as it takes, and holds no lock.
    pub async fn audit(&self) -> Result<AuditReport, StoreError> {
        // In a task of its own: a caller that goes away must not leave the transaction on a pooled connection.
        let store = self.clone();
        tokio::spawn(async move { store.audit_in_snapshot().await })
            .await
            .map_err(|error| StoreError::Corrupt(error.to_string()))?
    }

    async fn audit_in_snapshot(&self) -> Result<AuditReport, StoreError> {
        let mut connection = self.pool.acquire().await?.detach();
        for statement in [
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            "SET LOCAL statement_timeout = 0",
            "SET LOCAL work_mem = '64MB'",
            // Nobody knows how many rows come out of JSON; a wrong guess must not compare each with each.
            "SET LOCAL enable_nestloop = off",
        ] {
            sqlx::query(statement).execute(&mut connection).await?;
        }
        let mut report = AuditReport::default();
        for (check, sql) in checks() {
            report.checks.push(check);
            report.violations.extend(offending(&mut connection, check, &sql).await?);
        }
        for (check, sql) in uses::remarks() {
            report.remarks.extend(offending(&mut connection, check, &sql).await?);
        }
        let counts = sqlx::query(
            "SELECT (SELECT count(*) FROM objects) AS objects, (SELECT count(*) FROM events) AS events, (SELECT count(*) FROM holdings) AS holdings,
                    (SELECT count(*) FROM shares) AS shares, (SELECT count(*) FROM commits) AS commits, (SELECT seq FROM log_head) AS head, (SELECT horizon FROM log_head) AS horizon",
        )
        .fetch_one(&mut connection)
        .await?;
        for name in ["objects", "events", "holdings", "shares", "commits", "head", "horizon"] {
            report.counted.push((name, to_u64(counts.try_get(name)?)));
        }
        sqlx::query("COMMIT").execute(&mut connection).await?;
        sqlx::Connection::close(connection).await?;
        Ok(report)
    }
}

async fn offending(connection: &mut sqlx::PgConnection, check: &'static str, sql: &str) -> Result<Vec<Violation>, sqlx::Error> {
    let rows = sqlx::query(sqlx::AssertSqlSafe(format!("{sql} LIMIT {SHOWN_MAX}")))
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(Violation {
                check,
                found: row.try_get::<Option<String>, _>("found")?.unwrap_or_default(),
            })
        })
        .collect()
}
