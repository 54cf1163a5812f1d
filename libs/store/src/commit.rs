//! One group commit: mutations to the arrays of `dray_commit`, its answer back to outcomes and events.

use std::collections::BTreeMap;
use std::sync::Arc;

use resource_api::quantity::Quantity;
use serde::Deserialize;
use sqlx::Row;
use sqlx::postgres::PgPool;
use uuid::Uuid;

use crate::Store;
use crate::event_log::{Operation, to_i64, to_u64};
use crate::mutation::{Kind, Mutation, Op, Outcome, ReleaseMode, TakeShare, Write};

/// A commit that happened in this process, for announcing.
#[derive(Clone, Debug)]
pub struct Committed {
    pub first: u64,
    pub last: u64,
    pub at_ms: i64,
    pub kinds: Vec<KindBatch>,
}

/// The events of one kind in a commit.
#[derive(Clone, Debug)]
pub struct KindBatch {
    pub kind: Kind,
    /// The last sequence of this kind before the commit.
    pub prev: u64,
    pub events: Vec<CommittedEvent>,
}

/// An event as announced.
#[derive(Clone, Debug)]
pub struct CommittedEvent {
    pub sequence: u64,
    pub operation: Operation,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uuid,
    pub body: Arc<str>,
    pub cause: Option<Arc<str>>,
    pub trace: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct Detail {
    last: i64,
    at: i64,
    lost: Vec<usize>,
    prev: Option<BTreeMap<String, i64>>,
}

/// The mutations' parts as columns; see the comment on `dray_commit` for their meaning.
#[derive(Default)]
struct Columns<'a> {
    f_m: Vec<i32>,
    f_shard: Vec<i32>,
    f_epoch: Vec<i64>,
    w_m: Vec<i32>,
    w_kind: Vec<&'a str>,
    w_ns: Vec<&'a str>,
    w_name: Vec<&'a str>,
    w_uid: Vec<Uuid>,
    w_op: Vec<i32>,
    w_expected: Vec<Option<i64>>,
    w_body: Vec<&'a str>,
    w_home: Vec<Option<i32>>,
    w_priority: Vec<Option<i32>>,
    w_pending: Vec<bool>,
    w_part: Vec<Option<&'a str>>,
    w_cause: Vec<Option<&'a str>>,
    w_trace: Vec<Option<&'a str>>,
    c_m: Vec<i32>,
    c_driver: Vec<&'a str>,
    c_pool: Vec<&'a str>,
    c_inventory: Vec<i64>,
    u_m: Vec<i32>,
    u_w: Vec<i32>,
    u_driver: Vec<&'a str>,
    u_pool: Vec<&'a str>,
    u_shard: Vec<i32>,
    u_node: Vec<Option<&'a str>>,
    u_slices: Vec<i32>,
    h_m: Vec<i32>,
    h_w: Vec<i32>,
    h_driver: Vec<&'a str>,
    h_pool: Vec<&'a str>,
    h_device: Vec<&'a str>,
    h_claim: Vec<Uuid>,
    h_mode: Vec<i32>,
    h_share: Vec<Option<&'a str>>,
    h_counted: Vec<bool>,
    r_m: Vec<i32>,
    r_claim: Vec<Uuid>,
    r_mode: Vec<i32>,
    a_m: Vec<i32>,
    a_node: Vec<&'a str>,
    s_m: Vec<i32>,
    s_ns: Vec<&'a str>,
    s_client: Vec<&'a str>,
    s_digest: Vec<&'a [u8]>,
    s_answer: Vec<&'a str>,
    s_unit: Vec<Uuid>,
    k: Consumption<'a>,
    d: Draws<'a>,
    p_m: Vec<i32>,
    p_driver: Vec<&'a str>,
    p_pool: Vec<&'a str>,
    p_counted: Vec<bool>,
    n: Draws<'a>,
    g_m: Vec<i32>,
    g_position: Vec<i64>,
}

/// Rows of `k`.
#[derive(Default)]
struct Consumption<'a> {
    m: Vec<i32>,
    driver: Vec<&'a str>,
    pool: Vec<&'a str>,
    device: Vec<&'a str>,
    share: Vec<&'a str>,
    capacity: Vec<&'a str>,
    amount: Vec<String>,
    top: Vec<Option<String>>,
}

/// Rows of `d` and `n`; `n` has no top.
#[derive(Default)]
struct Draws<'a> {
    m: Vec<i32>,
    driver: Vec<&'a str>,
    pool: Vec<&'a str>,
    device: Vec<&'a str>,
    counter_set: Vec<&'a str>,
    counter: Vec<&'a str>,
    amount: Vec<String>,
    top: Vec<String>,
}

/// `h_mode`.
const WHOLE: i32 = 0;
const SHARE: i32 = 1;
const PRESENCE: i32 = 2;

/// Batches hold at most some hundreds of mutations, so positions fit.
fn position(index: usize) -> i32 {
    i32::try_from(index + 1).unwrap_or(i32::MAX)
}

impl<'a> Columns<'a> {
    fn of(mutations: &'a [Mutation]) -> Self {
        let mut columns = Self::default();
        for (index, mutation) in mutations.iter().enumerate() {
            columns.push(position(index), mutation);
        }
        columns
    }

    fn push(&mut self, m: i32, mutation: &'a Mutation) {
        for fence in &mutation.fences {
            self.f_m.push(m);
            self.f_shard.push(i32::from(fence.shard));
            self.f_epoch.push(to_i64(fence.epoch));
        }
        let writes_before = self.w_m.len();
        for write in &mutation.writes {
            self.push_write(m, write);
        }
        for check in &mutation.pool_checks {
            self.c_m.push(m);
            self.c_driver.push(&check.driver);
            self.c_pool.push(&check.pool);
            self.c_inventory.push(to_i64(check.inventory));
        }
        for put in &mutation.pool_puts {
            self.u_m.push(m);
            self.u_w.push(position(writes_before + put.write));
            self.u_driver.push(&put.driver);
            self.u_pool.push(&put.pool);
            self.u_shard.push(i32::from(put.shard));
            self.u_node.push(put.node.as_deref());
            self.u_slices.push(i32::try_from(put.slices).unwrap_or(i32::MAX));
        }
        let is_counted = |device: (&str, &str, &str)| {
            mutation
                .draws
                .iter()
                .any(|draw| (draw.driver.as_ref(), draw.pool.as_ref(), draw.device.as_ref()) == device)
        };
        for take in &mutation.takes {
            let device = (take.driver.as_ref(), take.pool.as_ref(), take.device.as_ref());
            self.push_use(m, position(writes_before + take.write), device, take.claim, (WHOLE, None));
            self.h_counted.push(is_counted(device));
        }
        for share in &mutation.shares {
            let device = (share.driver.as_ref(), share.pool.as_ref(), share.device.as_ref());
            let mode = (SHARE, Some(share.share_id.as_ref()));
            self.push_use(m, position(writes_before + share.write), device, share.claim, mode);
            self.h_counted.push(is_counted(device));
            self.push_consumption(m, share);
        }
        for presence in &mutation.presences {
            let device = (presence.driver.as_ref(), presence.pool.as_ref(), presence.device.as_ref());
            let mode = (PRESENCE, Some(presence.share_id.as_ref()));
            self.push_use(m, position(writes_before + presence.write), device, presence.claim, mode);
            self.h_counted.push(false);
        }
        for draw in &mutation.draws {
            let device = (draw.driver.as_ref(), draw.pool.as_ref(), draw.device.as_ref());
            self.d.push(m, device, (&draw.counter_set, &draw.counter), &draw.amount);
            self.d.top.push(decimal(&draw.top));
        }
        for pool in &mutation.pool_draws {
            self.p_m.push(m);
            self.p_driver.push(&pool.driver);
            self.p_pool.push(&pool.pool);
            self.p_counted.push(pool.counted);
            for draw in &pool.draws {
                let device = (pool.driver.as_ref(), pool.pool.as_ref(), draw.device.as_ref());
                self.n.push(m, device, (&draw.counter_set, &draw.counter), &draw.amount);
            }
        }
        if let Some(gates) = mutation.gates {
            self.g_m.push(m);
            self.g_position.push(to_i64(gates));
        }
        for release in &mutation.releases {
            self.r_m.push(m);
            self.r_claim.push(release.claim);
            self.r_mode.push(match release.mode {
                ReleaseMode::Free => 0,
                ReleaseMode::Drain => 1,
            });
        }
        for node in &mutation.without_agent {
            self.a_m.push(m);
            self.a_node.push(node);
        }
        if let Some(submission) = &mutation.submission {
            self.s_m.push(m);
            self.s_ns.push(&submission.namespace);
            self.s_client.push(&submission.client_id);
            self.s_digest.push(&submission.digest);
            self.s_answer.push(&submission.answer);
            self.s_unit.push(submission.unit);
        }
    }

    fn push_use(&mut self, m: i32, w: i32, device: (&'a str, &'a str, &'a str), claim: Uuid, mode: (i32, Option<&'a str>)) {
        self.h_m.push(m);
        self.h_w.push(w);
        self.h_driver.push(device.0);
        self.h_pool.push(device.1);
        self.h_device.push(device.2);
        self.h_claim.push(claim);
        self.h_mode.push(mode.0);
        self.h_share.push(mode.1);
    }

    fn push_consumption(&mut self, m: i32, share: &'a TakeShare) {
        for consumed in &share.consumed {
            self.k.m.push(m);
            self.k.driver.push(&share.driver);
            self.k.pool.push(&share.pool);
            self.k.device.push(&share.device);
            self.k.share.push(&share.share_id);
            self.k.capacity.push(&consumed.capacity);
            self.k.amount.push(decimal(&consumed.amount));
            self.k.top.push(consumed.top.as_ref().map(decimal));
        }
    }

    fn push_write(&mut self, m: i32, write: &'a Write) {
        let (op, expected) = match write.op {
            Op::Create => (0, None),
            Op::Update { expected } => (1, expected),
            Op::Delete { expected } => (2, expected),
        };
        self.w_m.push(m);
        self.w_kind.push(&write.kind);
        self.w_ns.push(&write.namespace);
        self.w_name.push(&write.name);
        self.w_uid.push(write.uid);
        self.w_op.push(op);
        self.w_expected.push(expected.map(to_i64));
        self.w_body.push(&write.body);
        self.w_home.push(write.queue.map(|q| i32::from(q.home_shard)));
        self.w_priority.push(write.queue.map(|q| q.priority));
        self.w_pending.push(write.queue.is_some_and(|q| q.pending));
        self.w_part.push(write.part_of.as_deref());
        self.w_cause.push(write.cause.as_deref());
        self.w_trace.push(write.trace.as_deref());
    }
}

impl<'a> Draws<'a> {
    fn push(&mut self, m: i32, device: (&'a str, &'a str, &'a str), counter: (&'a str, &'a str), amount: &Quantity) {
        self.m.push(m);
        self.driver.push(device.0);
        self.pool.push(device.1);
        self.device.push(device.2);
        self.counter_set.push(counter.0);
        self.counter.push(counter.1);
        self.amount.push(decimal(amount));
    }
}

/// The quantity as the database reads exact numbers.
fn decimal(quantity: &Quantity) -> String {
    if let Some(nanos) = quantity.nanos() {
        return format!("{nanos}e-9");
    }
    // Too large for nano-units in 128 bits: digits with a decimal suffix, or an exponent already.
    let text = quantity.to_string();
    let exponent = |suffix| match suffix {
        'n' => Some(-9),
        'u' => Some(-6),
        'm' => Some(-3),
        'k' => Some(3),
        'M' => Some(6),
        'G' => Some(9),
        'T' => Some(12),
        'P' => Some(15),
        'E' => Some(18),
        _ => None,
    };
    match text.chars().last().and_then(exponent) {
        Some(exponent) => format!("{}e{exponent}", &text[..text.len() - 1]),
        None => text,
    }
}

impl Store {
    /// Commits `mutations` in one statement under `batch`. A second call with the same batch id never commits again: it finds the first.
    ///
    /// Errors: the caller decides by [`sqlx::Error`] whether to repeat, split or give up.
    pub(crate) async fn commit(
        &self,
        batch: Uuid,
        writer: &str,
        mutations: &[Mutation],
    ) -> Result<(Vec<Outcome>, Option<Committed>), sqlx::Error> {
        let rows = call(&self.pool, batch, writer, mutations).await?;
        read_answer(&rows, mutations)
    }
}

async fn call(
    pool: &PgPool,
    batch: Uuid,
    writer: &str,
    mutations: &[Mutation],
) -> Result<Vec<sqlx::postgres::PgRow>, sqlx::Error> {
    let c = Columns::of(mutations);
    sqlx::query(
        "SELECT m, code, seq, detail FROM dray_commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
         $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39,
         $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58::text[]::numeric[],
         $59::text[]::numeric[], $60, $61, $62, $63, $64, $65, $66::text[]::numeric[], $67::text[]::numeric[], $68, $69, $70,
         $71, $72, $73, $74, $75, $76, $77, $78::text[]::numeric[], $79, $80)",
    )
    .bind(batch)
    .bind(writer)
    .bind(i32::try_from(mutations.len()).unwrap_or(i32::MAX))
    .bind(c.f_m)
    .bind(c.f_shard)
    .bind(c.f_epoch)
    .bind(c.w_m)
    .bind(c.w_kind)
    .bind(c.w_ns)
    .bind(c.w_name)
    .bind(c.w_uid)
    .bind(c.w_op)
    .bind(c.w_expected)
    .bind(c.w_body)
    .bind(c.w_home)
    .bind(c.w_priority)
    .bind(c.w_pending)
    .bind(c.w_part)
    .bind(c.w_cause)
    .bind(c.w_trace)
    .bind(c.c_m)
    .bind(c.c_driver)
    .bind(c.c_pool)
    .bind(c.c_inventory)
    .bind(c.u_m)
    .bind(c.u_w)
    .bind(c.u_driver)
    .bind(c.u_pool)
    .bind(c.u_shard)
    .bind(c.u_node)
    .bind(c.u_slices)
    .bind(c.h_m)
    .bind(c.h_w)
    .bind(c.h_driver)
    .bind(c.h_pool)
    .bind(c.h_device)
    .bind(c.h_claim)
    .bind(c.h_mode)
    .bind(c.h_share)
    .bind(c.h_counted)
    .bind(c.r_m)
    .bind(c.r_claim)
    .bind(c.r_mode)
    .bind(c.a_m)
    .bind(c.a_node)
    .bind(c.s_m)
    .bind(c.s_ns)
    .bind(c.s_client)
    .bind(c.s_digest)
    .bind(c.s_answer)
    .bind(c.s_unit)
    .bind(c.k.m)
    .bind(c.k.driver)
    .bind(c.k.pool)
    .bind(c.k.device)
    .bind(c.k.share)
    .bind(c.k.capacity)
    .bind(c.k.amount)
    .bind(c.k.top)
    .bind(c.d.m)
    .bind(c.d.driver)
    .bind(c.d.pool)
    .bind(c.d.device)
    .bind(c.d.counter_set)
    .bind(c.d.counter)
    .bind(c.d.amount)
    .bind(c.d.top)
    .bind(c.p_m)
    .bind(c.p_driver)
    .bind(c.p_pool)
    .bind(c.p_counted)
    .bind(c.n.m)
    .bind(c.n.driver)
    .bind(c.n.pool)
    .bind(c.n.device)
    .bind(c.n.counter_set)
    .bind(c.n.counter)
    .bind(c.n.amount)
    .bind(c.g_m)
    .bind(c.g_position)
    .fetch_all(pool)
    .await
}

fn read_answer(rows: &[sqlx::postgres::PgRow], mutations: &[Mutation]) -> Result<(Vec<Outcome>, Option<Committed>), sqlx::Error> {
    let broken = || sqlx::Error::Protocol("dray_commit gave no commit row".into());
    let head = rows.first().ok_or_else(broken)?;
    let repeated = head.try_get::<i32, _>("code")? == 1;
    let first = to_u64(head.try_get::<i64, _>("seq")?);
    let detail: Detail =
        serde_json::from_str(&head.try_get::<String, _>("detail")?).map_err(|e| sqlx::Error::Decode(Box::new(e)))?;

    let mut next = first;
    let mut outcomes = Vec::with_capacity(mutations.len());
    for (index, mutation) in mutations.iter().enumerate() {
        let won = !detail.lost.contains(&(index + 1));
        if won {
            let sequences = (next..next + mutation.writes.len() as u64).collect::<Vec<_>>();
            next += mutation.writes.len() as u64;
            outcomes.push(Outcome::Won { sequences });
        } else if repeated {
            outcomes.push(Outcome::Lost);
        } else {
            outcomes.push(loss(rows.get(index + 1).ok_or_else(broken)?)?);
        }
    }
    if repeated {
        // Its announcement, if any, is the earlier call's; readers close the gap from the log.
        return Ok((outcomes, None));
    }
    let prev = detail.prev.unwrap_or_default();
    let committed = Committed {
        first,
        last: to_u64(detail.last),
        at_ms: detail.at,
        kinds: by_kind(mutations, &outcomes, &prev),
    };
    Ok((outcomes, Some(committed)))
}

fn loss(row: &sqlx::postgres::PgRow) -> Result<Outcome, sqlx::Error> {
    let detail = row.try_get::<Option<String>, _>("detail")?.unwrap_or_default();
    let sequence = row.try_get::<Option<i64>, _>("seq")?.map_or(0, to_u64);
    Ok(match row.try_get::<i32, _>("code")? {
        1 => Outcome::Conflict {
            name: detail,
            found: sequence,
        },
        2 => Outcome::Exists { name: detail },
        3 => Outcome::Gone { name: detail },
        4 => Outcome::Fenced,
        5 => Outcome::Taken { device: detail },
        6 => Outcome::PoolChanged { pool: detail },
        7 => Outcome::Repeated {
            answer: detail,
            sequence,
        },
        8 => Outcome::IdReused,
        9 => Outcome::AgentPresent { node: detail },
        10 => {
            let [device, share_id] = parts(&detail)?;
            Outcome::ShareTaken { device, share_id }
        }
        11 => {
            let [device, capacity] = parts(&detail)?;
            Outcome::CapacityExceeded { device, capacity }
        }
        12 => {
            let [pool, counter_set, counter] = parts(&detail)?;
            Outcome::CounterOverdrawn {
                pool,
                counter_set,
                counter,
            }
        }
        13 => Outcome::GatesChanged { position: sequence },
        other => return Err(sqlx::Error::Protocol(format!("dray_commit gave code {other}"))),
    })
}

/// A detail of several names.
fn parts<const N: usize>(detail: &str) -> Result<[String; N], sqlx::Error> {
    let parts: Vec<String> = serde_json::from_str(detail).map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
    parts
        .try_into()
        .map_err(|_| sqlx::Error::Protocol(format!("dray_commit gave the detail {detail}")))
}

fn by_kind(mutations: &[Mutation], outcomes: &[Outcome], prev: &BTreeMap<String, i64>) -> Vec<KindBatch> {
    let mut kinds: BTreeMap<Kind, Vec<CommittedEvent>> = BTreeMap::new();
    for (mutation, outcome) in mutations.iter().zip(outcomes) {
        let Outcome::Won { sequences } = outcome else { continue };
        for (write, sequence) in mutation.writes.iter().zip(sequences) {
            kinds.entry(write.kind.clone()).or_default().push(CommittedEvent {
                sequence: *sequence,
                operation: match write.op {
                    Op::Create => Operation::Added,
                    Op::Update { .. } => Operation::Modified,
                    Op::Delete { .. } => Operation::Deleted,
                },
                namespace: write.namespace.clone(),
                name: write.name.clone(),
                uid: write.uid,
                body: write.body.clone(),
                cause: write.cause.clone(),
                trace: write.trace.clone(),
            });
        }
    }
    kinds
        .into_iter()
        .map(|(kind, events)| KindBatch {
            prev: prev.get(kind.as_ref()).copied().map_or(0, to_u64),
            kind,
            events,
        })
        .collect()
}

#[cfg(test)]
mod tests;
