//! The budget of one evaluation: cost units as upstream counts them, and two bounds of our own for what cost
//! does not see (elements looked at by deep comparisons, bytes of intermediate values).

use crate::error::{EvalError, EvalErrorKind};

/// Steps of work, each about an element compared or 32 bytes of text looked at. Values share structure, so a small
/// expression can build one whose elementwise comparison would never end; and some functions have unit cost but
/// walk a whole text.
const STEPS_MAX: u64 = 20_000_000;
/// Bytes of strings and lists one evaluation may build in all.
const BYTES_MAX: u64 = 64 << 20;

pub(crate) struct Meter {
    cost: u64,
    limit: u64,
    steps: u64,
    bytes: u64,
}

impl Meter {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            cost: 0,
            limit,
            steps: 0,
            bytes: 0,
        }
    }

    /// Cost so far.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Counts one operation of `units`. Nothing is counted any more once the budget is used up.
    #[inline]
    pub(crate) fn charge(&mut self, units: u64) -> Result<(), EvalError> {
        if self.cost <= self.limit {
            self.cost = self.cost.saturating_add(units);
        }
        if self.cost > self.limit { exhausted() } else { Ok(()) }
    }

    /// Counts `n` operations of one unit each: the one that is over the limit is the last that counts.
    #[inline]
    pub(crate) fn charge_each(&mut self, n: u64) -> Result<(), EvalError> {
        let over_limit = self.limit.saturating_add(1);
        if self.cost <= self.limit {
            self.cost = self.cost.saturating_add(n).min(over_limit);
        }
        if self.cost > self.limit { exhausted() } else { Ok(()) }
    }

    /// Takes a unit back that upstream takes back without having counted it. Below zero it wraps there, which is over
    /// every limit.
    pub(crate) fn refund_one(&mut self) -> Result<(), EvalError> {
        if self.cost <= self.limit {
            self.cost = self.cost.checked_sub(1).unwrap_or(u64::MAX);
        }
        if self.cost > self.limit { exhausted() } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn work(&mut self, steps: u64) -> Result<(), EvalError> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS_MAX { exhausted() } else { Ok(()) }
    }

    /// Announces a value of `bytes` that is about to be built.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes > BYTES_MAX { exhausted() } else { Ok(()) }
    }

    /// True for the errors of this file, which nothing absorbs.
    pub(crate) fn is_exhaustion(error: &EvalError) -> bool {
        error.kind() == EvalErrorKind::CostLimit
    }
}

#[cold]
fn exhausted() -> Result<(), EvalError> {
    Err(EvalError::new(
        EvalErrorKind::CostLimit,
        "operation cancelled: actual cost limit exceeded",
    ))
}
