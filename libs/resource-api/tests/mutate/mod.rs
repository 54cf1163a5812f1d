//! Changes JSON at random, so that most of an object stays well-formed and what is changed is worth looking at.

use arbtest::arbitrary::{Result, Unstructured};
use serde_json::{Value, json};

/// Texts that some rule is about.
const TEXTS: &[&str] = &[
    "",
    "a",
    "A",
    "-",
    "a-",
    "a.b",
    "a/b",
    "a/b/c",
    "//",
    "é",
    "\u{0}",
    "\u{202e}x",
    "gpu",
    "gpu/big",
    "node-7",
    "gpu.example.com",
    "gpu.example.com/kind",
    "GPU.example.com",
    "kubernetes.io/x",
    "requests.x/y",
    "true",
    "All",
    "ExactCount",
    "Exists",
    "NoExecute",
    "*",
    "NodePrepareResources",
    "1.2.3",
    "99999999999999999999.0.0",
    "8c1f0b1e-5a7f-4f6e-9a55-0c8f2f7d3b21",
    "10.0.0.1/24",
    "::ffff:1.2.3.4/120",
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1alpha3",
    "device.driver == 'x'",
];

const TIMES: &[&str] = &[
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.5+01:00",
    "9999-12-31T23:59:59Z",
    "0000-01-01T00:00:00Z",
];

const AMOUNTS: &[&str] = &[
    "80Gi", "10", "1500m", "1", "2", "4", "7", "1m", "1Gi", "8Gi", "-1", "0", "0.1n", "1e1024", "1e-4096", "9E", "16Ei",
];

/// Deepest nesting that a mutation adds: over the limits of the decoder and of its parser.
const NESTED_MAX: usize = 1200;

/// A copy of one of `seeds` with some changes.
pub(crate) fn value(u: &mut Unstructured<'_>, seeds: &[Value]) -> Result<Value> {
    let mut value = u.choose(seeds)?.clone();
    for _ in 0..u.int_in_range(0..=4)? {
        let other = u.choose(seeds)?;
        change(u, &mut value, other)?;
    }
    Ok(value)
}

/// The text of `value`, sometimes with changed bytes.
pub(crate) fn body(u: &mut Unstructured<'_>, value: &Value) -> Result<Vec<u8>> {
    let mut bytes = value.to_string().into_bytes();
    if u.ratio(1, 4)? {
        for _ in 0..u.int_in_range(1..=4)? {
            change_bytes(u, &mut bytes)?;
        }
    }
    Ok(bytes)
}

/// Changes one place in `value`; `other` gives what is put there. Mostly the types stay, so that decoding goes on.
fn change(u: &mut Unstructured<'_>, value: &mut Value, other: &Value) -> Result<()> {
    let place = place(u, value)?;
    if u.ratio(1, 5)? {
        return change_type(u, place, other);
    }
    match place {
        Value::Null => {}
        Value::Bool(b) => *b = !*b,
        Value::Number(_) => *place = number(u)?,
        Value::String(text) => {
            // A bad time or amount ends the decoding, so most of them stay what they are.
            let like = [TIMES, AMOUNTS].into_iter().find(|texts| texts.contains(&text.as_str()));
            *text = match u.int_in_range(0..=4)? {
                1.. if let Some(texts) = like => (*u.choose(texts)?).to_owned(),
                0 => "x".repeat(*u.choose(&[33, 64, 254, 1025, 10_241])?),
                1 => format!("{text}{}", u.choose(TEXTS)?),
                _ => (*u.choose(TEXTS)?).to_owned(),
            }
        }
        Value::Array(_) if u.arbitrary()? => repeat(u, place)?,
        Value::Object(_) if u.arbitrary()? => graft(u, place, other)?,
        Value::Array(_) | Value::Object(_) => remove(u, place)?,
    }
    Ok(())
}

fn change_type(u: &mut Unstructured<'_>, place: &mut Value, other: &Value) -> Result<()> {
    match u.int_in_range(0..=6)? {
        0 => *place = Value::Null,
        1 => *place = scalar(u)?,
        2 => {
            *place = u
                .choose(&[json!([]), json!({}), json!([null]), json!([{}]), json!({"": null})])?
                .clone()
        }
        3 => {
            let mut other = other.clone();
            *place = self::place(u, &mut other)?.clone();
        }
        4 => {
            *place = if u.arbitrary()? {
                json!([place.take()])
            } else {
                json!({ "x": place.take() })
            }
        }
        5 => *place = nested(u.int_in_range(1..=NESTED_MAX)?),
        _ => rename(u, place, other)?,
    }
    Ok(())
}

/// Takes a field over from some object that has one of the same name.
fn graft(u: &mut Unstructured<'_>, place: &mut Value, other: &Value) -> Result<()> {
    let mut fields = Vec::new();
    collect_fields(other, &mut fields);
    if let Value::Object(map) = place
        && !map.is_empty()
    {
        let name = map.keys().nth(u.choose_index(map.len())?).cloned().unwrap_or_default();
        let found: Vec<_> = fields.iter().filter(|(field, _)| *field == name).collect();
        if !found.is_empty() {
            map.insert(name, u.choose(&found)?.1.clone());
        }
    }
    Ok(())
}

fn collect_fields<'v>(value: &'v Value, fields: &mut Vec<(&'v str, &'v Value)>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                fields.push((name, value));
                collect_fields(value, fields);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect_fields(value, fields)),
        _ => {}
    }
}

/// Some value inside of `value`, or itself.
fn place<'v>(u: &mut Unstructured<'_>, value: &'v mut Value) -> Result<&'v mut Value> {
    let n = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    if n == 0 || u.ratio(1, 6)? {
        return Ok(value);
    }
    let at = u.choose_index(n)?;
    let inner = match value {
        Value::Array(list) => list.get_mut(at),
        Value::Object(map) => map.values_mut().nth(at),
        _ => None,
    };
    place(u, inner.expect("the index is within the length"))
}

fn scalar(u: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match u.int_in_range(0..=6)? {
        0 => u.arbitrary::<bool>()?.into(),
        1 => number(u)?,
        2 => u64::MAX.into(),
        3 => json!(u.choose(&[0.5, 1e300, -0.0])?),
        4 => u.arbitrary::<&str>()?.into(),
        _ => (*u.choose(TEXTS)?).into(),
    })
}

fn number(u: &mut Unstructured<'_>) -> Result<Value> {
    Ok((*u.choose(&[0, 1, -1, 2, 33, 1001, i64::MAX, i64::MIN, i64::from(i32::MAX) + 1])?).into())
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, level| {
        if level % 2 == 0 {
            json!([inner])
        } else {
            json!({ "a": inner })
        }
    })
}

/// Repeats an item of a list, over the limits that lists have.
fn repeat(u: &mut Unstructured<'_>, place: &mut Value) -> Result<()> {
    if let Value::Array(list) = place
        && !list.is_empty()
    {
        let item = u.choose(list)?.clone();
        let n = *u.choose(&[1, 2, 9, 33, 65, 129, 257])?;
        // What is repeated inside of what is repeated grows without bound.
        if item.to_string().len() * n < 20_000 {
            list.extend(std::iter::repeat_n(item, n));
        }
    }
    Ok(())
}

fn remove(u: &mut Unstructured<'_>, place: &mut Value) -> Result<()> {
    match place {
        Value::Array(list) if !list.is_empty() => {
            let at = u.choose_index(list.len())?;
            list.remove(at);
        }
        Value::Object(map) if !map.is_empty() => {
            let at = u.choose_index(map.len())?;
            map.retain_nth(at);
        }
        _ => {}
    }
    Ok(())
}

trait RetainNth {
    fn retain_nth(&mut self, without: usize);
}

impl RetainNth for serde_json::Map<String, Value> {
    /// Removes one entry by its position.
    fn retain_nth(&mut self, without: usize) {
        let mut at = 0;
        self.retain(|_, _| {
            at += 1;
            at - 1 != without
        });
    }
}

/// Gives a value the name of another field.
fn rename(u: &mut Unstructured<'_>, place: &mut Value, other: &Value) -> Result<()> {
    let mut names = Vec::new();
    collect_names(other, &mut names);
    if let Value::Object(map) = place
        && !names.is_empty()
    {
        let value = map.values().next().cloned().unwrap_or_default();
        let name = if u.ratio(1, 4)? {
            (*u.choose(TEXTS)?).to_owned()
        } else {
            u.choose(&names)?.clone()
        };
        map.insert(name, value);
    }
    Ok(())
}

fn collect_names(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            names.extend(map.keys().cloned());
            map.values().for_each(|value| collect_names(value, names));
        }
        Value::Array(list) => list.iter().for_each(|value| collect_names(value, names)),
        _ => {}
    }
}

fn change_bytes(u: &mut Unstructured<'_>, bytes: &mut Vec<u8>) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let at = u.choose_index(bytes.len())?;
    match u.int_in_range(0..=4)? {
        0 => bytes[at] = u.arbitrary()?,
        1 => bytes.truncate(at),
        2 => bytes.insert(at, *u.choose(b"\"\\{}[],:0-eE.\x00\xff \n")?),
        3 => {
            bytes.remove(at);
        }
        _ => {
            let end = (at + u.int_in_range(1..=64_usize)?).min(bytes.len());
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
    }
    Ok(())
}
