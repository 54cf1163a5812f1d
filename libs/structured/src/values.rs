//! The attribute values that constraints compare, as small numbers that are equal exactly when the values are.
//!
//! Looked up once per device and constraint in a call: first a derived attribute of the request, then the published
//! attribute under its full name, then under its bare name if the driver's domain is meant.

use resource_api::device::{AttributeValue, Device};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::constraint::{ValueKind, ValueSet};
use crate::fault::{Fault, FaultKind, Stop};
use crate::node_view::{NodeView, Position};
use crate::request::{Choice, ChoiceId, CompiledUnit};
use crate::selectors::derive;

/// Values met in one call.
#[derive(Debug, Default)]
pub(crate) struct Values<'a> {
    interner: Interner<'a>,
    published: FxHashMap<(usize, Position), Option<ValueSet>>,
    derived: FxHashMap<(ChoiceId, usize, Position), ValueSet>,
}

impl<'a> Values<'a> {
    /// What the device shows under constraint number `constraint` when taken for `choice`; `None`: no such attribute.
    pub(crate) fn get(
        &mut self,
        node: &NodeView<'a>,
        unit: &'a CompiledUnit,
        constraint: usize,
        choice: &'a Choice,
        position: Position,
    ) -> Result<Option<&ValueSet>, Stop> {
        let attribute = &unit.constraints[constraint].attribute;
        let (_, pool, local) = node.locate(position);
        if let Some(derived) = choice.derived.iter().find(|derived| derived.name == **attribute) {
            let key = (choice.id, constraint, position);
            if !self.derived.contains_key(&key) {
                let value = derive(&derived.expression, &pool.id.driver, pool.device(local)).map_err(|error| {
                    let text = format!(
                        "{}: derived attribute {attribute} failed on device {}: {error}",
                        unit.place_of(choice),
                        pool.device_id(local)
                    );
                    Fault::claim(FaultKind::DerivedEvaluation, text)
                })?;
                let value = self.interner.derived(value.value());
                self.derived.insert(key, value);
            }
            return Ok(self.derived.get(&key));
        }
        let interner = &mut self.interner;
        let value = self
            .published
            .entry((constraint, position))
            .or_insert_with(|| published(pool.device(local), &pool.id.driver, attribute).map(|value| interner.value(value)));
        Ok(value.as_ref())
    }
}

/// The published attribute with this full name; the inner `None` is a value of no known kind.
pub(crate) fn published<'a>(device: &'a Device, driver: &str, attribute: &str) -> Option<Option<AttributeValue<'a>>> {
    if let Some(found) = device.attributes.get(attribute) {
        return Some(found.value());
    }
    let (domain, name) = attribute.split_once('/')?;
    if domain != driver {
        return None;
    }
    device.attributes.get(name).map(|found| found.value())
}

/// Numbers for values: equal numbers, equal kind and value.
#[derive(Debug, Default)]
struct Interner<'a> {
    ints: FxHashMap<i64, u32>,
    texts: FxHashMap<&'a str, u32>,
    owned: FxHashMap<String, u32>,
    next: u32,
}

impl<'a> Interner<'a> {
    fn int(&mut self, int: i64) -> u32 {
        let next = &mut self.next;
        *self.ints.entry(int).or_insert_with(|| {
            *next += 1;
            *next
        })
    }

    fn text(&mut self, text: &'a str) -> u32 {
        if let Some(number) = self.owned.get(text) {
            return *number;
        }
        let next = &mut self.next;
        *self.texts.entry(text).or_insert_with(|| {
            *next += 1;
            *next
        })
    }

    fn owned_text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.texts.get(text).or_else(|| self.owned.get(text)) {
            return *number;
        }
        self.next += 1;
        self.owned.insert(text.to_owned(), self.next);
        self.next
    }

    fn value(&mut self, value: Option<AttributeValue<'a>>) -> ValueSet {
        match value {
            Some(AttributeValue::Int(int)) => set(ValueKind::Int, false, [self.int(int)]),
            Some(AttributeValue::Bool(bool)) => set(ValueKind::Bool, false, [u32::from(bool)]),
            Some(AttributeValue::String(text)) => set(ValueKind::String, false, [self.text(text)]),
            Some(AttributeValue::Version(text)) => set(ValueKind::Version, false, [self.text(text)]),
            Some(AttributeValue::Ints(ints)) => set(ValueKind::Int, true, ints.iter().map(|int| self.int(*int))),
            Some(AttributeValue::Bools(bools)) => set(ValueKind::Bool, true, bools.iter().map(|bool| u32::from(*bool))),
            Some(AttributeValue::Strings(texts)) => set(ValueKind::String, true, texts.iter().map(|text| self.text(text))),
            Some(AttributeValue::Versions(texts)) => set(ValueKind::Version, true, texts.iter().map(|text| self.text(text))),
            None => set(ValueKind::Unknown, false, []),
        }
    }

    /// As [`Interner::value`], for values that do not live as long as the devices.
    fn derived(&mut self, value: Option<AttributeValue<'_>>) -> ValueSet {
        match value {
            Some(AttributeValue::Int(int)) => set(ValueKind::Int, false, [self.int(int)]),
            Some(AttributeValue::Bool(bool)) => set(ValueKind::Bool, false, [u32::from(bool)]),
            Some(AttributeValue::String(text)) => set(ValueKind::String, false, [self.owned_text(text)]),
            Some(AttributeValue::Version(text)) => set(ValueKind::Version, false, [self.owned_text(text)]),
            Some(AttributeValue::Ints(ints)) => set(ValueKind::Int, true, ints.iter().map(|int| self.int(*int))),
            Some(AttributeValue::Bools(bools)) => set(ValueKind::Bool, true, bools.iter().map(|bool| u32::from(*bool))),
            Some(AttributeValue::Strings(texts)) => set(ValueKind::String, true, texts.iter().map(|text| self.owned_text(text))),
            Some(AttributeValue::Versions(texts)) => {
                set(ValueKind::Version, true, texts.iter().map(|text| self.owned_text(text)))
            }
            None => set(ValueKind::Unknown, false, []),
        }
    }
}

fn set(kind: ValueKind, is_list: bool, members: impl IntoIterator<Item = u32>) -> ValueSet {
    let mut members: SmallVec<[u32; 2]> = members.into_iter().collect();
    members.sort_unstable();
    members.dedup();
    ValueSet { kind, is_list, members }
}
