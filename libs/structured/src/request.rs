//! Requests flattened: every claim of a unit as a list of choices (an `exactly` request is one choice, a `firstAvailable`
//! request one per alternative) with everything that does not depend on the node worked out once.
//!
//! Faults of the input are kept with the choice they belong to and raised when the checks reach it, because an earlier
//! request in mode All may have a fault of its own that must win.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use resource_api::claim::{
    AllocationMode, CapacityRequirements, DeviceConstraint, DeviceDerivedAttribute, DeviceRequest, DeviceSelector, ResourceClaim,
};
use resource_api::class::DeviceClass;
use resource_api::ids::Uid;
use resource_api::quantity::Quantity;
use resource_api::taint::DeviceToleration;

use crate::cluster::Cluster;
use crate::constraint::{Constraint, Rule};
use crate::fault::{Fault, FaultKind, Stop};
use crate::limits::RESULTS_PER_CLAIM_MAX;
use crate::selectors::Filter;
use crate::signature::Signature;

/// Number of a choice in its unit.
pub(crate) type ChoiceId = usize;

/// How many devices a choice needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Need {
    Exactly(u64),
    /// Every selectable device, at least one.
    All,
}

/// An amount asked of a device's capacity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CapacityRequest {
    pub(crate) name: String,
    pub(crate) amount: Quantity,
}

/// One way to satisfy a request.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) id: ChoiceId,
    pub(crate) claim: usize,
    /// `request`, or `request/alternative`.
    pub(crate) name: String,
    /// Absent if it could not be looked up; `fault` says why.
    pub(crate) class: Option<Arc<DeviceClass>>,
    pub(crate) filter: Arc<Filter>,
    pub(crate) need: Need,
    pub(crate) admin_access: bool,
    pub(crate) tolerations: Vec<DeviceToleration>,
    pub(crate) capacity: Vec<CapacityRequest>,
    pub(crate) derived: Vec<DeviceDerivedAttribute>,
    fault: Option<Fault>,
}

/// One entry of `spec.devices.requests`.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) choices: Range<ChoiceId>,
    pub(crate) has_alternatives: bool,
    fault: Option<Fault>,
}

/// One claim of the unit.
#[derive(Clone, Debug)]
pub(crate) struct ClaimRequest {
    pub(crate) uid: Uid,
    pub(crate) source: Arc<ResourceClaim>,
    pub(crate) requests: Vec<Request>,
    /// Its constraints in the unit's list.
    pub(crate) constraints: Range<usize>,
    fault: Option<Fault>,
}

/// A unit prepared for any number of searches. Holds the classes as they were: compile again after a class changed.
#[derive(Clone, Debug)]
pub struct CompiledUnit {
    pub(crate) claims: Vec<ClaimRequest>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) constraints: Vec<Constraint>,
    /// Some request asks for devices that may be in use.
    pub(crate) has_admin_access: bool,
    pub(crate) signature: Signature,
}

impl CompiledUnit {
    /// Equal for units that get the same answer, apart from names and configuration, in the same state of the cluster.
    #[must_use]
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The names of the classes asked for, each once.
    #[must_use]
    pub fn class_names(&self) -> BTreeSet<&str> {
        self.choices
            .iter()
            .filter_map(|choice| choice.class.as_ref())
            .map(|class| class.metadata.name.as_str())
            .collect()
    }

    /// Whether the answer hangs on more than which devices are free: mode All looks at every device, and at pools that are not in order.
    #[must_use]
    pub fn depends_on_all_inventory(&self) -> bool {
        self.choices
            .iter()
            .any(|choice| !matches!(choice.need, Need::Exactly(_)) || choice.fault.is_some())
    }

    /// The uids of the unit's claims, in order.
    pub fn claim_uids(&self) -> impl Iterator<Item = Uid> + '_ {
        self.claims.iter().map(|claim| claim.uid)
    }

    /// The most devices that one request must have, whatever its alternative; 0 if some may be in use already.
    pub(crate) fn least_devices(&self) -> u32 {
        if self.has_admin_access {
            return 0;
        }
        let need = |choice: &Choice| match choice.need {
            Need::Exactly(count) => count,
            Need::All => 0,
        };
        let requests = self.claims.iter().flat_map(|claim| &claim.requests);
        let least = requests.map(|request| self.choices[request.choices.clone()].iter().map(need).min().unwrap_or(0));
        u32::try_from(least.max().unwrap_or(0)).unwrap_or(u32::MAX)
    }

    pub(crate) fn constraints_of(&self, claim: usize) -> impl Iterator<Item = (usize, &Constraint)> {
        let range = self.claims[claim].constraints.clone();
        range.map(|at| (at, &self.constraints[at]))
    }

    /// The selectors that a choice has of its own, beside those of its class.
    pub(crate) fn selectors_of(&self, choice: &Choice) -> &[DeviceSelector] {
        let (request, alternative) = match choice.name.split_once('/') {
            Some((request, alternative)) => (request, Some(alternative)),
            None => (choice.name.as_str(), None),
        };
        let requests = &self.claims[choice.claim].source.spec.devices.requests;
        let request = requests.iter().find(|known| known.name == *request);
        let selectors = request.and_then(|request| match alternative {
            None => request.exactly.as_ref().map(|exactly| &exactly.selectors),
            Some(name) => {
                let mut alternatives = request.first_available.iter();
                alternatives.find(|known| known.name == *name).map(|found| &found.selectors)
            }
        });
        selectors.map_or(&[], Vec::as_slice)
    }

    /// Where a choice is written, for messages: `claim ns/name, request "gpu"`.
    pub(crate) fn place_of(&self, choice: &Choice) -> String {
        place(&self.claims[choice.claim].source, &choice.name)
    }

    /// The checks before the search, claim by claim and request by request.
    ///
    /// `all_list_len` works out the list of a choice in mode All and says how long it is; `None` ends the checks early.
    pub(crate) fn check_before_search(
        &self,
        mut all_list_len: impl FnMut(&Choice) -> Result<Option<u64>, Stop>,
    ) -> Result<(), Stop> {
        for claim in &self.claims {
            let mut minimum = 0;
            for request in &claim.requests {
                raise(&request.fault)?;
                let mut least = None;
                for choice in &self.choices[request.choices.clone()] {
                    raise(&choice.fault)?;
                    let need = match choice.need {
                        Need::Exactly(count) => count,
                        Need::All => match all_list_len(choice)? {
                            Some(len) => len,
                            None => return Ok(()),
                        },
                    };
                    least = Some(least.map_or(need, |least: u64| least.min(need)));
                }
                let least = least.unwrap_or(0);
                let room = RESULTS_PER_CLAIM_MAX as u64 - minimum;
                if least > room {
                    return Err(too_many(self, request, least, minimum).into());
                }
                minimum += least;
            }
            raise(&claim.fault)?;
        }
        Ok(())
    }

    /// The fault that ends every attempt, on whatever node, as far as it can be told without a node.
    fn fault_on_every_node(&self) -> Option<Fault> {
        match self.check_before_search(|_| Ok(None)) {
            Err(Stop::Fault(fault)) => Some(fault),
            Ok(()) | Err(Stop::DoesNotFit | Stop::Undecided | Stop::Cancelled) => None,
        }
    }
}

fn raise(fault: &Option<Fault>) -> Result<(), Stop> {
    fault.clone().map_or(Ok(()), |fault| Err(fault.into()))
}

fn too_many(unit: &CompiledUnit, request: &Request, add: u64, so_far: u64) -> Fault {
    let place = unit.choices.get(request.choices.start).map_or_else(String::new, |choice| {
        let claim = &unit.claims[choice.claim].source;
        place(claim, choice.name.split('/').next().unwrap_or_default())
    });
    Fault::claim(
        FaultKind::TooManyDevices,
        format!(
            "{place}: {add} devices more than the {so_far} asked for before exceed the limit of {RESULTS_PER_CLAIM_MAX} per claim"
        ),
    )
}

fn place(claim: &ResourceClaim, request: &str) -> String {
    format!(
        "claim {}/{}, request {request:?}",
        claim.metadata.namespace, claim.metadata.name
    )
}

/// Prepares a unit. The claims are in the order in which they are to be allocated; their status is not looked at.
///
/// Error: a fault of the claims that no node can change, for example an unknown class.
pub(crate) fn compile(cluster: &Cluster, claims: &[Arc<ResourceClaim>]) -> Result<CompiledUnit, Fault> {
    let mut compiler = Compiler {
        cluster,
        choices: Vec::new(),
        constraints: Vec::new(),
    };
    let claims: Vec<_> = claims
        .iter()
        .enumerate()
        .map(|(at, claim)| compiler.claim(at, claim))
        .collect();
    let Compiler {
        choices, constraints, ..
    } = compiler;
    let signature = Signature::of(&claims, &choices, &constraints);
    let has_admin_access = choices.iter().any(|choice| choice.admin_access);
    let unit = CompiledUnit {
        claims,
        choices,
        constraints,
        has_admin_access,
        signature,
    };
    match unit.fault_on_every_node() {
        Some(fault) => Err(fault),
        None => Ok(unit),
    }
}

struct Compiler<'a> {
    cluster: &'a Cluster,
    choices: Vec<Choice>,
    constraints: Vec<Constraint>,
}

/// What `exactly` and the alternatives of `firstAvailable` have in common.
struct Asked<'a> {
    name: String,
    class_name: &'a str,
    selectors: &'a [DeviceSelector],
    mode: &'a AllocationMode,
    count: i64,
    admin_access: Option<bool>,
    tolerations: &'a [DeviceToleration],
    capacity: Option<&'a CapacityRequirements>,
    derived: &'a [DeviceDerivedAttribute],
}

impl Compiler<'_> {
    fn claim(&mut self, at: usize, claim: &Arc<ResourceClaim>) -> ClaimRequest {
        let first_choice = self.choices.len();
        let spec = &claim.spec.devices;
        let requests = spec.requests.iter().map(|request| self.request(at, claim, request)).collect();
        let first_constraint = self.constraints.len();
        let mut fault = None;
        for (n, constraint) in spec.constraints.iter().enumerate() {
            match self.constraint(first_choice, constraint) {
                Some(constraint) => self.constraints.push(constraint),
                None => {
                    let message = format!(
                        "claim {}/{}: constraint #{n} is neither matchAttribute nor distinctAttribute",
                        claim.metadata.namespace, claim.metadata.name
                    );
                    fault = fault.or(Some(Fault::claim(FaultKind::UnsupportedConstraint, message)));
                }
            }
        }
        ClaimRequest {
            uid: claim.metadata.uid.unwrap_or_default(),
            source: Arc::clone(claim),
            requests,
            constraints: first_constraint..self.constraints.len(),
            fault,
        }
    }

    fn request(&mut self, claim_at: usize, claim: &ResourceClaim, request: &DeviceRequest) -> Request {
        let first = self.choices.len();
        if let Some(exactly) = &request.exactly {
            let asked = Asked {
                name: request.name.clone(),
                class_name: &exactly.device_class_name,
                selectors: &exactly.selectors,
                mode: &exactly.allocation_mode,
                count: exactly.count,
                admin_access: exactly.admin_access,
                tolerations: &exactly.tolerations,
                capacity: exactly.capacity.as_ref(),
                derived: &exactly.derived_attributes,
            };
            self.choice(claim_at, claim, asked);
        } else {
            for alternative in &request.first_available {
                let asked = Asked {
                    name: format!("{}/{}", request.name, alternative.name),
                    class_name: &alternative.device_class_name,
                    selectors: &alternative.selectors,
                    mode: &alternative.allocation_mode,
                    count: alternative.count,
                    admin_access: None,
                    tolerations: &alternative.tolerations,
                    capacity: alternative.capacity.as_ref(),
                    derived: &alternative.derived_attributes,
                };
                self.choice(claim_at, claim, asked);
            }
        }
        Request {
            choices: first..self.choices.len(),
            has_alternatives: request.exactly.is_none(),
            fault: self.request_fault(claim, request),
        }
    }

    fn request_fault(&self, claim: &ResourceClaim, request: &DeviceRequest) -> Option<Fault> {
        let features = self.cluster.features();
        if !request.first_available.is_empty() && !features.prioritized_list {
            return Some(disabled(claim, &request.name, "firstAvailable", "DRAPrioritizedList"));
        }
        if features.consumable_capacity {
            return None;
        }
        if request.exactly.as_ref().is_some_and(|exactly| exactly.capacity.is_some()) {
            return Some(disabled(claim, &request.name, "capacity", "DRAConsumableCapacity"));
        }
        let alternative = request
            .first_available
            .iter()
            .find(|alternative| alternative.capacity.is_some())?;
        let name = format!("{}/{}", request.name, alternative.name);
        Some(disabled(claim, &name, "capacity", "DRAConsumableCapacity"))
    }

    fn choice(&mut self, claim_at: usize, claim: &ResourceClaim, asked: Asked<'_>) {
        let class = self.cluster.class(asked.class_name).cloned();
        let fault = self.choice_fault(claim, &asked, class.is_some());
        let need = if asked.mode == &AllocationMode::All {
            Need::All
        } else {
            // An object that skipped defaulting asks for one device.
            let defaulted = asked.mode.is_empty() && asked.count == 0;
            Need::Exactly(if defaulted {
                1
            } else {
                u64::try_from(asked.count).unwrap_or(0)
            })
        };
        let capacity = asked.capacity.iter().flat_map(|capacity| &capacity.requests);
        self.choices.push(Choice {
            id: self.choices.len(),
            claim: claim_at,
            filter: self.cluster.filter(class.as_deref(), asked.selectors),
            class,
            need,
            admin_access: asked.admin_access == Some(true),
            tolerations: asked.tolerations.to_vec(),
            capacity: capacity
                .map(|(name, amount)| CapacityRequest {
                    name: name.clone(),
                    amount: amount.clone(),
                })
                .collect(),
            derived: asked.derived.to_vec(),
            name: asked.name,
            fault,
        });
    }

    /// The first fault of a choice, in the order in which the model checks it.
    fn choice_fault(&self, claim: &ResourceClaim, asked: &Asked<'_>, class_exists: bool) -> Option<Fault> {
        let features = self.cluster.features();
        let fault = |kind, text: String| Some(Fault::claim(kind, format!("{}: {text}", place(claim, &asked.name))));
        if !asked.derived.is_empty() && !features.derived_attributes {
            return Some(disabled(claim, &asked.name, "derivedAttributes", "DRADerivedAttributes"));
        }
        if let Some(at) = asked.selectors.iter().position(|selector| selector.cel.is_none()) {
            return fault(
                FaultKind::UnsupportedSelector,
                format!("selector #{at} is not a CEL selector"),
            );
        }
        if asked.admin_access.is_some() && !features.admin_access {
            return Some(disabled(claim, &asked.name, "adminAccess", "DRAAdminAccess"));
        }
        if asked.class_name.is_empty() {
            return fault(FaultKind::MissingClassName, "no device class name".to_owned());
        }
        if !class_exists {
            return fault(
                FaultKind::UnknownClass,
                format!("device class {:?} does not exist", asked.class_name),
            );
        }
        let known = asked.mode.is_known() || asked.mode.is_empty();
        (!known).then(|| {
            fault(
                FaultKind::UnsupportedMode,
                format!("unknown allocation mode {:?}", asked.mode.as_str()),
            )
        })?
    }

    fn constraint(&self, first_choice: ChoiceId, constraint: &DeviceConstraint) -> Option<Constraint> {
        let (rule, attribute) = match (&constraint.match_attribute, &constraint.distinct_attribute) {
            (Some(attribute), _) => (Rule::Match, attribute),
            (None, Some(attribute)) => (Rule::Distinct, attribute),
            (None, None) => return None,
        };
        let covered = |choice: &Choice| names_request(&constraint.requests, &choice.name);
        let choices = self.choices[first_choice..]
            .iter()
            .filter(|choice| covered(choice))
            .map(|choice| choice.id);
        Some(Constraint {
            rule,
            attribute: attribute.as_str().into(),
            choices: choices.collect(),
        })
    }
}

/// Whether a list of request names, empty for all, covers a choice by its own name or its request's.
pub(crate) fn names_request(names: &[String], choice: &str) -> bool {
    let request = choice.split('/').next().unwrap_or(choice);
    names.is_empty() || names.iter().any(|name| name == choice || name == request)
}

fn disabled(claim: &ResourceClaim, request: &str, field: &str, gate: &str) -> Fault {
    let place = place(claim, request);
    Fault::claim(
        FaultKind::FeatureDisabled,
        format!("{place}: {field} needs the feature gate {gate}, which is off"),
    )
}
