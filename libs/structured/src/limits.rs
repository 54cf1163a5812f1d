//! What bounds one decision: a number of steps, and a flag that the caller may raise at any time.
//!
//! Steps rather than time, so that an answer does not depend on how busy the machine is.

use std::sync::atomic::{AtomicBool, Ordering};

/// API limit: `AllocationResultsMaxSize`, the devices that one claim can be given.
pub const RESULTS_PER_CLAIM_MAX: usize = 32;

/// Budget of one decision.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// Search steps per node before the answer is "undecided". A step costs well under a microsecond.
    pub steps_per_node_max: u64,
    /// Search steps of one `place` over all the nodes it opens.
    pub steps_max: u64,
    /// Raised by the caller to stop early; looked at between steps.
    pub stop: Option<&'a AtomicBool>,
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Self {
            steps_per_node_max: 1_000_000,
            steps_max: 20_000_000,
            stop: None,
        }
    }
}

impl Limits<'_> {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}
