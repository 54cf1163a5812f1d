//! Keeps the log and the submission records bounded, a small piece at a time.

use store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Config;

/// Rows removed in one statement: small enough to never hold anybody up.
const PIECE: u32 = 5_000;
/// Pieces in one go; the rest waits for the next.
const PIECES_MAX: usize = 200;

/// Removes what is too old, while this process leads, until `stop`.
pub(crate) async fn run(store: Store, config: Config, leading: watch::Receiver<bool>, stop: CancellationToken) {
    let mut every = tokio::time::interval(config.retention_every);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = every.tick() => {}
        }
        if !*leading.borrow() {
            continue;
        }
        for _ in 0..PIECES_MAX {
            if stop.is_cancelled() {
                return;
            }
            let events = store.trim_log(config.keep_events, PIECE).await;
            let records = store.trim_records(config.keep_records, PIECE).await;
            match (events, records) {
                (Ok(events), Ok(records)) => {
                    if events + records > 0 {
                        tracing::debug!(events, records, "old rows removed");
                    }
                    if events < u64::from(PIECE) && records < u64::from(PIECE) {
                        break;
                    }
                }
                (Err(error), _) | (_, Err(error)) => {
                    tracing::warn!(error = %error, "old rows could not be removed; trying again later");
                    break;
                }
            }
        }
    }
}
