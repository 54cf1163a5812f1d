//! What is taken of one device, and by which claim.
//!
//! Results with admin access occupy nothing and never come here.

use std::collections::BTreeMap;

use resource_api::claim::DeviceRequestAllocationResult;
use resource_api::ids::Uid;
use resource_api::quantity::Quantity;
use resource_api::slice::QualifiedName;
use smallvec::SmallVec;

use crate::amount::Amount;
use crate::features::Features;

/// The holders of a device: normally one, or several shares.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceUse {
    whole: SmallVec<[Uid; 1]>,
    shares: Vec<Share>,
}

#[derive(Clone, Debug)]
struct Share {
    claim: Uid,
    consumed: BTreeMap<QualifiedName, Quantity>,
}

impl DeviceUse {
    pub(crate) fn add(&mut self, claim: Uid, result: &DeviceRequestAllocationResult) {
        if result.share_id.is_none() {
            self.whole.push(claim);
        } else {
            self.shares.push(Share {
                claim,
                consumed: result.consumed_capacity.clone(),
            });
        }
    }

    /// `true`: nobody is left.
    pub(crate) fn remove(&mut self, claim: Uid) -> bool {
        self.whole.retain(|holder| *holder != claim);
        self.shares.retain(|share| share.claim != claim);
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

    /// A claim that holds it whole, or else one with a share.
    pub(crate) fn holder(&self) -> Option<Uid> {
        self.whole
            .first()
            .copied()
            .or_else(|| self.shares.first().map(|share| share.claim))
    }
}
