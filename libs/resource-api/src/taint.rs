//! Taints on devices, rules that put them there and the tolerations that ignore them. KEP-5055.

use serde::{Deserialize, Serialize};

use crate::ids::{DeviceName, DriverName, PoolName};
use crate::meta::{Condition, ObjectMeta};
use crate::wire::{ResourceV1, Time, is_empty, open_enum, or_default};

open_enum! {
    /// What a taint does to claims that do not tolerate it. Consumers treat unknown words as `None`.
    DeviceTaintEffect {
        /// Informational; in a rule it shows what an eviction would touch.
        None,
        /// No new allocation.
        NoSchedule,
        /// No new allocation, and users of the device are evicted.
        NoExecute,
    }
}

/// A reason not to use a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceTaint {
    /// Label key.
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    /// Label value, may be empty.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub value: String,
    #[serde(deserialize_with = "or_default")]
    pub effect: DeviceTaintEffect,
    /// Start of toleration times; set to the time of the write when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Time>,
}

open_enum! {
    /// How a toleration compares values.
    DeviceTolerationOperator { Equal, Exists }
}

/// Lets a request use devices with matching taints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceToleration {
    /// Empty: all keys.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub key: String,
    /// Defaulted to `Equal`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub operator: DeviceTolerationOperator,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub value: String,
    /// Empty: all effects.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub effect: DeviceTaintEffect,
    /// Seconds for which `NoExecute` is tolerated; unset: forever, 0 or less: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// Adds a taint to devices from outside of their driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", tag = "kind")]
pub struct DeviceTaintRule {
    pub api_version: ResourceV1,
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: DeviceTaintRuleSpec,
    #[serde(deserialize_with = "or_default")]
    pub status: DeviceTaintRuleStatus,
}

/// Which devices get which taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceTaintRuleSpec {
    /// Unset selects no device, an empty selector selects all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_selector: Option<DeviceTaintSelector>,
    #[serde(deserialize_with = "or_default")]
    pub taint: DeviceTaint,
}

/// Selects devices by identity; everything that is set must be equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceTaintSelector {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceName>,
}

/// What the eviction controller reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceTaintRuleStatus {
    /// By type; at most 8.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub conditions: Vec<Condition>,
}
