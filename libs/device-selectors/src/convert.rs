//! Conversions between values: `int(x)`, `string(x)` and the like, and the text forms of numbers.

use std::sync::Arc;

use crate::error::EvalError;
use crate::time::{self, Timestamp};
use crate::value::Value;

fn unparsable(what: &str, text: &str) -> EvalError {
    EvalError::invalid(format!("cannot convert {text:?} to {what}"))
}

pub(crate) fn to_int(value: &Value) -> Result<Value, EvalError> {
    let overflow = || EvalError::overflow("int");
    Ok(Value::Int(match value {
        Value::Int(n) => *n,
        Value::Uint(n) => i64::try_from(*n).map_err(|_| overflow())?,
        Value::Double(d) => double_to_int(*d).ok_or_else(overflow)?,
        Value::String(text) => text.parse().map_err(|_| unparsable("int", text))?,
        Value::Duration(nanos) => *nanos,
        Value::Timestamp(t) => t.seconds(),
        _ => return Err(EvalError::no_overload("int")),
    }))
}

/// Truncates toward zero; upstream accepts the open range of int.
fn double_to_int(d: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    (d > -LIMIT && d < LIMIT).then_some(d as i64)
}

pub(crate) fn to_uint(value: &Value) -> Result<Value, EvalError> {
    let overflow = || EvalError::overflow("uint");
    Ok(Value::Uint(match value {
        Value::Uint(n) => *n,
        Value::Int(n) => u64::try_from(*n).map_err(|_| overflow())?,
        Value::Double(d) => double_to_uint(*d).ok_or_else(overflow)?,
        Value::String(text) if text.starts_with('+') => return Err(unparsable("uint", text)),
        Value::String(text) => text.parse().map_err(|_| unparsable("uint", text))?,
        _ => return Err(EvalError::no_overload("uint")),
    }))
}

fn double_to_uint(d: f64) -> Option<u64> {
    const LIMIT: f64 = 18_446_744_073_709_551_616.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    (0.0..LIMIT).contains(&d).then_some(d as u64)
}

pub(crate) fn to_double(value: &Value) -> Result<Value, EvalError> {
    #[expect(clippy::cast_precision_loss, reason = "what the conversion means")]
    Ok(Value::Double(match value {
        Value::Double(d) => *d,
        Value::Int(n) => *n as f64,
        Value::Uint(n) => *n as f64,
        Value::String(text) => parse_double(text).ok_or_else(|| unparsable("double", text))?,
        _ => return Err(EvalError::no_overload("double")),
    }))
}

pub(crate) fn to_bool(value: &Value) -> Result<Value, EvalError> {
    match value {
        Value::Bool(b) => Ok(Value::Bool(*b)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(unparsable("bool", text)),
        },
        _ => Err(EvalError::no_overload("bool")),
    }
}

pub(crate) fn to_bytes(value: &Value) -> Result<Value, EvalError> {
    match value {
        Value::Bytes(bytes) => Ok(Value::Bytes(Arc::clone(bytes))),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        _ => Err(EvalError::no_overload("bytes")),
    }
}

pub(crate) fn to_string(value: &Value) -> Result<Value, EvalError> {
    Ok(match value {
        Value::String(text) => Value::String(Arc::clone(text)),
        Value::Bool(b) => Value::string(if *b { "true" } else { "false" }),
        Value::Int(n) => Value::string(n.to_string()),
        Value::Uint(n) => Value::string(n.to_string()),
        Value::Double(d) => Value::string(double_text(*d)),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::string(text),
            Err(_) => return Err(EvalError::invalid("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Duration(nanos) => Value::string(time::duration_text(*nanos)),
        Value::Timestamp(t) => Value::string(t.to_text()),
        Value::Ip(ip) => Value::string(ip.to_string()),
        Value::Cidr(cidr) => Value::string(cidr.to_string()),
        _ => return Err(EvalError::no_overload("string")),
    })
}

pub(crate) fn to_duration(value: &Value) -> Result<Value, EvalError> {
    match value {
        Value::Duration(nanos) => Ok(Value::Duration(*nanos)),
        Value::String(text) => time::parse_duration(text)
            .map(Value::Duration)
            .ok_or_else(|| unparsable("duration", text)),
        _ => Err(EvalError::no_overload("duration")),
    }
}

pub(crate) fn to_timestamp(value: &Value) -> Result<Value, EvalError> {
    match value {
        Value::Timestamp(t) => Ok(Value::Timestamp(*t)),
        Value::Int(seconds) => Timestamp::from_seconds(*seconds).map(Value::Timestamp),
        Value::String(text) => Timestamp::parse(text)
            .map(Value::Timestamp)
            .ok_or_else(|| unparsable("timestamp", text)),
        _ => Err(EvalError::no_overload("timestamp")),
    }
}

/// Decimal or hexadecimal floats, `_` between digits, `inf`, `infinity`, `nan`; no blanks, no overflow.
fn parse_double(text: &str) -> Option<f64> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = unsigned.to_ascii_lowercase();
    let magnitude = match lower.as_str() {
        "inf" | "infinity" => f64::INFINITY,
        "nan" if unsigned.len() == text.len() => f64::NAN,
        _ => finite(&without_underscores(&lower)?)?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

fn finite(text: &str) -> Option<f64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return parse_hex_double(hex);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    text.parse().ok().filter(|d: &f64| d.is_finite())
}

/// Drops underscores, each of which must stand between two digits (or after a base prefix).
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |i: Option<usize>| i.and_then(|i| bytes.get(i)).is_some_and(u8::is_ascii_hexdigit);
    let after_prefix = |i: usize| i == 2 && text.starts_with("0x");
    let valid = |(i, b): (usize, &u8)| *b != b'_' || ((digit(i.checked_sub(1)) || after_prefix(i)) && digit(Some(i + 1)));
    bytes.iter().enumerate().all(valid).then(|| text.replace('_', ""))
}

/// `h.hhhp±d` after the prefix.
fn parse_hex_double(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > 30 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "rounds to the nearest double")]
    let number = u128::from_str_radix(&digits, 16).ok()? as f64;
    let shift = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    let value = number * 2.0_f64.powi(exponent.checked_sub(shift)?);
    value.is_finite().then_some(value)
}

/// Shortest digits that read back equal; an exponent when it is below -4 or above 5.
pub(crate) fn double_text(d: f64) -> String {
    if d.is_nan() {
        return "NaN".to_owned();
    }
    if d.is_infinite() {
        return if d > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{d:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if d == 0.0 || (-4..6).contains(&exponent) {
        return format!("{d}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}
