//! From the results of an allocation, and the slices that publish their pools, to the rows that a commit takes. Pure.
//!
//! The only place that knows which result occupies what; every writer of allocations goes through it: allocators, and whoever writes a
//! claim's status. The commit then checks and records the rows, see `dray_commit`.

use std::collections::BTreeMap;
use std::sync::Arc;

use resource_api::claim::DeviceRequestAllocationResult;
use resource_api::device::Device;
use resource_api::ids::{DeviceId, PoolId};
use resource_api::quantity::Quantity;
use resource_api::slice::ResourceSlice;
use uuid::Uuid;

use crate::mutation::{Consumed, DeviceDraw, Draw, Mutation, PoolDraws, Presence, Take, TakeShare};

/// A pool as its newest generation of slices says it is.
#[derive(Clone, Debug, Default)]
pub struct PublishedPool<'a> {
    slices: Vec<&'a ResourceSlice>,
    counted: bool,
}

/// A result that cannot be taken, whatever is free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    #[error("device {device} is allocated twice")]
    Twice { result: usize, device: DeviceId },
    #[error("device {device} is allocated whole and in shares")]
    WholeAndShared { result: usize, device: DeviceId },
    #[error("share {share_id} of device {device} is allocated twice")]
    ShareTwice {
        result: usize,
        device: DeviceId,
        share_id: String,
    },
    #[error("device {device} has no capacity {capacity}")]
    NoSuchCapacity {
        result: usize,
        device: DeviceId,
        capacity: String,
    },
    #[error("capacity {capacity} of device {device} cannot be consumed by a negative amount")]
    Negative {
        result: usize,
        device: DeviceId,
        capacity: String,
    },
}

impl TakeError {
    /// Index of the result that is wrong, in the list that was given.
    pub fn result(&self) -> usize {
        match self {
            Self::Twice { result, .. }
            | Self::WholeAndShared { result, .. }
            | Self::ShareTwice { result, .. }
            | Self::NoSuchCapacity { result, .. }
            | Self::Negative { result, .. } => *result,
        }
    }
}

/// A counter of a pool: set and name.
type CounterName<'a> = (&'a str, &'a str);

impl<'a> PublishedPool<'a> {
    /// From the slices of one pool, of any generation.
    pub fn of(slices: impl IntoIterator<Item = &'a ResourceSlice>) -> Self {
        let mut newest: Vec<&ResourceSlice> = Vec::new();
        for slice in slices {
            let generation = slice.spec.pool.generation;
            let known = newest.first().map(|slice| slice.spec.pool.generation);
            if known.is_some_and(|known| generation < known) {
                continue;
            }
            if known.is_some_and(|known| generation > known) {
                newest.clear();
            }
            newest.push(slice);
        }
        let counted = newest.iter().any(|slice| !slice.spec.shared_counters().is_empty());
        Self { slices: newest, counted }
    }

    /// It has counters.
    pub fn is_counted(&self) -> bool {
        self.counted
    }

    /// The device of this name. O(devices of the pool).
    pub fn device(&self, name: &str) -> Option<&'a Device> {
        let mut devices = self.slices.iter().flat_map(|slice| slice.spec.devices());
        devices.find(|device| *device.name == *name)
    }

    /// What all devices draw, to be stated with a write of the pool's slices.
    pub fn draws(&self, pool: &PoolId) -> PoolDraws {
        let mut draws = Vec::new();
        if self.counted {
            for device in self.slices.iter().flat_map(|slice| slice.spec.devices()) {
                for ((counter_set, counter), amount) in draws_of(device) {
                    draws.push(DeviceDraw {
                        device: device.name.as_str().into(),
                        counter_set: counter_set.into(),
                        counter: counter.into(),
                        amount,
                    });
                }
            }
        }
        PoolDraws {
            driver: pool.driver.as_str().into(),
            pool: pool.pool.as_str().into(),
            counted: self.counted,
            draws,
        }
    }

    /// What the pool has of a counter: nothing of one that it does not publish.
    fn top(&self, (counter_set, counter): CounterName<'_>) -> Quantity {
        let mut sets = self.slices.iter().flat_map(|slice| slice.spec.shared_counters());
        let set = sets.find(|set| set.name == counter_set);
        let top = set.and_then(|set| set.counters.get(counter));
        top.map(|counter| counter.value.clone()).unwrap_or_default()
    }
}

/// What a device draws while it is in use, each counter once.
fn draws_of(device: &Device) -> BTreeMap<CounterName<'_>, Quantity> {
    let mut draws: BTreeMap<CounterName<'_>, Quantity> = BTreeMap::new();
    for from in &device.consumes_counters {
        for (counter, amount) in &from.counters {
            let sum = draws.entry((&from.counter_set, counter)).or_default();
            *sum = sum.plus(&amount.value);
        }
    }
    draws
}

impl Mutation {
    /// Adds the rows that an allocation takes.
    ///
    /// - `write`: index of the claim's write. `pools`: what is published, at the inventory versions that the mutation checks; a pool that
    ///   is left out is one that nobody publishes.
    /// - A result with admin access occupies nothing; one with a share id, the share and what it consumes; any other, the whole device.
    ///   Whatever comes into use is charged to the counters that its device draws on.
    /// - Error: the first result that contradicts another of the mutation or what is published. The mutation must not be committed then.
    pub fn take(
        &mut self,
        write: usize,
        claim: Uuid,
        results: &[DeviceRequestAllocationResult],
        pools: &BTreeMap<PoolId, PublishedPool<'_>>,
    ) -> Result<(), TakeError> {
        for (index, result) in results.iter().enumerate() {
            if result.admin_access == Some(true) {
                self.be_present(write, claim, result);
                continue;
            }
            let published = pools.get(&result.pool_id());
            match &result.share_id {
                None => self.take_whole(write, claim, index, result)?,
                Some(share_id) => self.take_share(write, claim, index, (result, share_id.as_str()), published)?,
            }
            self.draw(result, published);
        }
        if results.is_empty() {
            self.be_present(write, claim, &DeviceRequestAllocationResult::default());
        }
        Ok(())
    }

    fn be_present(&mut self, write: usize, claim: Uuid, result: &DeviceRequestAllocationResult) {
        let presence = Presence {
            write,
            driver: result.driver.as_str().into(),
            pool: result.pool.as_str().into(),
            device: result.device.as_str().into(),
            share_id: result.share_id.as_ref().map(|id| id.as_str()).unwrap_or_default().into(),
            claim,
        };
        // Two requests of a claim may look at one device.
        if !self.presences.contains(&presence) {
            self.presences.push(presence);
        }
    }

    fn take_whole(
        &mut self,
        write: usize,
        claim: Uuid,
        index: usize,
        result: &DeviceRequestAllocationResult,
    ) -> Result<(), TakeError> {
        let is_same =
            |driver: &str, pool: &str, device: &str| result.device == *device && result.pool == *pool && result.driver == *driver;
        if self.takes.iter().any(|t| is_same(&t.driver, &t.pool, &t.device)) {
            return Err(TakeError::Twice {
                result: index,
                device: result.device_id(),
            });
        }
        if self.shares.iter().any(|s| is_same(&s.driver, &s.pool, &s.device)) {
            return Err(TakeError::WholeAndShared {
                result: index,
                device: result.device_id(),
            });
        }
        self.takes.push(Take {
            write,
            driver: result.driver.as_str().into(),
            pool: result.pool.as_str().into(),
            device: result.device.as_str().into(),
            claim,
        });
        Ok(())
    }

    fn take_share(
        &mut self,
        write: usize,
        claim: Uuid,
        index: usize,
        (result, share_id): (&DeviceRequestAllocationResult, &str),
        published: Option<&PublishedPool<'_>>,
    ) -> Result<(), TakeError> {
        let is_same =
            |driver: &str, pool: &str, device: &str| result.device == *device && result.pool == *pool && result.driver == *driver;
        if self.takes.iter().any(|t| is_same(&t.driver, &t.pool, &t.device)) {
            return Err(TakeError::WholeAndShared {
                result: index,
                device: result.device_id(),
            });
        }
        let mut shares = self.shares.iter();
        if shares.any(|s| is_same(&s.driver, &s.pool, &s.device) && *s.share_id == *share_id) {
            return Err(TakeError::ShareTwice {
                result: index,
                device: result.device_id(),
                share_id: share_id.to_owned(),
            });
        }
        let device = published.and_then(|pool| pool.device(&result.device));
        let mut consumed = Vec::with_capacity(result.consumed_capacity.len());
        for (capacity, amount) in &result.consumed_capacity {
            if amount.signum() < 0 {
                return Err(TakeError::Negative {
                    result: index,
                    device: result.device_id(),
                    capacity: capacity.clone(),
                });
            }
            let top = match device.map(|device| device.capacity.get(capacity)) {
                None => None,
                Some(Some(of_device)) => Some(of_device.value.clone()),
                Some(None) => {
                    return Err(TakeError::NoSuchCapacity {
                        result: index,
                        device: result.device_id(),
                        capacity: capacity.clone(),
                    });
                }
            };
            consumed.push(Consumed {
                capacity: capacity.as_str().into(),
                amount: amount.clone(),
                top,
            });
        }
        self.shares.push(TakeShare {
            write,
            driver: result.driver.as_str().into(),
            pool: result.pool.as_str().into(),
            device: result.device.as_str().into(),
            share_id: share_id.into(),
            claim,
            consumed,
        });
        Ok(())
    }

    /// Once for a device, however many of its shares the mutation takes.
    fn draw(&mut self, result: &DeviceRequestAllocationResult, published: Option<&PublishedPool<'_>>) {
        let Some(published) = published.filter(|pool| pool.is_counted()) else {
            return;
        };
        let is_same = |draw: &Draw| result.device == *draw.device && result.pool == *draw.pool && result.driver == *draw.driver;
        if self.draws.iter().any(is_same) {
            return;
        }
        let Some(device) = published.device(&result.device) else {
            return;
        };
        let (driver, pool): (Arc<str>, Arc<str>) = (result.driver.as_str().into(), result.pool.as_str().into());
        for (counter, amount) in draws_of(device) {
            self.draws.push(Draw {
                driver: driver.clone(),
                pool: pool.clone(),
                device: device.name.as_str().into(),
                counter_set: counter.0.into(),
                counter: counter.1.into(),
                amount,
                top: published.top(counter),
            });
        }
    }
}

#[cfg(test)]
mod tests;
