//! How long to wait before trying again: exponential, capped, with full jitter. Pure; the caller brings the randomness.

use std::time::Duration;

use rand::Rng;

/// A series of waits. "Full jitter" (a wait between nothing and the current bound) spreads callers that failed at the
/// same moment best; see "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits below `base` after the first failure, below `cap` after many.
    pub fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, failures: 0 }
    }

    /// The wait after one more failure, from 0 to `min(cap, base × 2^earlier failures)`.
    pub fn next_wait(&mut self, rng: &mut impl Rng) -> Duration {
        let bound = self.bound();
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(rng.random_range(0.0..=1.0))
    }

    /// Failures since the last [`Backoff::reset`].
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Starts over, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    fn bound(&self) -> Duration {
        let factor = 2_u32.checked_pow(self.failures);
        factor
            .and_then(|factor| self.base.checked_mul(factor))
            .map_or(self.cap, |bound| bound.min(self.cap))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn waits_stay_below_the_doubling_bound_and_the_cap() {
        let mut rng = StdRng::seed_from_u64(7);
        let (base, cap) = (Duration::from_millis(10), Duration::from_secs(1));
        let mut backoff = Backoff::new(base, cap);
        for failures in 0..100_u32 {
            let bound = base.saturating_mul(2_u32.saturating_pow(failures)).min(cap);
            assert!(backoff.next_wait(&mut rng) <= bound);
        }
        assert_eq!(backoff.failures(), 100);
        backoff.reset();
        assert!(backoff.next_wait(&mut rng) <= base);
    }

    #[test]
    fn waits_are_spread() {
        let mut rng = StdRng::seed_from_u64(7);
        let wait = |rng: &mut StdRng| Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).next_wait(rng);
        let waits: Vec<Duration> = (0..100).map(|_| wait(&mut rng)).collect();
        assert!(waits.iter().any(|wait| *wait < Duration::from_millis(300)));
        assert!(waits.iter().any(|wait| *wait > Duration::from_millis(700)));
    }
}
