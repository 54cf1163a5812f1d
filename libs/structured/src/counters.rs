//! Shared counters of partitionable devices, and the compatibility groups of devices that draw on the same set
//! (KEP-4815, KEP-5963).
//!
//! A device is charged once however many shares of it are out. A counter that is overdrawn (its driver shrank it) blocks
//! every device of the pool that draws on any counter; that is upstream's rule.

use std::sync::Arc;

use resource_api::device::{CounterSet, DeviceCounterConsumption};
use resource_api::ids::DeviceName;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::amount::Amount;
use crate::packed::Kind;

/// What a device takes from a pool's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Draws {
    /// Counter and amount, by counter, each counter once.
    pub(crate) amounts: SmallVec<[(u32, Amount); 6]>,
    /// Per set drawn on: the set and the device's groups there.
    pub(crate) sets: SmallVec<[(u32, SmallVec<[u32; 2]>); 2]>,
}

/// What the devices taken from a set have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum GroupState {
    #[default]
    Untouched,
    WithoutGroups,
    Common(SmallVec<[u32; 2]>),
}

impl GroupState {
    /// The state after a device with these groups; `None`: it is refused.
    fn with(&self, groups: &SmallVec<[u32; 2]>) -> Option<Self> {
        let own = || {
            if groups.is_empty() {
                Self::WithoutGroups
            } else {
                Self::Common(groups.clone())
            }
        };
        match self {
            Self::Untouched => Some(own()),
            Self::WithoutGroups => groups.is_empty().then_some(Self::WithoutGroups),
            Self::Common(common) => {
                let both: SmallVec<_> = common.iter().copied().filter(|group| groups.contains(group)).collect();
                (!both.is_empty()).then_some(Self::Common(both))
            }
        }
    }
}

/// All counters of a pool and who draws on them: what does not change with what is taken.
#[derive(Debug)]
pub(crate) struct CounterPlan {
    published: Vec<Amount>,
    /// Per device position; `None`: it draws on nothing.
    draws: Vec<Option<Draws>>,
    /// Devices of the pool that other nodes use: never handed out here, but they draw as well.
    elsewhere: Vec<(DeviceName, Draws)>,
    n_sets: usize,
}

/// A plan with what is left.
#[derive(Clone, Debug)]
pub(crate) struct CounterBoard {
    plan: Arc<CounterPlan>,
    available: Vec<Amount>,
    overdrawn: bool,
    groups: Vec<GroupState>,
}

/// What one call has reserved of a board.
#[derive(Clone, Debug)]
pub(crate) struct Reserved {
    pub(crate) amounts: Vec<Amount>,
    pub(crate) groups: Vec<GroupState>,
    /// Group states before each charge, newest last.
    before: Vec<SmallVec<[GroupState; 2]>>,
}

impl CounterPlan {
    /// Error: the first inconsistency, naming device or set, counter set and counter.
    pub(crate) fn build<'a>(
        sets: impl Iterator<Item = &'a CounterSet>,
        here: impl Iterator<Item = (&'a DeviceName, &'a Kind)>,
        elsewhere: impl Iterator<Item = (&'a DeviceName, &'a Kind)>,
    ) -> Result<Self, String> {
        let mut index = Index::default();
        let mut published = Vec::new();
        for set in sets {
            let number = u32::try_from(index.sets.len()).unwrap_or(u32::MAX);
            if index.sets.insert(&set.name, number).is_some() {
                return Err(format!("counter set {} is defined twice", set.name));
            }
            for (name, counter) in &set.counters {
                index
                    .counters
                    .insert((number, name), u32::try_from(published.len()).unwrap_or(u32::MAX));
                published.push(Amount::of(&counter.value));
            }
        }
        let draws = here.map(|device| index.draws_of(device)).collect::<Result<Vec<_>, _>>()?;
        let elsewhere = elsewhere
            .filter_map(|device| {
                index
                    .draws_of(device)
                    .map(|draws| Some((device.0.clone(), draws?)))
                    .transpose()
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            published,
            draws,
            elsewhere,
            n_sets: index.sets.len(),
        })
    }

    /// Whether nothing draws on it, so that it need not be kept.
    pub(crate) fn is_idle(&self) -> bool {
        self.draws.iter().all(Option::is_none)
    }
}

impl CounterBoard {
    /// With nothing taken.
    pub(crate) fn new(plan: Arc<CounterPlan>) -> Self {
        Self {
            available: plan.published.clone(),
            overdrawn: plan.published.iter().any(|amount| amount.is_negative()),
            groups: vec![GroupState::Untouched; plan.n_sets],
            plan,
        }
    }

    pub(crate) fn draws(&self, device: usize) -> Option<&Draws> {
        self.plan.draws.get(device).and_then(Option::as_ref)
    }

    /// Works out what is left, given which devices have allocations.
    pub(crate) fn refresh(&mut self, is_allocated_here: impl Fn(usize) -> bool, is_allocated_elsewhere: impl Fn(&str) -> bool) {
        self.available.clone_from(&self.plan.published);
        self.groups.iter_mut().for_each(|state| *state = GroupState::Untouched);
        let here = self
            .plan
            .draws
            .iter()
            .enumerate()
            .filter(|(device, _)| is_allocated_here(*device));
        let here = here.filter_map(|(_, draws)| draws.as_ref());
        let elsewhere = self
            .plan
            .elsewhere
            .iter()
            .filter(|(name, _)| is_allocated_elsewhere(name))
            .map(|(_, draws)| draws);
        for draws in here.chain(elsewhere) {
            for (counter, amount) in &draws.amounts {
                self.available[*counter as usize] -= *amount;
            }
            for (set, groups) in &draws.sets {
                let state = &mut self.groups[*set as usize];
                // What is held already may disagree (groups are as published now): then nothing more is compatible.
                *state = state.with(groups).unwrap_or(GroupState::Common(SmallVec::new()));
            }
        }
        self.overdrawn = self.available.iter().any(|amount| amount.is_negative());
    }

    /// What is left of a counter beside what is held and reserved.
    pub(crate) fn left(&self, counter: u32, reserved: Option<&Reserved>) -> Amount {
        let mut left = self.available[counter as usize];
        if let Some(reserved) = reserved {
            left -= reserved.amounts[counter as usize];
        }
        left
    }

    pub(crate) fn nothing_reserved(&self) -> Reserved {
        Reserved {
            amounts: vec![Amount::ZERO; self.available.len()],
            groups: self.groups.clone(),
            before: Vec::new(),
        }
    }

    /// Whether the device's draws fit beside what is held and reserved. `groups`: `DRADeviceCompatibilityGroups`.
    pub(crate) fn allows(&self, device: usize, reserved: Option<&Reserved>, groups: bool) -> bool {
        let Some(draws) = self.draws(device) else { return true };
        let states = reserved.map_or(&self.groups, |reserved| &reserved.groups);
        let compatible = !groups || draws.sets.iter().all(|(set, own)| states[*set as usize].with(own).is_some());
        compatible
            && !self.overdrawn
            && draws.amounts.iter().all(|(counter, amount)| {
                let mut left = self.left(*counter, reserved);
                left -= *amount;
                !left.is_negative()
            })
    }
}

impl Reserved {
    pub(crate) fn charge(&mut self, board: &CounterBoard, device: usize) {
        let Some(draws) = board.draws(device) else { return };
        for (counter, amount) in &draws.amounts {
            self.amounts[*counter as usize] += *amount;
        }
        let mut before = SmallVec::new();
        for (set, groups) in &draws.sets {
            let state = &mut self.groups[*set as usize];
            let after = state.with(groups).unwrap_or_else(|| state.clone());
            before.push(std::mem::replace(state, after));
        }
        self.before.push(before);
    }

    pub(crate) fn discharge(&mut self, board: &CounterBoard, device: usize) {
        let Some(draws) = board.draws(device) else { return };
        for (counter, amount) in &draws.amounts {
            self.amounts[*counter as usize] -= *amount;
        }
        for ((set, _), before) in draws.sets.iter().zip(self.before.pop().unwrap_or_default()).rev() {
            self.groups[*set as usize] = before;
        }
    }
}

/// Names to numbers while a board is built.
#[derive(Default)]
struct Index<'a> {
    sets: FxHashMap<&'a str, u32>,
    counters: FxHashMap<(u32, &'a str), u32>,
    groups: FxHashMap<&'a str, u32>,
}

impl<'a> Index<'a> {
    fn draws_of(&mut self, (name, kind): (&'a DeviceName, &'a Kind)) -> Result<Option<Draws>, String> {
        let consumptions = &kind.device.consumes_counters;
        if consumptions.is_empty() {
            return Ok(None);
        }
        let mut draws = Draws::default();
        for consumption in consumptions {
            self.add(&mut draws, name, consumption)?;
        }
        draws.amounts.sort_by_key(|(counter, _)| *counter);
        Ok(Some(draws))
    }

    fn add(&mut self, draws: &mut Draws, device: &DeviceName, from: &'a DeviceCounterConsumption) -> Result<(), String> {
        let set_name = &from.counter_set;
        let missing = || format!("device {device} draws on counter set {set_name}, which the pool lacks");
        let set = *self.sets.get(set_name.as_str()).ok_or_else(missing)?;
        for (name, counter) in &from.counters {
            let missing = || format!("device {device} draws on counter {name}, which counter set {set_name} lacks");
            let number = *self.counters.get(&(set, name.as_str())).ok_or_else(missing)?;
            let amount = Amount::of(&counter.value);
            match draws.amounts.iter_mut().find(|(counter, _)| *counter == number) {
                Some((_, sum)) => *sum += amount,
                None => draws.amounts.push((number, amount)),
            }
        }
        let mut groups = SmallVec::new();
        for group in &from.compatibility_groups {
            let next = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
            groups.push(*self.groups.entry(group).or_insert(next));
        }
        draws.sets.push((set, groups));
        Ok(())
    }
}
