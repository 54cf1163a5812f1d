//! Calls of functions on values: picks the meaning by the operands' types at run time.

use std::cmp::Ordering;
use std::sync::Arc;

use ::regex::Regex;
use rustc_hash::FxHashMap;

use crate::actual::Called;
use crate::error::{EvalError, EvalErrorKind};
use crate::functions::{Fun, TimePart};
use crate::meter::Meter;
use crate::net::{Cidr, Ip};
use crate::quantity::Amount;
use crate::semver::Version;
use crate::url::Url;
use crate::value::{Map, Value, compare, equal};
use crate::{actual, arith, convert, formats, list, print, text, time};

/// Patterns that an evaluation made itself and may meet again.
pub(crate) type Patterns = FxHashMap<Arc<str>, Regex>;

/// Patterns kept per evaluation.
const PATTERNS_MAX: usize = 64;
/// Steps of work to parse a pattern and to build one state of it. Upstream counts no cost for either.
const STEPS_PER_PATTERN: u64 = 1000;
const STEPS_PER_STATE: u64 = 32;

/// Calls a function and counts its cost. The receiver, if there is one, is the first argument.
pub(crate) fn call(meter: &mut Meter, patterns: &mut Patterns, call: &Called<'_>) -> Result<Value, EvalError> {
    let Called { fun, args, .. } = *call;
    meter.work(args.iter().map(|arg| bulk(fun, arg)).sum())?;
    if actual::needs_result(fun) {
        let result = meaning(meter, patterns, fun, args);
        if result.as_ref().is_err_and(Meter::is_exhaustion) {
            return result;
        }
        meter.charge(actual::of_result(fun, &result))?;
        return result;
    }
    let cost = actual::cost(meter, call)?;
    meter.charge(cost)?;
    meaning(meter, patterns, fun, args)
}

/// Counts the cost of a call one of whose operands failed.
pub(crate) fn failed_call(meter: &mut Meter, call: &Called<'_>, error: EvalError) -> Result<Value, EvalError> {
    let cost = if actual::needs_result(call.fun) {
        actual::of_result(call.fun, &Err(error.clone()))
    } else {
        actual::cost(meter, call)?
    };
    meter.charge(cost)?;
    Err(error)
}

fn meaning(meter: &mut Meter, patterns: &mut Patterns, fun: Fun, args: &[Value]) -> Result<Value, EvalError> {
    match fun {
        Fun::Eq | Fun::Ne | Fun::Lt | Fun::Le | Fun::Gt | Fun::Ge | Fun::Not | Fun::In => relation(meter, fun, args),
        Fun::Add | Fun::Sub | Fun::Mul | Fun::Div | Fun::Rem | Fun::Negate => arithmetic(meter, fun, args),
        Fun::Size | Fun::TypeOf | Fun::TimePart(_) => property(fun, args),
        Fun::Dyn
        | Fun::ToInt
        | Fun::ToUint
        | Fun::ToDouble
        | Fun::ToString
        | Fun::ToBytes
        | Fun::ToBool
        | Fun::ToDuration
        | Fun::ToTimestamp => args.first().map_or_else(|| no_overload(fun), |value| convert(fun, value)),
        Fun::Matches | Fun::Find | Fun::FindAll => search(meter, patterns, fun, args),
        Fun::IndexOf | Fun::LastIndexOf => index_of(meter, fun, args),
        _ => match args {
            [Value::String(text), rest @ ..] => on_text(meter, fun, text, rest),
            [Value::List(list), rest @ ..] => on_list(meter, fun, list, rest),
            [Value::Quantity(quantity), rest @ ..] if fun_of_numbers(fun) => on_quantity(fun, quantity, rest),
            [Value::Semver(version), rest @ ..] if fun_of_numbers(fun) => on_version(fun, version, rest),
            [Value::Ip(ip)] if fun_of_networks(fun) => on_ip(fun, *ip),
            [Value::Cidr(cidr), rest @ ..] if fun_of_networks(fun) => on_cidr(fun, *cidr, rest),
            _ => other(meter, fun, args),
        },
    }
}

/// Steps of work to walk over a value once.
fn bulk(fun: Fun, value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64 / 32,
        Value::Bytes(bytes) => bytes.len() as u64 / 32,
        Value::List(list) if fun != Fun::Size => list.len() as u64 / 4,
        _ => 0,
    }
}

#[cold]
fn no_overload<T>(fun: Fun) -> Result<T, EvalError> {
    Err(EvalError::no_overload(&format!("{fun:?}")))
}

fn relation(meter: &mut Meter, fun: Fun, args: &[Value]) -> Result<Value, EvalError> {
    let answer = match (fun, args) {
        (Fun::Not, [Value::Bool(b)]) => !b,
        (Fun::Eq, [a, b]) => equal(meter, a, b)?,
        (Fun::Ne, [a, b]) => !crate::value::same(meter, a, b)?,
        (Fun::Lt, [a, b]) => compare(a, b)? == Ordering::Less,
        (Fun::Le, [a, b]) => compare(a, b)? != Ordering::Greater,
        (Fun::Gt, [a, b]) => compare(a, b)? == Ordering::Greater,
        (Fun::Ge, [a, b]) => compare(a, b)? != Ordering::Less,
        (Fun::In, [wanted, Value::List(list)]) => list::is_in(meter, wanted, list)?,
        (Fun::In, [wanted, Value::Map(map)]) => map.get(wanted).is_some(),
        _ => return no_overload(fun),
    };
    Ok(Value::Bool(answer))
}

fn arithmetic(meter: &mut Meter, fun: Fun, args: &[Value]) -> Result<Value, EvalError> {
    match (fun, args) {
        (Fun::Add, [a, b]) => arith::add(meter, a, b),
        (Fun::Sub, [a, b]) => arith::subtract(a, b),
        (Fun::Mul, [a, b]) => arith::multiply(a, b),
        (Fun::Div, [a, b]) => arith::divide(a, b),
        (Fun::Rem, [a, b]) => arith::remainder(a, b),
        (Fun::Negate, [a]) => arith::negate(a),
        _ => no_overload(fun),
    }
}

fn property(fun: Fun, args: &[Value]) -> Result<Value, EvalError> {
    match (fun, args) {
        (Fun::Size, [v @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))]) => {
            Ok(Value::Int(i64::try_from(v.size()).unwrap_or(i64::MAX)))
        }
        (Fun::TypeOf, [v]) => Ok(Value::Type(v.type_name())),
        (Fun::TimePart(part), [Value::Timestamp(t)]) => t.part(part, None).map(Value::Int),
        (Fun::TimePart(part), [Value::Timestamp(t), Value::String(zone)]) => t.part(part, Some(zone)).map(Value::Int),
        (Fun::TimePart(part), [Value::Duration(nanos)]) => duration_part(part, *nanos),
        _ => no_overload(fun),
    }
}

fn duration_part(part: TimePart, nanos: i64) -> Result<Value, EvalError> {
    match time::duration_part_of(nanos, part) {
        Some(n) => Ok(Value::Int(n)),
        None => no_overload(Fun::TimePart(part)),
    }
}

/// The conversion functions; also run when constants are folded.
pub(crate) fn convert(fun: Fun, value: &Value) -> Result<Value, EvalError> {
    match fun {
        Fun::Dyn => Ok(value.clone()),
        Fun::TypeOf => Ok(Value::Type(value.type_name())),
        Fun::ToInt => convert::to_int(value),
        Fun::ToUint => convert::to_uint(value),
        Fun::ToDouble => convert::to_double(value),
        Fun::ToString => convert::to_string(value),
        Fun::ToBytes => convert::to_bytes(value),
        Fun::ToBool => convert::to_bool(value),
        Fun::ToDuration => convert::to_duration(value),
        Fun::ToTimestamp => convert::to_timestamp(value),
        _ => no_overload(fun),
    }
}

/// `matches`, `find`, `findAll` with a pattern that is not constant.
fn search(meter: &mut Meter, patterns: &mut Patterns, fun: Fun, args: &[Value]) -> Result<Value, EvalError> {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, None),
        [Value::String(text), Value::String(pattern), limit] => (text, pattern, Some(limit.clone())),
        _ => return no_overload(fun),
    };
    if let Some(regex) = patterns.get(pattern) {
        return matched(meter, fun, regex, text, limit);
    }
    meter.work(STEPS_PER_PATTERN.saturating_add(pattern.len() as u64))?;
    let prepared = crate::regex::prepare(pattern).map_err(EvalError::invalid)?;
    meter.work(prepared.states.saturating_mul(STEPS_PER_STATE))?;
    let regex = prepared.build().map_err(EvalError::invalid)?;
    if patterns.len() >= PATTERNS_MAX {
        patterns.clear();
    }
    patterns.insert(Arc::clone(pattern), regex.clone());
    matched(meter, fun, &regex, text, limit)
}

/// The answer of a search.
pub(crate) fn matched(meter: &mut Meter, fun: Fun, regex: &Regex, text: &str, limit: Option<Value>) -> Result<Value, EvalError> {
    match (fun, limit) {
        (Fun::Matches, None) => Ok(Value::Bool(regex.is_match(text))),
        (Fun::Find, None) => Ok(Value::string(regex.find(text).map_or("", |m| m.as_str()))),
        (Fun::FindAll, limit) => {
            let limit = match limit {
                None => -1,
                Some(Value::Int(n)) => n,
                Some(_) => return no_overload(fun),
            };
            meter.allocate(text.len().saturating_mul(8))?;
            let found = crate::regex::find_all(regex, text, limit);
            Ok(Value::list(found.into_iter().map(Value::string).collect()))
        }
        _ => no_overload(fun),
    }
}

fn index_of(meter: &mut Meter, fun: Fun, args: &[Value]) -> Result<Value, EvalError> {
    match (fun, args) {
        (Fun::IndexOf, [Value::String(text), Value::String(wanted)]) => text::index_of(text, wanted, 0),
        (Fun::IndexOf, [Value::String(text), Value::String(wanted), Value::Int(from)]) => text::index_of(text, wanted, *from),
        (Fun::LastIndexOf, [Value::String(text), Value::String(wanted)]) => text::last_index_of(text, wanted, None),
        (Fun::LastIndexOf, [Value::String(text), Value::String(wanted), Value::Int(to)]) => {
            text::last_index_of(text, wanted, Some(*to))
        }
        (Fun::IndexOf, [Value::List(list), wanted]) => list::index_of(meter, list, wanted),
        (Fun::LastIndexOf, [Value::List(list), wanted]) => list::last_index_of(meter, list, wanted),
        _ => no_overload(fun),
    }
}

fn on_text(meter: &mut Meter, fun: Fun, text: &Arc<str>, rest: &[Value]) -> Result<Value, EvalError> {
    match (fun, rest) {
        (Fun::Contains, [Value::String(part)]) => Ok(Value::Bool(text.contains(&**part))),
        (Fun::StartsWith, [Value::String(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        (Fun::EndsWith, [Value::String(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        (Fun::CharAt, [Value::Int(index)]) => text::char_at(text, *index),
        (Fun::LowerAscii, []) => Ok(Value::string(text.to_ascii_lowercase())),
        (Fun::UpperAscii, []) => Ok(Value::string(text.to_ascii_uppercase())),
        (Fun::Trim, []) => Ok(Value::string(text.trim())),
        (Fun::Substring, [Value::Int(start)]) => text::substring(text, *start, None),
        (Fun::Substring, [Value::Int(start), Value::Int(end)]) => text::substring(text, *start, Some(*end)),
        (Fun::Replace, [Value::String(old), Value::String(new)]) => text::replace(meter, text, old, new, -1),
        (Fun::Replace, [Value::String(old), Value::String(new), Value::Int(n)]) => text::replace(meter, text, old, new, *n),
        (Fun::Split, [Value::String(separator)]) => text::split(meter, text, separator, -1),
        (Fun::Split, [Value::String(separator), Value::Int(n)]) => text::split(meter, text, separator, *n),
        (Fun::Quote, []) => Ok(Value::string(text::quote(text))),
        (Fun::Format, [Value::List(args)]) => print::format(meter, text, args),
        (Fun::FormatNamed, []) => Ok(Value::Optional(
            formats::named(text).map(|name| Arc::new(Value::Format(name))),
        )),
        _ => parse_text(meter, fun, text, rest),
    }
}

/// Functions that make a value out of a text, or say whether they could.
fn parse_text(meter: &mut Meter, fun: Fun, text: &Arc<str>, rest: &[Value]) -> Result<Value, EvalError> {
    let invalid = |what: &str| EvalError::invalid(format!("{what} {text:?} is not valid"));
    let version = |tolerant: bool| {
        if tolerant {
            Version::parse_tolerant(text)
        } else {
            Version::parse(text)
        }
    };
    Ok(match (fun, rest) {
        (Fun::Quantity, []) => Value::Quantity(Arc::new(Amount::parse(text).ok_or_else(|| invalid("quantity"))?)),
        (Fun::IsQuantity, []) => Value::Bool(Amount::parse(text).is_some()),
        (Fun::Semver, []) => Value::Semver(Arc::new(version(false)?)),
        (Fun::Semver, [Value::Bool(tolerant)]) => Value::Semver(Arc::new(version(*tolerant)?)),
        (Fun::IsSemver, []) => Value::Bool(version(false).is_ok()),
        (Fun::IsSemver, [Value::Bool(tolerant)]) => Value::Bool(version(*tolerant).is_ok()),
        (Fun::Ip, []) => Value::Ip(Ip::parse(text).ok_or_else(|| invalid("IP address"))?),
        (Fun::IsIp, []) => Value::Bool(Ip::parse(text).is_some()),
        (Fun::IsCanonical, []) => {
            let ip = Ip::parse(text).ok_or_else(|| invalid("IP address"))?;
            Value::Bool(ip.to_string() == **text)
        }
        (Fun::Cidr, []) => Value::Cidr(Cidr::parse(text).ok_or_else(|| invalid("CIDR block"))?),
        (Fun::IsCidr, []) => Value::Bool(Cidr::parse(text).is_some()),
        (Fun::Url, []) => Value::Url(Arc::new(Url::parse(text).ok_or_else(|| invalid("URL"))?)),
        (Fun::IsUrl, []) => Value::Bool(Url::parse(text).is_some()),
        _ => return other(meter, fun, &[&[Value::String(Arc::clone(text))], rest].concat()),
    })
}

fn on_list(meter: &mut Meter, fun: Fun, list: &Arc<Vec<Value>>, rest: &[Value]) -> Result<Value, EvalError> {
    match (fun, rest) {
        (Fun::IsSorted, []) => list::is_sorted(list),
        (Fun::Sum, []) => list::sum(meter, list),
        (Fun::Min, []) => list::extreme(list, Ordering::Less),
        (Fun::Max, []) => list::extreme(list, Ordering::Greater),
        (Fun::Includes, [wanted]) => list::contains(meter, list, wanted).map(Value::Bool),
        (Fun::Join, []) => text::join(meter, list, ""),
        (Fun::Join, [Value::String(separator)]) => text::join(meter, list, separator),
        (Fun::Slice, [Value::Int(start), Value::Int(end)]) => list::slice(meter, list, *start, *end),
        (Fun::Flatten, []) => list::flatten(meter, list, 1),
        (Fun::Flatten, [Value::Int(depth)]) => list::flatten(meter, list, *depth),
        (Fun::Sort, []) => list::sort_by(meter, list, list),
        (Fun::SortBy, [Value::List(keys)]) => list::sort_by(meter, list, keys),
        (Fun::Reverse, []) => list::reversed(meter, list),
        (Fun::Distinct, []) => list::distinct(meter, list),
        (Fun::First, []) => Ok(list::first(list)),
        (Fun::Last, []) => Ok(list::last(list)),
        (Fun::Unwrap, []) => list::unwrapped(list),
        (Fun::SetsContains, [Value::List(b)]) => list::has_all(meter, list, b).map(Value::Bool),
        (Fun::SetsIntersects, [Value::List(b)]) => list::has_any(meter, list, b).map(Value::Bool),
        (Fun::SetsEquivalent, [Value::List(b)]) => {
            Ok(Value::Bool(list::has_all(meter, list, b)? && list::has_all(meter, b, list)?))
        }
        _ => other(meter, fun, &[&[Value::List(Arc::clone(list))], rest].concat()),
    }
}

fn fun_of_numbers(fun: Fun) -> bool {
    matches!(
        fun,
        Fun::Sign
            | Fun::IsInteger
            | Fun::AsInteger
            | Fun::AsApproximateFloat
            | Fun::AddQuantity
            | Fun::SubQuantity
            | Fun::IsGreaterThan
            | Fun::IsLessThan
            | Fun::CompareTo
            | Fun::Major
            | Fun::Minor
            | Fun::Patch
    )
}

fn ordered(fun: Fun, order: Ordering) -> Result<Value, EvalError> {
    match fun {
        Fun::IsGreaterThan => Ok(Value::Bool(order == Ordering::Greater)),
        Fun::IsLessThan => Ok(Value::Bool(order == Ordering::Less)),
        Fun::CompareTo => Ok(Value::Int(order as i64)),
        _ => no_overload(fun),
    }
}

fn on_quantity(fun: Fun, quantity: &Amount, rest: &[Value]) -> Result<Value, EvalError> {
    let amount = |value: Amount| Ok(Value::Quantity(Arc::new(value)));
    match (fun, rest) {
        (Fun::Sign, []) => Ok(Value::Int(i64::from(quantity.value.signum()))),
        (Fun::IsInteger, []) => Ok(Value::Bool(quantity.as_integer().is_some())),
        (Fun::AsInteger, []) => match quantity.as_integer() {
            Some(n) => Ok(Value::Int(n)),
            None => Err(EvalError::invalid("cannot convert value to integer")),
        },
        (Fun::AsApproximateFloat, []) => Ok(Value::Double(quantity.value.to_f64())),
        (Fun::AddQuantity, [Value::Quantity(other)]) => amount(quantity.plus(other)),
        (Fun::AddQuantity, [Value::Int(n)]) => amount(quantity.plus(&Amount::from_int(*n))),
        (Fun::SubQuantity, [Value::Quantity(other)]) => amount(quantity.minus(other)),
        (Fun::SubQuantity, [Value::Int(n)]) => amount(quantity.minus(&Amount::from_int(*n))),
        (_, [Value::Quantity(other)]) => ordered(fun, quantity.value.cmp(&other.value)),
        _ => no_overload(fun),
    }
}

fn on_version(fun: Fun, version: &Version, rest: &[Value]) -> Result<Value, EvalError> {
    let part = |n: u64| i64::try_from(n).map(Value::Int).map_err(|_| EvalError::overflow("int"));
    match (fun, rest) {
        (Fun::Major, []) => part(version.major),
        (Fun::Minor, []) => part(version.minor),
        (Fun::Patch, []) => part(version.patch),
        (_, [Value::Semver(other)]) => ordered(fun, version.precedence(other)),
        _ => no_overload(fun),
    }
}

fn fun_of_networks(fun: Fun) -> bool {
    matches!(
        fun,
        Fun::Family | Fun::IpIs(_) | Fun::CidrIp | Fun::PrefixLength | Fun::Masked | Fun::ContainsIp | Fun::ContainsCidr
    )
}

fn on_ip(fun: Fun, ip: Ip) -> Result<Value, EvalError> {
    match fun {
        Fun::Family => Ok(Value::Int(ip.family())),
        Fun::IpIs(class) => Ok(Value::Bool(ip.is(class))),
        _ => no_overload(fun),
    }
}

fn on_cidr(fun: Fun, cidr: Cidr, rest: &[Value]) -> Result<Value, EvalError> {
    let answer = match (fun, rest) {
        (Fun::CidrIp, []) => return Ok(Value::Ip(cidr.address())),
        (Fun::PrefixLength, []) => return Ok(Value::Int(cidr.prefix_length())),
        (Fun::Masked, []) => return Ok(Value::Cidr(cidr.masked())),
        (Fun::ContainsIp, [Value::Ip(ip)]) => Some(cidr.contains(*ip)),
        (Fun::ContainsIp, [Value::String(text)]) => Ip::parse(text).map(|ip| cidr.contains(ip)),
        (Fun::ContainsCidr, [Value::Cidr(other)]) => Some(cidr.contains_cidr(*other)),
        (Fun::ContainsCidr, [Value::String(text)]) => Cidr::parse(text).map(|other| cidr.contains_cidr(other)),
        _ => None,
    };
    // Upstream reports a text that is no address in the same way as an operand of a wrong type.
    answer.map_or_else(|| no_overload(fun), |answer| Ok(Value::Bool(answer)))
}

/// Functions whose receiver can be anything, or is of a type with few functions.
fn other(meter: &mut Meter, fun: Fun, args: &[Value]) -> Result<Value, EvalError> {
    match (fun, args) {
        (Fun::Includes, [receiver, wanted]) => crate::value::same(meter, receiver, wanted).map(Value::Bool),
        (Fun::Range, [Value::Int(n)]) => list::range(meter, *n),
        (Fun::OptionalOf, [value]) => Ok(Value::some(value.clone())),
        (Fun::OptionalOfNonZero, [value]) if is_zero(value) => Ok(Value::Optional(None)),
        (Fun::OptionalOfNonZero, [value]) => Ok(Value::some(value.clone())),
        (Fun::OptionalNone, []) => Ok(Value::Optional(None)),
        (Fun::HasValue, [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        (Fun::OptionalValue, [Value::Optional(Some(value))]) => Ok((**value).clone()),
        (Fun::OptionalValue, [Value::Optional(None)]) => Err(EvalError::invalid("optional.none() dereference")),
        (Fun::FormatOf(name), []) => Ok(Value::Format(name)),
        (Fun::Validate, [Value::Format(name), Value::String(text)]) => Ok(validate(name, text)),
        (Fun::UrlPart(part), [Value::Url(url)]) => Ok(Value::string(url.part(part))),
        (Fun::UrlQuery, [Value::Url(url)]) => Ok(query(url)),
        _ => no_overload(fun),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) => true,
        Value::Double(d) => *d == 0.0,
        // Upstream's map of this sort cannot say that it is empty.
        Value::Map(map) if map.empty_by_default => false,
        Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => value.size() == 0,
        _ => false,
    }
}

fn validate(format: &str, text: &str) -> Value {
    let wrong = formats::validate(format, text);
    if wrong.is_empty() {
        return Value::Optional(None);
    }
    Value::some(Value::list(wrong.into_iter().map(Value::string).collect()))
}

fn query(url: &Url) -> Value {
    let mut map = Map::default();
    for (key, value) in url.query_pairs() {
        let key = Value::string(key);
        let mut values = match map.get(&key) {
            Some(Value::List(list)) => list.to_vec(),
            _ => Vec::new(),
        };
        values.push(Value::string(value));
        map.insert(key, Value::list(values));
    }
    Value::Map(Arc::new(map))
}

/// The error of a macro over a value that has no elements.
pub(crate) fn not_iterable(value: &Value) -> EvalError {
    EvalError::new(
        EvalErrorKind::NotIterable,
        format!("no elements to iterate in a value of type {}", value.type_name()),
    )
}
