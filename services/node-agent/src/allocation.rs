//! What the agent knows of one allocation: its name among all that a claim ever had, its devices, what drivers made of
//! them. Plain data; what is done with it is in `decide.rs`.

use std::collections::BTreeSet;

use resource_api::{DeviceName, DriverName, PoolName, Sequence, Uid};
use serde::{Deserialize, Serialize};

/// Names one allocation: a claim that is allocated again later has another `sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AllocationKey {
    pub(crate) claim: Uid,
    /// The log position of the commit that allocated.
    pub(crate) sequence: Sequence,
}

impl std::fmt::Display for AllocationKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.claim, self.sequence)
    }
}

/// A claim's devices on a node. Kept with the local state, since the claim may be gone when they are unprepared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Allocation {
    pub(crate) node: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) devices: Vec<GivenDevice>,
}

/// One allocated device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GivenDevice {
    pub(crate) request: String,
    pub(crate) driver: DriverName,
    pub(crate) pool: PoolName,
    pub(crate) device: DeviceName,
}

/// A device as its driver prepared it. Source: `Device` of the kubelet's DRA plugin API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreparedDevice {
    pub(crate) pool: PoolName,
    pub(crate) device: DeviceName,
    /// May be empty.
    pub(crate) cdi_device_ids: Vec<String>,
    /// Empty: the device belongs to every request of the claim.
    pub(crate) request_names: Vec<String>,
    pub(crate) share_id: Option<String>,
}

impl Allocation {
    /// The drivers that must prepare something, sorted.
    pub(crate) fn drivers(&self) -> BTreeSet<&DriverName> {
        self.devices.iter().map(|device| &device.driver).collect()
    }
}
