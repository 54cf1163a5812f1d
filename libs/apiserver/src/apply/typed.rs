//! Objects seen through the schema: which fields they set, how two differ, one merged into the other, fields removed.
//!
//! Lists of kind set and map have items that are told apart; maps and messages have fields; everything else, atomic lists and maps
//! among it, is a leaf that is compared, owned and replaced as a whole. Source: sigs.k8s.io/structured-merge-diff, package
//! `typed`. Recursion is bounded by the depth of the objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Literal, PathElement};
use crate::schema::{ListKind, Message, Schema, Type};

/// The type of a value, and how it merges.
#[derive(Clone, Copy, Debug)]
struct Ty<'s> {
    ty: &'s Type,
    list: &'s ListKind,
    map_atomic: bool,
}

/// What a value is, seen through its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Leaf,
    Map,
    /// A list whose items are told apart.
    Items,
}

const ATOMIC: &ListKind = &ListKind::Atomic;

impl<'s> Ty<'s> {
    fn of(ty: &'s Type) -> Self {
        Self {
            ty,
            list: ATOMIC,
            map_atomic: false,
        }
    }

    /// The shape of a value; values of any type have that of what they are.
    fn shape(self, schema: &Schema, value: Option<&Value>) -> Shape {
        match self.ty {
            Type::Message(id) if self.map_atomic || schema.message(*id).atomic => Shape::Leaf,
            Type::Map(_) if self.map_atomic => Shape::Leaf,
            Type::Message(_) | Type::Map(_) => Shape::Map,
            Type::List(_) if *self.list != ListKind::Atomic => Shape::Items,
            Type::Any => match value {
                Some(Value::Object(_) | Value::Null) | None => Shape::Map,
                Some(_) => Shape::Leaf,
            },
            _ => Shape::Leaf,
        }
    }

    /// The type of the value at a key; `true` if the key is that of a declared field.
    fn field(self, schema: &'s Schema, key: &str) -> Option<(Self, bool)> {
        match self.ty {
            Type::Message(id) => {
                let message = schema.message(*id);
                if message.typed && (key == "apiVersion" || key == "kind") {
                    return Some((Self::of(&Type::String), true));
                }
                match schema.field(message, key) {
                    Some(field) => {
                        let ty = Self {
                            ty: &field.ty,
                            list: &field.list,
                            map_atomic: field.map_atomic,
                        };
                        Some((ty, true))
                    }
                    None => message.open.then_some((Self::of(&Type::Any), false)),
                }
            }
            Type::Map(element) => Some((Self::of(element), false)),
            Type::Any => Some((Self::of(&Type::Any), false)),
            _ => None,
        }
    }

    fn item(self) -> Self {
        match self.ty {
            Type::List(element) | Type::Items(element) => Self::of(element),
            _ => Self::of(&Type::Any),
        }
    }
}

/// An object with its message.
#[derive(Clone, Debug)]
pub(super) struct Typed<'s> {
    pub(super) schema: &'s Schema,
    pub(super) message: &'s Message,
    pub(super) value: Value,
}

/// How one object differs from another. No field is in more than one of the sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    /// Without the fields in `reset` and those below them.
    pub(super) fn without(self, reset: &FieldSet) -> Self {
        Self {
            removed: self.removed.recursive_difference(reset),
            modified: self.modified.recursive_difference(reset),
            added: self.added.recursive_difference(reset),
        }
    }
}

impl<'s> Typed<'s> {
    pub(super) fn new(schema: &'s Schema, message: &'s Message, object: Map<String, Value>) -> Self {
        Self {
            schema,
            message,
            value: Value::Object(object),
        }
    }

    fn with(&self, value: Value) -> Self {
        Self { value, ..*self }
    }

    /// Runs a step that needs the root's type.
    fn rooted<T>(&self, step: impl FnOnce(Ty<'_>, &Schema) -> T) -> T {
        let root = Type::Message(self.message.id);
        step(Ty::of(&root), self.schema)
    }

    /// Everything that is wrong with an object that is to be applied: unknown fields, scalars of wrong types, items that are
    /// there twice. Texts in upstream's words.
    pub(super) fn faults(&self) -> Vec<String> {
        self.rooted(|ty, schema| {
            let mut walk = Validate {
                schema,
                path: Vec::new(),
                faults: Vec::new(),
            };
            walk.value(ty, &self.value);
            walk.faults
        })
    }

    /// The fields that the object sets.
    pub(super) fn field_set(&self) -> FieldSet {
        self.rooted(|ty, schema| {
            let mut walk = ToFieldSet {
                schema,
                path: Vec::new(),
                set: FieldSet::default(),
            };
            walk.value(ty, &self.value);
            walk.set
        })
    }

    /// How `new` differs from `self`.
    pub(super) fn compare(&self, new: &Self) -> Comparison {
        self.rooted(|ty, schema| {
            let mut walk = Compare {
                schema,
                path: Vec::new(),
                result: Comparison::default(),
            };
            walk.value(ty, Some(&self.value), Some(&new.value));
            walk.result
        })
    }

    /// `config` merged into `self`; where both have a leaf, that of `config` counts.
    pub(super) fn merge(&self, config: &Self) -> Self {
        let merged = self.rooted(|ty, schema| merge(schema, ty, Some(&self.value), Some(&config.value)));
        self.with(merged.unwrap_or_else(|| Value::Object(Map::new())))
    }

    /// Without the fields of a set. What becomes empty is null.
    pub(super) fn without(&self, fields: &FieldSet) -> Self {
        let left = self.rooted(|ty, schema| remove(schema, ty, &self.value, fields));
        self.with(if left.is_null() { Value::Object(Map::new()) } else { left })
    }

    /// A set with every declared field of which something inside is in the set.
    pub(super) fn with_named_fields(&self, set: &FieldSet) -> FieldSet {
        self.rooted(|ty, schema| with_named_fields(schema, Some(ty), set))
    }
}

/// What tells an item of a list apart. Errors in upstream's words.
fn identity(schema: &Schema, ty: Ty<'_>, item: &Value) -> Result<PathElement, String> {
    match ty.list {
        ListKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListKind::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(PathElement::Value(Literal::new(scalar))),
        },
        ListKind::Map(names) => {
            let object = match item {
                Value::Object(object) => object,
                Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
                _ => return Err("associative list with keys may not have non-map elements".to_owned()),
            };
            let default = |name: &str| match ty.item().ty {
                Type::Message(id) => schema.field(schema.message(*id), name).and_then(declared_default),
                _ => None,
            };
            let mut keys = BTreeMap::new();
            for name in names {
                if let Some(value) = object.get(name).cloned().or_else(|| default(name)) {
                    keys.insert(name.clone(), Literal::new(&value));
                }
            }
            if keys.is_empty() {
                let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    names.join(" ")
                ));
            }
            Ok(PathElement::Key(keys))
        }
    }
}

/// The default in the OpenAPI document: the declared one, or the zero value of a scalar that is always there.
fn declared_default(field: &crate::schema::Field) -> Option<Value> {
    if field.default.is_some() {
        return field.default.clone();
    }
    if field.optional || !field.always {
        return None;
    }
    match field.ty {
        Type::String => Some("".into()),
        Type::Bool => Some(false.into()),
        Type::Int32 | Type::Int64 => Some(0.into()),
        _ => None,
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn entries(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|entries| !entries.is_empty())
}

/// Equality of values; numbers are equal if they have the same value.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let same = |(key, value): (&String, &Value)| right.get(key).is_some_and(|other| equal(value, other));
            left.len() == right.len() && left.iter().all(same)
        }
        _ => left == right,
    }
}

struct ToFieldSet<'s> {
    schema: &'s Schema,
    path: Vec<PathElement>,
    set: FieldSet,
}

impl ToFieldSet<'_> {
    fn value(&mut self, ty: Ty<'_>, value: &Value) {
        match ty.shape(self.schema, Some(value)) {
            Shape::Leaf => self.set.insert(&self.path),
            Shape::Map => self.map(ty, value),
            Shape::Items => self.items(ty, items(Some(value))),
        }
    }

    fn map(&mut self, ty: Ty<'_>, value: &Value) {
        for (key, value) in entries(Some(value)).into_iter().flatten() {
            let Some((inner, is_declared)) = ty.field(self.schema, key) else {
                continue;
            };
            self.path.push(PathElement::Field(key.clone()));
            self.value(inner, value);
            let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
            if is_empty || !is_declared {
                self.set.insert(&self.path);
            }
            self.path.pop();
        }
    }

    /// Of items that cannot be told apart only their common identity is in the set.
    fn items(&mut self, ty: Ty<'_>, items: &[Value]) {
        let mut counts: BTreeMap<PathElement, usize> = BTreeMap::new();
        let identities: Vec<_> = items.iter().map(|item| identity(self.schema, ty, item)).collect();
        for element in identities.iter().flatten() {
            *counts.entry(element.clone()).or_default() += 1;
        }
        for (item, element) in items.iter().zip(identities) {
            let Ok(element) = element else { continue };
            let is_single = counts.get(&element) == Some(&1);
            self.path.push(element);
            if is_single {
                self.value(ty.item(), item);
            }
            self.set.insert(&self.path);
            self.path.pop();
        }
    }
}

struct Compare<'s> {
    schema: &'s Schema,
    path: Vec<PathElement>,
    result: Comparison,
}

impl Compare<'_> {
    fn value(&mut self, ty: Ty<'_>, old: Option<&Value>, new: Option<&Value>) {
        let old_shape = ty.shape(self.schema, old);
        let new_shape = ty.shape(self.schema, new);
        let was_leaf = match (old, new) {
            (_, None) => self.shaped(old_shape, ty, old, new),
            (Some(_), Some(_)) if old_shape != new_shape => {
                self.shaped(old_shape, ty, old, new);
                self.shaped(new_shape, ty, old, new)
            }
            (_, Some(_)) => self.shaped(new_shape, ty, old, new),
        };
        if was_leaf {
            return;
        }
        if old.is_none() {
            self.result.added.insert(&self.path);
        } else if new.is_none() {
            self.result.removed.insert(&self.path);
        }
    }

    /// True if the value was compared as a whole. Empty lists and maps are, so that empty and absent stay different.
    fn shaped(&mut self, shape: Shape, ty: Ty<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
        match shape {
            Shape::Map if entries(old).is_some() || entries(new).is_some() => {
                self.maps(ty, entries(old), entries(new));
                false
            }
            Shape::Items if !items(old).is_empty() || !items(new).is_empty() => {
                self.lists(ty, items(old), items(new));
                false
            }
            Shape::Leaf | Shape::Map | Shape::Items => {
                match (old, new) {
                    (None, _) => self.result.added.insert(&self.path),
                    (_, None) => self.result.removed.insert(&self.path),
                    (Some(old), Some(new)) if !equal(old, new) => self.result.modified.insert(&self.path),
                    (Some(_), Some(_)) => {}
                }
                true
            }
        }
    }

    fn maps(&mut self, ty: Ty<'_>, old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>) {
        let keys: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
        for key in keys {
            let inner = ty.field(self.schema, key).map_or(Ty::of(&Type::Any), |(inner, _)| inner);
            let old = old.and_then(|entries| entries.get(key));
            let new = new.and_then(|entries| entries.get(key));
            self.path.push(PathElement::Field(key.clone()));
            self.value(inner, old, new);
            self.path.pop();
        }
    }

    fn lists(&mut self, ty: Ty<'_>, old: &[Value], new: &[Value]) {
        let old = by_identity(self.schema, ty, old);
        let new = by_identity(self.schema, ty, new);
        let all: BTreeSet<&PathElement> = old.keys().chain(new.keys()).collect();
        for element in all {
            let old = old.get(element).map(Vec::as_slice).unwrap_or_default();
            let new = new.get(element).map(Vec::as_slice).unwrap_or_default();
            self.path.push(element.clone());
            // Items that are there more than once are one leaf.
            match (old, new) {
                ([] | [_], [] | [_]) => self.value(ty.item(), old.first().copied(), new.first().copied()),
                ([_, _, ..], [_, _, ..]) => {
                    let same = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| equal(old, new));
                    if !same {
                        self.result.modified.insert(&self.path);
                    }
                }
                ([_, _, ..], _) => {
                    if let Some(new) = new.first() {
                        self.value(ty.item(), None, Some(new));
                    }
                    self.result.removed.insert(&self.path);
                }
                (_, [_, _, ..]) => {
                    if let Some(old) = old.first() {
                        self.value(ty.item(), Some(old), None);
                    }
                    self.result.added.insert(&self.path);
                }
            }
            self.path.pop();
        }
    }
}

/// Items by what tells them apart; those that cannot be told apart from others stand together.
fn by_identity<'v>(schema: &Schema, ty: Ty<'_>, list: &'v [Value]) -> BTreeMap<PathElement, Vec<&'v Value>> {
    let mut found: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for item in list {
        if let Ok(element) = identity(schema, ty, item) {
            found.entry(element).or_default().push(item);
        }
    }
    found
}

/// `None` if nothing is left.
fn merge(schema: &Schema, ty: Ty<'_>, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
    let shape = match new {
        Some(_) => ty.shape(schema, new),
        None => ty.shape(schema, old),
    };
    match shape {
        Shape::Map if entries(old).is_some() || entries(new).is_some() => {
            let (old, new) = (entries(old), entries(new));
            let keys: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
            let mut merged = Map::new();
            for key in keys {
                let inner = ty.field(schema, key).map_or(Ty::of(&Type::Any), |(inner, _)| inner);
                let old = old.and_then(|entries| entries.get(key));
                let new = new.and_then(|entries| entries.get(key));
                merged.extend(merge(schema, inner, old, new).map(|value| (key.clone(), value)));
            }
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
        Shape::Items if !items(old).is_empty() || !items(new).is_empty() => {
            let merged = merge_lists(schema, ty, items(old), items(new));
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
        Shape::Leaf | Shape::Map | Shape::Items => new.or(old).cloned(),
    }
}

/// Merges lists whose items are told apart: the order of `new` counts, items of `old` stay as near to their places as that allows.
fn merge_lists(schema: &Schema, ty: Ty<'_>, old: &[Value], new: &[Value]) -> Vec<Value> {
    let index = |list: &[Value]| -> (Vec<(PathElement, Value)>, BTreeMap<PathElement, Value>) {
        let (mut order, mut by_identity) = (Vec::new(), BTreeMap::new());
        for item in list {
            if let Ok(element) = identity(schema, ty, item) {
                // Items that are there twice are replaced, not merged.
                let twice = by_identity.contains_key(&element);
                by_identity.insert(element.clone(), if twice { Value::Null } else { item.clone() });
                order.push((element, item.clone()));
            }
        }
        (order, by_identity)
    };
    let (old_order, old_items) = index(old);
    let (new_order, new_items) = index(new);
    let mut shared = new_order
        .iter()
        .map(|(element, _)| element)
        .filter(|element| old_items.contains_key(element));
    let mut next_shared = shared.next();
    let mut taken = BTreeSet::new();
    let mut merged = Vec::new();
    let (mut at_old, mut at_new) = (0, 0);
    while at_old < old_order.len() || at_new < new_order.len() {
        if let (Some((element, _)), Some((new_element, _))) = (old_order.get(at_old), new_order.get(at_new)) {
            if element == new_element {
                taken.insert(element);
                merged.extend(merge(schema, ty.item(), old_items.get(element), new_items.get(element)));
                at_old += 1;
                at_new += 1;
                next_shared = shared.next();
                continue;
            }
            if new_items.contains_key(element) && next_shared.is_some_and(|shared| shared != element) {
                // Shared, but its turn comes with the new list.
                at_old += 1;
                continue;
            }
        }
        if let Some((element, item)) = old_order.get(at_old) {
            if !new_items.contains_key(element) {
                merged.extend(merge(schema, ty.item(), Some(item), None));
                at_old += 1;
                continue;
            }
            if taken.contains(element) {
                at_old += 1;
            }
        }
        if let Some((element, _)) = new_order.get(at_new) {
            taken.insert(element);
            merged.extend(merge(schema, ty.item(), old_items.get(element), new_items.get(element)));
            at_new += 1;
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    merged
}

/// Null if nothing is left.
fn remove(schema: &Schema, ty: Ty<'_>, value: &Value, fields: &FieldSet) -> Value {
    match (ty.shape(schema, Some(value)), value) {
        (Shape::Map, Value::Object(entries)) => {
            let mut left = Map::new();
            for (key, value) in entries {
                let element = PathElement::Field(key.clone());
                if fields.has(&element) {
                    continue;
                }
                let inner = ty.field(schema, key).map_or(Ty::of(&Type::Any), |(inner, _)| inner);
                let value = match fields.child(&element) {
                    Some(fields) => remove(schema, inner, value, fields),
                    None => value.clone(),
                };
                left.insert(key.clone(), value);
            }
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (Shape::Items, Value::Array(items)) => {
            let mut left = Vec::new();
            for item in items {
                let Ok(element) = identity(schema, ty, item) else {
                    left.push(item.clone());
                    continue;
                };
                if fields.has(&element) {
                    continue;
                }
                left.push(match fields.child(&element) {
                    Some(fields) => remove(schema, ty.item(), item, fields),
                    None => item.clone(),
                });
            }
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        // Nothing inside of an atomic list or map can be owned; if it is, the whole goes.
        (_, Value::Object(_) | Value::Array(_)) => Value::Null,
        (_, scalar) => scalar.clone(),
    }
}

fn with_named_fields(schema: &Schema, ty: Option<Ty<'_>>, set: &FieldSet) -> FieldSet {
    let is_named = |element: &PathElement| match (element, ty) {
        (PathElement::Field(name), Some(ty)) => matches!(ty.field(schema, name), Some((_, true))),
        _ => false,
    };
    let named = set.children().map(|(element, _)| element).filter(|element| is_named(element));
    let children = set.children().map(|(element, child)| {
        let inner = match (element, ty) {
            (PathElement::Field(name), Some(ty)) => ty.field(schema, name).map(|(inner, _)| inner),
            (PathElement::Key(_), Some(ty)) if matches!(ty.ty, Type::List(_)) => Some(ty.item()),
            _ => None,
        };
        (element.clone(), with_named_fields(schema, inner, child))
    });
    set.with_children(named.cloned(), children.collect())
}

/// Faults that are kept of one object.
const FAULTS_MAX: usize = 100;

struct Validate<'s> {
    schema: &'s Schema,
    path: Vec<PathElement>,
    faults: Vec<String>,
}

impl Validate<'_> {
    fn fault(&mut self, text: &str) {
        if self.faults.len() < FAULTS_MAX {
            self.faults
                .push(format!("{}: {text}", super::field_set::path_text(&self.path)));
        }
    }

    fn value(&mut self, ty: Ty<'_>, value: &Value) {
        match (ty.ty, value) {
            (_, Value::Null) | (Type::Any | Type::Raw | Type::FieldsV1, _) => {}
            (Type::Message(_) | Type::Map(_), Value::Object(entries)) => {
                for (key, value) in entries {
                    self.path.push(PathElement::Field(key.clone()));
                    match ty.field(self.schema, key) {
                        Some((inner, _)) => self.value(inner, value),
                        None => self.fault("field not declared in schema"),
                    }
                    self.path.pop();
                }
            }
            (Type::Message(_) | Type::Map(_), other) => self.fault(&format!("expected map, got {other}")),
            (Type::List(_) | Type::Items(_), Value::Array(items)) => self.items(ty, items),
            (Type::List(_) | Type::Items(_), other) => self.fault(&format!("expected list, got {other}")),
            (Type::String | Type::Bytes, Value::String(_))
            | (Type::Bool, Value::Bool(_))
            | (Type::Int32 | Type::Int64, Value::Number(_)) => {}
            (Type::Quantity | Type::IntOrString | Type::Time | Type::MicroTime, Value::String(_) | Value::Number(_)) => {}
            (Type::String | Type::Bytes, other) => self.fault(&format!("expected string, got {other}")),
            (Type::Bool, other) => self.fault(&format!("expected boolean, got {other}")),
            (Type::Int32 | Type::Int64, other) => self.fault(&format!("expected numeric (int or float), got {other}")),
            (Type::Quantity | Type::IntOrString | Type::Time | Type::MicroTime, other) => {
                self.fault(&format!("expected any scalar, got {other}"));
            }
        }
    }

    fn items(&mut self, ty: Ty<'_>, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = if *ty.list == ListKind::Atomic {
                PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
            } else {
                match identity(self.schema, ty, item) {
                    Ok(element) => element,
                    Err(why) => return self.fault(&format!("element {index}: {why}")),
                }
            };
            if !seen.insert(element.clone()) {
                self.fault(&format!("duplicate entries for key {element}"));
            }
            self.path.push(element);
            self.value(ty.item(), item);
            self.path.pop();
        }
    }
}
