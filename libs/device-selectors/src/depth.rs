//! Stack for recursion over trees.
//!
//! Nesting is limited where the tree is made, so recursion ends; but 250 levels with macros between them can need
//! more stack than the caller's thread has left. Every recursive walk passes here once per level.

/// Stack that must be left for one level of any walk, unoptimised frames included.
const RED_ZONE_BYTES: usize = 64 << 10;
/// Size of an additional piece of stack.
const PIECE_BYTES: usize = 1 << 20;

/// Runs `level`, on a new piece of stack if the current one is nearly used up.
#[inline]
pub(crate) fn guarded<T>(level: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(RED_ZONE_BYTES, PIECE_BYTES, level)
}
