//! Decisions: wake, order, search, and the mutations that carry a decision to the database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use resource_api::claim::{ResourceClaim, ResourceClaimConsumerReference};
use resource_api::gates::Gate;
use resource_api::ids::{DeviceId, PoolId};
use resource_api::shard::{home_shard, node_shard};
use resource_api::unit::UnitPhase;
use store::{Fence, Mutation, Op, PoolCheck, PublishedPool, UnitQueue, Write};
use structured::{CompiledUnit, Plan, Unallocatable};
use uuid::Uuid;

use super::explanation::Told;
use super::queue::{Group, Place, Refused, Woken};
use super::{Effect, Engine, Purpose, State, UnderWay};

/// How long a woken unit of another allocator is left out of its group, if nothing is heard of it, in milliseconds.
const ELSEWHERE_MS: u64 = 500;

impl Engine {
    /// Wakes the units that the changes since the last call could help.
    pub(super) fn wake(&mut self, now_ms: u64) {
        let changes = std::mem::take(&mut self.changes);
        if !changes.classes.is_empty() || changes.gates {
            return self.start_over();
        }
        if self.queue.groups_len() == 0 {
            return;
        }
        let mine = self.mine.clone();
        let owned = |unit| Self::owns(&mine, unit);
        if changes.everything {
            let woken = self.queue.wake(|_| usize::MAX, owned);
            self.on_woken(woken, now_ms);
        }
        let mut candidates: Vec<DeviceId> = changes.freed;
        for pool in changes.pools.union(&changes.relieved) {
            candidates.extend(self.free_devices(pool));
        }
        candidates.sort();
        candidates.dedup();
        let inventory_changed = !changes.pools.is_empty();
        if candidates.is_empty() && !inventory_changed {
            return;
        }
        let cluster = &self.cluster;
        let credits = |group: &Group| {
            let helped = candidates
                .iter()
                .filter(|device| structured::wake_matches(cluster, &group.sample, device))
                .count();
            helped.max(usize::from(group.sensitive))
        };
        let woken = self.queue.wake(credits, owned);
        self.on_woken(woken, now_ms);
    }

    /// Units that others try come back to their group when their owner refuses them anew, or after a while.
    fn on_woken(&mut self, woken: Woken, now_ms: u64) {
        self.stats.woken.inc_by(woken.mine as u64);
        for unit in woken.elsewhere {
            self.paused.insert((now_ms + ELSEWHERE_MS, unit));
        }
    }

    /// Classes or gates changed: what units ask for may mean something else now.
    fn start_over(&mut self) {
        self.queue.clear_groups();
        let all: Vec<Uuid> = self.units.keys().copied().collect();
        for unit in all {
            let Some(waiting) = self.units.get_mut(&unit) else { continue };
            waiting.compiled = None;
            match &mut waiting.state {
                State::Parked | State::Due | State::Foreign => self.enter(unit),
                State::Recording { woken } => *woken = true,
                State::Incomplete | State::Committing | State::Paused => {}
            }
        }
    }

    /// Devices of the pool that somebody could be given, or a share of them.
    fn free_devices(&self, pool: &PoolId) -> Vec<DeviceId> {
        let Some(facts) = self.pools.get(pool) else {
            return Vec::new();
        };
        let published = facts.slices.values().flat_map(|slice| slice.spec.devices());
        published
            .map(|device| {
                let id = DeviceId {
                    driver: pool.driver.clone(),
                    pool: pool.pool.clone(),
                    device: device.name.clone(),
                };
                (device.is_shareable(), id)
            })
            .filter(|(is_shareable, device)| *is_shareable || self.cluster.holder(device).is_none())
            .map(|(_, device)| device)
            .collect()
    }

    /// One unit of each group is tried again now and then: a guard against a wake that was missed.
    pub(super) fn sweep(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.last_sweep_ms) < self.limits.sweep_every_ms {
            return;
        }
        if self.last_sweep_ms != 0 {
            let mine = self.mine.clone();
            let woken = self.queue.wake(|_| 1, |unit| Self::owns(&mine, unit));
            self.on_woken(woken, now_ms);
        }
        self.last_sweep_ms = now_ms;
    }

    pub(super) fn resume_paused(&mut self, now_ms: u64) {
        while let Some((at, unit)) = self.paused.first().copied() {
            if at > now_ms {
                return;
            }
            self.paused.remove(&(at, unit));
            let deferred = self.units.get(&unit).is_some_and(|waiting| waiting.state == State::Foreign);
            self.enter(unit);
            if deferred {
                self.stop_deferring(unit);
            }
        }
    }

    /// A change was left to a unit of another allocator, which still waits. Processes see who waits at slightly different moments, so each
    /// may have left the change to the other: then it is ours to try.
    fn stop_deferring(&mut self, unit: Uuid) {
        let compiled = self.units.get(&unit).and_then(|waiting| waiting.compiled.clone());
        let mine = self.mine.clone();
        if let Some(compiled) = compiled
            && self.queue.wake_own(compiled.signature(), |unit| Self::owns(&mine, unit))
        {
            self.stats.woken.inc();
        }
    }

    /// The unit is whole: to be decided here, or watched while somebody else does.
    pub(super) fn enter(&mut self, uid: Uuid) {
        let mine = self.is_mine(uid);
        let Some(waiting) = self.units.get_mut(&uid) else { return };
        if !waiting
            .unit
            .spec
            .claims
            .iter()
            .all(|claim| self.claims.contains_key(&Uuid::from(claim.uid)))
        {
            waiting.state = State::Incomplete;
            self.incomplete.insert(uid);
            return;
        }
        self.incomplete.remove(&uid);
        self.queue
            .remove(waiting.place, waiting.compiled.as_ref().map(|c| c.signature().clone()));
        if mine {
            waiting.state = State::Due;
            self.queue.make_due(waiting.place);
            return;
        }
        waiting.state = State::Foreign;
        if waiting.unit.status.reason.is_some()
            && let Ok(compiled) = self.compiled(uid)
        {
            self.park_in_group(uid, &compiled, None);
        }
    }

    pub(super) fn decide_unit(&mut self, place: Place, now_ms: u64, effects: &mut Vec<Effect>) {
        let Some(waiting) = self.units.get_mut(&place.unit) else {
            return;
        };
        match waiting.state {
            State::Due | State::Parked => waiting.state = State::Due,
            State::Recording { .. } => {
                waiting.state = State::Recording { woken: true };
                return;
            }
            State::Incomplete | State::Foreign | State::Committing | State::Paused => return,
        }
        let compiled = match self.compiled(place.unit) {
            Ok(compiled) => compiled,
            Err(reason) => {
                if self.park(place.unit, now_ms) {
                    self.record_reason(place.unit, &Told::plain(reason), now_ms, effects);
                }
                return;
            }
        };
        if let Some(refused) = self.queue.refusal(compiled.signature()) {
            return self.refuse(place, &compiled, refused, now_ms, effects);
        }
        self.stats.attempt(&compiled);
        match self.search(&compiled) {
            Ok(plan) => {
                let shares = plan.claims.iter().flat_map(|(_, allocation)| &allocation.devices.results);
                if shares.into_iter().any(|result| result.share_id.is_some()) {
                    // What is left of the device may do for the next that asks the same.
                    let mine = self.mine.clone();
                    self.queue.wake_next(compiled.signature(), |unit| Self::owns(&mine, unit));
                }
                self.propose(place, plan, now_ms, effects);
            }
            Err(refusal) => self.refuse(place, &compiled, Arc::new(Refused::new(refusal)), now_ms, effects),
        }
    }

    /// First fit takes the nodes that are ours to decide about first (see [`Engine::on_leases`]), then the others: devices of other shards
    /// are taken optimistically, and the commit's row checks decide.
    fn search(&mut self, compiled: &CompiledUnit) -> Result<Plan, Unallocatable> {
        let plan = structured::place(&self.cluster, compiled, self.limits.policy, &self.limits.search)?;
        let home = plan.node.is_empty() || self.mine.get(usize::from(node_shard(&plan.node))).copied().unwrap_or(false);
        if home {
            self.stats.routed_home.inc();
        } else {
            self.stats.routed_away.inc();
        }
        Ok(plan)
    }

    fn compiled(&mut self, uid: Uuid) -> Result<Arc<CompiledUnit>, String> {
        let Some(waiting) = self.units.get_mut(&uid) else {
            return Err("the unit is gone".to_owned());
        };
        if let Some(compiled) = &waiting.compiled {
            return Ok(compiled.clone());
        }
        let mut claims = Vec::with_capacity(waiting.unit.spec.claims.len());
        for claim in &waiting.unit.spec.claims {
            let body = self
                .claims
                .get(&Uuid::from(claim.uid))
                .map(|c| c.body.as_ref())
                .unwrap_or_default();
            match serde_json::from_str::<ResourceClaim>(body) {
                Ok(claim) => claims.push(Arc::new(claim)),
                Err(error) => return Err(format!("claim {} cannot be read: {error}", claim.name)),
            }
        }
        let compiled = Arc::new(structured::compile_unit(&self.cluster, &claims).map_err(|refusal| refusal.to_string())?);
        waiting.compiled = Some(compiled.clone());
        Ok(compiled)
    }

    fn propose(&mut self, place: Place, plan: Plan, now_ms: u64, effects: &mut Vec<Effect>) {
        let Some(mutation) = self.allocation(place.unit, &plan) else {
            // An object of the plan vanished between compiling and now: the log will say so. Or the plan contradicts what is published.
            return self.pause(place.unit, now_ms);
        };
        for (claim, allocation) in &plan.claims {
            self.cluster.take(*claim, &allocation.devices.results);
        }
        if let Some(waiting) = self.units.get_mut(&place.unit) {
            waiting.state = State::Committing;
        }
        let token = self.token(
            place.unit,
            Purpose::Allocate,
            plan.claims.iter().map(|(claim, _)| Uuid::from(*claim)).collect(),
        );
        effects.push(Effect::Commit { token, mutation });
    }

    fn token(&mut self, unit: Uuid, purpose: Purpose, claims: Vec<Uuid>) -> u64 {
        self.next_token += 1;
        self.under_way.insert(self.next_token, UnderWay { unit, purpose, claims });
        self.next_token
    }

    /// The commit that makes `plan` true, or nothing.
    fn allocation(&self, uid: Uuid, plan: &Plan) -> Option<Mutation> {
        let waiting = self.units.get(&uid)?;
        let mut mutation = Mutation {
            gates: Some(self.gates.position),
            ..Mutation::default()
        };
        let mut shards = BTreeSet::from([home_shard(uid)]);
        let mut published = BTreeMap::new();
        for pool in &plan.pools {
            let facts = self.pools.get(pool)?;
            shards.insert(facts.shard);
            mutation.pool_checks.push(PoolCheck {
                driver: pool.driver.as_str().into(),
                pool: pool.pool.as_str().into(),
                inventory: facts.inventory,
            });
            published.insert(pool.clone(), PublishedPool::of(facts.slices.values().map(AsRef::as_ref)));
        }
        for (claim_uid, allocation) in &plan.claims {
            let claim_uid = Uuid::from(*claim_uid);
            let known = self.claims.get(&claim_uid)?;
            let mut claim: ResourceClaim = serde_json::from_str(&known.body).ok()?;
            let mut allocation = allocation.clone();
            if self.gates.gates.is_on(Gate::DRADeviceBindingConditions) {
                allocation.allocation_timestamp = self.wall;
            }
            let write = mutation.writes.len();
            if let Err(error) = mutation.take(write, claim_uid, &allocation.devices.results, &published) {
                tracing::error!(claim.uid = %claim_uid, %error, "a plan contradicts itself");
                return None;
            }
            let status = &mut claim.status;
            status.allocation = Some(allocation);
            status.reserved_for = vec![ResourceClaimConsumerReference {
                api_group: "dray.v1".to_owned(),
                resource: "units".to_owned(),
                name: uid.to_string(),
                uid: uid.to_string(),
            }];
            mutation.writes.push(Write {
                kind: "resourceclaims".into(),
                namespace: claim.metadata.namespace.as_str().into(),
                name: claim.metadata.name.as_str().into(),
                uid: claim_uid,
                op: Op::Update {
                    expected: Some(known.sequence),
                },
                body: serde_json::to_string(&claim).ok()?.into(),
                queue: None,
                part_of: None,
                cause: Some("allocated".into()),
                trace: waiting.trace.clone(),
            });
        }
        mutation.fences = shards.into_iter().map(|shard| self.fence(shard)).collect();
        let mut unit = waiting.unit.clone();
        unit.status.phase = UnitPhase::Allocated;
        unit.status.node = (!plan.node.is_empty()).then(|| plan.node.to_string());
        unit.status.reason = None;
        unit.status.explanation = None;
        mutation.writes.push(self.unit_write(uid, &unit, false, "allocated")?);
        Some(mutation)
    }

    fn fence(&self, shard: u16) -> Fence {
        Fence {
            shard,
            epoch: self.epochs.get(usize::from(shard)).copied().unwrap_or(0),
        }
    }

    fn unit_write(&self, uid: Uuid, unit: &resource_api::unit::Unit, pending: bool, cause: &str) -> Option<Write> {
        let waiting = self.units.get(&uid)?;
        Some(Write {
            kind: "units".into(),
            namespace: unit.metadata.namespace.as_str().into(),
            name: unit.metadata.name.as_str().into(),
            uid,
            op: Op::Update {
                expected: Some(waiting.sequence),
            },
            body: serde_json::to_string(unit).ok()?.into(),
            queue: Some(UnitQueue {
                home_shard: home_shard(uid),
                priority: unit.spec.priority,
                pending,
            }),
            part_of: None,
            cause: Some(cause.into()),
            trace: waiting.trace.clone(),
        })
    }

    /// The unit waits, and says why. Explained only when the reason is to be written, and then for all equal units at once.
    fn refuse(
        &mut self,
        place: Place,
        compiled: &Arc<CompiledUnit>,
        refused: Arc<Refused>,
        now_ms: u64,
        effects: &mut Vec<Effect>,
    ) {
        self.park_in_group(place.unit, compiled, Some(refused.clone()));
        if self.park(place.unit, now_ms) {
            let told = refused.told(|refusal| Told::from(&structured::explain(&self.cluster, compiled, None, refusal)));
            self.record_reason(place.unit, &told, now_ms, effects);
        }
    }

    /// The unit waits. `true`: the last record of its reason is old enough to be renewed.
    fn park(&mut self, unit: Uuid, now_ms: u64) -> bool {
        let record_every = self.limits.reason_every_ms;
        let Some(waiting) = self.units.get_mut(&unit) else {
            return false;
        };
        waiting.state = State::Parked;
        waiting.losses = 0;
        waiting
            .reason_written_ms
            .is_none_or(|at| now_ms.saturating_sub(at) >= record_every)
    }

    /// Writes the reason unless it is what the unit says already.
    fn record_reason(&mut self, uid: Uuid, told: &Told, now_ms: u64, effects: &mut Vec<Effect>) {
        let Some(waiting) = self.units.get(&uid) else { return };
        if waiting.unit.status.reason.as_ref() == Some(&told.reason) {
            return;
        }
        let position = self.position;
        let mut unit = waiting.unit.clone();
        unit.status.reason = Some(told.reason.clone());
        unit.status.explanation.clone_from(&told.explanation);
        unit.status.decided_at = Some(position.into());
        let Some(write) = self.unit_write(uid, &unit, true, "waits") else {
            return;
        };
        let mutation = Mutation {
            writes: vec![write],
            fences: vec![self.fence(home_shard(uid))],
            ..Mutation::default()
        };
        if let Some(waiting) = self.units.get_mut(&uid) {
            waiting.unit = unit;
            waiting.state = State::Recording { woken: false };
            waiting.reason_written_ms = Some(now_ms);
        }
        let token = self.token(uid, Purpose::Record, Vec::new());
        effects.push(Effect::Commit { token, mutation });
    }

    fn park_in_group(&mut self, uid: Uuid, compiled: &Arc<CompiledUnit>, refusal: Option<Arc<Refused>>) {
        let Some(waiting) = self.units.get(&uid) else { return };
        self.queue
            .park(waiting.place, compiled, compiled.depends_on_all_inventory(), refusal);
    }
}
