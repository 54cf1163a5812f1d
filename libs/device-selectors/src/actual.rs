//! What a call costs when it runs: the estimate's rules with the real sizes.

use crate::cost::{ALLOCATING_CALL, PATTERN, TRAVERSAL, scaled, sort_factor};
use crate::error::EvalError;
use crate::formats;
use crate::functions::Fun;
use crate::list::traversal_cost;
use crate::meter::Meter;
use crate::text::joined_size;
use crate::value::Value;

/// Cost of calling `fun`, besides its operands.
pub(crate) fn cost(meter: &mut Meter, fun: Fun, args: &[Value]) -> Result<u64, EvalError> {
    let size = |n: usize| args.get(n).map_or(0, Value::size);
    Ok(match fun {
        Fun::Eq | Fun::Ne | Fun::Lt | Fun::Le | Fun::Gt | Fun::Ge => scaled(size(0).min(size(1)), TRAVERSAL),
        Fun::Add => match args.first() {
            Some(Value::String(_) | Value::Bytes(_)) => scaled(size(0).saturating_add(size(1)), TRAVERSAL),
            _ => 1,
        },
        Fun::In => match args.get(1) {
            Some(Value::List(list)) => list.len() as u64,
            _ => 1,
        },
        Fun::StartsWith | Fun::EndsWith => scaled(size(1), TRAVERSAL),
        Fun::Contains => scaled(size(0), TRAVERSAL).saturating_mul(scaled(size(1), TRAVERSAL)),
        Fun::Matches | Fun::Find | Fun::FindAll => search(size(0), size(1)),
        Fun::IsSorted | Fun::Sum | Fun::Min | Fun::Max | Fun::IndexOf | Fun::LastIndexOf | Fun::Includes => {
            args.first().map_or(Ok(0), |receiver| traversal_cost(meter, receiver))?
        }
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
        | Fun::IsCidr
        | Fun::Format
        | Fun::Quote => scaled(size(0), TRAVERSAL),
        Fun::ToBytes | Fun::ToString if matches!(args.first(), Some(Value::String(_) | Value::Bytes(_))) => {
            scaled(size(0), TRAVERSAL)
        }
        Fun::Replace | Fun::Split | Fun::IsCanonical => scaled(size(0), 2.0 * TRAVERSAL),
        Fun::Join => match args {
            [Value::List(list), rest @ ..] => {
                let separator = match rest {
                    [Value::String(text)] => text,
                    _ => "",
                };
                scaled(joined_size(list, separator), 2.0 * TRAVERSAL)
            }
            _ => 1,
        },
        Fun::ContainsIp | Fun::ContainsCidr => contains_address(fun, args),
        Fun::Validate => match args {
            [Value::Format(name), text] => {
                let text = scaled(text.size().saturating_add(1), TRAVERSAL);
                text.saturating_mul(scaled(formats::pattern_size(name), PATTERN))
            }
            _ => 1,
        },
        Fun::Slice => ALLOCATING_CALL.saturating_add(slice_size(args)),
        Fun::Range => match args {
            [Value::Int(n)] => ALLOCATING_CALL.saturating_add(u64::try_from(*n).unwrap_or(0)),
            _ => 1,
        },
        Fun::Reverse => ALLOCATING_CALL.saturating_add(size(0)),
        Fun::Flatten => {
            let depth = match args.get(1) {
                Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(0),
                _ => 1,
            };
            ALLOCATING_CALL.saturating_add(size(0).saturating_mul(depth))
        }
        Fun::Distinct | Fun::Sort => self_comparison(args.first()),
        Fun::SortBy => self_comparison(args.get(1)),
        Fun::SetsContains | Fun::SetsIntersects => size(0).saturating_mul(size(1)).saturating_add(1),
        Fun::SetsEquivalent => size(0).saturating_mul(size(1)).saturating_mul(2).saturating_add(1),
        _ => 1,
    })
}

/// Cost of searching a text of `text` code points for a pattern of `pattern`.
pub(crate) fn search(text: u64, pattern: u64) -> u64 {
    scaled(text.saturating_add(1), TRAVERSAL).saturating_mul(scaled(pattern, PATTERN))
}

fn contains_address(fun: Fun, args: &[Value]) -> u64 {
    let [Value::Cidr(cidr), other] = args else { return 1 };
    let bytes = cidr.prefix_bytes();
    let own = match fun {
        Fun::ContainsCidr => scaled(2 * bytes, TRAVERSAL) + scaled(bytes, TRAVERSAL) + 1,
        _ => scaled(2 * bytes, TRAVERSAL),
    };
    let parse = if matches!(other, Value::String(_)) {
        scaled(other.size(), TRAVERSAL)
    } else {
        0
    };
    own + parse
}

fn slice_size(args: &[Value]) -> u64 {
    match args {
        [_, Value::Int(start), Value::Int(end)] => u64::try_from(end.saturating_sub(*start)).unwrap_or(0),
        _ => 0,
    }
}

fn self_comparison(list: Option<&Value>) -> u64 {
    let Some(Value::List(list)) = list else { return 1 };
    let text = matches!(list.first(), Some(Value::String(_) | Value::Bytes(_)));
    let n = list.len() as u64;
    scaled(n.saturating_mul(n), sort_factor(text)).saturating_add(ALLOCATING_CALL)
}
