//! What a call costs when it runs: upstream's tracker, which differs from the estimate in more than the sizes.
//!
//! A call whose operand failed costs as much as one whose operand has size 1; an operator or standard function that the
//! checker could not tie to one overload costs 1. Source: `runtimecost.go` of cel-go, `cost.go` of the Kubernetes
//! library, and the trackers of cel-go's list and set extensions.

use crate::cost::{ALLOCATING_CALL, PATTERN, TRAVERSAL, floored, scaled, sort_factor};
use crate::error::EvalError;
use crate::formats;
use crate::functions::{Cost, Fun};
use crate::list::traversal_cost;
use crate::meter::Meter;
use crate::value::Value;

/// What the cost of a call depends on.
pub(crate) struct Called<'a> {
    pub(crate) fun: Fun,
    /// The cost rule of its overload, if the checker found exactly one.
    pub(crate) sole: Option<Cost>,
    /// Receiver first. [`FAILED`] stands for an operand that is an error.
    pub(crate) args: &'a [Value],
}

/// Stands for an operand that is an error: a value of size 1 that no function takes.
pub(crate) const FAILED: Value = Value::Null;

/// True for functions whose cost is known from their result only, see [`of_result`].
pub(crate) fn needs_result(fun: Fun) -> bool {
    matches!(fun, Fun::Join | Fun::Slice | Fun::Range | Fun::Reverse)
}

/// Cost of a call for which [`needs_result`], once its result is known.
pub(crate) fn of_result(fun: Fun, result: &Result<Value, EvalError>) -> u64 {
    let size = result.as_ref().map_or(1, Value::size);
    match fun {
        Fun::Join => scaled(size, 2.0 * TRAVERSAL),
        _ => ALLOCATING_CALL.saturating_add(size),
    }
}

/// Cost of any other call, besides its operands.
pub(crate) fn cost(meter: &mut Meter, call: &Called<'_>) -> Result<u64, EvalError> {
    let Called { fun, sole, args } = *call;
    let size = |n: usize| args.get(n).map_or(1, Value::size);
    Ok(match fun {
        Fun::Eq | Fun::Ne | Fun::Lt | Fun::Le | Fun::Gt | Fun::Ge | Fun::Add | Fun::In | Fun::ToString | Fun::ToBytes => {
            of_operator(call)
        }
        Fun::StartsWith | Fun::EndsWith => scaled(inner_size(args, 1), TRAVERSAL),
        Fun::Contains => scaled(inner_size(args, 0), TRAVERSAL).saturating_mul(scaled(inner_size(args, 1), TRAVERSAL)),
        Fun::Matches => search(inner_size(args, 0), inner_size(args, 1)),
        Fun::Find | Fun::FindAll => search(size(0), size(1)),
        Fun::IsSorted | Fun::Sum | Fun::Min | Fun::Max | Fun::IndexOf | Fun::LastIndexOf | Fun::Includes => {
            args.first().map_or(Ok(0), |receiver| traversal_cost(meter, receiver))?
        }
        Fun::Format | Fun::Quote => scaled(inner_size(args, 0), TRAVERSAL),
        Fun::Url
        | Fun::LowerAscii
        | Fun::UpperAscii
        | Fun::Substring
        | Fun::Trim
        | Fun::Quantity
        | Fun::IsQuantity
        | Fun::Semver
        | Fun::IsSemver
        | Fun::Ip
        | Fun::IsIp
        | Fun::Cidr
        | Fun::IsCidr => scaled(size(0), TRAVERSAL),
        Fun::Replace | Fun::Split | Fun::IsCanonical => scaled(size(0), 2.0 * TRAVERSAL),
        Fun::ContainsIp => {
            let text = sole == Some(Cost::ContainsIp { text: true });
            scaled(2 * size(0), TRAVERSAL).saturating_add(parsing(text, size(1)))
        }
        Fun::ContainsCidr => {
            let text = sole == Some(Cost::ContainsCidr { text: true });
            let own = scaled(2 * size(0), TRAVERSAL) + scaled(size(0), TRAVERSAL) + 1;
            own.saturating_add(parsing(text, size(1)))
        }
        Fun::Validate => match args.first() {
            Some(Value::Format(name)) => search(size(1), formats::pattern_size(name)),
            _ => 1,
        },
        Fun::Flatten => {
            let depth = match args.get(1) {
                Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(1),
                _ => 1,
            };
            ALLOCATING_CALL.saturating_add(size(0).saturating_mul(depth))
        }
        Fun::Distinct => self_comparison(args.first()),
        Fun::Sort if sole.is_some() => self_comparison(args.first()),
        Fun::SortBy if sole.is_some() => self_comparison(args.get(1)),
        Fun::SetsContains | Fun::SetsIntersects => size(0).saturating_mul(size(1)).saturating_add(1),
        Fun::SetsEquivalent => size(0).saturating_mul(size(1)).saturating_mul(2).saturating_add(1),
        _ => 1,
    })
}

fn inner_size(args: &[Value], n: usize) -> u64 {
    args.get(n).map_or(1, Value::inner_size)
}

/// Operators and conversions whose cost goes by the overload.
fn of_operator(call: &Called<'_>) -> u64 {
    let size = |n: usize| inner_size(call.args, n);
    match (call.fun, call.sole) {
        (Fun::Eq, _) if call.args.first().is_some_and(Value::is_extension) => 1,
        (Fun::Eq | Fun::Ne, _) | (Fun::Lt | Fun::Le | Fun::Gt | Fun::Ge, Some(Cost::Compare)) => {
            scaled(size(0).min(size(1)), TRAVERSAL)
        }
        (Fun::Add, Some(Cost::Concat)) => scaled(size(0).saturating_add(size(1)), TRAVERSAL),
        (Fun::In, Some(Cost::InList)) => size(1),
        (Fun::ToString, Some(Cost::BytesToString)) | (Fun::ToBytes, Some(Cost::StringToBytes)) => scaled(size(0), TRAVERSAL),
        _ => 1,
    }
}

/// Cost of searching a text of `text` code points for a pattern of `pattern`.
pub(crate) fn search(text: u64, pattern: u64) -> u64 {
    scaled(text.saturating_add(1), TRAVERSAL).saturating_mul(scaled(pattern, PATTERN))
}

/// Extra cost of an address that is given as text.
fn parsing(text: bool, size: u64) -> u64 {
    if text { scaled(size, TRAVERSAL) } else { 0 }
}

fn self_comparison(list: Option<&Value>) -> u64 {
    let Some(Value::List(list)) = list else { return 1 };
    let text = matches!(list.first(), Some(Value::String(_) | Value::Bytes(_)));
    let n = list.len() as u64;
    floored(n.saturating_mul(n), sort_factor(text)).saturating_add(ALLOCATING_CALL)
}
