//! Announces commits whose announcement was lost: follows the log like everybody, and what had to be read from Postgres is published.
//! While nothing is lost it publishes nothing.

use bus::Bus;
use follower::{Follower, to_batch};
use store::Store;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// The kinds that others follow.
const KINDS: [&str; 8] = [
    store::GATES_KIND,
    "deviceclasses",
    "devicetaintrules",
    "nodes",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourceslices",
    "units",
];

/// Relays while this process leads, until `stop`.
pub(crate) async fn run(store: Store, bus: Bus, id: String, leading: watch::Receiver<bool>, stop: CancellationToken) {
    let Some(from) = head(&store, &stop).await else { return };
    let (batches, mut events) = mpsc::channel(follower::BATCHES_MAX);
    let follow = Follower::new(store, bus.clone(), &KINDS, from).run(batches, stop.clone());
    let relay = async {
        while let Some(batch) = events.recv().await {
            if batch.read_back && !batch.events.is_empty() && *leading.borrow() {
                tracing::debug!(kind = %batch.kind, last = batch.last, "announcing what was not announced");
                bus.publish_events(&to_batch(&batch.kind, batch.prev, batch.last, &batch.events, &id), None);
            }
        }
    };
    tokio::join!(follow, relay);
}

async fn head(store: &Store, stop: &CancellationToken) -> Option<u64> {
    loop {
        match store.head().await {
            Ok(head) => return Some(head.sequence),
            Err(error) => tracing::warn!(error = %error, "the database does not answer yet"),
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(std::time::Duration::from_millis(500)) => {}
        }
    }
}
