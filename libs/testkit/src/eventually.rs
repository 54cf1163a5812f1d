//! Waiting for a level by looking again and again; tests never sleep for a guessed time.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// How often a condition is looked at: small against what tests wait for, large against a query.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// What a condition says: not yet (with a text for the failure message), or a value.
pub trait Verdict {
    /// What [`eventually`] returns once the condition holds.
    type Value;
    /// The value, or why it is not there yet.
    fn settled(self) -> Result<Self::Value, String>;
}

impl Verdict for bool {
    type Value = ();
    fn settled(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("still false".into()) }
    }
}

impl<T> Verdict for Option<T> {
    type Value = T;
    fn settled(self) -> Result<T, String> {
        self.ok_or_else(|| "still none".into())
    }
}

impl<T, E: Debug> Verdict for Result<T, E> {
    type Value = T;
    fn settled(self) -> Result<T, String> {
        self.map_err(|error| format!("still failing: {error:?}"))
    }
}

/// Polls `condition` until it holds (`true`, `Some`, `Ok`) and returns its value.
///
/// # Panics
/// When it does not hold within `deadline`; the message carries the last answer and the caller's line.
#[track_caller]
pub fn eventually<C, F>(deadline: Duration, mut condition: C) -> impl Future<Output = <F::Output as Verdict>::Value>
where
    C: FnMut() -> F,
    F: Future<Output: Verdict>,
{
    let caller = std::panic::Location::caller();
    async move {
        let end = Instant::now() + deadline;
        loop {
            let last = match condition().await.settled() {
                Ok(value) => return value,
                Err(last) => last,
            };
            assert!(Instant::now() < end, "{caller}: not within {deadline:?}: {last}");
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn returns_the_first_value() {
        let mut looks = 0;
        let value = eventually(Duration::from_secs(1), || {
            looks += 1;
            let seen = looks;
            async move { (seen == 3).then_some(seen) }
        });
        assert_eq!(value.await, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "still failing: \"no\"")]
    async fn panics_with_the_last_answer() {
        eventually(Duration::from_secs(1), || async { Err::<(), _>("no") }).await;
    }
}
