//! DeviceClass: what administrators prepare so that users can ask for devices by name.

use serde::{Deserialize, Serialize};

use crate::claim::{DeviceSelector, OpaqueDeviceConfiguration};
use crate::meta::ObjectMeta;
use crate::wire::{ResourceV1, is_empty, or_default};

/// A sort of devices and their preset configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", tag = "kind")]
pub struct DeviceClass {
    pub api_version: ResourceV1,
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: DeviceClassSpec,
}

/// Selectors and configuration of a class; changes do not touch existing allocations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceClassSpec {
    /// All must be true, before those of the request; at most 32.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// Copied into allocations as `FromClass`; at most 32.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_empty")]
    pub config: Vec<DeviceClassConfiguration>,
    /// Resource name by which pods may ask for devices of this class. KEP-5004.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_resource_name: Option<String>,
}

/// One configuration entry of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeviceClassConfiguration {
    /// Required; the only sort of configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<OpaqueDeviceConfiguration>,
}
