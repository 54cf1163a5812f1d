//! Functions on lists and sets.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::EvalError;
use crate::meter::Meter;
use crate::value::{Value, compare, compare_numbers, same};

/// Largest list that `lists.range` makes.
const RANGE_MAX: i64 = 1_000_000;

fn announce(meter: &mut Meter, elements: usize) -> Result<(), EvalError> {
    meter.allocate(elements.saturating_mul(size_of::<Value>()))
}

/// Ascending; equal neighbours are allowed, and so are neighbours of different types.
pub(crate) fn is_sorted(list: &[Value]) -> Result<Value, EvalError> {
    if !list.iter().all(is_ordered) {
        return Err(EvalError::no_overload("isSorted"));
    }
    let descends = |pair: &[Value]| compare(&pair[0], &pair[1]).is_ok_and(|order| order == Ordering::Greater);
    Ok(Value::Bool(!list.windows(2).any(descends)))
}

fn is_ordered(v: &Value) -> bool {
    v.is_number()
        || matches!(
            v,
            Value::Bool(_) | Value::String(_) | Value::Bytes(_) | Value::Duration(_) | Value::Timestamp(_)
        )
}

pub(crate) fn sum(meter: &mut Meter, list: &[Value]) -> Result<Value, EvalError> {
    let mut total = None;
    for element in list {
        if !matches!(
            element,
            Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)
        ) {
            return Err(EvalError::no_overload("sum"));
        }
        total = Some(match total {
            None => element.clone(),
            Some(total) => crate::arith::add(meter, &total, element)?,
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

/// The first element that no other one goes before in the order `wanted`.
pub(crate) fn extreme(list: &[Value], wanted: Ordering) -> Result<Value, EvalError> {
    let mut best: Option<&Value> = None;
    for element in list {
        if !is_ordered(element) {
            return Err(EvalError::no_overload("min or max"));
        }
        if best.is_none_or(|best| compare(element, best).is_ok_and(|order| order == wanted)) {
            best = Some(element);
        }
    }
    best.cloned()
        .ok_or_else(|| EvalError::invalid("min or max called on empty list"))
}

pub(crate) fn index_of(meter: &mut Meter, list: &[Value], wanted: &Value) -> Result<Value, EvalError> {
    for (i, element) in list.iter().enumerate() {
        if same(meter, element, wanted)? {
            return Ok(position(i));
        }
    }
    Ok(Value::Int(-1))
}

pub(crate) fn last_index_of(meter: &mut Meter, list: &[Value], wanted: &Value) -> Result<Value, EvalError> {
    for (i, element) in list.iter().enumerate().rev() {
        if same(meter, element, wanted)? {
            return Ok(position(i));
        }
    }
    Ok(Value::Int(-1))
}

fn position(i: usize) -> Value {
    Value::Int(i64::try_from(i).unwrap_or(i64::MAX))
}

/// Whether some element equals `wanted`.
pub(crate) fn contains(meter: &mut Meter, list: &[Value], wanted: &Value) -> Result<bool, EvalError> {
    for element in list {
        if same(meter, element, wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `x in list`: the wanted value is the left operand of every comparison.
pub(crate) fn is_in(meter: &mut Meter, wanted: &Value, list: &[Value]) -> Result<bool, EvalError> {
    for element in list {
        if same(meter, wanted, element)? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn slice(meter: &mut Meter, list: &[Value], start: i64, end: i64) -> Result<Value, EvalError> {
    let bounds = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let part = bounds.and_then(|(start, end)| list.get(start..end));
    let part = part.ok_or_else(|| EvalError::invalid(format!("cannot slice({start}, {end}) a list of {}", list.len())))?;
    announce(meter, part.len())?;
    Ok(Value::list(part.to_vec()))
}

pub(crate) fn flatten(meter: &mut Meter, list: &[Value], depth: i64) -> Result<Value, EvalError> {
    if depth < 0 {
        return Err(EvalError::invalid("level must be non-negative"));
    }
    let mut out = Vec::new();
    flatten_into(meter, list, depth, &mut out)?;
    Ok(Value::list(out))
}

fn flatten_into(meter: &mut Meter, list: &[Value], depth: i64, out: &mut Vec<Value>) -> Result<(), EvalError> {
    for element in list {
        meter.work(1)?;
        match element {
            Value::List(inner) if depth > 0 => flatten_into(meter, inner, depth - 1, out)?,
            _ => {
                announce(meter, 1)?;
                out.push(element.clone());
            }
        }
    }
    Ok(())
}

/// Sorts `list` by the key of the same position.
pub(crate) fn sort_by(meter: &mut Meter, list: &[Value], keys: &[Value]) -> Result<Value, EvalError> {
    if list.len() != keys.len() {
        return Err(EvalError::invalid("keys and elements differ in number"));
    }
    let Some(first) = keys.first() else {
        return Ok(Value::list(Vec::new()));
    };
    let one_type = keys.iter().all(|key| key.type_name() == first.type_name());
    if !is_ordered(first) || !one_type {
        return Err(EvalError::invalid("list elements must be comparable and of one type"));
    }
    announce(meter, list.len() * 2)?;
    let mut pairs: Vec<(&Value, &Value)> = keys.iter().zip(list).collect();
    pairs.sort_by(|a, b| order(a.0, b.0));
    Ok(Value::list(pairs.into_iter().map(|(_, element)| element.clone()).collect()))
}

/// A total order of values of one type; NaN is last.
fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => {
            compare_numbers(&Value::Double(*a), &Value::Double(*b)).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        _ => compare(a, b).unwrap_or(Ordering::Equal),
    }
}

pub(crate) fn range(meter: &mut Meter, n: i64) -> Result<Value, EvalError> {
    if !(0..=RANGE_MAX).contains(&n) {
        return Err(EvalError::invalid(format!(
            "size {n} of lists.range is not within 0..{RANGE_MAX}"
        )));
    }
    announce(meter, usize::try_from(n).unwrap_or_default())?;
    Ok(Value::list((0..n).map(Value::Int).collect()))
}

pub(crate) fn reversed(meter: &mut Meter, list: &[Value]) -> Result<Value, EvalError> {
    announce(meter, list.len())?;
    Ok(Value::list(list.iter().rev().cloned().collect()))
}

pub(crate) fn distinct(meter: &mut Meter, list: &[Value]) -> Result<Value, EvalError> {
    let mut out: Vec<Value> = Vec::new();
    for element in list {
        if !is_in(meter, element, &out)? {
            out.push(element.clone());
        }
    }
    Ok(Value::list(out))
}

pub(crate) fn unwrapped(list: &[Value]) -> Result<Value, EvalError> {
    let mut out = Vec::new();
    for element in list {
        match element {
            Value::Optional(Some(value)) => out.push((**value).clone()),
            Value::Optional(None) => {}
            _ => return Err(EvalError::no_overload("unwrap")),
        }
    }
    Ok(Value::list(out))
}

/// Every element of `b` is in `a`.
pub(crate) fn has_all(meter: &mut Meter, a: &[Value], b: &[Value]) -> Result<bool, EvalError> {
    for element in b {
        if !is_in(meter, element, a)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn has_any(meter: &mut Meter, a: &[Value], b: &[Value]) -> Result<bool, EvalError> {
    for element in a {
        if is_in(meter, element, b)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Cost of looking at every element: 1, or a tenth of the bytes of texts; lists and maps inside count by theirs.
pub(crate) fn traversal_cost(meter: &mut Meter, value: &Value) -> Result<u64, EvalError> {
    meter.work(1)?;
    Ok(match value {
        Value::String(text) => text.len() as u64 / 10,
        Value::Bytes(bytes) => bytes.len() as u64 / 10,
        Value::List(list) => sum_costs(meter, list.iter())?,
        Value::Map(map) => sum_costs(meter, map.entries.iter().flat_map(|(k, v)| [k, v]))?,
        _ => 1,
    })
}

fn sum_costs<'v>(meter: &mut Meter, values: impl Iterator<Item = &'v Value>) -> Result<u64, EvalError> {
    let mut total: u64 = 0;
    for value in values {
        total = total.saturating_add(traversal_cost(meter, value)?);
    }
    Ok(total)
}

pub(crate) fn first(list: &Arc<Vec<Value>>) -> Value {
    Value::Optional(list.first().cloned().map(Arc::new))
}

pub(crate) fn last(list: &Arc<Vec<Value>>) -> Value {
    Value::Optional(list.last().cloned().map(Arc::new))
}
