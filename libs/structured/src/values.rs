//! The attribute values that constraints compare, as small numbers that are equal exactly when the values are.
//!
//! Looked up once per device and constraint in a call: first a derived attribute of the request, then the published
//! attribute under its full name, then under its bare name if the driver's domain is meant.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::constraint::{ValueKind, ValueSet};
use crate::fault::{Fault, FaultKind, Stop};
use crate::node_view::{NodeView, Position};
use crate::packed::{PackedDevice, PackedValue, pack_value, packed};
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
                let value = derive(&derived.expression, &pool.id.driver, &pool.device(local).restore()).map_err(|error| {
                    let text = format!(
                        "{}: derived attribute {attribute} failed on device {}: {error}",
                        unit.place_of(choice),
                        pool.device_id(local)
                    );
                    Fault::claim(FaultKind::DerivedEvaluation, text)
                })?;
                let mut bytes = Vec::new();
                pack_value(&value, &mut bytes);
                let value = self.interner.derived(packed(&bytes));
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

/// The published attribute with this full name.
fn published<'a>(device: PackedDevice<'a>, driver: &str, attribute: &str) -> Option<PackedValue<'a>> {
    if let Some(found) = device.attribute(attribute) {
        return Some(found);
    }
    let (domain, name) = attribute.split_once('/')?;
    if domain != driver {
        return None;
    }
    device.attribute(name)
}

/// Numbers for elements of values: equal numbers, equal elements, given that their kinds are equal.
#[derive(Debug, Default)]
struct Interner<'a> {
    published: FxHashMap<&'a [u8], u32>,
    /// Elements that do not live as long as the devices.
    owned: FxHashMap<Vec<u8>, u32>,
    next: u32,
}

impl<'a> Interner<'a> {
    fn value(&mut self, value: PackedValue<'a>) -> ValueSet {
        let (kind, is_list, elements) = value.elements();
        let members = elements.map(|element| {
            if let Some(number) = self.owned.get(element) {
                return *number;
            }
            let next = &mut self.next;
            *self.published.entry(element).or_insert_with(|| {
                *next += 1;
                *next
            })
        });
        set(kind, is_list, members)
    }

    /// As [`Interner::value`], for values that do not live as long as the devices.
    fn derived(&mut self, value: PackedValue<'_>) -> ValueSet {
        let (kind, is_list, elements) = value.elements();
        let members = elements.map(|element| {
            if let Some(number) = self.published.get(element).or_else(|| self.owned.get(element)) {
                return *number;
            }
            self.next += 1;
            self.owned.insert(element.to_vec(), self.next);
            self.next
        });
        set(kind, is_list, members)
    }
}

fn set(kind: ValueKind, is_list: bool, members: impl IntoIterator<Item = u32>) -> ValueSet {
    let mut members: SmallVec<[u32; 2]> = members.into_iter().collect();
    members.sort_unstable();
    members.dedup();
    ValueSet { kind, is_list, members }
}
