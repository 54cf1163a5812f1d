//! Sets of fields, in memory and as the `fieldsV1` of a `managedFields` entry.
//!
//! A set is a tree. A field is in the set if it is a member of its parent's node; that its children are in the set says nothing
//! about itself. Source: sigs.k8s.io/structured-merge-diff, package `fieldpath`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

/// Levels of a set. Objects are not deeper than that either.
const DEPTH_MAX: usize = crate::body::tree::DEPTH_MAX;

/// A scalar, kept as its JSON text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Literal(String);

impl Literal {
    /// A value that equals another has the same text, also if one is written as `1` and the other as `1.0`.
    pub fn new(value: &Value) -> Self {
        match value.as_f64() {
            // A whole number within the range in which floating numbers are exact.
            Some(number) if value.is_f64() && number.fract() == 0.0 && number.abs() < 9e15 => Self(format!("{number:.0}")),
            _ => Self(value.to_string()),
        }
    }

    fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }
}

/// A step on the way to a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathElement {
    /// A field of an object or a key of a map.
    Field(String),
    /// The item of a list with these keys.
    Key(BTreeMap<String, Literal>),
    /// The item of a set with this value.
    Value(Literal),
    /// The item at this position.
    Index(i64),
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name}={}", value.0)).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", value.0),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path, printed as upstream prints it: `.status.reservedFor[uid="u"].name`.
pub(super) fn path_text(path: &[PathElement]) -> String {
    path.iter().map(PathElement::to_string).collect()
}

/// `fieldsV1` that is not a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fieldsV1 has the key {key:?}, which names no field")]
pub struct FieldSetError {
    key: String,
}

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    members: BTreeSet<PathElement>,
    children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    /// A set of plain fields, each given by its names from the root: what an endpoint resets.
    pub fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<_> = path.iter().map(|name| PathElement::Field((*name).to_owned())).collect();
            set.insert(&path);
        }
        set
    }

    /// Adds a field; its parents are not added. The empty path is the object itself, which nobody owns.
    pub(super) fn insert(&mut self, path: &[PathElement]) {
        let Some((last, parents)) = path.split_last() else {
            return;
        };
        let mut node = self;
        for element in parents {
            node = node.children.entry(element.clone()).or_default();
        }
        node.members.insert(last.clone());
    }

    /// True if nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    pub(super) fn has(&self, element: &PathElement) -> bool {
        self.members.contains(element)
    }

    pub(super) fn child(&self, element: &PathElement) -> Option<&Self> {
        self.children.get(element).filter(|child| !child.is_empty())
    }

    pub(super) fn children(&self) -> impl Iterator<Item = (&PathElement, &Self)> {
        self.children.iter()
    }

    /// The same members with children that are mapped.
    pub(super) fn with_children(
        &self,
        members: impl Iterator<Item = PathElement>,
        children: BTreeMap<PathElement, Self>,
    ) -> Self {
        Self {
            members: self.members.iter().cloned().chain(members).collect(),
            children,
        }
    }

    /// What is in either.
    pub(super) fn union(&self, other: &Self) -> Self {
        let mut children = self.children.clone();
        for (element, theirs) in &other.children {
            let ours = children.entry(element.clone()).or_default();
            *ours = ours.union(theirs);
        }
        Self {
            members: self.members.union(&other.members).cloned().collect(),
            children,
        }
    }

    /// What is in both.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let both = self.children.iter().filter_map(|(element, ours)| {
            let both = ours.intersection(other.children.get(element)?);
            (!both.is_empty()).then(|| (element.clone(), both))
        });
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: both.collect(),
        }
    }

    /// What is in `self` and not in `other`. A field in `other` takes away itself and not its children.
    pub(super) fn difference(&self, other: &Self) -> Self {
        let left = self
            .children
            .iter()
            .filter_map(|(element, ours)| match other.children.get(element) {
                None => Some((element.clone(), ours.clone())),
                Some(theirs) => {
                    let left = ours.difference(theirs);
                    (!left.is_empty()).then(|| (element.clone(), left))
                }
            });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: left.collect(),
        }
    }

    /// As [`FieldSet::difference`]; a field in `other` takes its children away, too.
    pub(super) fn recursive_difference(&self, other: &Self) -> Self {
        let kept = self.children.iter().filter(|(element, _)| !other.members.contains(element));
        let left = kept.filter_map(|(element, ours)| match other.children.get(element) {
            None => Some((element.clone(), ours.clone())),
            Some(theirs) => {
                let left = ours.recursive_difference(theirs);
                (!left.is_empty()).then(|| (element.clone(), left))
            }
        });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: left.collect(),
        }
    }

    /// Every field, the members of a node before its children.
    pub(super) fn paths(&self) -> Vec<Vec<PathElement>> {
        fn walk(set: &FieldSet, path: &mut Vec<PathElement>, paths: &mut Vec<Vec<PathElement>>) {
            for member in &set.members {
                paths.push(path.iter().cloned().chain([member.clone()]).collect());
            }
            for (element, child) in &set.children {
                path.push(element.clone());
                walk(child, path, paths);
                path.pop();
            }
        }
        let mut paths = Vec::new();
        walk(self, &mut Vec::new(), &mut paths);
        paths
    }

    /// Reads `fieldsV1`. `FieldSetError` for a key that is not one of `f:`, `k:`, `v:`, `i:` and `.`, or too deep a tree.
    pub fn from_fields_v1(fields: &Map<String, Value>) -> Result<Self, FieldSetError> {
        let mut set = Self::default();
        read(fields, &mut set, 0)?;
        Ok(set)
    }

    /// The set as `fieldsV1`.
    pub fn to_fields_v1(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        for member in &self.members {
            fields.insert(key_text(member), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            let mut inner = child.to_fields_v1();
            if inner.is_empty() {
                continue;
            }
            if self.members.contains(element) {
                inner.insert(".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(key_text(element), Value::Object(inner));
        }
        fields
    }
}

/// Reads the children of a node. True if the node itself is in the set: it says so, or it has no children.
fn read(fields: &Map<String, Value>, set: &mut FieldSet, depth: usize) -> Result<bool, FieldSetError> {
    let fault = |key: &str| FieldSetError { key: key.to_owned() };
    let mut is_member = fields.is_empty();
    for (key, value) in fields {
        if key == "." {
            is_member = true;
            continue;
        }
        if depth >= DEPTH_MAX {
            return Err(fault(key));
        }
        let element = element(key).ok_or_else(|| fault(key))?;
        let empty = Map::new();
        let inner = match value {
            Value::Object(inner) => inner,
            Value::Null => &empty,
            _ => return Err(fault(key)),
        };
        let mut child = FieldSet::default();
        if read(inner, &mut child, depth + 1)? {
            set.members.insert(element.clone());
        }
        if !child.is_empty() {
            set.children.insert(element, child);
        }
    }
    Ok(is_member)
}

fn element(key: &str) -> Option<PathElement> {
    let (kind, text) = key.split_once(':')?;
    match kind {
        "f" => Some(PathElement::Field(text.to_owned())),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(text).ok()?;
            Some(PathElement::Key(
                keys.iter().map(|(name, value)| (name.clone(), Literal::new(value))).collect(),
            ))
        }
        "v" => Some(PathElement::Value(Literal::new(&serde_json::from_str(text).ok()?))),
        "i" => Some(PathElement::Index(text.parse().ok()?)),
        _ => None,
    }
}

fn key_text(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Key(keys) => {
            let keys: Map<_, _> = keys.iter().map(|(name, value)| (name.clone(), value.value())).collect();
            format!("k:{}", Value::Object(keys))
        }
        PathElement::Value(value) => format!("v:{}", value.0),
        PathElement::Index(index) => format!("i:{index}"),
    }
}
