//! The nearest miss: the smallest change of the input after which the unit would fit, as data and as text.

use std::fmt;
use std::sync::Arc;

use resource_api::ids::{DeviceId, PoolId, Uid};
use resource_api::quantity::Quantity;
use resource_api::taint::DeviceTaint;

use super::reasons::Reason;

/// Devices named one by one in the text.
const DEVICES_NAMED_MAX: usize = 3;

/// How near a refusal is to an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NearestMiss {
    /// With these changes the decision would have been yes: it was made, with them, on this node.
    WouldFit {
        /// Empty if no node is known.
        node: Arc<str>,
        /// What has to change, all of it, in the order of [`Change`]. None can be left out.
        changes: Vec<Change>,
        /// The alternatives of `firstAvailable` requests that would be used.
        alternatives: Vec<String>,
    },
    /// No change that was tried helps. The node that comes closest to having enough devices for a request.
    Short {
        /// Empty if no node is known.
        node: Arc<str>,
        /// The claim's number in the unit.
        claim: usize,
        /// `request`, or `request/alternative`.
        request: String,
        /// Devices that fit there.
        fit: u64,
        /// Devices needed.
        needed: u64,
    },
}

/// A change of the input, cheapest first: others may give something back, somebody may look after a node or a pool, the
/// claim may tolerate more (up to [`Change::MakeSchedulable`]); then it has to ask for less, or there has to be more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Holders of shares give back this much.
    FreeCapacity {
        /// The shared device.
        device: DeviceId,
        /// Name of the capacity.
        capacity: String,
        /// How much is missing.
        missing: Quantity,
    },
    /// Whoever holds the device, or shares of it, gives it back.
    FreeDevice {
        /// The device.
        device: DeviceId,
        /// Who holds it.
        holders: Vec<Uid>,
    },
    /// The slices that an incomplete pool still lacks appear, or turn out not to be needed.
    CompletePool {
        /// The pool.
        pool: PoolId,
    },
    /// A pool stops contradicting itself; its devices stay as they are.
    RepairPool {
        /// The pool.
        pool: PoolId,
        /// What is wrong with it.
        problem: String,
    },
    /// A request tolerates a taint.
    Tolerate {
        /// The claim's number in the unit.
        claim: usize,
        /// `request`, or `request/alternative`.
        request: String,
        /// Key, value and effect of the taint.
        taint: DeviceTaint,
    },
    /// The node becomes schedulable.
    MakeSchedulable,
    /// A constraint is dropped.
    DropConstraint {
        /// The claim's number in the unit.
        claim: usize,
        /// The constraint's number in the claim.
        constraint: usize,
        /// For example `matchAttribute example.com/numa`.
        rule: String,
        /// The most devices free on the node that satisfy it.
        agree: u64,
        /// The devices that it covers.
        needed: u64,
    },
    /// A selector is dropped.
    DropSelector {
        /// The claim's number in the unit.
        claim: usize,
        /// `request`, or `request/alternative`.
        request: String,
        /// [`Reason::ClassSelector`] or [`Reason::RequestSelector`].
        selector: Reason,
        /// Devices of the node that match with it.
        matching: u64,
        /// Devices of the node that match without it.
        matching_without: u64,
    },
    /// A shared counter is larger.
    RaiseCounter {
        /// The pool.
        pool: PoolId,
        /// Name of the counter set.
        counter_set: String,
        /// Name of the counter.
        counter: String,
        /// How much is missing.
        missing: Quantity,
    },
    /// The device has more of a capacity.
    EnlargeDevice {
        /// The device.
        device: DeviceId,
        /// Name of the capacity.
        capacity: String,
        /// How much is missing.
        missing: Quantity,
    },
    /// The node lets drivers skip node operations.
    SkipNodeOperations,
}

impl Change {
    /// The change's place in the order of costs.
    pub(super) fn class(&self) -> u8 {
        match self {
            Self::FreeCapacity { .. } => 0,
            Self::FreeDevice { .. } => 1,
            Self::CompletePool { .. } => 2,
            Self::RepairPool { .. } => 3,
            Self::Tolerate { .. } => 4,
            Self::MakeSchedulable => 5,
            Self::DropConstraint { .. } => 6,
            Self::DropSelector { .. } => 7,
            Self::RaiseCounter { .. } => 8,
            Self::EnlargeDevice { .. } => 9,
            Self::SkipNodeOperations => 10,
        }
    }

    /// The name used in the API, for example `free-device`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::FreeCapacity { .. } => "free-capacity",
            Self::FreeDevice { .. } => "free-device",
            Self::CompletePool { .. } => "complete-pool",
            Self::RepairPool { .. } => "repair-pool",
            Self::Tolerate { .. } => "tolerate",
            Self::MakeSchedulable => "make-schedulable",
            Self::DropConstraint { .. } => "drop-constraint",
            Self::DropSelector { .. } => "drop-selector",
            Self::RaiseCounter { .. } => "raise-counter",
            Self::EnlargeDevice { .. } => "enlarge-device",
            Self::SkipNodeOperations => "skip-node-operations",
        }
    }
}

impl fmt::Display for NearestMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldFit {
                node,
                changes,
                alternatives,
            } => {
                f.write_str("would fit")?;
                if !node.is_empty() {
                    write!(f, " on {node}")?;
                }
                if !alternatives.is_empty() {
                    write!(f, " with {}", alternatives.join(" and "))?;
                }
                f.write_str(" if ")?;
                write_changes(f, changes)
            }
            Self::Short {
                node,
                request,
                fit,
                needed,
                ..
            } => {
                let node = if node.is_empty() { "what is there" } else { node };
                write!(
                    f,
                    "{node} comes closest with {fit} of {needed} devices for request {request:?}"
                )
            }
        }
    }
}

/// Devices to be freed are told together, everything else one by one.
fn write_changes(f: &mut fmt::Formatter<'_>, changes: &[Change]) -> fmt::Result {
    let freed: Vec<_> = changes
        .iter()
        .filter_map(|change| match change {
            Change::FreeDevice { device, holders } => Some((device, holders)),
            _ => None,
        })
        .collect();
    let mut is_first = true;
    let mut separate = |f: &mut fmt::Formatter<'_>| {
        let text = if is_first { "" } else { " and " };
        is_first = false;
        f.write_str(text)
    };
    match freed.as_slice() {
        [] => {}
        [(device, holders)] => {
            separate(f)?;
            write!(f, "device {device} were freed")?;
            match holders.as_slice() {
                [] => {}
                [holder] => write!(f, " (held by claim {holder})")?,
                [holder, others @ ..] => write!(f, " (held by claim {holder} and {} more)", others.len())?,
            }
        }
        several => {
            separate(f)?;
            let named: Vec<_> = several
                .iter()
                .take(DEVICES_NAMED_MAX)
                .map(|(device, _)| device.to_string())
                .collect();
            write!(f, "{} devices were freed ({}", several.len(), named.join(", "))?;
            let unnamed = several.len() - named.len();
            if unnamed > 0 {
                write!(f, " and {unnamed} more")?;
            }
            f.write_str(")")?;
        }
    }
    for change in changes {
        if !matches!(change, Change::FreeDevice { .. }) {
            separate(f)?;
            write!(f, "{change}")?;
        }
    }
    Ok(())
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FreeCapacity {
                device,
                capacity,
                missing,
            } => write!(f, "{missing} more of capacity {capacity} of device {device} were free"),
            Self::FreeDevice { device, .. } => write!(f, "device {device} were freed"),
            Self::CompletePool { pool } => write!(f, "pool {pool} were complete"),
            Self::RepairPool { pool, problem } => write!(f, "pool {pool} were repaired ({problem})"),
            Self::Tolerate { request, taint, .. } => {
                write!(f, "request {request:?} tolerated {}", taint.key)?;
                if !taint.value.is_empty() {
                    write!(f, "={}", taint.value)?;
                }
                write!(f, ":{}", taint.effect.as_str())
            }
            Self::MakeSchedulable => f.write_str("the node were schedulable"),
            Self::DropConstraint { rule, agree, needed, .. } => {
                write!(f, "the constraint {rule} were dropped")?;
                if agree < needed {
                    write!(f, " (at most {agree} of {needed} devices satisfy it)")?;
                }
                Ok(())
            }
            Self::DropSelector {
                request,
                selector,
                matching,
                matching_without,
                ..
            } => {
                match selector {
                    Reason::ClassSelector(at) => write!(f, "class selector #{at}")?,
                    Reason::RequestSelector(at) => write!(f, "selector #{at}")?,
                    other => write!(f, "the selector ({other})")?,
                }
                write!(
                    f,
                    " of request {request:?} were dropped ({matching_without} devices match then, {matching} now)"
                )
            }
            Self::RaiseCounter {
                pool,
                counter_set,
                counter,
                missing,
            } => write!(f, "counter {counter} of set {counter_set} in pool {pool} had {missing} more"),
            Self::EnlargeDevice {
                device,
                capacity,
                missing,
            } => write!(f, "device {device} had {missing} more of capacity {capacity}"),
            Self::SkipNodeOperations => f.write_str("the node let drivers skip node operations"),
        }
    }
}
