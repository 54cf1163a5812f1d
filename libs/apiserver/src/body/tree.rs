//! A JSON or YAML text as it stands: order and repetition of keys survive, depth and number of values are limited.
//!
//! Only a step on the way to a [`serde_json::Value`]: what keys may stand where is found out by [`super::conform`].

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// Objects and lists within each other. The deepest kind has about 20.
pub const DEPTH_MAX: usize = 100;

/// Objects and lists in all. The largest valid object has about 40,000.
pub const CONTAINERS_MAX: usize = resource_api::extent::CONTAINERS_MAX;

/// Numbers, texts, truth values and nulls in all.
pub const SCALARS_MAX: usize = 4 * CONTAINERS_MAX;

/// A value of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

/// A text that is too rich on the inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtentError {
    #[error("values are nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    #[error("there are more than {CONTAINERS_MAX} objects and lists or {SCALARS_MAX} other values")]
    TooMany,
}

/// Why a text is not a tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("{0}")]
    Json(serde_json::Error),
    #[error("{0}")]
    Yaml(serde_yaml_ng::Error),
    #[error(transparent)]
    Extent(#[from] ExtentError),
}

/// How many values may still be made. Shared by all parts of one body.
#[derive(Debug)]
pub(crate) struct Budget {
    containers: Cell<usize>,
    scalars: Cell<usize>,
    refused: Cell<Option<ExtentError>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            containers: Cell::new(CONTAINERS_MAX),
            scalars: Cell::new(SCALARS_MAX),
            refused: Cell::new(None),
        }
    }
}

impl Budget {
    /// Takes one object or list at a depth (0 for the outermost).
    pub(crate) fn container(&self, depth: usize) -> Result<(), ExtentError> {
        if depth >= DEPTH_MAX {
            return Err(self.refuse(ExtentError::TooDeep));
        }
        self.take(&self.containers)
    }

    /// Takes one other value.
    pub(crate) fn scalar(&self) -> Result<(), ExtentError> {
        self.take(&self.scalars)
    }

    fn take(&self, from: &Cell<usize>) -> Result<(), ExtentError> {
        match from.get().checked_sub(1) {
            Some(left) => {
                from.set(left);
                Ok(())
            }
            None => Err(self.refuse(ExtentError::TooMany)),
        }
    }

    /// Keeps the error, because on the way through serde it becomes a text.
    fn refuse(&self, error: ExtentError) -> ExtentError {
        self.refused.set(Some(error));
        error
    }
}

impl Tree {
    /// Reads one JSON value.
    pub(crate) fn from_json(text: &[u8], budget: &Budget) -> Result<Self, TreeError> {
        Self::from_json_at(text, budget, 0)
    }

    /// Reads one JSON value that stands at a depth of a body.
    pub(crate) fn from_json_at(text: &[u8], budget: &Budget, depth: usize) -> Result<Self, TreeError> {
        let mut from = serde_json::Deserializer::from_slice(text);
        let tree = Seed { budget, depth }.deserialize(&mut from);
        let tree = tree.and_then(|tree| from.end().map(|()| tree));
        tree.map_err(|error| budget.refused.get().map_or(TreeError::Json(error), TreeError::Extent))
    }

    /// Reads the first document of a YAML text, with merge keys (`<<`) resolved. Keys are sorted, as upstream does on its way
    /// to JSON. An empty text is null.
    ///
    /// Scalars follow YAML 1.2 (`yes` is a text), those of upstream YAML 1.1.
    pub(crate) fn from_yaml(text: &[u8], budget: &Budget) -> Result<Self, TreeError> {
        let Some(document) = serde_yaml_ng::Deserializer::from_slice(text).next() else {
            return Ok(Self::Null);
        };
        let tree = Seed { budget, depth: 0 }.deserialize(document);
        let tree = tree.map_err(|error| budget.refused.get().map_or(TreeError::Yaml(error), TreeError::Extent))?;
        Ok(tree.merged_and_sorted())
    }

    /// Applies merge keys and sorts, all the way down.
    fn merged_and_sorted(self) -> Self {
        match self {
            Self::List(items) => Self::List(items.into_iter().map(Self::merged_and_sorted).collect()),
            Self::Map(entries) => {
                let (merges, mut entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(key, _)| key == "<<");
                let sources = merges.into_iter().flat_map(|(_, source)| match source {
                    Self::List(sources) => sources,
                    one => vec![one],
                });
                let mut own: HashSet<String> = entries.iter().map(|(key, _)| key.clone()).collect();
                for source in sources {
                    let Self::Map(inherited) = source.merged_and_sorted() else {
                        continue;
                    };
                    entries.extend(inherited.into_iter().filter(|(key, _)| own.insert(key.clone())));
                }
                let mut entries: Vec<_> = entries
                    .into_iter()
                    .map(|(key, value)| (key, value.merged_and_sorted()))
                    .collect();
                entries.sort_by(|(left, _), (right, _)| left.cmp(right));
                Self::Map(entries)
            }
            scalar => scalar,
        }
    }

    /// What JSON calls the type, in the words of upstream's errors.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::List(_) => "array",
            Self::Map(_) => "object",
        }
    }
}

impl From<Value> for Tree {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(value) => Self::Number(value),
            Value::String(value) => Self::Text(value),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Object(entries) => Self::Map(entries.into_iter().map(|(key, value)| (key, value.into())).collect()),
        }
    }
}

struct Seed<'b> {
    budget: &'b Budget,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Tree, D::Error> {
        from.deserialize_any(self)
    }
}

impl Seed<'_> {
    fn scalar<E: serde::de::Error>(&self, tree: Tree) -> Result<Tree, E> {
        self.budget.scalar().map_err(E::custom)?;
        Ok(tree)
    }

    fn inner(&self) -> Self {
        Self {
            budget: self.budget,
            depth: self.depth + 1,
        }
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Tree, E> {
        self.scalar(Tree::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Tree, E> {
        self.scalar(Tree::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Tree, E> {
        self.scalar(Tree::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Tree, E> {
        self.scalar(Tree::Number(value.into()))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Tree, E> {
        self.scalar(Tree::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Tree, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number is not finite"))?;
        self.scalar(Tree::Number(number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Tree, E> {
        self.scalar(Tree::Text(value.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Tree, E> {
        self.scalar(Tree::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Tree, A::Error> {
        self.budget.container(self.depth).map_err(A::Error::custom)?;
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(self.inner())? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Tree, A::Error> {
        self.budget.container(self.depth).map_err(A::Error::custom)?;
        let mut entries = Vec::new();
        while let Some(key) = from.next_key_seed(Key)? {
            entries.push((key, from.next_value_seed(self.inner())?));
        }
        Ok(Tree::Map(entries))
    }
}

/// A key: text, or a scalar of YAML that is written as text.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        from.deserialize_any(self)
    }
}

impl Visitor<'_> for Key {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<String, E> {
        Ok(value.to_string())
    }
}
