//! Rules for capacities of devices and how they may be shared: L22–L34. KEP-5075.
//!
//! Upstream does some of this arithmetic in whole numbers or thousandths. Here it is exact; what upstream accepts only
//! because it rounds is refused, what it refuses for the same reason is accepted.

use super::common::{check_count, check_unique};
use crate::device::{CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity};
use crate::field_path::{FieldErrors, FieldPath};
use crate::gates::{FeatureGates, Gate};
use crate::quantity::{Format, Quantity};

/// API limit: `CapacityRequestPolicyDiscreteMaxOptions`.
const VALID_VALUES_MAX: usize = 10;

/// Which devices may have a request policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// `allowMultipleAllocations` is true.
    Shareable,
    Exclusive,
}

pub(super) fn check(
    capacity: &DeviceCapacity,
    sharing: Sharing,
    gates: &FeatureGates,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    let Some(policy) = &capacity.request_policy else {
        return;
    };
    let path = path.child("requestPolicy");
    match sharing {
        Sharing::Exclusive => errors.forbidden(&path, "allowMultipleAllocations must be true"),
        Sharing::Shareable => check_policy(policy, &capacity.value, gates, &path, errors),
    }
}

fn check_policy(
    policy: &CapacityRequestPolicy,
    total: &Quantity,
    gates: &FeatureGates,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    let values = policy.valid_values.as_slice();
    match (values, &policy.valid_range, &policy.default) {
        ([], None, _) => {}
        ([_, ..], Some(_), _) => {
            let detail =
                "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
            errors.forbidden(path, detail);
        }
        ([_, ..], None, None) => errors.required(&path.child("default"), "required when validValues is defined"),
        ([], Some(_), None) => errors.required(&path.child("default"), "required when validRange is defined"),
        ([_, ..], None, Some(default)) => check_values(values, default, total, &path.child("validValues"), errors),
        ([], Some(range), Some(default)) => check_range(range, default, total, gates, &path.child("validRange"), errors),
    }
}

/// L25–L27.
fn check_values(values: &[Quantity], default: &Quantity, total: &Quantity, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    for (at, pair) in values.windows(2).enumerate() {
        if let [earlier, later] = pair
            && earlier > later
        {
            errors.invalid(&path.index(at + 1), later, "values must be sorted in ascending order");
        }
    }
    let looked_at = check_count(values.len(), VALID_VALUES_MAX, path, errors);
    if looked_at {
        for (at, value) in values.iter().enumerate().filter(|(_, value)| *value > total) {
            errors.invalid(
                &path.index(at),
                value,
                format!("option is larger than capacity value: {total}"),
            );
        }
        check_unique(values, |value| value, |value| value, path, errors);
    }
    if !looked_at || !values.contains(default) {
        errors.invalid(path, default, "default value is not valid according to the requestPolicy");
    }
}

/// L28–L34. The path of errors about the default is that of upstream.
fn check_range(
    range: &CapacityRequestPolicyRange,
    default: &Quantity,
    total: &Quantity,
    gates: &FeatureGates,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    let Some(min) = &range.min else {
        return errors.required(&path.child("min"), "required when validRange is defined");
    };
    check_bounds(range, min, default, total, path, errors);
    let parts = [
        ("default", Some(default)),
        ("min", Some(min)),
        ("max", range.max.as_ref()),
        ("step", range.step.as_ref()),
    ];
    let parts = parts.into_iter().filter_map(|(field, part)| Some((field, part?)));
    let one = Quantity::from_whole(1, Format::DecimalSi);
    let fractional = parts.clone().any(|(_, part)| !part.is_multiple_of(&one));
    if gates.is_on(Gate::DRAFractionalCapacityRange) && fractional {
        if !check_thousandths(parts, path, errors) {
            return;
        }
    } else if range.step.as_ref().is_some_and(|step| step.signum() > 0) {
        check_whole_range(parts, path, errors);
    }
    if let Some(step) = &range.step {
        check_step(
            step,
            min,
            [Some(default), range.max.as_ref()],
            total,
            &path.child("step"),
            errors,
        );
    }
}

/// L28–L30.
fn check_bounds(
    range: &CapacityRequestPolicyRange,
    min: &Quantity,
    default: &Quantity,
    total: &Quantity,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    if min > total {
        errors.invalid(&path.child("min"), min, format!("min is larger than capacity value: {total}"));
    }
    if default < min {
        errors.invalid(&path.child("default"), default, format!("default is less than min: {min}"));
    }
    if let Some(max) = &range.max {
        if min > max {
            errors.invalid(&path.child("max"), min, format!("min is larger than max: {max}"));
        }
        if max > total {
            errors.invalid(&path.child("max"), max, format!("max is larger than capacity value: {total}"));
        }
        if default > max {
            errors.invalid(&path.child("default"), default, format!("default is more than max: {max}"));
        }
    }
}

/// L33. `false`: some part cannot be used in a calculation of thousandths.
fn check_thousandths<'a>(
    parts: impl Iterator<Item = (&'static str, &'a Quantity)>,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) -> bool {
    let thousandth = Quantity::from_nanos(1_000_000, Format::DecimalSi);
    let max = Quantity::from_nanos(i128::from(i64::MAX) * 1_000_000, Format::DecimalSi);
    let mut all_fit = true;
    for (field, part) in parts {
        if !part.is_multiple_of(&thousandth) || *part > max || part.negated() > max {
            errors.invalid(&path.child(field), part, "value cannot be represented as a milli value");
            all_fit = false;
        }
    }
    all_fit
}

/// L32.
fn check_whole_range<'a>(
    parts: impl Iterator<Item = (&'static str, &'a Quantity)>,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    let max = Quantity::from_whole(i64::MAX, Format::DecimalSi);
    for (field, part) in parts {
        if part.signum() < 0 {
            errors.invalid(&path.child(field), part, "must be greater than or equal to 0");
        } else if *part > max {
            errors.invalid(&path.child(field), part, format!("must not be larger than {}", i64::MAX));
        }
    }
}

/// L31, L34.
fn check_step(
    step: &Quantity,
    min: &Quantity,
    ends: [Option<&Quantity>; 2],
    total: &Quantity,
    path: &FieldPath<'_>,
    errors: &mut FieldErrors,
) {
    if step.signum() <= 0 {
        return errors.invalid(path, step, "must be greater than zero");
    }
    let first = min.plus(step);
    if first > *total {
        errors.invalid(path, step, format!("one step {first} is larger than capacity value: {total}"));
    }
    for end in ends.into_iter().flatten() {
        if !end.minus(min).is_multiple_of(step) {
            errors.invalid(
                path,
                end,
                format!("value is not a multiple of a given step ({step}) from ({min})"),
            );
        }
    }
}
