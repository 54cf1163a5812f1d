//! The devices of one node in the order in which the search looks at them.
//!
//! Every device gets a position. A pool begins at a multiple of 64, so that sets of devices of several pools are combined
//! word by word without shifting.

use smallvec::SmallVec;

use crate::fault::Fault;
use crate::features::Features;
use crate::pool_view::PoolView;
use crate::request::{Choice, CompiledUnit};

/// Number of a device on one node.
pub(crate) type Position = u32;

const WORD: usize = 64;

/// The pools of a node in order, and where they begin.
pub(crate) struct NodeView<'a> {
    pub(crate) name: &'a str,
    pub(crate) supports_skipped_operations: bool,
    pools: Vec<&'a PoolView>,
    /// First word of each pool.
    starts: SmallVec<[u32; 4]>,
    /// The pool that each word belongs to.
    pool_of_word: SmallVec<[u32; 8]>,
}

impl<'a> NodeView<'a> {
    /// `pools`: in the order of the model, see [`order`].
    pub(crate) fn new(name: &'a str, supports_skipped_operations: bool, pools: impl IntoIterator<Item = &'a PoolView>) -> Self {
        let mut view = Self {
            name,
            supports_skipped_operations,
            pools: Vec::new(),
            starts: SmallVec::new(),
            pool_of_word: SmallVec::new(),
        };
        for (at, pool) in pools.into_iter().enumerate() {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            view.starts.push(u32::try_from(view.pool_of_word.len()).unwrap_or(u32::MAX));
            view.pool_of_word.extend(std::iter::repeat_n(at, pool.len().div_ceil(WORD)));
            view.pools.push(pool);
        }
        view
    }

    pub(crate) fn pools(&self) -> &[&'a PoolView] {
        &self.pools
    }

    pub(crate) fn n_words(&self) -> usize {
        self.pool_of_word.len()
    }

    /// One more than the last position.
    pub(crate) fn len(&self) -> usize {
        self.n_words() * WORD
    }

    pub(crate) fn pool_of_word(&self, word: usize) -> &'a PoolView {
        self.pools[self.pool_of_word[word] as usize]
    }

    /// The pool's number, the pool and the device's position in it.
    pub(crate) fn locate(&self, position: Position) -> (usize, &'a PoolView, usize) {
        let pool = self.pool_of_word[position as usize / WORD] as usize;
        (pool, self.pools[pool], position as usize - self.starts[pool] as usize * WORD)
    }

    fn word_in_pool(&self, word: usize) -> (&'a PoolView, usize) {
        let pool = self.pool_of_word[word] as usize;
        (self.pools[pool], word - self.starts[pool] as usize)
    }

    /// The devices of a word that a choice may have, and those on which its selectors fail. Use is not looked at.
    pub(crate) fn selectable(&self, choice: &Choice, word: usize, features: Features) -> (u64, u64) {
        let (pool, word) = self.word_in_pool(word);
        pool.selectable(&choice.filter, word, features)
    }

    /// The devices of a word that somebody holds whole.
    pub(crate) fn held_word(&self, word: usize) -> u64 {
        let (pool, word) = self.word_in_pool(word);
        pool.held_word(word)
    }

    /// What to tell when the search arrives at a device on which a selector fails.
    pub(crate) fn selector_fault(&self, unit: &CompiledUnit, choice: &Choice, position: Position) -> Fault {
        let (_, pool, local) = self.locate(position);
        choice
            .filter
            .fault(unit, choice, &pool.id.driver, pool.device(local), &pool.device_id(local))
    }

    /// The devices of a word that may be shared.
    pub(crate) fn shareable_word(&self, word: usize) -> u64 {
        let (pool, word) = self.word_in_pool(word);
        pool.shareable_word(word)
    }
}

/// Sorts pools as the search takes them: those with binding conditions last, then by driver and name, bytewise.
pub(crate) fn order(pools: &mut [(usize, &PoolView)]) {
    pools.sort_by(|(_, a), (_, b)| (late(a), &a.id).cmp(&(late(b), &b.id)));
}

/// Pools that hand nothing out stand in the first group; they matter only for refusals.
fn late(pool: &PoolView) -> bool {
    pool.has_some_binding_conditions() && pool.is_usable()
}
