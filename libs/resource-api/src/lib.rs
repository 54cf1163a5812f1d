//! The objects of the `resource.k8s.io` API and Dray's own, as plain data: their shape, defaults, field gates and
//! validation rules.
//!
//! Pure: no clock, no randomness, no input or output. CEL expressions are not understood here; validation asks a
//! [`validation::ExpressionChecker`]. Semantics follow Kubernetes v1.37.

pub mod claim;
pub mod class;
pub mod defaults;
pub mod device;
pub mod dropping;
pub mod extent;
pub mod field_path;
pub mod gates;
pub mod ids;
pub mod meta;
pub mod names;
pub mod node;
pub mod object;
pub mod pool_status;
pub mod prepare;
pub mod quantity;
pub mod shard;
pub mod slice;
pub mod taint;
pub mod template;
pub mod unit;
pub mod validation;
pub mod version;
pub mod wire;

pub use ids::{DeviceId, DeviceName, DriverName, PoolId, PoolName, Sequence, ShareId, SharedDeviceId, Uid};
pub use meta::ObjectMeta;
pub use object::{AnyObject, DecodeError, Kind, Object};
pub use quantity::Quantity;
pub use wire::{RawJson, Time};

mod objects_only;
#[cfg(test)]
mod tests;
