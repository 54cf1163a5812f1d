//! A pool as the nodes of one sort see it: its devices in order, the sets that rules look at, and what is taken.
//!
//! Facts are fixed until the pool's slices change. What is taken is kept up to date by single steps, and the answers of
//! selectors are filled in as searches ask for them.

use std::cell::RefCell;
use std::sync::Arc;

use resource_api::ids::{DeviceId, DeviceName, PoolId};
use resource_api::slice::ResourceSliceSpec;
use resource_api::taint::{DeviceTaintRule, DeviceToleration};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::amount::Amount;
use crate::bits::Bits;
use crate::capacity::CapacityFacts;
use crate::counters::CounterBoard;
use crate::features::Features;
use crate::holdings::DeviceUse;
use crate::packed::{PackedDevice, PackedSlice};
use crate::selectors::{Filter, Verdict};
use crate::taints;

/// Filters whose answers a pool remembers; beyond that it starts over.
const FILTERS_REMEMBERED_MAX: usize = 64;

/// Above this many devices a pool keeps a map from names to positions.
const NAMES_SCANNED_MAX: usize = 16;

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
    /// Some device has binding conditions: such pools come last.
    pub(crate) has_binding_conditions: bool,
    slices: SmallVec<[Arc<PackedSlice>; 1]>,
    /// The position of each slice's first device.
    starts: SmallVec<[u32; 2]>,
    len: usize,
    positions: FxHashMap<DeviceName, u32>,
    shareable: Bits,
    consumes: Bits,
    skips_operations: Bits,
    /// Has a blocking taint, its own or one that a rule puts on it.
    tainted: Bits,
    /// Rules that put taints on devices of the pool, in their order.
    taint_rules: Vec<Arc<DeviceTaintRule>>,
    with_binding_conditions: Bits,
    /// Not given to other nodes by per-device selection.
    for_node: Bits,
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
    pub(crate) fn new(id: PoolId, slices: &[(&Arc<PackedSlice>, &Option<Bits>)]) -> Self {
        let len = slices.iter().map(|(slice, _)| slice.sources().len()).sum();
        let empty = || Bits::new(len);
        let mut view = Self {
            id,
            health: Health::Usable,
            has_binding_conditions: false,
            slices: slices.iter().map(|(slice, _)| Arc::clone(slice)).collect(),
            starts: SmallVec::new(),
            len,
            positions: FxHashMap::default(),
            shareable: empty(),
            consumes: empty(),
            skips_operations: empty(),
            tainted: empty(),
            taint_rules: Vec::new(),
            with_binding_conditions: empty(),
            for_node: empty(),
            board: None,
            held: empty(),
            shared: empty(),
            consumed: FxHashMap::default(),
            answers: RefCell::default(),
        };
        let mut at = 0;
        for (slice, matching) in slices {
            view.starts.push(u32::try_from(at).unwrap_or(u32::MAX));
            let skips_operations = !slice.spec.skip_node_operations.is_empty();
            for (index, device) in slice.sources().iter().enumerate() {
                let for_node = matching.as_ref().is_none_or(|matching| matching.get(index));
                view.push(at, device, for_node, skips_operations);
                at += 1;
            }
        }
        view.has_binding_conditions = view.with_binding_conditions.any();
        view
    }

    fn push(&mut self, at: usize, device: &PackedDevice, for_node: bool, skips_operations: bool) {
        let kind = &device.kind().device;
        self.shareable.assign(at, kind.is_shareable());
        self.consumes.assign(at, !kind.consumes_counters.is_empty());
        self.skips_operations.assign(at, skips_operations);
        self.tainted.assign(at, kind.taints.iter().any(taints::is_blocking));
        self.with_binding_conditions.assign(at, !kind.binding_conditions.is_empty());
        self.for_node.assign(at, for_node);
        if self.len > NAMES_SCANNED_MAX {
            self.positions
                .insert(device.name.clone(), u32::try_from(at).unwrap_or(u32::MAX));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.health == Health::Usable
    }

    /// The slice of a device, and the device's index in it.
    fn place(&self, at: usize) -> (&PackedSlice, usize) {
        let slice = match self.slices.len() {
            1 => 0,
            // Slices without devices start where the next one does; the last of equal starts has the device.
            _ => self.starts.partition_point(|start| *start as usize <= at) - 1,
        };
        (&self.slices[slice], at - self.starts[slice] as usize)
    }

    /// The spec of the device's slice, without its devices.
    pub(crate) fn slice(&self, at: usize) -> &ResourceSliceSpec {
        &self.place(at).0.spec
    }

    pub(crate) fn device(&self, at: usize) -> &PackedDevice {
        let (slice, index) = self.place(at);
        &slice.sources()[index]
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = &PackedDevice> {
        self.slices.iter().flat_map(|slice| slice.sources())
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
        if self.positions.is_empty() {
            return self.devices().position(|other| other.name == *device);
        }
        self.positions.get(device).map(|at| *at as usize)
    }

    pub(crate) fn is_shareable(&self, at: usize) -> bool {
        self.shareable.get(at)
    }

    pub(crate) fn consumes_counters(&self, at: usize) -> bool {
        self.consumes.get(at)
    }

    pub(crate) fn skips_node_operations(&self, at: usize) -> bool {
        self.skips_operations.get(at)
    }

    pub(crate) fn has_binding_conditions(&self, at: usize) -> bool {
        self.with_binding_conditions.get(at)
    }

    pub(crate) fn is_tainted_for(&self, at: usize, tolerations: &[DeviceToleration]) -> bool {
        if !self.tainted.get(at) {
            return false;
        }
        let device = self.device(at);
        let by_rules = self
            .taint_rules
            .iter()
            .filter(|rule| taints::concerns_device(rule, &device.name));
        let taints = device.kind().device.taints.iter().chain(by_rules.map(|rule| &rule.spec.taint));
        taints::first_untolerated(taints, tolerations).is_some()
    }

    /// Puts the taint of a rule that concerns this pool on its devices.
    pub(crate) fn apply(&mut self, rule: &Arc<DeviceTaintRule>) {
        if !taints::is_blocking(&rule.spec.taint) {
            return;
        }
        for at in 0..self.len() {
            if taints::concerns_device(rule, &self.device(at).name) {
                self.tainted.set(at);
            }
        }
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
        let devices = (word * 64..self.len.min(word * 64 + 64)).map(|at| self.device(at));
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
        self.shareable.words()[word]
    }

    /// As [`PoolView::answer`], reduced to what the node may have: gates and per-device selection applied.
    pub(crate) fn selectable(&self, filter: &Filter, word: usize, features: Features) -> (u64, u64) {
        let (mut matching, mut failing) = self.answer(filter, word);
        if !features.binding_conditions {
            let without = !self.with_binding_conditions.words()[word];
            (matching, failing) = (matching & without, failing & without);
        }
        (matching & self.for_node.words()[word], failing)
    }

    /// Takes over everything that is taken of the pool.
    pub(crate) fn use_all(&mut self, uses: &FxHashMap<DeviceName, DeviceUse>, features: Features) {
        if uses.len() < self.len {
            // Everything is free at first: only what is taken needs a look.
            let held: Vec<_> = uses.keys().filter_map(|name| self.position(name)).collect();
            for at in held {
                let device_use = uses.get(&self.device(at).name);
                self.set_use(at, device_use, features);
            }
        } else {
            for at in 0..self.len {
                let device_use = uses.get(&self.device(at).name);
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
