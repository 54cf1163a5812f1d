//! Fixed-length sets of small integers: the device positions of a pool.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_in_ascending_order_and_masks_end_where_they_should() {
        assert_eq!(members_of(1 << 63 | 1 << 5 | 1).collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!((low_mask(0), low_mask(3), low_mask(64)), (0, 0b111, u64::MAX));
    }
}
