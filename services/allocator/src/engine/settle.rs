//! How commits ended, and what changes when leases move.

use std::sync::Arc;

use resource_api::shard::home_shard;
use resource_api::unit::{Unit, UnitPhase};
use store::{Outcome, Remedy, StoreError, Stored};
use uuid::Uuid;

use super::{Effect, Engine, Purpose, State, UnderWay, WaitingClaim};

/// First pause after a lost commit, doubled with each further loss, in milliseconds.
const PAUSE_MS: u64 = 4;
/// Longest pause.
const PAUSE_MAX_MS: u64 = 1_000;

impl Engine {
    pub(super) fn on_settled(&mut self, token: u64, result: Result<Outcome, StoreError>, now_ms: u64, effects: &mut Vec<Effect>) {
        let Some(under_way) = self.under_way.remove(&token) else {
            return;
        };
        match under_way.purpose {
            Purpose::Allocate => self.on_allocation(under_way, result, now_ms, effects),
            Purpose::Record => self.on_recorded(under_way.unit, result, effects),
        }
    }

    fn on_allocation(
        &mut self,
        under_way: UnderWay,
        result: Result<Outcome, StoreError>,
        now_ms: u64,
        effects: &mut Vec<Effect>,
    ) {
        match result {
            // The log says so too, in its order; that is what removes the unit and marks the claims.
            Ok(Outcome::Won { .. }) => self.stats.allocated.inc(),
            Ok(
                Outcome::Taken { .. }
                | Outcome::ShareTaken { .. }
                | Outcome::CapacityExceeded { .. }
                | Outcome::CounterOverdrawn { .. }
                | Outcome::GatesChanged { .. }
                | Outcome::PoolChanged { .. }
                | Outcome::Fenced,
            ) => {
                self.stats.conflicts.inc();
                self.give_back(&under_way.claims);
                self.pause(under_way.unit, now_ms);
            }
            Ok(_) => {
                self.stats.conflicts.inc();
                self.give_back(&under_way.claims);
                self.reread(under_way.unit, effects);
            }
            Err(error) if error.remedy() == Remedy::ReadAgain => self.reread(under_way.unit, effects),
            Err(_) => {
                self.give_back(&under_way.claims);
                self.pause(under_way.unit, now_ms);
            }
        }
    }

    fn on_recorded(&mut self, uid: Uuid, result: Result<Outcome, StoreError>, effects: &mut Vec<Effect>) {
        let Some(waiting) = self.units.get_mut(&uid) else { return };
        let State::Recording { woken } = waiting.state else { return };
        match result {
            Ok(Outcome::Won { sequences }) => {
                waiting.sequence = waiting.sequence.max(sequences.first().copied().unwrap_or(0));
                waiting.state = State::Parked;
            }
            Ok(_) => return self.reread(uid, effects),
            Err(error) if error.remedy() == Remedy::ReadAgain => return self.reread(uid, effects),
            // Not recorded; the next refusal records it.
            Err(_) => {
                waiting.state = State::Parked;
                waiting.reason_written_ms = None;
                waiting.unit.status.reason = None;
            }
        }
        if woken {
            self.enter(uid);
        }
    }

    /// What a lost plan had taken is free again, unless the log has meanwhile given it to the claim.
    fn give_back(&mut self, claims: &[Uuid]) {
        for claim in claims {
            if !self.held.contains_key(claim) {
                self.let_go(*claim);
            }
        }
    }

    pub(super) fn pause(&mut self, uid: Uuid, now_ms: u64) {
        let Some(waiting) = self.units.get_mut(&uid) else { return };
        let pause = (PAUSE_MS << waiting.losses.min(8)).min(PAUSE_MAX_MS);
        // Spread by the unit's own bits, so that two allocators that collided do not collide again.
        let spread = u64::from(uid.as_bytes()[15]) * pause / 256;
        waiting.losses += 1;
        waiting.state = State::Paused;
        self.paused.insert((now_ms + pause / 2 + spread, uid));
    }

    fn reread(&mut self, uid: Uuid, effects: &mut Vec<Effect>) {
        if let Some(waiting) = self.units.get_mut(&uid) {
            waiting.state = State::Paused;
            effects.push(Effect::Reread { unit: uid });
        }
    }

    pub(super) fn on_reread(&mut self, uid: Uuid, found: Option<(Stored, Vec<Stored>)>) {
        let Some((stored, claims)) = found else {
            return self.forget(uid);
        };
        let Ok(unit) = serde_json::from_str::<Unit>(&stored.body) else {
            return;
        };
        if unit.status.phase != UnitPhase::Pending {
            return; // the log will say what became of it
        }
        let Some(waiting) = self.units.get_mut(&uid) else { return };
        waiting.sequence = waiting.sequence.max(stored.sequence);
        waiting.unit = unit;
        waiting.losses += 1;
        let uids: Vec<Uuid> = waiting.unit.spec.claims.iter().map(|c| c.uid.into()).collect();
        for claim in claims {
            self.claims.insert(
                claim.uid,
                WaitingClaim {
                    sequence: claim.sequence,
                    body: claim.body,
                },
            );
        }
        self.give_back(&uids);
        self.enter(uid);
    }

    pub(super) fn on_leases(&mut self, epochs: Vec<u64>, mine: Vec<bool>) {
        self.epochs = epochs;
        if *self.mine == mine {
            return;
        }
        let before = std::mem::replace(&mut self.mine, Arc::new(mine));
        self.prefer_own_nodes();
        let moved: Vec<Uuid> = self
            .units
            .iter()
            .filter(|(uid, waiting)| {
                let shard = usize::from(home_shard(**uid));
                before.get(shard).copied().unwrap_or(false) != self.mine.get(shard).copied().unwrap_or(false)
                    && matches!(waiting.state, State::Due | State::Parked | State::Foreign)
            })
            .map(|(uid, _)| *uid)
            .collect();
        for uid in moved {
            self.enter(uid);
        }
    }
}
