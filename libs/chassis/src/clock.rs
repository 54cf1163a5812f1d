//! Time as an argument: the real one, or one that a test moves by hand.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

/// A clock; cheap to clone, and all clones tell the same time.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    System {
        started: Instant,
    },
    Manual {
        start: SystemTime,
        elapsed: watch::Receiver<Duration>,
    },
}

/// Moves a manual [`Clock`] forward.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<watch::Sender<Duration>>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Kind::System { started: Instant::now() })
    }

    /// A clock that stands at `start` until its [`ManualClock`] moves it.
    pub fn manual(start: SystemTime) -> (Self, ManualClock) {
        let (sender, elapsed) = watch::channel(Duration::ZERO);
        (Self(Kind::Manual { start, elapsed }), ManualClock(Arc::new(sender)))
    }

    /// The time of day; may jump when somebody sets the machine's clock. For what people read.
    pub fn now(&self) -> SystemTime {
        match &self.0 {
            Kind::System { .. } => SystemTime::now(),
            Kind::Manual { start, elapsed } => *start + *elapsed.borrow(),
        }
    }

    /// The time of day as milliseconds since 1970; 0 before that.
    pub fn now_ms(&self) -> i64 {
        let since = self.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    /// Time since the clock was made; never goes back. For deadlines and durations.
    pub fn elapsed(&self) -> Duration {
        match &self.0 {
            Kind::System { started } => started.elapsed(),
            Kind::Manual { elapsed, .. } => *elapsed.borrow(),
        }
    }

    /// Waits until `duration` has passed on this clock. A manual clock whose hand is gone waits for ever.
    pub async fn sleep(&self, duration: Duration) {
        match &self.0 {
            Kind::System { .. } => tokio::time::sleep(duration).await,
            Kind::Manual { elapsed, .. } => {
                let mut elapsed = elapsed.clone();
                let until = *elapsed.borrow() + duration;
                if elapsed.wait_for(|now| *now >= until).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

impl ManualClock {
    /// Moves the clock forward and wakes who slept until then.
    pub fn advance(&self, by: Duration) {
        self.0.send_modify(|elapsed| *elapsed += by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_manual_clock_wakes_sleepers_when_it_is_moved_far_enough() {
        let (clock, hand) = Clock::manual(UNIX_EPOCH);
        let mut sleep = std::pin::pin!(clock.sleep(Duration::from_secs(10)));
        let is_pending = |polled: std::task::Poll<()>| polled.is_pending();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(is_pending(sleep.as_mut().poll(&mut context)));
        hand.advance(Duration::from_secs(9));
        assert!(is_pending(sleep.as_mut().poll(&mut context)));
        hand.advance(Duration::from_secs(1));
        sleep.await;
        assert_eq!((clock.now_ms(), clock.elapsed()), (10_000, Duration::from_secs(10)));
    }
}
