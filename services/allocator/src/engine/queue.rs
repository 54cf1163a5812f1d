//! Who waits, in which order, and for what. Pure.
//!
//! Units that ask the same (equal [`Signature`]) share one answer in one state, so a refusal parks all of them: the group is *stuck* until
//! something changes that could help it. A change wakes as many of the oldest as it could serve, across all processes alike: every
//! allocator knows every waiting unit, so all agree on who is oldest, and only the owner of its home shard acts.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use structured::{CompiledUnit, Signature, Unallocatable};
use uuid::Uuid;

use super::explanation::Told;

/// Order of service: priority first, then age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) priority: Reverse<i32>,
    pub(crate) created: u64,
    pub(crate) unit: Uuid,
}

/// A refusal that equal units share, with its explanation once somebody asked for it.
pub(crate) struct Refused {
    refusal: Unallocatable,
    told: OnceLock<Arc<Told>>,
}

impl Refused {
    pub(crate) fn new(refusal: Unallocatable) -> Self {
        Self {
            refusal,
            told: OnceLock::new(),
        }
    }

    /// What a unit says about it. `explain` works it out, for the first unit that says it.
    pub(super) fn told(&self, explain: impl FnOnce(&Unallocatable) -> Told) -> Arc<Told> {
        self.told.get_or_init(|| Arc::new(explain(&self.refusal))).clone()
    }
}

/// Units that ask the same and wait.
pub(crate) struct Group {
    /// Any of its units, compiled: what it waits for.
    pub(crate) sample: Arc<CompiledUnit>,
    /// Its answer depends on more than free devices (allocationMode All, a faulty claim): any change of inventory may help.
    pub(crate) sensitive: bool,
    units: BTreeSet<Place>,
    /// Nothing has happened since the last refusal that could change it.
    pub(crate) stuck: Option<Arc<Refused>>,
}

/// The waiting units of one allocator.
#[derive(Default)]
pub(crate) struct Queue {
    due: BTreeSet<Place>,
    groups: HashMap<Signature, Group>,
}

impl Queue {
    /// The unit is to be tried.
    pub(crate) fn make_due(&mut self, place: Place) {
        self.due.insert(place);
    }

    /// Takes the unit that is next in order.
    pub(crate) fn pop_due(&mut self) -> Option<Place> {
        self.due.pop_first()
    }

    pub(crate) fn due_len(&self) -> usize {
        self.due.len()
    }

    pub(crate) fn parked_len(&self) -> usize {
        self.groups.values().map(|g| g.units.len()).sum()
    }

    /// Forgets all groups; who is in them must be entered again.
    pub(crate) fn clear_groups(&mut self) {
        self.groups.clear();
    }

    pub(crate) fn groups_len(&self) -> usize {
        self.groups.len()
    }

    /// If nothing changed since an equal unit was refused: why it was.
    pub(crate) fn refusal(&self, signature: &Signature) -> Option<Arc<Refused>> {
        self.groups.get(signature).and_then(|g| g.stuck.clone())
    }

    /// The unit waits. `refusal`: it was just tried here and this is why.
    pub(crate) fn park(&mut self, place: Place, compiled: &Arc<CompiledUnit>, sensitive: bool, refusal: Option<Arc<Refused>>) {
        let group = self.groups.entry(compiled.signature().clone()).or_insert_with(|| Group {
            sample: compiled.clone(),
            sensitive,
            units: BTreeSet::new(),
            stuck: None,
        });
        group.units.insert(place);
        if refusal.is_some() {
            group.stuck = refusal;
        }
    }

    /// The unit is gone or allocated.
    pub(crate) fn remove(&mut self, place: Place, signature: Option<Signature>) {
        self.due.remove(&place);
        if let Some(signature) = signature
            && let Some(group) = self.groups.get_mut(&signature)
        {
            group.units.remove(&place);
            if group.units.is_empty() {
                self.groups.remove(&signature);
            }
        }
    }

    /// Wakes the oldest unit of the group for which `mine` holds, whoever is older elsewhere.
    pub(crate) fn wake_own(&mut self, signature: &Signature, mine: impl Fn(Uuid) -> bool) -> bool {
        let Some(group) = self.groups.get_mut(signature) else {
            return false;
        };
        let Some(place) = group.units.iter().find(|place| mine(place.unit)).copied() else {
            return false;
        };
        group.stuck = None;
        group.units.remove(&place);
        if group.units.is_empty() {
            self.groups.remove(signature);
        }
        self.due.insert(place)
    }

    /// Wakes the oldest unit of the group if `mine` holds for it; whoever owns it learns of the change from the log otherwise.
    pub(crate) fn wake_next(&mut self, signature: &Signature, mine: impl Fn(Uuid) -> bool) -> bool {
        let oldest = self.groups.get(signature).and_then(|group| group.units.first());
        oldest.is_some_and(|place| mine(place.unit)) && self.wake_own(signature, mine)
    }

    /// Wakes the oldest units of each group: as many as `credits` says for it. Those for which `mine` holds become due. The others leave
    /// their group too and are returned: their owner tries them, and the next change must not count on them a second time.
    pub(crate) fn wake(&mut self, credits: impl Fn(&Group) -> usize, mine: impl Fn(Uuid) -> bool) -> Woken {
        let mut woken = Woken::default();
        for group in self.groups.values_mut() {
            let credit = credits(group);
            if credit == 0 {
                continue;
            }
            group.stuck = None;
            let oldest: Vec<Place> = group.units.iter().take(credit).copied().collect();
            for place in oldest {
                group.units.remove(&place);
                if mine(place.unit) {
                    self.due.insert(place);
                    woken.mine += 1;
                } else {
                    woken.elsewhere.push(place.unit);
                }
            }
        }
        self.groups.retain(|_, group| !group.units.is_empty());
        woken
    }
}

/// Who was woken.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// How many became due here.
    pub(crate) mine: usize,
    /// Units that other allocators try.
    pub(crate) elsewhere: Vec<Uuid>,
}
