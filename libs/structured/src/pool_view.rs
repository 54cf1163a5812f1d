//! A pool as the nodes of one sort see it: its devices in order, the sets that rules look at, and what is taken.
//!
//! Facts are fixed until the pool's slices change. What is taken is kept up to date by single steps, and the answers of
//! selectors are filled in as searches ask for them.

use std::cell::RefCell;
use std::sync::Arc;

use resource_api::ids::{DeviceId, DeviceName, PoolId};
use resource_api::slice::{ResourceSliceSpec, SkipNodeOperation};
use resource_api::taint::{DeviceTaintRule, DeviceToleration};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::amount::Amount;
use crate::bits::Bits;
use crate::capacity::CapacityFacts;
use crate::counters::CounterBoard;
use crate::features::Features;
use crate::holdings::DeviceUse;
use crate::layout::PoolLayout;
use crate::packed::{PackedDevice, PackedSlice};
use crate::selectors::{Filter, Verdict};
use crate::taints;

/// Filters whose answers a pool remembers; beyond that it starts over.
const FILTERS_REMEMBERED_MAX: usize = 64;

/// Whether devices can be taken from a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Usable,
    /// Slices of the newest generation are missing.
    Incomplete,
    /// It contradicts itself; the text says how.
    Invalid(String),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PoolView {
    pub(crate) id: PoolId,
    pub(crate) health: Health,
    slices: SmallVec<[Arc<PackedSlice>; 2]>,
    layout: Arc<PoolLayout>,
    /// Has a blocking taint, its own or one that a rule puts on it; `None`: as the layout says.
    tainted: Option<Bits>,
    /// Rules that put taints on devices of the pool, in their order.
    taint_rules: Vec<Arc<DeviceTaintRule>>,
    /// Not given to other nodes by per-device selection; `None`: all are.
    for_node: Option<Bits>,
    pub(crate) board: Option<CounterBoard>,
    held: Bits,
    shared: Bits,
    consumed: FxHashMap<u32, Vec<Amount>>,
    answers: RefCell<FxHashMap<u64, Answers>>,
}

/// What one filter says about the pool's devices, as far as it was asked.
#[derive(Clone, Debug)]
struct Answers {
    words: SmallVec<[WordAnswer; 1]>,
    /// How many devices each selector refused, by its place in the filter.
    refused: SmallVec<[u32; 4]>,
}

/// Answers of one filter for 64 devices.
#[derive(Clone, Copy, Debug, Default)]
struct WordAnswer {
    is_known: bool,
    matching: u64,
    failing: u64,
}

impl PoolView {
    /// The slices are those of the layout, with what per-device selection gives to the nodes.
    pub(crate) fn new(id: PoolId, slices: &[(&Arc<PackedSlice>, &Option<Bits>)], layout: Arc<PoolLayout>) -> Self {
        let for_node = slices.iter().any(|(_, matching)| matching.is_some()).then(|| {
            let mut for_node = Bits::new(layout.len);
            let matching = slices.iter().flat_map(|(slice, matching)| {
                (0..slice.layout().n_sources()).map(|index| matching.as_ref().is_none_or(|matching| matching.get(index)))
            });
            matching.enumerate().for_each(|(at, matches)| for_node.assign(at, matches));
            for_node
        });
        Self {
            id,
            health: Health::Usable,
            slices: slices.iter().map(|(slice, _)| Arc::clone(slice)).collect(),
            tainted: None,
            taint_rules: Vec::new(),
            for_node,
            board: None,
            held: Bits::new(layout.len),
            shared: Bits::new(layout.len),
            consumed: FxHashMap::default(),
            answers: RefCell::default(),
            layout,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.layout.len
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.health == Health::Usable
    }

    /// Some device has binding conditions: such pools come last.
    pub(crate) fn has_some_binding_conditions(&self) -> bool {
        self.layout.with_binding_conditions.any()
    }

    /// The spec of the device's slice, without what the slice lists.
    pub(crate) fn slice(&self, at: usize) -> &ResourceSliceSpec {
        &self.slices[self.layout.place(at).0].spec
    }

    /// What the driver does not need for the device.
    pub(crate) fn skip_node_operations(&self, at: usize) -> &[SkipNodeOperation] {
        self.layout.slice(self.layout.place(at).0).skip_node_operations()
    }

    pub(crate) fn device(&self, at: usize) -> PackedDevice<'_> {
        let (slice, index) = self.layout.place(at);
        self.slices[slice].device(index)
    }

    pub(crate) fn device_id(&self, at: usize) -> DeviceId {
        DeviceId {
            driver: self.id.driver.clone(),
            pool: self.id.pool.clone(),
            device: self.device(at).name.clone(),
        }
    }

    /// The position of a device by its name.
    pub(crate) fn position(&self, device: &str) -> Option<usize> {
        self.layout.position(device)
    }

    pub(crate) fn is_shareable(&self, at: usize) -> bool {
        self.layout.shareable.get(at)
    }

    pub(crate) fn consumes_counters(&self, at: usize) -> bool {
        self.layout.consumes.get(at)
    }

    pub(crate) fn skips_node_operations(&self, at: usize) -> bool {
        self.layout.skips_operations.get(at)
    }

    pub(crate) fn has_binding_conditions(&self, at: usize) -> bool {
        self.layout.with_binding_conditions.get(at)
    }

    pub(crate) fn is_tainted_for(&self, at: usize, tolerations: &[DeviceToleration]) -> bool {
        if !self.tainted.as_ref().unwrap_or(&self.layout.tainted).get(at) {
            return false;
        }
        let device = self.device(at);
        let by_rules = self
            .taint_rules
            .iter()
            .filter(|rule| taints::concerns_device(rule, device.name));
        let taints = device
            .kind()
            .device
            .taints
            .iter()
            .chain(by_rules.map(|rule| &rule.spec.taint));
        taints::first_untolerated(taints, tolerations).is_some()
    }

    /// Puts the taint of a rule that concerns this pool on its devices.
    pub(crate) fn apply(&mut self, rule: &Arc<DeviceTaintRule>) {
        if !taints::is_blocking(&rule.spec.taint) {
            return;
        }
        let mut tainted = self.tainted.take().unwrap_or_else(|| self.layout.tainted.clone());
        for at in 0..self.len() {
            if taints::concerns_device(rule, self.device(at).name) {
                tainted.set(at);
            }
        }
        self.tainted = Some(tainted);
        self.taint_rules.push(Arc::clone(rule));
    }

    pub(crate) fn capacity_of(&self, at: usize) -> Option<&Arc<CapacityFacts>> {
        self.device(at).kind().capacity.as_ref()
    }

    /// Somebody holds it whole.
    pub(crate) fn is_held(&self, at: usize) -> bool {
        self.held.get(at)
    }

    pub(crate) fn held_word(&self, word: usize) -> u64 {
        self.held.words()[word]
    }

    /// Somebody holds a share of it.
    pub(crate) fn has_share(&self, at: usize) -> bool {
        self.shared.get(at)
    }

    /// What the shares out consume, in the order of the device's capacities.
    pub(crate) fn consumed(&self, at: usize) -> Option<&[Amount]> {
        self.consumed.get(&u32::try_from(at).ok()?).map(Vec::as_slice)
    }

    /// The devices of a word that the filter selects, and those on which it fails. Asked once per filter and word.
    pub(crate) fn answer(&self, filter: &Filter, word: usize) -> (u64, u64) {
        let mut answers = self.answers.borrow_mut();
        if answers.len() >= FILTERS_REMEMBERED_MAX && !answers.contains_key(&filter.id()) {
            answers.clear();
        }
        let n_words = self.held.words().len();
        let answers = answers.entry(filter.id()).or_insert_with(|| Answers {
            words: SmallVec::from_elem(WordAnswer::default(), n_words),
            refused: SmallVec::from_elem(0, filter.n_selectors()),
        });
        if !answers.words[word].is_known {
            self.ask(filter, word, answers);
        }
        (answers.words[word].matching, answers.words[word].failing)
    }

    fn ask(&self, filter: &Filter, word: usize, answers: &mut Answers) {
        let mut answer = WordAnswer {
            is_known: true,
            ..WordAnswer::default()
        };
        let devices = (word * 64..self.len().min(word * 64 + 64)).map(|at| self.device(at));
        filter.judge_all(&self.id.driver, devices, |bit, verdict| match verdict {
            Verdict::Selected => answer.matching |= 1 << bit,
            Verdict::Failed { .. } => answer.failing |= 1 << bit,
            Verdict::Refused { selector } => answers.refused[selector] += 1,
        });
        answers.words[word] = answer;
    }

    /// How many devices each selector of the filter refuses, by its place; asks for all devices.
    pub(crate) fn refused(&self, filter: &Filter) -> SmallVec<[u32; 4]> {
        (0..self.n_words()).for_each(|word| {
            self.answer(filter, word);
        });
        self.answers
            .borrow()
            .get(&filter.id())
            .map(|answers| answers.refused.clone())
            .unwrap_or_default()
    }

    pub(crate) fn n_words(&self) -> usize {
        self.held.words().len()
    }

    pub(crate) fn shareable_word(&self, word: usize) -> u64 {
        self.layout.shareable.words()[word]
    }

    /// As [`PoolView::answer`], reduced to what the node may have: gates and per-device selection applied.
    pub(crate) fn selectable(&self, filter: &Filter, word: usize, features: Features) -> (u64, u64) {
        let (mut matching, mut failing) = self.answer(filter, word);
        if !features.binding_conditions {
            let without = !self.layout.with_binding_conditions.words()[word];
            (matching, failing) = (matching & without, failing & without);
        }
        let for_node = self.for_node.as_ref().map_or(u64::MAX, |for_node| for_node.words()[word]);
        (matching & for_node, failing)
    }

    /// Takes over everything that is taken of the pool.
    pub(crate) fn use_all(&mut self, uses: &FxHashMap<DeviceName, DeviceUse>, features: Features) {
        if uses.len() < self.len() {
            // Everything is free at first: only what is taken needs a look.
            let held: Vec<_> = uses.keys().filter_map(|name| self.position(name)).collect();
            for at in held {
                let device_use = uses.get(self.device(at).name);
                self.set_use(at, device_use, features);
            }
        } else {
            for at in 0..self.len() {
                let device_use = uses.get(self.device(at).name);
                self.set_use(at, device_use, features);
            }
        }
        self.refresh_board(uses);
    }

    /// Takes over what is taken of one device.
    pub(crate) fn use_one(&mut self, device: &DeviceName, uses: &FxHashMap<DeviceName, DeviceUse>, features: Features) {
        if let Some(at) = self.position(device) {
            self.set_use(at, uses.get(device), features);
        }
        self.refresh_board(uses);
    }

    fn set_use(&mut self, at: usize, device_use: Option<&DeviceUse>, features: Features) {
        let whole = device_use.is_some_and(|used| used.is_held(features));
        let shared = device_use.is_some_and(|used| used.has_share(features));
        self.held.assign(at, whole);
        self.shared.assign(at, shared);
        let key = u32::try_from(at).unwrap_or(u32::MAX);
        let sums = match (device_use, self.capacity_of(at)) {
            (Some(used), Some(facts)) if shared => Some(facts.names().map(|name| used.consumed(name)).collect()),
            _ => None,
        };
        match sums {
            Some(sums) => self.consumed.insert(key, sums),
            None => self.consumed.remove(&key),
        };
    }

    fn refresh_board(&mut self, uses: &FxHashMap<DeviceName, DeviceUse>) {
        let Some(mut board) = self.board.take() else { return };
        board.refresh(|at| self.held.get(at) || self.shared.get(at), |name| uses.contains_key(name));
        self.board = Some(board);
    }
}
