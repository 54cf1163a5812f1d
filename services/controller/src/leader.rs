//! One leader among many: the living member with the smallest id, by Postgres's clock. Two leaders for a moment do no harm: whatever they
//! write is conditional on the state they read, so leadership only saves work.

use std::time::Duration;

use store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const SERVICE: &str = "controller";

/// Beats until `stop` and says in `leading` whether this process leads.
pub(crate) async fn run(store: Store, id: String, ttl: Duration, leading: watch::Sender<bool>, stop: CancellationToken) {
    let mut every = tokio::time::interval(ttl / 3);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            _ = every.tick() => {}
        }
        let leads = match store.beat(SERVICE, &id, ttl).await {
            Ok(members) => members.first().is_some_and(|first| first.id == id),
            Err(error) => {
                tracing::warn!(error = %error, "the controller cannot beat; it does not lead until it can");
                false
            }
        };
        if leading.send_replace(leads) != leads {
            tracing::info!(leads, "leadership changed");
        }
    }
    leading.send_replace(false);
    if !matches!(
        tokio::time::timeout(Duration::from_secs(2), store.leave(SERVICE, &id)).await,
        Ok(Ok(()))
    ) {
        tracing::debug!("could not leave; the next leader waits for the lifetime");
    }
}
