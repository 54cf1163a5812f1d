//! A refusal: what it means and, if one is known, the fault. Why it does not fit in numbers is another question, asked
//! with [`explain`](crate::explain()): counting costs more than most refusals do.

use std::fmt;

use crate::fault::Fault;

/// What a refusal means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnallocatableKind {
    /// Not possible now; a change of the cluster may help.
    DoesNotFit,
    /// The claim or its class is at fault; trying again as it is helps nobody.
    ClaimFault,
    /// The budget ended before there was an answer.
    Undecided,
    /// The caller raised the stop flag.
    Cancelled,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unallocatable {
    /// What it means.
    pub kind: UnallocatableKind,
    /// The fault of the claim, or of the first node that had one.
    pub fault: Option<Fault>,
}

impl Unallocatable {
    pub(crate) fn fault(fault: Fault) -> Self {
        Self {
            kind: UnallocatableKind::ClaimFault,
            fault: Some(fault),
        }
    }

    pub(crate) fn cancelled() -> Self {
        Self {
            kind: UnallocatableKind::Cancelled,
            fault: None,
        }
    }

    pub(crate) fn undecided() -> Self {
        Self {
            kind: UnallocatableKind::Undecided,
            fault: None,
        }
    }

    pub(crate) fn does_not_fit(fault: Option<Fault>) -> Self {
        Self {
            kind: UnallocatableKind::DoesNotFit,
            fault,
        }
    }
}

impl std::error::Error for Unallocatable {}

impl fmt::Display for Unallocatable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, &self.fault) {
            (UnallocatableKind::Cancelled, _) => f.write_str("cancelled by the caller"),
            (UnallocatableKind::Undecided, _) => f.write_str("undecided within the search budget"),
            (_, Some(fault)) => write!(f, "{fault}"),
            (_, None) => f.write_str("no node has the devices that are asked for"),
        }
    }
}
