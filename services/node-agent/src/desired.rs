//! What should be prepared here, by the server's word: a whole list first, then changes.
//!
//! The agent never goes back in the log: a word that is older than what was acted upon (another ingest that lags) is
//! refused, so that "wanted" cannot return after "not wanted". This file follows the stream; it decides nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use chassis::Backoff;
use resource_api::{Sequence, Uid};
use rpc::dray::v1 as pb;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::allocation::{Allocation, AllocationKey, GivenDevice};
use crate::server::Server;

/// Updates on their way to the agent; the stream's flow control holds back the rest.
pub(crate) const UPDATES_MAX: usize = 64;
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(10);
/// Nodes per registration call: small against the server's message limit.
const NODES_PER_CALL: usize = 1_000;

/// A claim's devices and whether they are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) wanted: bool,
    pub(crate) allocation: Allocation,
    /// W3C trace context of the submission; may be empty.
    pub(crate) traceparent: String,
}

/// The server's list as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Desired {
    /// Everything up to here is in it.
    pub(crate) position: Sequence,
    pub(crate) wishes: BTreeMap<AllocationKey, Wish>,
}

impl Desired {
    /// The wishes for one claim, oldest allocation first.
    pub(crate) fn of(&self, claim: Uid) -> impl DoubleEndedIterator<Item = (AllocationKey, &Wish)> {
        let ends = |sequence| AllocationKey {
            claim,
            sequence: Sequence(sequence),
        };
        self.wishes.range(ends(0)..=ends(u64::MAX)).map(|(key, wish)| (*key, wish))
    }

    /// The allocation of `claim` that is wanted. Of several only the newest can be: the others' end was missed.
    pub(crate) fn wanted(&self, claim: Uid) -> Option<(AllocationKey, &Wish)> {
        self.of(claim).rfind(|(_, wish)| wish.wanted)
    }
}

/// What the stream says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// Everything, instead of what was known.
    List(Desired),
    /// These, over what is known.
    Changes(Desired),
}

/// Applies `update`; the first list makes the state known.
pub(crate) fn apply(known: &mut Option<Desired>, update: Update) {
    match (update, known.as_mut()) {
        (Update::Changes(changes), Some(desired)) => {
            desired.position = desired.position.max(changes.position);
            desired.wishes.extend(changes.wishes);
        }
        (Update::List(list), _) => *known = Some(list),
        // The follower sends a list first.
        (Update::Changes(_), None) => {}
    }
}

/// Whom the agent speaks for.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) agent_id: String,
    /// New after each loss of the local state.
    pub(crate) epoch: String,
    /// May grow: then everything is registered, and the list begun, again.
    pub(crate) nodes: watch::Receiver<Vec<pb::AgentNode>>,
}

/// Nodes that never change.
pub(crate) fn fixed(nodes: Vec<pb::AgentNode>) -> watch::Receiver<Vec<pb::AgentNode>> {
    watch::Sender::new(nodes).subscribe()
}

/// Registers and follows until `stop`, again after each failure. `acted_on`: the position to start from at least.
pub(crate) async fn follow(
    server: Server,
    mut identity: Identity,
    acted_on: Sequence,
    updates: mpsc::Sender<Update>,
    stop: CancellationToken,
) {
    let mut position = acted_on;
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_CAP);
    loop {
        let followed = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            followed = follow_once(&server, &mut identity, &mut position, &updates, &mut backoff) => followed,
        };
        match followed {
            Err(FollowError::Gone) => return,
            Err(error) => {
                tracing::warn!(error = %error, attempt = backoff.failures(), "cannot follow what is wanted on this node; trying again");
            }
            Ok(()) => tracing::debug!("the stream ended, or there are more nodes; opening it again"),
        }
        let wait = backoff.next_wait(&mut rand::rng());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error("{}: {}", .0.code(), .0.message())]
    Server(#[from] Box<tonic::Status>),
    /// Another ingest is ahead; this one will be, too.
    #[error("the server's word is as of {found}, but {acted_on} was acted upon")]
    Stale { found: Sequence, acted_on: Sequence },
    #[error("the agent has stopped")]
    Gone,
}

async fn follow_once(
    server: &Server,
    identity: &mut Identity,
    position: &mut Sequence,
    updates: &mpsc::Sender<Update>,
    backoff: &mut Backoff,
) -> Result<(), FollowError> {
    // Of no nodes there is nothing to ask.
    while identity.nodes.borrow_and_update().is_empty() {
        more(&mut identity.nodes).await;
    }
    register(server, identity).await?;
    let mut stream = server.desired(&identity.agent_id).await.map_err(Box::new)?;
    let mut reading = Reading::new(*position);
    loop {
        // A list that began is read to its end, so that nodes that keep coming do not keep everything from being known.
        let message = tokio::select! {
            message = stream.message() => message.map_err(Box::new)?,
            () = more(&mut identity.nodes), if reading.list.is_none() => return Ok(()),
        };
        let Some(message) = message else { return Ok(()) };
        if let Some(update) = reading.take(message.synced, read(message))? {
            backoff.reset();
            *position = reading.position;
            updates.send(update).await.map_err(|_| FollowError::Gone)?;
        }
    }
}

/// Messages of one stream on their way to become updates. Pure.
struct Reading {
    /// The newest position that was acted upon.
    position: Sequence,
    /// The list as far as it has come; `None` once it is complete.
    list: Option<Desired>,
}

impl Reading {
    fn new(position: Sequence) -> Self {
        Self {
            position,
            list: Some(Desired::default()),
        }
    }

    /// The update that `part` makes; `Stale` if it completes a list that is older than what was acted upon.
    ///
    /// Changes that are older are left out, and nothing is lost: the server begins its changes a little before the list,
    /// so the list has them, and whatever happened later comes as a change of its own.
    fn take(&mut self, synced: bool, part: Desired) -> Result<Option<Update>, FollowError> {
        let Some(mut begun) = self.list.take() else {
            if part.position < self.position {
                return Ok(None);
            }
            self.position = part.position;
            return Ok(Some(Update::Changes(part)));
        };
        begun.position = begun.position.max(part.position);
        begun.wishes.extend(part.wishes);
        if !synced {
            self.list = Some(begun);
            return Ok(None);
        }
        if begun.position < self.position {
            return Err(FollowError::Stale {
                found: begun.position,
                acted_on: self.position,
            });
        }
        self.position = begun.position;
        Ok(Some(Update::List(begun)))
    }
}

/// Waits for the set of nodes to change; forever if it never will.
async fn more(nodes: &mut watch::Receiver<Vec<pb::AgentNode>>) {
    if nodes.changed().await.is_err() {
        std::future::pending().await
    }
}

async fn register(server: &Server, identity: &Identity) -> Result<(), FollowError> {
    let nodes = identity.nodes.borrow().clone();
    for nodes in nodes.chunks(NODES_PER_CALL) {
        let request = pb::RegisterAgentsRequest {
            agent_id: identity.agent_id.clone(),
            epoch: identity.epoch.clone(),
            nodes: nodes.to_vec(),
        };
        server.register(request).await.map_err(Box::new)?;
    }
    Ok(())
}

/// Reads a message. A claim without a uid cannot be acted upon, nor reported on; it is left out and logged.
fn read(message: pb::DesiredClaims) -> Desired {
    let wishes = message.claims.into_iter().filter_map(|claim| {
        let Ok(uid) = claim.uid.parse::<Uid>() else {
            tracing::error!(
                uid = claim.uid,
                claim.namespace,
                claim.name,
                "the server names a claim by something that is no uid"
            );
            return None;
        };
        let key = AllocationKey {
            claim: uid,
            sequence: Sequence(claim.allocation_sequence),
        };
        let device = |given: pb::AllocatedDevice| GivenDevice {
            request: given.request,
            driver: given.driver.into(),
            pool: given.pool.into(),
            device: given.device.into(),
        };
        let allocation = Allocation {
            node: claim.node,
            namespace: claim.namespace,
            name: claim.name,
            devices: claim.devices.into_iter().map(device).collect(),
        };
        Some((
            key,
            Wish {
                wanted: claim.wanted,
                allocation,
                traceparent: claim.traceparent,
            },
        ))
    });
    Desired {
        position: Sequence(message.sequence),
        wishes: wishes.collect(),
    }
}

#[cfg(test)]
mod tests;
