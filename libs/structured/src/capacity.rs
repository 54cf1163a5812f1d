//! Consumable capacity: what a request takes from a device, and whether the device can hold it (KEP-5075).
//!
//! Every capacity of a device is consumed by every share, asked for or not: by default, whole. Amounts are rounded up to
//! what the device's policy allows; the step arithmetic is upstream's, integer or in thousandths, see README.md.

use std::sync::Arc;

use resource_api::device::{CapacityRequestPolicy, CapacityRequestPolicyRange, Device};
use resource_api::quantity::{Format, Quantity};

use crate::amount::Amount;
use crate::fault::FaultKind;
use crate::request::{CapacityRequest, Choice, ChoiceId};

const NANOS_PER_MILLI: i128 = 1_000_000;
const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// The capacities of a device, by name. Equal for equal devices, and shared by them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CapacityFacts {
    entries: Vec<CapacityEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CapacityEntry {
    name: String,
    value: Quantity,
    default: Option<Quantity>,
    rounding: Rounding,
}

/// How a requested amount becomes a consumed one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Rounding {
    AsRequested,
    Range {
        min: Quantity,
        max: Option<Quantity>,
        step: Option<Quantity>,
    },
    OneOf(Vec<Quantity>),
}

/// What one share takes, in the order of the device's capacities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consumption {
    pub(crate) amounts: Vec<Amount>,
    pub(crate) quantities: Vec<Quantity>,
}

impl Consumption {
    /// Of a device without capacities.
    pub(crate) fn nothing() -> Arc<Self> {
        Arc::new(Self::default())
    }
}

/// A capacity that is too small for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shortfall {
    pub(crate) capacity: String,
    pub(crate) missing: Quantity,
    /// Nothing that others give back would suffice.
    pub(crate) even_empty: bool,
}

/// A request that no policy arithmetic can deal with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapacityFault {
    pub(crate) kind: FaultKind,
    pub(crate) capacity: String,
    pub(crate) requested: Quantity,
}

impl CapacityFacts {
    /// `None`: the device has no capacity at all.
    pub(crate) fn of(device: &Device) -> Option<Self> {
        let entries: Vec<_> = device
            .capacity
            .iter()
            .map(|(name, capacity)| CapacityEntry {
                name: name.clone(),
                value: capacity.value.clone(),
                default: capacity.request_policy.as_ref().and_then(|policy| policy.default.clone()),
                rounding: capacity.request_policy.as_ref().map_or(Rounding::AsRequested, Rounding::of),
            })
            .collect();
        (!entries.is_empty()).then_some(Self { entries })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Whether a request that names no amount may meet a fault.
    pub(crate) fn may_fault(&self) -> bool {
        let default = |entry: &CapacityEntry| entry.default.as_ref().unwrap_or(&entry.value).signum();
        self.entries.iter().any(|entry| default(entry) < 0)
    }

    /// What a request for these amounts takes from an empty device; `None`: even then it cannot hold them.
    ///
    /// `fractional`: `DRAFractionalCapacityRange`. A fault stands for the first capacity, by name, that it concerns.
    pub(crate) fn consumption(
        &self,
        requests: &[CapacityRequest],
        fractional: bool,
    ) -> Result<Option<Consumption>, CapacityFault> {
        if requests.iter().any(|request| !self.names().any(|name| name == request.name)) {
            return Ok(None);
        }
        let mut consumption = Consumption::default();
        for entry in &self.entries {
            let asked = requests
                .iter()
                .find(|request| request.name == entry.name)
                .map(|request| &request.amount);
            let consumed = entry.consumed(asked, fractional)?;
            consumption.amounts.push(Amount::of(&consumed));
            consumption.quantities.push(consumed);
        }
        let fits = self
            .entries
            .iter()
            .zip(&consumption.quantities)
            .all(|(entry, consumed)| entry.allows(consumed, fractional) && *consumed <= entry.value);
        Ok(fits.then_some(consumption))
    }

    /// Which capacities are too small for a request beside what is held by shares out. None, if more of them would not help.
    pub(crate) fn shortfalls(&self, requests: &[CapacityRequest], fractional: bool, held: Option<&[Amount]>) -> Vec<Shortfall> {
        if requests.iter().any(|request| !self.names().any(|name| name == request.name)) {
            return Vec::new();
        }
        let mut shortfalls = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let request = requests.iter().find(|request| request.name == entry.name);
            let consumed = match entry.consumed(request.map(|request| &request.amount), fractional) {
                Ok(consumed) if entry.allows(&consumed, fractional) => consumed,
                Ok(_) | Err(_) => return Vec::new(),
            };
            let held = held.and_then(|held| held.get(index).copied()).unwrap_or_default();
            let missing = Quantity::from_nanos(held.nanos(), entry.value.format())
                .plus(&consumed)
                .minus(&entry.value);
            if missing.signum() > 0 {
                shortfalls.push(Shortfall {
                    capacity: entry.name.clone(),
                    missing: Quantity::from_nanos(missing.nanos().unwrap_or(i128::MAX), entry.value.format()),
                    even_empty: consumed > entry.value,
                });
            }
        }
        shortfalls
    }

    /// Whether the consumption fits beside what is held (by shares out) and reserved (in this call).
    pub(crate) fn has_left(&self, consumption: &Consumption, held: Option<&[Amount]>, reserved: Option<&[Amount]>) -> bool {
        let at = |amounts: Option<&[Amount]>, index: usize| {
            amounts.and_then(|amounts| amounts.get(index).copied()).unwrap_or_default()
        };
        self.entries.iter().enumerate().all(|(index, entry)| {
            let sum: Amount = [consumption.amounts[index], at(held, index), at(reserved, index)]
                .into_iter()
                .sum();
            sum <= Amount::of(&entry.value)
        })
    }
}

impl CapacityEntry {
    fn consumed(&self, asked: Option<&Quantity>, fractional: bool) -> Result<Quantity, CapacityFault> {
        let consumed = match asked {
            None => self.default.clone().unwrap_or_else(|| self.value.clone()),
            Some(asked) => self.rounding.raise(asked, fractional).ok_or_else(|| CapacityFault {
                kind: FaultKind::CapacityNotRepresentable,
                capacity: self.name.clone(),
                requested: asked.clone(),
            })?,
        };
        if consumed.signum() < 0 {
            return Err(CapacityFault {
                kind: FaultKind::CapacityNegative,
                capacity: self.name.clone(),
                requested: consumed,
            });
        }
        Ok(consumed)
    }

    fn allows(&self, consumed: &Quantity, fractional: bool) -> bool {
        self.default.as_ref() == Some(consumed) || self.rounding.allows(consumed, fractional)
    }
}

impl Rounding {
    fn of(policy: &CapacityRequestPolicy) -> Self {
        if let Some(CapacityRequestPolicyRange {
            min: Some(min),
            max,
            step,
        }) = &policy.valid_range
        {
            return Self::Range {
                min: min.clone(),
                max: max.clone(),
                step: step.clone(),
            };
        }
        if policy.valid_values.is_empty() {
            Self::AsRequested
        } else {
            Self::OneOf(policy.valid_values.clone())
        }
    }

    /// The amount raised to what the policy allows; `None`: not representable.
    fn raise(&self, asked: &Quantity, fractional: bool) -> Option<Quantity> {
        match self {
            Self::AsRequested => Some(asked.clone()),
            Self::OneOf(values) => Some(values.iter().find(|value| *value >= asked).unwrap_or(asked).clone()),
            Self::Range { min, .. } if asked < min => Some(min.clone()),
            Self::Range { step: None, .. } => Some(asked.clone()),
            Self::Range {
                min,
                max,
                step: Some(step),
            } => {
                let unit = Unit::of(min, max.as_ref(), step, fractional);
                let (asked_n, min_n, step_n) = (unit.exact(asked)?, unit.count(min)?, unit.count(step)?);
                if step_n <= 0 {
                    return Some(asked.clone());
                }
                let steps = (i128::from(asked_n) - i128::from(min_n)).div_euclid(i128::from(step_n));
                let below = i128::from(min_n) + steps * i128::from(step_n);
                let raised = if below < i128::from(asked_n) {
                    below + i128::from(step_n)
                } else {
                    below
                };
                let raised = i64::try_from(raised).ok()?;
                Some(unit.quantity(raised, asked.format()))
            }
        }
    }

    fn allows(&self, consumed: &Quantity, fractional: bool) -> bool {
        match self {
            Self::AsRequested => true,
            Self::OneOf(values) => values.contains(consumed),
            Self::Range { min, max, step } => {
                let above = max.as_ref().is_some_and(|max| consumed > max);
                let on_step = step.as_ref().is_none_or(|step| {
                    let unit = Unit::of(min, max.as_ref(), step, fractional);
                    match (unit.exact(consumed), unit.count(min), unit.count(step)) {
                        (Some(consumed), Some(min), Some(step)) if step > 0 => {
                            (i128::from(consumed) - i128::from(min)) % i128::from(step) == 0
                        }
                        _ => true,
                    }
                });
                !above && on_step
            }
        }
    }
}

/// The unit of step arithmetic: ones, rounding up, or exact thousandths.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    One,
    Milli,
}

impl Unit {
    fn of(min: &Quantity, max: Option<&Quantity>, step: &Quantity, fractional: bool) -> Self {
        let fits = |quantity: &Quantity| Self::Milli.exact(quantity).is_some();
        let qualifies = fits(min) && max.is_none_or(fits) && Self::Milli.exact(step).is_some_and(|step| step >= 1);
        if fractional && qualifies { Self::Milli } else { Self::One }
    }

    /// How many units an amount is; in ones, rounded up. `None`: no such number in 64 bits.
    fn count(self, quantity: &Quantity) -> Option<i64> {
        match self {
            Self::One => quantity.round_up(),
            Self::Milli => self.exact(quantity),
        }
    }

    /// As [`Unit::count`]: an amount between two thousandths has none.
    fn exact(self, quantity: &Quantity) -> Option<i64> {
        match self {
            Self::One => quantity.round_up(),
            Self::Milli => {
                let nanos = quantity.nanos()?;
                (nanos % NANOS_PER_MILLI == 0)
                    .then(|| i64::try_from(nanos / NANOS_PER_MILLI).ok())
                    .flatten()
            }
        }
    }

    fn quantity(self, count: i64, format: Format) -> Quantity {
        let nanos_each = match self {
            Self::One => NANOS_PER_UNIT,
            Self::Milli => NANOS_PER_MILLI,
        };
        Quantity::from_nanos(i128::from(count) * nanos_each, format)
    }
}

/// What choices take from kinds of device, remembered for one call.
#[derive(Debug, Default)]
pub(crate) struct ConsumptionCache {
    known: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    choice: ChoiceId,
    facts: Arc<CapacityFacts>,
    answer: Result<Option<Arc<Consumption>>, CapacityFault>,
}

impl ConsumptionCache {
    pub(crate) fn get(
        &mut self,
        choice: &Choice,
        facts: &Arc<CapacityFacts>,
        fractional: bool,
    ) -> Result<Option<Arc<Consumption>>, CapacityFault> {
        let known = self
            .known
            .iter()
            .find(|known| known.choice == choice.id && Arc::ptr_eq(&known.facts, facts));
        if let Some(known) = known {
            return known.answer.clone();
        }
        let answer = facts
            .consumption(&choice.capacity, fractional)
            .map(|found| found.map(Arc::new));
        self.known.push(Known {
            choice: choice.id,
            facts: Arc::clone(facts),
            answer: answer.clone(),
        });
        answer
    }
}
