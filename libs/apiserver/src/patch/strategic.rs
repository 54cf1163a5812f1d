//! Strategic merge patch: a merge patch whose lists are merged where the schema says so, and which can carry directives.
//!
//! - `$patch: replace` or `delete` in an object: take the patch's object, or an empty one. In an element of a merged list: the list
//!   is the patch's, or the element with this key goes.
//! - `$setElementOrder/<list>`: order of the elements by their key; elements that only the server has keep their places between
//!   them as well as they can.
//! - `$deleteFromPrimitiveList/<list>`: scalars that go.
//! - `$retainKeys`: the only keys of the object that stay.
//!
//! Source: the preserve-order design and `k8s.io/apimachinery/pkg/util/strategicpatch`. Recursion is bounded by the depth of the
//! patch; time grows with the sizes of object and patch and not with their product.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{PatchError, without_nulls};
use crate::schema::{Message, PatchStrategy, Schema, Type};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";

/// Merges a patch into an object of a message.
pub(super) fn apply(
    schema: &Schema,
    message: &Message,
    object: Map<String, Value>,
    patch: Map<String, Value>,
) -> Result<Map<String, Value>, PatchError> {
    Merge { schema }.object(object, patch, Some(&Type::Message(message.id)))
}

fn bad_format(what: &str) -> PatchError {
    PatchError::Malformed {
        why: format!("invalid patch format of {what}"),
    }
}

fn fails(why: String) -> PatchError {
    PatchError::DoesNotApply { why }
}

fn no_merge_key(key: &str) -> PatchError {
    fails(format!("map does not contain declared merge key: {key}"))
}

/// What a patch does with a field: the type of the field's value, or of its elements if that is a list.
struct Rule<'s> {
    ty: Option<&'s Type>,
    strategy: PatchStrategy,
}

struct Merge<'s> {
    schema: &'s Schema,
}

impl<'s> Merge<'s> {
    /// The rule for a key of an object of a type. Keys that are not known are replaced; conforming finds them later.
    fn rule(&self, ty: Option<&'s Type>, key: &str) -> Rule<'s> {
        let field = match ty {
            Some(Type::Message(id)) => self.schema.field(self.schema.message(*id), key),
            _ => None,
        };
        let value = match (field, ty) {
            (Some(field), _) => Some(&field.ty),
            (None, Some(Type::Map(element))) => Some(&**element),
            (None, _) => None,
        };
        Rule {
            ty: match value {
                Some(Type::List(element) | Type::Items(element)) => Some(element),
                other => other,
            },
            strategy: field.map(|field| field.patch.clone()).unwrap_or_default(),
        }
    }

    fn object(
        &self,
        mut object: Map<String, Value>,
        mut patch: Map<String, Value>,
        ty: Option<&'s Type>,
    ) -> Result<Map<String, Value>, PatchError> {
        match patch.remove(DIRECTIVE) {
            None => {}
            Some(Value::String(directive)) if directive == "replace" => return Ok(patch),
            Some(Value::String(directive)) if directive == "delete" => return Ok(Map::new()),
            Some(other) => return Err(fails(format!("unknown patch type: {other} in map"))),
        }
        retain_keys(&mut object, &mut patch)?;
        self.ordered_lists(&mut object, &mut patch, ty)?;
        for (key, value) in patch {
            if let Some(list) = key.strip_prefix(DELETE_FROM_LIST) {
                delete_from_list(&mut object, list, &value);
                continue;
            }
            let merged = match (object.remove(&key), value) {
                (_, Value::Null) => continue,
                (Some(Value::Object(old)), Value::Object(patch)) => {
                    let rule = self.rule(ty, &key);
                    Value::Object(self.object(old, patch, rule.ty)?)
                }
                (Some(Value::Array(old)), Value::Array(patch)) => {
                    let rule = self.rule(ty, &key);
                    Value::Array(if rule.strategy.merge {
                        self.list(old, patch, &rule)?
                    } else {
                        patch
                    })
                }
                (_, new) => match without_directives(without_nulls(new)) {
                    Some(value) => value,
                    None => continue,
                },
            };
            object.insert(key, merged);
        }
        Ok(object)
    }

    /// Takes the lists with an order out of the patch and merges them.
    fn ordered_lists(
        &self,
        object: &mut Map<String, Value>,
        patch: &mut Map<String, Value>,
        ty: Option<&'s Type>,
    ) -> Result<(), PatchError> {
        let ordered: Vec<String> = patch
            .keys()
            .filter(|key| key.starts_with(SET_ELEMENT_ORDER))
            .cloned()
            .collect();
        for directive in ordered {
            let Some(Value::Array(order)) = patch.remove(&directive) else {
                return Err(bad_format("setElementOrder list"));
            };
            let key = directive.trim_start_matches(SET_ELEMENT_ORDER);
            let rule = self.rule(ty, key);
            let list = |value: Option<Value>| match value {
                None => Ok(None),
                Some(Value::Array(items)) => Ok(Some(items)),
                Some(_) => Err(fails(format!("expected a list in {key}"))),
            };
            let new = list(patch.remove(key))?;
            check_order(new.as_deref().unwrap_or_default(), &order, &rule.strategy)?;
            let old = list(object.remove(key))?;
            let server_order = order_of_server(
                old.as_deref().unwrap_or_default(),
                new.as_deref().unwrap_or_default(),
                &rule.strategy,
            );
            let merged = match (old, new) {
                (None, None) => continue,
                (Some(old), None) => old,
                (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
                (Some(old), Some(new)) if rule.strategy.merge => self.list(old, new, &rule)?,
                (Some(_), Some(new)) => new,
            };
            let merged = in_order(merged, &order, &server_order, &rule.strategy)?;
            object.insert(key.to_owned(), Value::Array(merged));
        }
        Ok(())
    }

    /// Merges lists of scalars, without repetitions, or of objects, by their merge key.
    fn list(&self, old: Vec<Value>, patch: Vec<Value>, rule: &Rule<'s>) -> Result<Vec<Value>, PatchError> {
        let mut all = old.iter().chain(&patch);
        if all.clone().any(Value::is_array) {
            return Err(fails("lists of lists are not supported".to_owned()));
        }
        if all.clone().all(|item| !item.is_object()) {
            let mut seen = HashSet::new();
            let merged = all.filter(|item| seen.insert(*item)).cloned().collect();
            return in_order(merged, &patch, &old, &rule.strategy);
        }
        if !all.all(Value::is_object) {
            return Err(fails("list element types are not identical".to_owned()));
        }
        let Some(key) = &rule.strategy.merge_key else {
            return Err(fails("cannot merge lists without merge key".to_owned()));
        };
        let (server, patch) = special_elements(old, patch, key)?;
        let mut merged = server.clone();
        // Items that the patch adds are found by later ones of the patch, as if they had been there.
        let mut places: HashMap<&Value, usize> = HashMap::new();
        for (place, item) in server.iter().enumerate() {
            item.get(key).map(|value| *places.entry(value).or_insert(place));
        }
        for item in &patch {
            match places.get(key_of(item, key)?) {
                Some(place) => {
                    let old = object_of(merged[*place].take());
                    merged[*place] = Value::Object(self.object(old, object_of(item.clone()), rule.ty)?);
                }
                None => {
                    places.insert(key_of(item, key)?, merged.len());
                    merged.push(item.clone());
                }
            }
        }
        in_order(merged, &patch, &server, &rule.strategy)
    }
}

/// Applies `$patch` of elements. Returns what is left of both lists.
fn special_elements(old: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let (mut old, mut left, mut replace) = (old, Vec::with_capacity(patch.len()), false);
    let mut deleted = HashSet::new();
    for item in patch {
        match item.get(DIRECTIVE).map(Value::as_str) {
            None => left.push(item),
            Some(Some("delete")) => {
                deleted.insert(key_of(&item, key)?.clone());
            }
            Some(Some("replace")) => replace = true,
            Some(Some("merge")) => return Err(fails("merging lists cannot yet be specified in the patch".to_owned())),
            Some(_) => return Err(fails("unknown patch type in map".to_owned())),
        }
    }
    old.retain(|item| !replace && !item.get(key).is_some_and(|value| deleted.contains(value)));
    Ok((old, left))
}

fn object_of(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn key_of<'v>(item: &'v Value, key: &str) -> Result<&'v Value, PatchError> {
    item.get(key).ok_or_else(|| no_merge_key(key))
}

/// What tells an element apart: its merge key, or itself. `None` for an object without the key.
fn identity<'v>(item: &'v Value, strategy: &PatchStrategy) -> Option<&'v Value> {
    match &strategy.merge_key {
        Some(key) if item.is_object() => item.get(key),
        _ => Some(item),
    }
}

/// Where the elements of a list are.
struct Places<'v> {
    strategy: &'v PatchStrategy,
    first: HashMap<&'v Value, usize>,
}

impl<'v> Places<'v> {
    fn of(list: &'v [Value], strategy: &'v PatchStrategy) -> Self {
        let mut first = HashMap::with_capacity(list.len());
        for (place, item) in list.iter().enumerate() {
            identity(item, strategy).map(|identity| *first.entry(identity).or_insert(place));
        }
        Self { strategy, first }
    }

    fn find(&self, item: &Value) -> Option<usize> {
        self.first.get(identity(item, self.strategy)?).copied()
    }
}

/// Sorts a merged list: the elements in `order` as that says, the others as the server had them, the latter put before the first
/// of the former that the server had behind them.
fn in_order(
    merged: Vec<Value>,
    order: &[Value],
    server_order: &[Value],
    strategy: &PatchStrategy,
) -> Result<Vec<Value>, PatchError> {
    if let Some(key) = &strategy.merge_key {
        let objects = merged.iter().chain(order).chain(server_order);
        if objects.clone().any(|item| item.get(key).is_none()) {
            return Err(no_merge_key(key));
        }
    }
    let order = Places::of(order, strategy);
    let server = Places::of(server_order, strategy);
    let (mut patched, mut others): (Vec<_>, Vec<_>) = merged.into_iter().partition(|item| order.find(item).is_some());
    patched.sort_by_key(|item| order.find(item));
    others.sort_by_key(|item| server.find(item));
    let mut sorted = Vec::with_capacity(patched.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in patched {
        let here = server.find(&item);
        let is_before = |other: &Value| matches!((server.find(other), here), (Some(other), Some(here)) if other < here);
        while let Some(other) = others.next_if(is_before) {
            sorted.push(other);
        }
        sorted.push(item);
    }
    sorted.extend(others);
    Ok(sorted)
}

/// Checks that the elements of a patch come in the order that the patch itself gives.
fn check_order(patch: &[Value], order: &[Value], strategy: &PatchStrategy) -> Result<(), PatchError> {
    if order.is_empty() {
        return Ok(());
    }
    let mut order = order.iter();
    let is_deleted = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
    for item in patch.iter().filter(|item| !is_deleted(item)) {
        let wanted = identity(item, strategy);
        if item.get(DIRECTIVE).is_some() && order.len() > 0 {
            continue;
        }
        if let (None, Some(key)) = (wanted, &strategy.merge_key) {
            return Err(no_merge_key(key));
        }
        if !order.any(|other| identity(other, strategy) == wanted) {
            return Err(fails(
                "The order in patch list doesn't match $setElementOrder list".to_owned(),
            ));
        }
    }
    Ok(())
}

/// The order that the server's list has for [`in_order`]: the items that the patch leaves, and in the place of those that it
/// deletes as many of those that it adds. Upstream, which changes the list in place, has that order, too.
fn order_of_server(old: &[Value], patch: &[Value], strategy: &PatchStrategy) -> Vec<Value> {
    let Some(key) = &strategy.merge_key else {
        return old.to_vec();
    };
    let with_directive = |wanted: &'static str| {
        patch
            .iter()
            .filter(move |item| item.get(DIRECTIVE).is_some_and(|found| found == wanted))
    };
    if with_directive("replace").next().is_some() {
        return old.to_vec();
    }
    let deleted: HashSet<&Value> = with_directive("delete").filter_map(|item| item.get(key)).collect();
    let is_deleted = |item: &&Value| item.get(key).is_some_and(|value| deleted.contains(value));
    let kept: Vec<&Value> = old.iter().filter(|item| !is_deleted(item)).collect();
    let there: HashSet<&Value> = kept.iter().filter_map(|item| item.get(key)).collect();
    let is_added = |item: &&Value| item.get(DIRECTIVE).is_none() && !item.get(key).is_some_and(|value| there.contains(value));
    let added = patch.iter().filter(is_added).take(old.len() - kept.len());
    kept.iter().copied().chain(added).cloned().collect()
}

/// Removes the keys that are not to stay.
fn retain_keys(object: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(retained) = retained else {
        return Err(bad_format("retainKeys"));
    };
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let stays = |key: &str| retained.contains(key);
    let is_named = |(key, value): (&String, &Value)| {
        value.is_null() || key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ELEMENT_ORDER) || stays(key)
    };
    if !patch.iter().all(is_named) {
        return Err(bad_format("retainKeys"));
    }
    object.retain(|key, _| stays(key));
    Ok(())
}

/// Removes scalars from a list. What is not a list, on either side, is left alone, as upstream does.
fn delete_from_list(object: &mut Map<String, Value>, list: &str, deleted: &Value) {
    match (object.get_mut(list), deleted) {
        (Some(Value::Array(items)), Value::Array(deleted)) => {
            let deleted: HashSet<&Value> = deleted.iter().collect();
            items.retain(|item| !deleted.contains(item));
        }
        (Some(_), Value::Null) => {
            object.remove(list);
        }
        _ => {}
    }
}

/// A value of a patch to be taken as it is, without the objects that are directives. `None` if it is one.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(entries) if entries.contains_key(DIRECTIVE) => None,
        Value::Object(entries) => {
            let left = entries
                .into_iter()
                .filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(left.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}
