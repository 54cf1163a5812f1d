//! `format`: Go-like clauses with the habits of cel-go's first formatter (grouped digits, superscript exponents).

use crate::convert::{double_text, to_string};
use crate::error::EvalError;
use crate::meter::Meter;
use crate::value::Value;

/// Most decimals a clause may ask for. cel-go has no such limit; more digits than this a double does not have.
const PRECISION_MAX: usize = 1_000;
/// Width that `%e` pads to when no number is given.
const SCIENTIFIC_WIDTH: usize = 6;

/// One part of a format string.
#[derive(Debug, PartialEq)]
pub(crate) enum Part<'a> {
    Text(&'a str),
    Clause { verb: char, precision: Option<usize> },
}

/// Splits a format string; the error is a sentence.
pub(crate) fn parts(format: &str) -> Result<Vec<Part<'_>>, String> {
    let mut out = Vec::new();
    let mut rest = format;
    while let Some(percent) = rest.find('%') {
        out.push(Part::Text(&rest[..percent]));
        rest = &rest[percent + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push(Part::Text("%"));
            rest = after;
            continue;
        }
        let mut precision = None;
        if let Some(after) = rest.strip_prefix('.') {
            let len = after.bytes().take_while(u8::is_ascii_digit).count();
            let digits: usize = after[..len]
                .parse()
                .map_err(|_| "unable to find end of precision specifier".to_owned())?;
            if digits > PRECISION_MAX {
                return Err(format!("precision {digits} is above {PRECISION_MAX}"));
            }
            (precision, rest) = (Some(digits), &after[len..]);
        }
        let verb = rest.chars().next().ok_or("unexpected end of string")?;
        if !"sdfebxXo".contains(verb) {
            return Err(format!("unrecognized formatting clause \"{verb}\""));
        }
        rest = &rest[verb.len_utf8()..];
        out.push(Part::Clause { verb, precision });
    }
    out.push(Part::Text(rest));
    Ok(out)
}

/// `format.format(args)`.
pub(crate) fn format(meter: &mut Meter, format: &str, args: &[Value]) -> Result<Value, EvalError> {
    let mut out = String::new();
    let mut next = 0;
    for part in parts(format).map_err(EvalError::invalid)? {
        let before = out.len();
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Clause { verb, precision } => {
                let arg = args
                    .get(next)
                    .ok_or_else(|| EvalError::out_of_range(format!("index {next} out of range")))?;
                next += 1;
                clause(meter, verb, precision, arg, &mut out)?;
            }
        }
        meter.allocate(out.len() - before)?;
    }
    Ok(Value::string(out))
}

fn clause(meter: &mut Meter, verb: char, precision: Option<usize>, arg: &Value, out: &mut String) -> Result<(), EvalError> {
    match verb {
        's' => print(meter, arg, out),
        'd' => decimal(arg, out),
        'f' => fixed(arg, precision.unwrap_or(6), out),
        'e' => scientific(arg, precision.unwrap_or(SCIENTIFIC_WIDTH), out),
        'b' => radix(arg, out, |n| format!("{n:b}")),
        'o' => radix(arg, out, |n| format!("{n:o}")),
        _ => hexadecimal(arg, verb == 'X', out),
    }
}

fn unprintable<T>(verb: char, arg: &Value) -> Result<T, EvalError> {
    Err(EvalError::invalid(format!(
        "could not format a value of type {} with %{verb}",
        arg.type_name()
    )))
}

fn decimal(arg: &Value, out: &mut String) -> Result<(), EvalError> {
    match arg {
        Value::Int(n) => out.push_str(&n.to_string()),
        Value::Uint(n) => out.push_str(&n.to_string()),
        _ => return unprintable('d', arg),
    }
    Ok(())
}

/// A double, or one of the texts that stand for special ones.
fn double(verb: char, arg: &Value) -> Result<f64, EvalError> {
    match arg {
        Value::Double(d) => Ok(*d),
        Value::String(text) => match &**text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => unprintable(verb, arg),
        },
        _ => unprintable(verb, arg),
    }
}

fn special(d: f64) -> Option<&'static str> {
    if d.is_nan() {
        return Some("NaN");
    }
    d.is_infinite().then_some(if d > 0.0 { "∞" } else { "-∞" })
}

fn fixed(arg: &Value, precision: usize, out: &mut String) -> Result<(), EvalError> {
    let d = double('f', arg)?;
    if let Some(text) = special(d) {
        out.push_str(text);
        return Ok(());
    }
    let plain = format!("{d:.precision$}");
    let (whole, fraction) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    out.push_str(sign);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out.push_str(fraction);
    Ok(())
}

fn scientific(arg: &Value, width: usize, out: &mut String) -> Result<(), EvalError> {
    let d = double('e', arg)?;
    let text = special(d).map_or_else(|| superscript(&format!("{d:.6e}")), str::to_owned);
    for _ in text.chars().count()..width {
        out.push(' ');
    }
    out.push_str(&text);
    Ok(())
}

/// `1.5e-7` as `1.5×10⁻⁰⁷`.
fn superscript(text: &str) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(("", exponent), |digits| ("⁻", digits));
    let raised = format!("{digits:0>2}")
        .bytes()
        .map(|b| DIGITS[usize::from(b.wrapping_sub(b'0') % 10)])
        .collect::<String>();
    format!("{mantissa}×10{sign}{raised}")
}

fn radix(arg: &Value, out: &mut String, digits: fn(u64) -> String) -> Result<(), EvalError> {
    let (negative, magnitude) = match arg {
        Value::Int(n) => (*n < 0, n.unsigned_abs()),
        Value::Uint(n) => (false, *n),
        Value::Bool(b) => (false, u64::from(*b)),
        _ => return unprintable('b', arg),
    };
    if negative {
        out.push('-');
    }
    out.push_str(&digits(magnitude));
    Ok(())
}

fn hexadecimal(arg: &Value, upper: bool, out: &mut String) -> Result<(), EvalError> {
    let bytes = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let text = match arg {
        Value::Int(n) => format!("{}{:x}", if *n < 0 { "-" } else { "" }, n.unsigned_abs()),
        Value::Uint(n) => format!("{n:x}"),
        Value::String(text) => bytes(text.as_bytes()),
        Value::Bytes(value) => bytes(value),
        _ => return unprintable('x', arg),
    };
    out.push_str(&if upper { text.to_uppercase() } else { text });
    Ok(())
}

/// `%s` at the top level.
fn print(meter: &mut Meter, arg: &Value, out: &mut String) -> Result<(), EvalError> {
    match arg {
        Value::Null => out.push_str("null"),
        Value::Type(name) => out.push_str(name),
        Value::List(_) | Value::Map(_) => print_inner(meter, arg, out)?,
        Value::Double(d) => out.push_str(special(*d).unwrap_or(&double_text(*d))),
        Value::String(_)
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Timestamp(_) => match to_string(arg)? {
            Value::String(text) => out.push_str(&text),
            _ => return unprintable('s', arg),
        },
        _ => return unprintable('s', arg),
    }
    Ok(())
}

/// A value inside a list or map.
fn print_inner(meter: &mut Meter, value: &Value, out: &mut String) -> Result<(), EvalError> {
    meter.work(1)?;
    meter.allocate(8)?;
    match value {
        Value::String(text) => {
            meter.allocate(text.len())?;
            out.push_str(&go_quoted(text));
        }
        Value::Bytes(bytes) => out.push_str(&format!("b{}", go_quoted(&String::from_utf8_lossy(bytes)))),
        Value::Double(d) => match special(*d) {
            Some(text) => out.push_str(text),
            None => out.push_str(&format!("{d:.6}")),
        },
        Value::Duration(_) => print_wrapped(meter, "duration", value, out)?,
        Value::Timestamp(_) => print_wrapped(meter, "timestamp", value, out)?,
        Value::List(list) => {
            out.push('[');
            for (i, element) in list.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                print_inner(meter, element, out)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut entries = Vec::with_capacity(map.entries.len());
            for (key, value) in &map.entries {
                if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
                    return unprintable('s', key);
                }
                let (mut key_text, mut value_text) = (String::new(), String::new());
                print_inner(meter, key, &mut key_text)?;
                print_inner(meter, value, &mut value_text)?;
                entries.push((key_text, value_text));
            }
            entries.sort();
            let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            out.push_str(&format!("{{{}}}", entries.join(", ")));
        }
        _ => print(meter, value, out)?,
    }
    Ok(())
}

fn print_wrapped(meter: &mut Meter, name: &str, value: &Value, out: &mut String) -> Result<(), EvalError> {
    out.push_str(name);
    out.push_str("(\"");
    print(meter, value, out)?;
    out.push_str("\")");
    Ok(())
}

/// Go's `%q`.
fn go_quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c if u32::from(c) < 0x20 || c == '\x7f' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
