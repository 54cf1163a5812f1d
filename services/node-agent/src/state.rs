//! What may be prepared on this node, as far as the agent knows: the content of the checkpoint. Pure.
//!
//! An entry exists from before the first call to a driver until the server has recorded that nothing is prepared.

use std::collections::BTreeMap;

use resource_api::{DriverName, Sequence, Uid};
use serde::{Deserialize, Serialize};

use crate::allocation::{Allocation, AllocationKey, PreparedDevice};

/// Everything that must survive the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Names this unbroken life of the local state; the server learns when it changes.
    pub(crate) epoch: String,
    /// The newest log position that was acted upon.
    pub(crate) position: Sequence,
    /// Allocations up to here may have been prepared in an earlier life whose state is lost; of later ones, all are in
    /// `entries`.
    pub(crate) blind_until: Sequence,
    pub(crate) entries: BTreeMap<AllocationKey, Entry>,
}

/// One allocation for which a driver was, or may have been, asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) allocation: Allocation,
    pub(crate) phase: Phase,
    /// Drivers that may hold something; one that was never asked is not in it.
    pub(crate) drivers: BTreeMap<DriverName, AtDriver>,
}

/// Only moves forward: an allocation that began to end is never prepared again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Phase {
    /// Being prepared, or prepared.
    Wanted,
    /// Being unprepared.
    Ending,
    /// Nothing is prepared, and nothing will be.
    Ended,
}

/// What a driver may hold for an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AtDriver {
    /// A call was, or was about to be, sent; its outcome is not known.
    Asked,
    Prepared {
        devices: Vec<PreparedDevice>,
    },
}

impl State {
    /// The state of an agent that never asked any driver for anything.
    pub(crate) fn first(epoch: String) -> Self {
        Self {
            epoch,
            position: Sequence::ZERO,
            blind_until: Sequence::ZERO,
            entries: BTreeMap::new(),
        }
    }

    /// The state of an agent that forgot what it did. [`State::on_list`] ends the blindness for what comes after.
    pub(crate) fn blind(epoch: String) -> Self {
        Self {
            blind_until: Sequence(u64::MAX),
            ..Self::first(epoch)
        }
    }

    /// The server's whole list is known as of `position`: whatever an earlier life prepared was allocated before.
    pub(crate) fn on_list(&mut self, position: Sequence) {
        if position > Sequence::ZERO {
            self.blind_until = self.blind_until.min(position);
        }
    }

    /// The entries of one claim, oldest allocation first.
    pub(crate) fn of(&self, claim: Uid) -> impl Iterator<Item = (AllocationKey, &Entry)> {
        let ends = |sequence| AllocationKey {
            claim,
            sequence: Sequence(sequence),
        };
        self.entries.range(ends(0)..=ends(u64::MAX)).map(|(key, entry)| (*key, entry))
    }

    /// Before a driver is asked to prepare: from now on it may hold something.
    pub(crate) fn on_asking(&mut self, key: AllocationKey, allocation: &Allocation, driver: &DriverName) {
        let entry = self.entries.entry(key).or_insert_with(|| Entry::new(allocation));
        entry.drivers.insert(driver.clone(), AtDriver::Asked);
    }

    /// A driver prepared its devices.
    pub(crate) fn on_prepared(&mut self, key: AllocationKey, driver: &DriverName, devices: Vec<PreparedDevice>) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.drivers.insert(driver.clone(), AtDriver::Prepared { devices });
        }
    }

    /// A driver holds nothing any more.
    pub(crate) fn on_unprepared(&mut self, key: AllocationKey, driver: &DriverName) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.drivers.remove(driver);
        }
    }

    /// Moves an allocation on to `phase`, never back; one that is not known was never given to a driver.
    pub(crate) fn move_on(&mut self, key: AllocationKey, allocation: &Allocation, phase: Phase) {
        let entry = self.entries.entry(key).or_insert_with(|| Entry::new(allocation));
        entry.phase = entry.phase.max(phase);
    }

    /// Takes over an allocation from a life that is forgotten: each of its drivers may hold something.
    pub(crate) fn adopt(&mut self, key: AllocationKey, allocation: &Allocation) {
        let mut entry = Entry::new(allocation);
        entry.drivers = allocation
            .drivers()
            .into_iter()
            .map(|driver| (driver.clone(), AtDriver::Asked))
            .collect();
        self.entries.entry(key).or_insert(entry);
    }
}

impl Entry {
    fn new(allocation: &Allocation) -> Self {
        Self {
            allocation: allocation.clone(),
            phase: Phase::Wanted,
            drivers: BTreeMap::new(),
        }
    }

    /// Whether `driver` has prepared its devices.
    pub(crate) fn has_prepared(&self, driver: &DriverName) -> bool {
        matches!(self.drivers.get(driver), Some(AtDriver::Prepared { .. }))
    }

    /// All devices with their drivers, once every driver has prepared them.
    pub(crate) fn prepared(&self) -> Option<Vec<(&DriverName, &PreparedDevice)>> {
        let mut prepared = Vec::new();
        for driver in self.allocation.drivers() {
            match self.drivers.get(driver) {
                Some(AtDriver::Prepared { devices }) => prepared.extend(devices.iter().map(|device| (driver, device))),
                Some(AtDriver::Asked) | None => return None,
            }
        }
        (self.phase == Phase::Wanted).then_some(prepared)
    }
}
