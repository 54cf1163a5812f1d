//! Node agents: who answers for a node, what it should have prepared, and what it said.

use sqlx::Row;
use uuid::Uuid;

use crate::event_log::{to_i64, to_u64};
use crate::{Store, StoreError};

/// A registered agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRow {
    pub node: String,
    pub agent_id: String,
    /// New after each loss of the agent's local state.
    pub epoch: String,
}

/// A claim that has devices, shares of them, or is present without occupying any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldClaim {
    pub claim_uid: Uuid,
    pub allocation_sequence: u64,
    pub draining: bool,
    /// The claim's JSON, if the claim still exists.
    pub body: Option<String>,
}

/// What an agent reported about one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedRow {
    pub claim_uid: Uuid,
    pub allocation_sequence: u64,
    pub node: String,
    /// 1 prepared, 2 unprepared, 3 failed.
    pub state: i16,
    pub message: String,
    /// JSON list of devices with CDI ids.
    pub devices: String,
}

impl Store {
    /// Registers an agent for `nodes`. Takes the writers' lock: a release that found no agent is before or after, never beside it.
    pub async fn register_agents(&self, agent_id: &str, epoch: &str, nodes: &[String]) -> Result<(), StoreError> {
        sqlx::query(
            "WITH lock AS MATERIALIZED (SELECT dray_writer_lock() AS held)
             INSERT INTO agents (node, agent_id, epoch, seq)
             SELECT n, $1, $2, h.seq FROM lock, log_head h, unnest($3::text[]) AS n
             ON CONFLICT (node) DO UPDATE SET agent_id = excluded.agent_id, epoch = excluded.epoch, seq = excluded.seq",
        )
        .bind(agent_id)
        .bind(epoch)
        .bind(nodes)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Takes the registration of `nodes` back where it is this agent's.
    pub async fn deregister_agents(&self, agent_id: &str, nodes: &[String]) -> Result<(), StoreError> {
        sqlx::query("WITH lock AS MATERIALIZED (SELECT dray_writer_lock() AS held) DELETE FROM agents USING lock WHERE agent_id = $1 AND node = ANY ($2)")
            .bind(agent_id)
            .bind(nodes)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// All registrations.
    pub async fn agents(&self) -> Result<Vec<AgentRow>, StoreError> {
        let rows = sqlx::query("SELECT node, agent_id, epoch FROM agents ORDER BY node")
            .fetch_all(&self.pool)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(AgentRow {
                    node: row.try_get("node")?,
                    agent_id: row.try_get("agent_id")?,
                    epoch: row.try_get("epoch")?,
                })
            })
            .collect()
    }

    /// All claims that have an allocation or drain, each with its allocation's sequence.
    pub async fn held_claims(&self) -> Result<Vec<HeldClaim>, StoreError> {
        let rows = sqlx::query(
            "SELECT h.claim_uid, min(h.seq) AS seq, bool_or(h.draining) AS draining, o.body
             FROM claim_uses h LEFT JOIN objects o ON o.uid = h.claim_uid GROUP BY h.claim_uid, o.body",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(HeldClaim {
                    claim_uid: row.try_get("claim_uid")?,
                    allocation_sequence: to_u64(row.try_get("seq")?),
                    draining: row.try_get("draining")?,
                    body: row.try_get("body")?,
                })
            })
            .collect()
    }

    /// Of these claims, the allocation's sequence and whether it drains.
    pub async fn allocation_sequences(&self, claims: &[Uuid]) -> Result<Vec<(Uuid, u64, bool)>, StoreError> {
        let rows = sqlx::query(
            "SELECT claim_uid, min(seq) AS seq, bool_or(draining) AS draining FROM claim_uses WHERE claim_uid = ANY ($1) GROUP BY claim_uid",
        )
        .bind(claims)
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok((
                    row.try_get("claim_uid")?,
                    to_u64(row.try_get("seq")?),
                    row.try_get("draining")?,
                ))
            })
            .collect()
    }

    /// Records what agents reported. A report about an allocation replaces the one before; "unprepared" is final.
    pub async fn put_prepared(&self, rows: &[PreparedRow]) -> Result<(), StoreError> {
        let claims: Vec<Uuid> = rows.iter().map(|r| r.claim_uid).collect();
        let sequences: Vec<i64> = rows.iter().map(|r| to_i64(r.allocation_sequence)).collect();
        let nodes: Vec<&str> = rows.iter().map(|r| r.node.as_str()).collect();
        let states: Vec<i16> = rows.iter().map(|r| r.state).collect();
        let messages: Vec<&str> = rows.iter().map(|r| r.message.as_str()).collect();
        let devices: Vec<&str> = rows.iter().map(|r| r.devices.as_str()).collect();
        sqlx::query(
            "INSERT INTO prepared (claim_uid, allocation_seq, node, state, message, devices, at)
             SELECT DISTINCT ON (r.claim, r.seq) r.claim, r.seq, r.node, r.state, r.message, r.devices, clock_timestamp()
             FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::smallint[], $5::text[], $6::text[])
                  WITH ORDINALITY AS r(claim, seq, node, state, message, devices, i)
             ORDER BY r.claim, r.seq, r.i DESC
             ON CONFLICT (claim_uid, allocation_seq) DO UPDATE
                SET state = excluded.state, message = excluded.message, devices = excluded.devices, at = excluded.at
                WHERE prepared.state <> 2",
        )
        .bind(&claims)
        .bind(&sequences)
        .bind(&nodes)
        .bind(&states)
        .bind(&messages)
        .bind(&devices)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// What was reported about these claims.
    pub async fn prepared(&self, claims: &[Uuid]) -> Result<Vec<PreparedRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT claim_uid, allocation_seq, node, state, message, devices FROM prepared WHERE claim_uid = ANY ($1) ORDER BY claim_uid, allocation_seq",
        )
        .bind(claims)
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(PreparedRow {
                    claim_uid: row.try_get("claim_uid")?,
                    allocation_sequence: to_u64(row.try_get("allocation_seq")?),
                    node: row.try_get("node")?,
                    state: row.try_get("state")?,
                    message: row.try_get("message")?,
                    devices: row.try_get("devices")?,
                })
            })
            .collect()
    }

    /// Draining claims whose agent has let go of that allocation, at most `limit`: (claim, allocation sequence).
    pub async fn finished_drains(&self, limit: u32) -> Result<Vec<(Uuid, u64)>, StoreError> {
        let rows = sqlx::query(
            "SELECT DISTINCT h.claim_uid, h.seq FROM claim_uses h
             JOIN prepared p ON p.claim_uid = h.claim_uid AND p.allocation_seq = h.seq AND p.state = 2
             WHERE h.draining LIMIT $1",
        )
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await?;
        rows.iter()
            .map(|row| Ok((row.try_get("claim_uid")?, to_u64(row.try_get("seq")?))))
            .collect()
    }
}
