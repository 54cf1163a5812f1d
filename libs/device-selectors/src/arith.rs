//! Arithmetic operators. Integers never wrap, types never mix.

use std::sync::Arc;

use crate::error::{EvalError, EvalErrorKind};
use crate::functions::Fun;
use crate::meter::Meter;
use crate::value::Value;

fn no_overload(fun: Fun) -> EvalError {
    EvalError::no_overload(&format!("{fun:?}"))
}

fn int(result: Option<i64>) -> Result<Value, EvalError> {
    result.map(Value::Int).ok_or_else(|| EvalError::overflow("int"))
}

fn uint(result: Option<u64>) -> Result<Value, EvalError> {
    result.map(Value::Uint).ok_or_else(|| EvalError::overflow("uint"))
}

fn duration(result: Option<i64>) -> Result<Value, EvalError> {
    result.map(Value::Duration).ok_or_else(|| EvalError::overflow("duration"))
}

pub(crate) fn add(meter: &mut Meter, a: &Value, b: &Value) -> Result<Value, EvalError> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => {
            meter.allocate(a.len() + b.len())?;
            Ok(Value::string([&**a, &**b].concat()))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            meter.allocate(a.len() + b.len())?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        (Value::List(a), Value::List(b)) => {
            meter.allocate((a.len() + b.len()) * size_of::<Value>())?;
            Ok(Value::list([a.as_slice(), b.as_slice()].concat()))
        }
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_add(*b)),
        (Value::Timestamp(t), Value::Duration(d)) | (Value::Duration(d), Value::Timestamp(t)) => t.plus(*d).map(Value::Timestamp),
        _ => Err(no_overload(Fun::Add)),
    }
}

pub(crate) fn subtract(a: &Value, b: &Value) -> Result<Value, EvalError> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => duration(a.checked_sub(*b)),
        (Value::Timestamp(t), Value::Duration(d)) => {
            let negated = d.checked_neg().ok_or_else(|| EvalError::overflow("duration"))?;
            t.plus(negated).map(Value::Timestamp)
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => a.minus(*b).map(Value::Duration),
        _ => Err(no_overload(Fun::Sub)),
    }
}

pub(crate) fn multiply(a: &Value, b: &Value) -> Result<Value, EvalError> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_mul(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_mul(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        _ => Err(no_overload(Fun::Mul)),
    }
}

fn by_zero<T>() -> Result<T, EvalError> {
    Err(EvalError::new(EvalErrorKind::DivideByZero, "division by zero"))
}

pub(crate) fn divide(a: &Value, b: &Value) -> Result<Value, EvalError> {
    match (a, b) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => by_zero(),
        (Value::Int(a), Value::Int(b)) => int(a.checked_div(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_div(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => Err(no_overload(Fun::Div)),
    }
}

pub(crate) fn remainder(a: &Value, b: &Value) -> Result<Value, EvalError> {
    match (a, b) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => by_zero(),
        (Value::Int(a), Value::Int(b)) => int(a.checked_rem(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_rem(*b)),
        _ => Err(no_overload(Fun::Rem)),
    }
}

pub(crate) fn negate(a: &Value) -> Result<Value, EvalError> {
    match a {
        Value::Int(n) => int(n.checked_neg()),
        Value::Double(d) => Ok(Value::Double(-d)),
        // Not declared, so only behind `dyn`.
        Value::Duration(nanos) => duration(nanos.checked_neg()),
        _ => Err(no_overload(Fun::Negate)),
    }
}

/// A list index: whole and not negative, within the list.
pub(crate) fn element(list: &Arc<Vec<Value>>, index: &Value) -> Result<Value, EvalError> {
    let number = match index {
        Value::Int(n) => usize::try_from(*n).ok(),
        Value::Uint(n) => usize::try_from(*n).ok(),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole; saturates")]
        Value::Double(d) if d.fract() == 0.0 => (*d >= 0.0).then_some(*d as usize),
        _ => {
            return Err(EvalError::invalid(format!(
                "unsupported index type '{}' in list",
                index.type_name()
            )));
        }
    };
    let found = number.and_then(|n| list.get(n));
    found.cloned().ok_or_else(|| EvalError::out_of_range("index out of bounds"))
}
