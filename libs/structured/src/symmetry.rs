//! Interchangeable devices, and dead ends remembered by what mattered about them.
//!
//! Two devices are in one class if no rule of this unit can tell them apart: swapping them in any assignment changes
//! nothing but names. A dead end is keyed by how many of each class are taken and still ahead, not by which; equal devices
//! then cost one try instead of all combinations. Sound for first fit: picks of a request lie in ascending positions, so a
//! solution with a later device of a class becomes one with the earlier device by swapping the two.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::constraint::{Rule, ValueSet};
use crate::counters::GroupState;
use crate::node_view::Position;
use crate::request::Need;
use crate::search::{At, Search};

/// Dead ends remembered at most; the search goes on without remembering more.
const DEAD_ENDS_MAX: usize = 1 << 17;

/// Devices beyond which keys would cost more than they save.
const DEVICES_MAX: usize = 4096;

/// A dead end: see [`Search::state_key`].
pub(crate) type StateKey = Box<[u32]>;

/// Classes of devices and known dead ends of one search. Inactive until [`Symmetry::of`] has sorted the devices.
#[derive(Debug, Default)]
pub(crate) struct Symmetry {
    /// Class by position; devices that no choice can have are left out.
    class_of: FxHashMap<Position, u32>,
    /// The positions that have a class, ascending.
    positions: Vec<Position>,
    n_classes: usize,
    keeps_keys: bool,
    dead_ends: FxHashSet<StateKey>,
}

impl Symmetry {
    /// Sorts the devices of a search into classes. O(devices × (choices + constraints)).
    pub(crate) fn of(search: &mut Search<'_>) -> Self {
        let mut symmetry = Self::default();
        let mut classes: FxHashMap<Vec<u32>, u32> = FxHashMap::default();
        for word in 0..search.node.n_words() {
            let mut any = 0;
            for choice in &search.unit.choices {
                let (matching, failing) = search.node.selectable(choice, word, search.features);
                any |= matching | failing;
            }
            for bit in crate::bits::members_of(any) {
                let position = Position::try_from(word * 64 + bit).unwrap_or(Position::MAX);
                let Some(key) = search.class_key(position) else { continue };
                let next = u32::try_from(classes.len()).unwrap_or(u32::MAX);
                let class = *classes.entry(key).or_insert(next);
                symmetry.class_of.insert(position, class);
                symmetry.positions.push(position);
            }
        }
        symmetry.n_classes = classes.len();
        symmetry.keeps_keys = symmetry.positions.len() <= DEVICES_MAX;
        symmetry
    }

    pub(crate) fn keeps_keys(&self) -> bool {
        self.keeps_keys
    }

    pub(crate) fn class_of(&self, position: Position) -> Option<u32> {
        self.class_of.get(&position).copied()
    }

    pub(crate) fn is_dead_end(&self, key: &StateKey) -> bool {
        self.dead_ends.contains(key)
    }

    pub(crate) fn remember(&mut self, key: StateKey) {
        if self.dead_ends.len() < DEAD_ENDS_MAX {
            self.dead_ends.insert(key);
        }
    }
}

impl Search<'_> {
    /// Everything that a rule of this unit can see of a device; equal keys, interchangeable devices.
    ///
    /// `None`: the device is never taken on its own merits (its pool is unusable).
    fn class_key(&mut self, position: Position) -> Option<Vec<u32>> {
        let (pool_at, pool, local) = self.node.locate(position);
        if !pool.is_usable() {
            return None;
        }
        let unit = self.unit;
        let mut key = Vec::with_capacity(16);
        let mut is_own_class = false;
        for choice in &unit.choices {
            let (matching, failing) = self.node.selectable(choice, position as usize / 64, self.features);
            let bit = position % 64;
            let tolerated = !self.features.device_taints || !pool.is_tainted_for(local, &choice.tolerations);
            key.push(u32::from(matching >> bit & 1 == 1) | u32::from(failing >> bit & 1 == 1) << 1 | u32::from(tolerated) << 2);
            // Lists are fixed, and derived values are evaluated only where the search asks for them.
            let listed = matches!(choice.need, Need::All)
                && self.lists[choice.id]
                    .as_ref()
                    .is_some_and(|list| list.binary_search(&position).is_ok());
            let derived = !choice.derived.is_empty() && (matching | failing) >> bit & 1 == 1;
            is_own_class |= listed || derived;
        }
        key.push(
            u32::from(pool.is_held(local))
                | u32::from(pool.is_shareable(local)) << 1
                | u32::from(pool.has_share(local)) << 2
                | u32::from(pool.skips_node_operations(local)) << 3
                | u32::from(pool.consumes_counters(local)) << 4,
        );
        if is_own_class {
            key.push(position);
            return Some(key);
        }
        self.push_draws(&mut key, pool_at, local);
        self.push_capacity(&mut key, position);
        for constraint in 0..unit.constraints.len() {
            self.push_value(&mut key, constraint, position);
        }
        Some(key)
    }

    fn push_draws(&self, key: &mut Vec<u32>, pool_at: usize, local: usize) {
        let board = self.node.pools()[pool_at].board.as_ref();
        let Some(draws) = board.and_then(|board| board.draws(local)) else {
            return;
        };
        key.push(u32::try_from(pool_at).unwrap_or(u32::MAX));
        for (counter, amount) in &draws.amounts {
            key.push(*counter);
            key.extend(amount.key_words());
        }
        key.push(u32::MAX);
        for (set, groups) in &draws.sets {
            key.push(*set);
            key.push(u32::try_from(groups.len()).unwrap_or(u32::MAX));
            key.extend(groups.iter().copied());
        }
    }

    fn push_capacity(&self, key: &mut Vec<u32>, position: Position) {
        let (_, pool, local) = self.node.locate(position);
        let Some(facts) = pool.capacity_of(local).filter(|_| self.features.consumable_capacity) else {
            return key.push(0);
        };
        // Equal descriptions share one allocation, so the address stands for the content.
        let address = std::sync::Arc::as_ptr(facts) as usize as u64;
        key.extend([1, (address & 0xffff_ffff) as u32, (address >> 32) as u32]);
        pool.consumed(local)
            .into_iter()
            .flatten()
            .for_each(|amount| key.extend(amount.key_words()));
    }

    fn push_value(&mut self, key: &mut Vec<u32>, constraint: usize, position: Position) {
        let unit = self.unit;
        let Some(choice) = unit.constraints[constraint].choices.first() else {
            return;
        };
        match self.values.get(self.node, unit, constraint, &unit.choices[*choice], position) {
            Ok(Some(value)) => push_set(key, value),
            // Devices of a choice with derived values have been dealt with, so this cannot fail.
            Ok(None) | Err(_) => key.push(u32::MAX),
        }
    }

    /// What decides whether the rest of the search can succeed from here.
    pub(crate) fn state_key(&self, at: &At) -> StateKey {
        let mut key = Vec::with_capacity(32 + self.symmetry.n_classes);
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        key.extend([
            small(at.claim),
            small(at.request),
            small(at.choice),
            small(self.results_of_claim[at.claim]),
        ]);
        key.push(u32::try_from(at.taken).unwrap_or(u32::MAX));
        let ahead_at = key.len();
        key.resize(ahead_at + self.symmetry.n_classes, 0);
        let first_ahead = self.symmetry.positions.partition_point(|position| *position < at.from);
        for position in &self.symmetry.positions[first_ahead..] {
            if let Some(class) = self.class_if_untouched(*position) {
                key[ahead_at + class as usize] += 1;
            }
        }
        self.push_picks(&mut key, at);
        self.push_running(&mut key, at.claim);
        for (pool, reserved) in self.reserved.iter().enumerate() {
            let Some(reserved) = reserved else { continue };
            key.push(small(pool));
            reserved.amounts.iter().for_each(|amount| key.extend(amount.key_words()));
            reserved.groups.iter().for_each(|state| push_group(&mut key, state));
        }
        key.into()
    }

    /// The devices taken so far, by class. Who took one whole, and whether it lies ahead, matters only to admin requests.
    fn push_picks(&self, key: &mut Vec<u32>, at: &At) {
        let mut taken: Vec<[u32; 3]> = Vec::with_capacity(self.picks.len());
        for pick in &self.picks {
            let class = self.symmetry.class_of(pick.position).unwrap_or(u32::MAX);
            let is_share = pick.share.is_some();
            let seen_again = is_share || self.unit.has_admin_access;
            let ahead = u32::from(seen_again && pick.position >= at.from);
            let own = u32::from(self.unit.has_admin_access && pick.claim == at.claim);
            // A shared device is known by its position: what is reserved of it follows below.
            taken.push([
                class,
                ahead | own << 1 | u32::from(is_share) << 2,
                if is_share { pick.position } else { 0 },
            ]);
        }
        taken.sort_unstable();
        key.push(u32::try_from(taken.len()).unwrap_or(u32::MAX));
        key.extend(taken.iter().flatten());
        let mut shared: Vec<_> = self.shares.iter().collect();
        shared.sort_unstable_by_key(|(position, _)| **position);
        for (_, here) in shared {
            here.reserved.iter().for_each(|amount| key.extend(amount.key_words()));
        }
    }

    fn push_running(&self, key: &mut Vec<u32>, claim: usize) {
        for (constraint, what) in self.unit.constraints_of(claim) {
            let seen = &self.running[constraint];
            match what.rule {
                Rule::Match => match seen.last() {
                    Some(common) => push_set(key, common),
                    None => key.push(u32::MAX),
                },
                Rule::Distinct => {
                    let mut values: Vec<Vec<u32>> = Vec::with_capacity(seen.len());
                    for value in seen {
                        let mut words = Vec::new();
                        push_set(&mut words, value);
                        values.push(words);
                    }
                    values.sort_unstable();
                    key.push(u32::try_from(values.len()).unwrap_or(u32::MAX));
                    key.extend(values.iter().flatten());
                }
            }
        }
    }
}

fn push_set(key: &mut Vec<u32>, value: &ValueSet) {
    key.push(value.kind as u32 | u32::from(value.is_list) << 8);
    key.push(u32::try_from(value.members.len()).unwrap_or(u32::MAX));
    key.extend(value.members.iter().copied());
}

fn push_group(key: &mut Vec<u32>, state: &GroupState) {
    match state {
        GroupState::Untouched => key.push(u32::MAX),
        GroupState::WithoutGroups => key.push(u32::MAX - 1),
        GroupState::Common(groups) => {
            key.push(u32::try_from(groups.len()).unwrap_or(u32::MAX));
            key.extend(groups.iter().copied());
        }
    }
}
