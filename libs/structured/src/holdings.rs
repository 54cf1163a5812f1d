//! What is taken of one device, and by which claim.
//!
//! Results with admin access occupy nothing and never come here.

use std::collections::BTreeMap;
use std::sync::Arc;

use resource_api::claim::DeviceRequestAllocationResult;
use resource_api::ids::{DeviceName, ShareId, Uid};
use resource_api::quantity::Quantity;
use resource_api::slice::QualifiedName;
use smallvec::SmallVec;

use crate::amount::Amount;
use crate::cluster::PoolIndex;
use crate::features::Features;

/// The holders of a device: normally one, or several shares.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceUse {
    whole: SmallVec<[Uid; 1]>,
    shares: Vec<Arc<Share>>,
}

/// One share of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    claim: Uid,
    id: ShareId,
    consumed: BTreeMap<QualifiedName, Quantity>,
}

/// A device that a claim holds, or a share of it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) pool: PoolIndex,
    pub(crate) device: DeviceName,
    pub(crate) share: Option<Arc<Share>>,
}

impl Held {
    pub(crate) fn of(claim: Uid, result: &DeviceRequestAllocationResult, pool: PoolIndex) -> Self {
        let share = result.share_id.as_ref().map(|id| Share {
            claim,
            id: id.clone(),
            consumed: result.consumed_capacity.clone(),
        });
        Self {
            pool,
            device: result.device.clone(),
            share: share.map(Arc::new),
        }
    }

    /// Whether it is what the result says, given that the pool is.
    pub(crate) fn is_as(&self, result: &DeviceRequestAllocationResult) -> bool {
        self.device == result.device
            && match (&self.share, &result.share_id) {
                (None, None) => true,
                (Some(share), Some(id)) => share.id == *id && share.consumed == result.consumed_capacity,
                (None, Some(_)) | (Some(_), None) => false,
            }
    }
}

impl DeviceUse {
    pub(crate) fn add(&mut self, claim: Uid, held: &Held) {
        match &held.share {
            None => self.whole.push(claim),
            Some(share) => self.shares.push(Arc::clone(share)),
        }
    }

    pub(crate) fn remove(&mut self, claim: Uid) {
        self.whole.retain(|holder| *holder != claim);
        self.shares.retain(|share| share.claim != claim);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.shares.is_empty()
    }

    /// Held as a whole. While shares are switched off, so is a device with one.
    pub(crate) fn is_held(&self, features: Features) -> bool {
        !self.whole.is_empty() || (!features.consumable_capacity && !self.shares.is_empty())
    }

    pub(crate) fn has_share(&self, features: Features) -> bool {
        features.consumable_capacity && !self.shares.is_empty()
    }

    /// The sum over all shares.
    pub(crate) fn consumed(&self, capacity: &str) -> Amount {
        self.shares
            .iter()
            .filter_map(|share| share.consumed.get(capacity))
            .map(Amount::of)
            .sum()
    }

    /// Everybody who holds it whole or has a share, each once.
    pub(crate) fn holders(&self) -> Vec<Uid> {
        let mut holders: Vec<Uid> = self.whole.iter().copied().collect();
        holders.extend(self.shares.iter().map(|share| share.claim));
        let mut seen = Vec::new();
        holders.retain(|holder| {
            !seen.contains(holder) && {
                seen.push(*holder);
                true
            }
        });
        holders
    }

    /// Shares consume less of a capacity, by `amount` in all, the first ones first.
    pub(crate) fn give_back(&mut self, capacity: &str, amount: &Quantity) {
        let mut left = amount.clone();
        for share in &mut self.shares {
            let Some(consumed) = Arc::make_mut(share).consumed.get_mut(capacity) else {
                continue;
            };
            let given = if *consumed < left { consumed.clone() } else { left.clone() };
            *consumed = consumed.minus(&given);
            left = left.minus(&given);
        }
    }

    /// A claim that holds it whole, or else one with a share.
    pub(crate) fn holder(&self) -> Option<Uid> {
        self.whole
            .first()
            .copied()
            .or_else(|| self.shares.first().map(|share| share.claim))
    }
}
