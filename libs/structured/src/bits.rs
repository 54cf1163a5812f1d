//! Fixed-length sets of small integers: device positions of a pool, ranks of nodes.
//!
//! A node has few devices, so the words of a set of up to 128 members live inline. Members are iterated in ascending
//! order, which is the order that decides a first fit.

use smallvec::{SmallVec, smallvec};

const WORD: usize = 64;

/// A set of integers below a fixed length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits {
    words: SmallVec<[u64; 2]>,
}

impl Bits {
    /// The empty set over `0..len`.
    pub(crate) fn new(len: usize) -> Self {
        Self {
            words: smallvec![0; len.div_ceil(WORD)],
        }
    }

    pub(crate) fn set(&mut self, index: usize) {
        self.words[index / WORD] |= 1 << (index % WORD);
    }

    pub(crate) fn clear(&mut self, index: usize) {
        self.words[index / WORD] &= !(1 << (index % WORD));
    }

    pub(crate) fn assign(&mut self, index: usize, value: bool) {
        if value { self.set(index) } else { self.clear(index) }
    }

    pub(crate) fn get(&self, index: usize) -> bool {
        self.words
            .get(index / WORD)
            .is_some_and(|word| word >> (index % WORD) & 1 == 1)
    }

    pub(crate) fn any(&self) -> bool {
        self.words.iter().any(|word| *word != 0)
    }

    /// The words, lowest members first; bits beyond the length are zero.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }
}

/// The positions of the one bits of a word, ascending.
pub(crate) fn members_of(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(bit)
    })
}

/// A word with the lowest `n` bits set; `n` may be 64.
pub(crate) fn low_mask(n: usize) -> u64 {
    if n >= WORD { u64::MAX } else { (1 << n) - 1 }
}

/// A set over a large range that finds its next member in two word look-ups per level.
///
/// Used for the ranks of nodes: level 0 has a bit per node, each bit of level 1 says whether a word of level 0 is non-zero.
#[derive(Clone, Debug)]
pub(crate) struct RankSet {
    leaves: Vec<u64>,
    summary: Vec<u64>,
    len: usize,
}

impl RankSet {
    /// The members of `0..len` for which the question is answered with yes.
    pub(crate) fn of(len: usize, is_member: impl Fn(usize) -> bool) -> Self {
        let n_leaves = len.div_ceil(WORD);
        let mut set = Self {
            leaves: Vec::with_capacity(n_leaves),
            summary: vec![0; n_leaves.div_ceil(WORD)],
            len,
        };
        for leaf in 0..n_leaves {
            let ranks = leaf * WORD..len.min((leaf + 1) * WORD);
            let bits = ranks.enumerate().fold(0, |bits, (bit, rank)| bits | u64::from(is_member(rank)) << bit);
            set.leaves.push(bits);
            set.summary[leaf / WORD] |= u64::from(bits != 0) << (leaf % WORD);
        }
        set
    }

    pub(crate) fn insert(&mut self, rank: usize) {
        if rank < self.len {
            self.leaves[rank / WORD] |= 1 << (rank % WORD);
            self.summary[rank / WORD / WORD] |= 1 << (rank / WORD % WORD);
        }
    }

    pub(crate) fn remove(&mut self, rank: usize) {
        let leaf = rank / WORD;
        self.leaves[leaf] &= !(1 << (rank % WORD));
        if self.leaves[leaf] == 0 {
            self.summary[leaf / WORD] &= !(1 << (leaf % WORD));
        }
    }

    /// The smallest member that is at least `from`.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        if from >= self.len {
            return None;
        }
        let leaf = from / WORD;
        let rest = self.leaves[leaf] & !low_mask(from % WORD);
        if rest != 0 {
            return Some(leaf * WORD + rest.trailing_zeros() as usize);
        }
        let leaf = self.next_leaf(leaf + 1)?;
        Some(leaf * WORD + self.leaves[leaf].trailing_zeros() as usize)
    }

    fn next_leaf(&self, from: usize) -> Option<usize> {
        let mut group = from / WORD;
        let mut rest = self.summary.get(group)? & !low_mask(from % WORD);
        while rest == 0 {
            group += 1;
            rest = *self.summary.get(group)?;
        }
        Some(group * WORD + rest.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_in_ascending_order_and_masks_end_where_they_should() {
        assert_eq!(members_of(1 << 63 | 1 << 5 | 1).collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!((low_mask(0), low_mask(3), low_mask(64)), (0, 0b111, u64::MAX));
    }

    #[test]
    fn rank_set_finds_the_next_member_across_words_and_groups() {
        let mut set = RankSet::of(10_000, |_| true);
        for rank in 0..9_999 {
            set.remove(rank);
        }
        assert_eq!(set.next(0), Some(9_999));
        set.insert(4_097);
        assert_eq!(set.next(64), Some(4_097));
        assert_eq!(set.next(4_098), Some(9_999));
        set.remove(9_999);
        assert_eq!(set.next(4_098), None);
        let odd = RankSet::of(9_000, |rank| rank % 5_000 == 1);
        assert_eq!((odd.next(0), odd.next(2), odd.next(5_002)), (Some(1), Some(5_001), None));
        assert_eq!(RankSet::of(0, |_| true).next(0), None);
    }
}
