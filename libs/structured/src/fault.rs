//! What ends a decision early: bad input of a claim or class, trouble that is confined to a node, a budget, the caller.
//!
//! Texts name the objects so that whoever reads them can act; wording is ours, the kinds are the model's.

use std::fmt;

use resource_api::ids::DeviceId;

use crate::capacity::CapacityFault;
use crate::constraint::Constraint;
use crate::request::{Choice, CompiledUnit};

/// How far a fault reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Input of the claim, its class or a device it met: no other node need be tried.
    Claim,
    /// Only this node is out.
    Node,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The claim uses something whose feature gate is off.
    FeatureDisabled,
    /// A selector without a CEL expression.
    UnsupportedSelector,
    /// An allocation mode that this version does not know.
    UnsupportedMode,
    /// A constraint that this version does not know.
    UnsupportedConstraint,
    /// A request without a device class name.
    MissingClassName,
    /// The class does not exist.
    UnknownClass,
    /// The claim asks for more devices than one claim can be given.
    TooManyDevices,
    /// `allocationMode: All` while a pool that the node sees is being updated.
    AllPoolIncomplete,
    /// `allocationMode: All` while a pool that the node sees is inconsistent.
    AllPoolInvalid,
    /// `allocationMode: All` and a constraint that its devices violate.
    AllConstraint,
    /// A selector that does not compile.
    CelCompile,
    /// A selector that failed on a device.
    CelRuntime,
    /// The expression of a derived attribute failed on a device.
    DerivedEvaluation,
    /// A capacity request that the device's policy cannot represent.
    CapacityNotRepresentable,
    /// A negative capacity request.
    CapacityNegative,
    /// A node selector of a slice or device that cannot be parsed.
    BadNodeSelector,
    /// Nothing fits, and a pool that the node sees is inconsistent.
    InvalidPool,
}

impl FaultKind {
    /// The name used in reports and conformance sets, for example `cel-runtime`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FeatureDisabled => "feature-disabled",
            Self::UnsupportedSelector => "unsupported-selector",
            Self::UnsupportedMode => "unsupported-mode",
            Self::UnsupportedConstraint => "unsupported-constraint",
            Self::MissingClassName => "missing-class-name",
            Self::UnknownClass => "unknown-class",
            Self::TooManyDevices => "too-many-devices",
            Self::AllPoolIncomplete => "all-pool-incomplete",
            Self::AllPoolInvalid => "all-pool-invalid",
            Self::AllConstraint => "all-constraint",
            Self::CelCompile => "cel-compile",
            Self::CelRuntime => "cel-runtime",
            Self::DerivedEvaluation => "derived-evaluation",
            Self::CapacityNotRepresentable => "capacity-not-representable",
            Self::CapacityNegative => "capacity-negative",
            Self::BadNodeSelector => "bad-node-selector",
            Self::InvalidPool => "invalid-pool",
        }
    }

    /// Trouble of a pool that one node sees, as opposed to trouble of the claim itself.
    #[must_use]
    pub fn is_pool_trouble(self) -> bool {
        matches!(self, Self::AllPoolIncomplete | Self::AllPoolInvalid | Self::InvalidPool)
    }
}

/// A fault with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// How far it reaches.
    pub scope: Scope,
    /// One line that names the objects.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Fault {
    pub(crate) fn claim(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            scope: Scope::Claim,
            message: message.into(),
        }
    }

    /// A request that the policy of a device's capacity cannot deal with.
    pub(crate) fn capacity(unit: &CompiledUnit, choice: &Choice, fault: &CapacityFault, device: &DeviceId) -> Self {
        let problem = match fault.kind {
            FaultKind::CapacityNegative => "is negative",
            _ => "cannot be represented in the steps of its policy",
        };
        let CapacityFault {
            kind,
            capacity,
            requested,
        } = fault;
        let place = unit.place_of(choice);
        Self::claim(
            *kind,
            format!("{place}: {requested} of capacity {capacity} of device {device} {problem}"),
        )
    }

    pub(crate) fn all_constraint(unit: &CompiledUnit, choice: &Choice, constraint: &Constraint, device: &DeviceId) -> Self {
        let place = unit.place_of(choice);
        Self::claim(
            FaultKind::AllConstraint,
            format!("{place}: allocationMode All, but device {device} violates the constraint {constraint}"),
        )
    }
}

/// Why a search ended without an answer.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    Fault(Fault),
    /// The search is complete: no assignment exists on this node.
    DoesNotFit,
    Undecided,
    Cancelled,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
