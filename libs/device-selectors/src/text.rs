//! The string library. Positions are code points.

use crate::error::EvalError;
use crate::meter::Meter;
use crate::value::Value;

fn position(n: i64, what: &str) -> Result<usize, EvalError> {
    usize::try_from(n).map_err(|_| EvalError::out_of_range(format!("{what}: {n} is out of range")))
}

/// Byte offset of the code point `n`; the size of the text gives its end, more gives `None`.
fn offset(text: &str, n: usize) -> Option<usize> {
    text.char_indices().map(|(i, _)| i).chain([text.len()]).nth(n)
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

fn as_int(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(crate) fn char_at(text: &str, index: i64) -> Result<Value, EvalError> {
    let out = || EvalError::out_of_range(format!("index out of range: {index}"));
    let start = offset(text, position(index, "charAt")?).ok_or_else(out)?;
    Ok(Value::string(
        text[start..].chars().next().map(String::from).unwrap_or_default(),
    ))
}

/// First position of `wanted` at or after `from`; -1 if there is none.
pub(crate) fn index_of(text: &str, wanted: &str, from: i64) -> Result<Value, EvalError> {
    let from = position(from, "indexOf")?;
    if wanted.is_empty() {
        return Ok(Value::Int(as_int(from.min(chars(text)))));
    }
    let found = offset(text, from).and_then(|start| Some(start + text[start..].find(wanted)?));
    Ok(Value::Int(found.map_or(-1, |at| as_int(chars(&text[..at])))))
}

/// Last position of `wanted` not after `to` (by default anywhere); -1 if there is none, or if `to` is at or
/// beyond the size.
pub(crate) fn last_index_of(text: &str, wanted: &str, to: Option<i64>) -> Result<Value, EvalError> {
    let size = chars(text);
    let limit = to.map(|to| position(to, "lastIndexOf")).transpose()?;
    if wanted.is_empty() {
        return Ok(Value::Int(as_int(limit.map_or(size, |limit| limit.min(size)))));
    }
    let end = match limit {
        Some(limit) if limit >= size => return Ok(Value::Int(-1)),
        Some(limit) => offset(text, limit).map_or(text.len(), |start| text.len().min(start + wanted.len())),
        None => text.len(),
    };
    // `end` may fall inside a code point; then no match can end there.
    let found = last_match(text.as_bytes(), wanted.as_bytes(), end);
    Ok(Value::Int(found.map_or(-1, |at| as_int(chars(&text[..at])))))
}

fn last_match(text: &[u8], wanted: &[u8], end: usize) -> Option<usize> {
    let head = text.get(..end)?;
    head.windows(wanted.len()).rposition(|window| window == wanted)
}

pub(crate) fn substring(text: &str, start: i64, end: Option<i64>) -> Result<Value, EvalError> {
    let out = || EvalError::out_of_range(format!("substring range {start}, {end:?} is out of range"));
    let start_at = offset(text, position(start, "substring")?).ok_or_else(out)?;
    let end_at = match end {
        Some(end) => offset(text, position(end, "substring")?).ok_or_else(out)?,
        None => text.len(),
    };
    text.get(start_at..end_at).map(Value::string).ok_or_else(out)
}

/// Replaces the first `limit` occurrences, all if it is negative. An empty `old` is before every code point and
/// at the end.
pub(crate) fn replace(meter: &mut Meter, text: &str, old: &str, new: &str, limit: i64) -> Result<Value, EvalError> {
    let all = text.matches(old).count();
    let count = usize::try_from(limit).map_or(all, |limit| limit.min(all));
    meter.allocate(text.len().saturating_add(count.saturating_mul(new.len())))?;
    Ok(Value::string(text.replacen(old, new, count)))
}

/// Splits into at most `limit` parts, all if it is negative; the last part keeps the rest.
pub(crate) fn split(meter: &mut Meter, text: &str, separator: &str, limit: i64) -> Result<Value, EvalError> {
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    if most == 0 {
        return Ok(Value::list(Vec::new()));
    }
    meter.allocate(text.len().saturating_mul(8))?;
    let parts: Vec<&str> = if separator.is_empty() {
        code_points(text, most)
    } else {
        text.splitn(most, separator).collect()
    };
    Ok(Value::list(parts.into_iter().map(Value::string).collect()))
}

fn code_points(text: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 >= most {
            parts.push(rest);
            break;
        }
        let (head, tail) = rest.split_at(c.len_utf8());
        parts.push(head);
        rest = tail;
    }
    parts
}

pub(crate) fn join(meter: &mut Meter, list: &[Value], separator: &str) -> Result<Value, EvalError> {
    let mut out = String::new();
    for (i, element) in list.iter().enumerate() {
        let Value::String(part) = element else {
            return Err(EvalError::no_overload("join"));
        };
        meter.allocate(part.len() + separator.len())?;
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(part);
    }
    Ok(Value::string(out))
}

/// `text` in double quotes with the escapes of the language.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}
