//! The structured-parameters allocator: given what devices there are and what is taken, which devices does a unit get?
//!
//! [`Cluster`] holds the facts, [`compile_unit`] prepares what is asked for, [`allocate_on`] decides for one node and
//! [`place`] finds the node. Pure: no I/O, no clock, no randomness; equal input gives equal plans. First fit answers as
//! the upstream allocator does (k8s.io/dynamic-resource-allocation v0.37.2); README.md says how it gets there faster.

mod amount;
mod bits;
mod bounds;
mod capacity;
mod check;
mod cluster;
pub mod conformance;
mod constraint;
mod counters;
mod explain;
mod fault;
mod features;
mod holdings;
mod layout;
mod learned;
mod limits;
mod node_index;
mod node_view;
mod packed;
mod place;
mod plan;
mod policy;
mod pool;
mod pool_view;
mod request;
mod search;
mod selectors;
mod signature;
mod symmetry;
mod taints;
mod values;
mod wake;

use std::sync::Arc;

use resource_api::claim::ResourceClaim;

pub use check::{Violation, check};
pub use cluster::{Cluster, NodeFacts, NodeOrder, Stats};
pub use explain::{Change, Explanation, NearestMiss, Reason, RequestReasons, Unallocatable, UnallocatableKind, explain};
pub use fault::{Fault, FaultKind, Scope};
pub use features::Features;
pub use limits::{Limits, RESULTS_PER_CLAIM_MAX};
pub use place::{allocate_on, place};
pub use plan::Plan;
pub use policy::{Policy, UnknownPolicy};
pub use request::CompiledUnit;
pub use signature::Signature;
pub use wake::wake_matches;

/// Prepares a unit: its claims in the order in which they are to be allocated. Their status is not looked at.
///
/// The result holds the device classes as they are now: compile again after a class changed.
/// Error: a fault of the claims that no node can change, for example an unknown class; other faults show when a node is
/// tried. Cost: compiles expressions not seen before, about 10 µs each.
pub fn compile_unit(cluster: &Cluster, claims: &[Arc<ResourceClaim>]) -> Result<CompiledUnit, Unallocatable> {
    request::compile(cluster, claims).map_err(Unallocatable::fault)
}
