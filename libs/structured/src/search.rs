//! The search: depth first over claims, requests, alternatives and devices, undoing on the way back.
//!
//! The first complete assignment in a fixed order wins; that order is what users of the model rely on, so every shortcut
//! here only leaves out branches that cannot contain the first solution (see README.md). A dead end is remembered by what
//! mattered about it (`symmetry`), never by which of several equal devices happened to be taken.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::amount::Amount;
use crate::bits::{Bits, low_mask, members_of};
use crate::bounds::CounterBounds;
use crate::capacity::{Consumption, ConsumptionCache};
use crate::constraint::ValueSet;
use crate::counters::Reserved;
use crate::fault::{Fault, Stop};
use crate::features::Features;
use crate::limits::{Limits, RESULTS_PER_CLAIM_MAX};
use crate::node_view::{NodeView, Position};
use crate::request::{Choice, ChoiceId, CompiledUnit, Need};
use crate::symmetry::{StateKey, Symmetry};
use crate::values::Values;

/// Dead ends after which devices are sorted into classes; most searches end before and need not pay for it.
const DEAD_ENDS_BEFORE_SYMMETRY: u32 = 8;

/// Per constraint that covers a device: its number, and what to remember if the device is taken.
type SeenValues = SmallVec<[(usize, ValueSet); 2]>;

/// What a branch of the search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    /// The limit of results per claim cannot be met this way; dealt with at the nearest enclosing alternatives.
    Over,
}

/// A device taken for a request, with what is needed to give it back.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) claim: usize,
    pub(crate) choice: ChoiceId,
    pub(crate) position: Position,
    /// Counters and groups were charged for it.
    charged: bool,
    /// Set when the device is shared: what this share consumes.
    pub(crate) share: Option<Arc<Consumption>>,
}

/// One search on one node. `picks` holds the answer after [`Search::run`] said [`Answer::Yes`].
pub(crate) struct Search<'a> {
    pub(crate) unit: &'a CompiledUnit,
    pub(crate) node: &'a NodeView<'a>,
    pub(crate) features: Features,
    limits: &'a Limits<'a>,
    /// Per choice in mode All: its devices, fixed before the search.
    pub(crate) lists: Vec<Option<Vec<Position>>>,
    pub(crate) picks: Vec<Pick>,
    /// Devices taken whole in this call.
    pub(crate) taken: Bits,
    pub(crate) shares: FxHashMap<Position, SharesHere>,
    /// Per pool of the node: what this call has reserved of its counters, and the groups that follow from it.
    pub(crate) reserved: Vec<Option<Reserved>>,
    /// Per constraint of the unit: the values of the devices taken under it.
    pub(crate) running: Vec<SmallVec<[ValueSet; 4]>>,
    pub(crate) results_of_claim: Vec<usize>,
    pub(crate) values: Values<'a>,
    consumptions: ConsumptionCache,
    pub(crate) symmetry: Symmetry,
    /// Per choice; worked out when the search has met its first dead end.
    counter_bounds: Option<Vec<CounterBounds>>,
    dead_ends: u32,
    pub(crate) steps: u64,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        unit: &'a CompiledUnit,
        node: &'a NodeView<'a>,
        features: Features,
        limits: &'a Limits<'a>,
        lists: Vec<Option<Vec<Position>>>,
    ) -> Self {
        Self {
            unit,
            node,
            features,
            limits,
            lists,
            picks: Vec::new(),
            taken: Bits::new(node.len()),
            shares: FxHashMap::default(),
            reserved: vec![None; node.pools().len()],
            running: vec![SmallVec::new(); unit.constraints.len()],
            results_of_claim: vec![0; unit.claims.len()],
            values: Values::default(),
            consumptions: ConsumptionCache::default(),
            symmetry: Symmetry::default(),
            counter_bounds: None,
            dead_ends: 0,
            steps: 0,
        }
    }

    pub(crate) fn run(&mut self) -> Result<Answer, Stop> {
        self.claim(0)
    }

    fn claim(&mut self, claim: usize) -> Result<Answer, Stop> {
        if claim == self.unit.claims.len() {
            return Ok(Answer::Yes);
        }
        self.request(claim, 0)
    }

    fn request(&mut self, claim: usize, request: usize) -> Result<Answer, Stop> {
        let Some(asked) = self.unit.claims[claim].requests.get(request) else {
            // The limit holds within a claim: "over" never crosses a claim's border.
            return Ok(match self.claim(claim + 1)? {
                Answer::Over => Answer::No,
                answer => answer,
            });
        };
        let choices = asked.choices.clone();
        if !asked.has_alternatives {
            return self.devices(At {
                claim,
                request,
                choice: choices.start,
                taken: 0,
                from: 0,
            });
        }
        let mut all_over = true;
        for choice in choices {
            match self.devices(At {
                claim,
                request,
                choice,
                taken: 0,
                from: 0,
            })? {
                Answer::Over => {}
                Answer::Yes => return Ok(Answer::Yes),
                Answer::No => all_over = false,
            }
        }
        Ok(if all_over { Answer::Over } else { Answer::No })
    }

    /// Takes the devices of one choice that are still missing, then goes on with the next request.
    fn devices(&mut self, at: At) -> Result<Answer, Stop> {
        self.step()?;
        let unit = self.unit;
        let choice = &unit.choices[at.choice];
        let need = match (choice.need, &self.lists[at.choice]) {
            (Need::Exactly(count), _) => count,
            (Need::All, Some(list)) if !list.is_empty() => list.len() as u64,
            (Need::All, _) => return Ok(Answer::No),
        };
        if at.taken == need {
            return self.request(at.claim, at.request + 1);
        }
        let room = RESULTS_PER_CLAIM_MAX - self.results_of_claim[at.claim].min(RESULTS_PER_CLAIM_MAX);
        if need - at.taken > room as u64 {
            return Ok(Answer::Over);
        }
        if let Some(bounds) = &self.counter_bounds
            && self.overdraws(&bounds[at.choice], need - at.taken)
        {
            return Ok(Answer::No);
        }
        let key = self.symmetry.keeps_keys().then(|| self.state_key(&at));
        if key.as_ref().is_some_and(|key| self.symmetry.is_dead_end(key)) {
            return Ok(Answer::No);
        }
        let answer = match choice.need {
            Need::All => self.take_listed(&at, choice)?,
            Need::Exactly(_) => self.take_any(&at, choice)?,
        };
        if answer == Answer::No {
            self.on_dead_end(key);
        }
        Ok(answer)
    }

    /// Mode All: the next device is fixed, there is nothing to choose.
    fn take_listed(&mut self, at: &At, choice: &'a Choice) -> Result<Answer, Stop> {
        let position = match &self.lists[at.choice] {
            Some(list) => list[usize::try_from(at.taken).unwrap_or(usize::MAX)],
            None => return Ok(Answer::No),
        };
        if !self.take(at, choice, position, None)? {
            return Ok(Answer::No);
        }
        let answer = self.devices(At {
            taken: at.taken + 1,
            ..*at
        })?;
        if answer != Answer::Yes {
            self.undo();
        }
        Ok(answer)
    }

    /// Mode ExactCount: tries the devices after the previous one in order; combinations, not permutations.
    fn take_any(&mut self, at: &At, choice: &'a Choice) -> Result<Answer, Stop> {
        let mut tried: SmallVec<[u32; 16]> = SmallVec::new();
        let first_word = at.from as usize / 64;
        for word in first_word..self.node.n_words() {
            if !self.node.pool_of_word(word).is_usable() {
                continue;
            }
            let (matching, failing) = self.node.selectable(choice, word, self.features);
            let mut open = (matching | failing) & !self.in_use(at.claim, choice, word);
            if word == first_word {
                open &= !low_mask(at.from as usize % 64);
            }
            for bit in members_of(open) {
                let position = (word * 64 + bit) as Position;
                if failing >> bit & 1 == 1 {
                    return Err(self.node.selector_fault(self.unit, choice, position).into());
                }
                if self.class_if_untouched(position).is_some_and(|class| tried.contains(&class)) {
                    continue;
                }
                if let Some(consumption) = self.fit(choice, position)?
                    && self.take(at, choice, position, Some(consumption))?
                {
                    let answer = self.devices(At {
                        taken: at.taken + 1,
                        from: position + 1,
                        ..*at
                    })?;
                    if answer == Answer::Yes {
                        return Ok(Answer::Yes);
                    }
                    self.undo();
                    if answer == Answer::Over {
                        return Ok(Answer::Over);
                    }
                }
                // An equal device would fail in the same way.
                tried.extend(self.class_if_untouched(position));
            }
        }
        Ok(Answer::No)
    }

    /// The devices of this word that an ordinary request finds taken; an admin request only minds its own claim.
    fn in_use(&self, claim: usize, choice: &Choice, word: usize) -> u64 {
        if !choice.admin_access {
            return self.node.held_word(word) | self.taken.words()[word];
        }
        self.picks
            .iter()
            .filter(|pick| pick.claim == claim && pick.share.is_none() && pick.position as usize / 64 == word)
            .fold(0, |taken, pick| taken | 1 << (pick.position % 64))
    }

    /// Takes a device unless a rule refuses it; `false` leaves no trace. The order of the rules decides which fault shows.
    ///
    /// `consumption`: what [`Search::fit`] found, if it was asked before.
    fn take(
        &mut self,
        at: &At,
        choice: &'a Choice,
        position: Position,
        consumption: Option<Arc<Consumption>>,
    ) -> Result<bool, Stop> {
        if self.in_use(at.claim, choice, position as usize / 64) >> (position % 64) & 1 == 1 {
            return Ok(false);
        }
        let (pool_at, pool, local) = self.node.locate(position);
        if pool.skips_node_operations(local) && !(self.features.optional_node_operations && self.node.supports_skipped_operations)
        {
            return Ok(false);
        }
        let shareable = self.features.consumable_capacity && pool.is_shareable(local);
        if pool.consumes_counters(local) && !self.features.partitionable_devices {
            // Not even one more share of it, although that would not be charged.
            return Ok(false);
        }
        let charged = pool.consumes_counters(local) && !(shareable && self.has_share(position));
        if charged && !self.counters_allow(pool_at, local) {
            return Ok(false);
        }
        if self.features.device_taints && pool.is_tainted_for(local, &choice.tolerations) {
            return Ok(false);
        }
        let Some(values) = self.constraint_values(choice, position)? else {
            return Ok(false);
        };
        let Some(consumption) = consumption.map_or_else(|| self.fit(choice, position), |known| Ok(Some(known)))? else {
            return Ok(false);
        };
        self.record(at, position, charged, shareable.then_some(consumption), values);
        Ok(true)
    }

    fn counters_allow(&self, pool_at: usize, local: usize) -> bool {
        let reserved = self.reserved[pool_at].as_ref();
        // Without the feature there is no board, and a device that needs one is just not usable.
        self.node.pools()[pool_at]
            .board
            .as_ref()
            .is_some_and(|board| board.allows(local, reserved, self.features.compatibility_groups))
    }

    /// What the device gives up for this choice; `None`: it cannot hold it.
    fn fit(&mut self, choice: &'a Choice, position: Position) -> Result<Option<Arc<Consumption>>, Stop> {
        let (_, pool, local) = self.node.locate(position);
        if !self.features.consumable_capacity {
            return Ok(Some(Consumption::nothing()));
        }
        if pool.has_share(local) && !pool.is_shareable(local) && !choice.admin_access {
            // Shares from when it was shareable: not free until the last of them is gone.
            return Ok(None);
        }
        let Some(capacity) = pool.capacity_of(local) else {
            return Ok(choice.capacity.is_empty().then(Consumption::nothing));
        };
        let consumption = match self
            .consumptions
            .get(choice, capacity, self.features.fractional_capacity_range)
        {
            Ok(Some(consumption)) => consumption,
            Ok(None) => return Ok(None),
            Err(fault) => return Err(Fault::capacity(self.unit, choice, &fault, &pool.device_id(local)).into()),
        };
        let reserved = self.shares.get(&position).map(|here| here.reserved.as_slice());
        Ok(capacity
            .has_left(&consumption, pool.consumed(local), reserved)
            .then_some(consumption))
    }

    /// Whether a share of the device is out, from before or from this call.
    fn has_share(&self, position: Position) -> bool {
        let (_, pool, local) = self.node.locate(position);
        pool.has_share(local) || self.shares.get(&position).is_some_and(|here| here.count > 0)
    }

    /// What each constraint that covers this choice would record for the device; `None`: one of them refuses it.
    fn constraint_values(&mut self, choice: &'a Choice, position: Position) -> Result<Option<SeenValues>, Stop> {
        let unit = self.unit;
        let mut values = SmallVec::new();
        for (at, constraint) in unit.constraints_of(choice.claim) {
            if !constraint.covers(choice.id) {
                continue;
            }
            let value = self.values.get(self.node, unit, at, choice, position)?;
            let accepted = value.and_then(|value| {
                constraint
                    .rule
                    .accept(&self.running[at], value, self.features.list_type_attributes)
            });
            match accepted {
                Some(value) => values.push((at, value)),
                None if choice.need == Need::All => {
                    let (_, pool, local) = self.node.locate(position);
                    return Err(Fault::all_constraint(unit, choice, constraint, &pool.device_id(local)).into());
                }
                None => return Ok(None),
            }
        }
        Ok(Some(values))
    }

    fn record(&mut self, at: &At, position: Position, charged: bool, share: Option<Arc<Consumption>>, values: SeenValues) {
        let (pool_at, pool, local) = self.node.locate(position);
        if charged && let Some(board) = &pool.board {
            self.reserved[pool_at]
                .get_or_insert_with(|| board.nothing_reserved())
                .charge(board, local);
        }
        for (constraint, value) in values {
            self.running[constraint].push(value);
        }
        match &share {
            None => self.taken.set(position as usize),
            Some(consumption) => self.shares.entry(position).or_default().add(consumption),
        }
        self.results_of_claim[at.claim] += 1;
        self.picks.push(Pick {
            claim: at.claim,
            choice: at.choice,
            position,
            charged,
            share,
        });
    }

    /// Gives the last device back.
    fn undo(&mut self) {
        let Some(pick) = self.picks.pop() else { return };
        let (pool_at, pool, local) = self.node.locate(pick.position);
        self.results_of_claim[pick.claim] -= 1;
        match &pick.share {
            // An admin request may have taken what an earlier claim of this call has taken: that one still has it.
            None => {
                let still_taken = self.picks.iter().any(|p| p.position == pick.position && p.share.is_none());
                self.taken.assign(pick.position as usize, still_taken);
            }
            Some(consumption) => {
                if self
                    .shares
                    .get_mut(&pick.position)
                    .is_some_and(|here| here.remove(consumption))
                {
                    self.shares.remove(&pick.position);
                }
            }
        }
        for (at, constraint) in self.unit.constraints_of(pick.claim) {
            if constraint.covers(pick.choice) {
                self.running[at].pop();
            }
        }
        if pick.charged
            && let Some(board) = &pool.board
            && let Some(reserved) = &mut self.reserved[pool_at]
        {
            reserved.discharge(board, local);
        }
    }

    fn step(&mut self) -> Result<(), Stop> {
        self.steps += 1;
        if self.limits.is_stopped() {
            return Err(Stop::Cancelled);
        }
        if self.steps > self.limits.steps_per_node_max {
            Err(Stop::Undecided)
        } else {
            Ok(())
        }
    }

    /// The device's class, unless this call has done something to it that sets it apart.
    pub(crate) fn class_if_untouched(&self, position: Position) -> Option<u32> {
        let touched = self.taken.get(position as usize) || self.shares.contains_key(&position);
        if touched { None } else { self.symmetry.class_of(position) }
    }

    fn on_dead_end(&mut self, key: Option<StateKey>) {
        self.dead_ends += 1;
        if self.dead_ends == 1 && self.node.pools().iter().any(|pool| pool.board.is_some()) {
            self.counter_bounds = Some(self.counter_bounds());
        }
        match key {
            Some(key) => self.symmetry.remember(key),
            None if self.dead_ends == DEAD_ENDS_BEFORE_SYMMETRY => self.symmetry = Symmetry::of(self),
            None => {}
        }
    }
}

/// Where the search stands inside a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) claim: usize,
    pub(crate) request: usize,
    pub(crate) choice: ChoiceId,
    /// Devices this request has already.
    pub(crate) taken: u64,
    /// The first position that may be taken next.
    pub(crate) from: Position,
}

/// The shares of one device taken in this call.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharesHere {
    pub(crate) count: u32,
    /// In the order of the device's capacities.
    pub(crate) reserved: Vec<Amount>,
}

impl SharesHere {
    fn add(&mut self, consumption: &Consumption) {
        self.count += 1;
        self.reserved.resize(consumption.amounts.len(), Amount::ZERO);
        self.reserved
            .iter_mut()
            .zip(&consumption.amounts)
            .for_each(|(sum, amount)| *sum += *amount);
    }

    /// `true`: that was the last one.
    fn remove(&mut self, consumption: &Consumption) -> bool {
        self.count -= 1;
        self.reserved
            .iter_mut()
            .zip(&consumption.amounts)
            .for_each(|(sum, amount)| *sum -= *amount);
        self.count == 0
    }
}
