//! Runs conformance sets against the allocator: file contents in, verdicts with differences out.
//!
//! Three forms: `dray-allocator-cases/1` (one call each, the answer field by field), scenarios (`input.yaml` with the
//! `allocate` and `consumed` parts of `expect.json`), and `allocbench/1` workloads with the outcome of every claim.

mod cases;
mod scenario;
mod workload;

pub use cases::run_cases;
pub use scenario::run_scenario;
pub use workload::{Outcome, Workload, WorkloadNode, decide_and_take, empty_cluster, hold, run_workload};

/// What became of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Which case, for example `alloc-0015` or `13-one-device-short: team-a/pair-ok on node-a`.
    pub id: String,
    /// `None`: the answer is the expected one; otherwise how it differs.
    pub difference: Option<String>,
}

impl Verdict {
    /// Whether the answer is the expected one.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.difference.is_none()
    }
}

/// A set that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// The text is not what the form prescribes.
    #[error("{what} is not well-formed")]
    Malformed {
        /// Which text, for example `expect.json`.
        what: &'static str,
        /// What the parser met.
        #[source]
        source: serde_json::Error,
    },
    /// A YAML document that cannot be read.
    #[error("{what} is not well-formed YAML")]
    MalformedYaml {
        /// Which text.
        what: &'static str,
        /// What the parser met.
        #[source]
        source: serde_yaml_ng::Error,
    },
    /// The form is another one.
    #[error("unknown form {found:?}, wanted {wanted:?}")]
    OtherForm {
        /// What the text says it is.
        found: String,
        /// What this function reads.
        wanted: &'static str,
    },
}

impl FormError {
    fn json(what: &'static str) -> impl FnOnce(serde_json::Error) -> Self {
        move |source| Self::Malformed { what, source }
    }
}
