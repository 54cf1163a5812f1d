//! Which shards are mine: beats, computes owners by rendezvous hashing over the living, lets go what is no longer mine, takes what is free.
//! No process leads; expiry is judged by Postgres.

use std::collections::HashMap;
use std::time::Duration;

use resource_api::shard::rendezvous_owner;
use store::{Lease, Store, StoreError};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::engine::Input;

/// The service's name in `members`.
pub(crate) const SERVICE: &str = "allocator";

pub(crate) struct Keeper {
    pub(crate) store: Store,
    pub(crate) id: String,
    pub(crate) ttl: Duration,
    /// Position of the log that the engine has been given.
    pub(crate) position: watch::Receiver<u64>,
    pub(crate) inputs: mpsc::Sender<Input>,
}

impl Keeper {
    /// Keeps the leases until `stop`, then lets all go.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut every = tokio::time::interval(self.ttl / 3);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut mine: HashMap<u16, u64> = HashMap::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = every.tick() => {}
            }
            match self.round(&mut mine).await {
                Ok(()) => {}
                Err(error) => tracing::warn!(error = %error, "the leases could not be renewed; trying again"),
            }
        }
        self.let_go(mine).await;
    }

    async fn round(&mut self, mine: &mut HashMap<u16, u64>) -> Result<(), StoreError> {
        let members = self.store.beat(SERVICE, &self.id, self.ttl).await?;
        let leases = self.store.shard_leases().await?;
        let wanted = |shard: u16| rendezvous_owner(shard, members.iter().map(|m| m.id.as_str())) == Some(self.id.as_str());

        let surplus: Vec<u16> = mine.keys().copied().filter(|shard| !wanted(*shard)).collect();
        if !surplus.is_empty() {
            // The engine stops deciding for them first; what it has under way is refused by the new epoch and tried by the new owner.
            mine.retain(|shard, _| !surplus.contains(shard));
            self.publish(&leases, mine).await;
            self.store.release_shards(&self.id, &surplus).await?;
        }
        let free: Vec<u16> = leases
            .iter()
            .filter(|lease| wanted(lease.shard) && !mine.contains_key(&lease.shard) && (lease.owner.is_none() || !lease.alive))
            .map(|lease| lease.shard)
            .collect();
        let leases = if free.is_empty() && surplus.is_empty() {
            leases
        } else {
            let taken = self.store.take_shards(&self.id, &free).await?;
            if !taken.is_empty() {
                tracing::info!(shards = taken.len(), "took shards over");
                mine.extend(taken);
                self.catch_up().await?;
            }
            self.store.shard_leases().await?
        };
        // A lease that somebody took from us (we were silent too long) is no longer ours, whatever we remember.
        mine.retain(|shard, epoch| {
            leases
                .get(usize::from(*shard))
                .is_some_and(|l| l.epoch == *epoch && l.owner.as_deref() == Some(self.id.as_str()))
        });
        self.publish(&leases, mine).await;
        Ok(())
    }

    /// Waits until the engine has seen everything that was committed under earlier epochs.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let head = self.store.head().await?.sequence;
        let seen = self.position.wait_for(|position| *position >= head);
        if tokio::time::timeout(self.ttl, seen).await.is_err() {
            tracing::warn!(
                head,
                "the log is behind; deciding starts once it has caught up, commits are checked in any case"
            );
        }
        Ok(())
    }

    async fn publish(&self, leases: &[Lease], mine: &HashMap<u16, u64>) {
        let epochs = leases
            .iter()
            .map(|l| mine.get(&l.shard).copied().unwrap_or(l.epoch))
            .collect();
        let owned = leases.iter().map(|l| mine.contains_key(&l.shard)).collect();
        if self.inputs.send(Input::Leases { epochs, mine: owned }).await.is_err() {
            tracing::debug!("the engine has stopped");
        }
    }

    async fn let_go(&self, mine: HashMap<u16, u64>) {
        let shards: Vec<u16> = mine.into_keys().collect();
        let gone = async {
            self.store.release_shards(&self.id, &shards).await?;
            self.store.leave(SERVICE, &self.id).await
        };
        match tokio::time::timeout(Duration::from_secs(5), gone).await {
            Ok(Ok(())) => tracing::info!(shards = shards.len(), "let all shards go"),
            _ => tracing::warn!("the shards could not be let go; they move when the lease expires"),
        }
    }
}
