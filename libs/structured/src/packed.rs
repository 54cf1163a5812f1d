//! Slices as a cluster keeps them: per device the bytes of its attribute values, and references to what equal slices and devices
//! have in common (device and attribute names, capacities, counters, taints, …), each stored once.
//!
//! An object as decoded takes several kilobytes per device, most of it empty fields. Packed it is some hundred bytes, and the bytes
//! that a selector reads are at once the key under which its answer is remembered.

use std::collections::BTreeMap;
use std::sync::Arc;

use device_selectors::DeviceView;
use resource_api::device::{AttributeValue, CounterSet, Device, DeviceAttribute};
use resource_api::ids::{DeviceName, DriverName};
use resource_api::slice::{QualifiedName, ResourceSlice, ResourceSliceSpec, SkipNodeOperation};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::capacity::CapacityFacts;
use crate::constraint::ValueKind;

/// Entries of a table of shared parts below which looking for unused ones does not pay.
const SWEEP_FROM: usize = 1024;

/// Up to this many names a scan is as fast as a search.
const NAMES_SCANNED_MAX: usize = 16;

/// Drivers whose latest slice is kept as a pattern for the next one.
const PATTERNS_MAX: usize = 64;

const ABSENT: u8 = 254;
const SEVERAL: u8 = 255;

/// A slice without what decisions do not look at (metadata but for the name).
#[derive(Debug)]
pub(crate) struct PackedSlice {
    pub(crate) name: Box<str>,
    /// With devices, counters and skipped operations taken out.
    pub(crate) spec: ResourceSliceSpec,
    layout: Arc<SliceLayout>,
    /// One a device of the layout.
    facts: Box<[DeviceFacts]>,
}

/// What a slice says besides where it is and its devices' attributes. Fleets of equal nodes have few of these.
#[derive(Debug)]
pub(crate) struct SliceLayout {
    names: Box<[DeviceName]>,
    /// Places of the names in their order, where looking through all would take long.
    order: Option<Box<[u16]>>,
    kinds: Box<[Arc<Kind>]>,
    has_device_list: bool,
    shared_counters: Option<Vec<CounterSet>>,
    skip_node_operations: Vec<SkipNodeOperation>,
}

/// The attributes of one device.
#[derive(Debug)]
struct DeviceFacts {
    schema: Arc<Schema>,
    /// The attributes' values in the order of the schema, one after the other.
    values: Box<[u8]>,
    is_usable: bool,
}

/// One device of a packed slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedDevice<'a> {
    pub(crate) name: &'a DeviceName,
    kind: &'a Kind,
    facts: &'a DeviceFacts,
}

impl SliceLayout {
    pub(crate) fn shared_counters(&self) -> &[CounterSet] {
        self.shared_counters.as_deref().unwrap_or_default()
    }

    pub(crate) fn skip_node_operations(&self) -> &[SkipNodeOperation] {
        &self.skip_node_operations
    }

    /// The number of devices that can be handed out: a slice with shared counters is not a source of devices.
    pub(crate) fn n_sources(&self) -> usize {
        if self.shared_counters().is_empty() {
            self.names.len()
        } else {
            0
        }
    }

    /// The numbers of the devices that can be handed out and have this name: in a slice that is in order, one at most.
    pub(crate) fn named(&self, name: &str) -> SmallVec<[usize; 1]> {
        match &self.order {
            Some(order) => {
                let name_at = |at: &u16| self.names[usize::from(*at)].as_str();
                let from = order.partition_point(|at| name_at(at) < name);
                let same = order[from..].iter().take_while(|at| name_at(at) == name);
                same.map(|at| usize::from(*at)).collect()
            }
            None => {
                let names = self.names[..self.n_sources()].iter().enumerate();
                names.filter(|(_, other)| other.as_str() == name).map(|(at, _)| at).collect()
            }
        }
    }

    /// Names and kinds of the devices that can be handed out.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&DeviceName, &Kind)> {
        let devices = self.names.iter().zip(self.kinds.iter().map(|kind| &**kind));
        devices.take(self.n_sources())
    }
}

impl PackedSlice {
    pub(crate) fn layout(&self) -> &Arc<SliceLayout> {
        &self.layout
    }

    /// The kinds of all devices of the slice.
    pub(crate) fn kinds(&self) -> impl ExactSizeIterator<Item = (&DeviceName, &Kind)> {
        self.layout.names.iter().zip(self.layout.kinds.iter().map(|kind| &**kind))
    }

    /// The device number `index` of the slice.
    pub(crate) fn device(&self, index: usize) -> PackedDevice<'_> {
        PackedDevice {
            name: &self.layout.names[index],
            kind: &self.layout.kinds[index],
            facts: &self.facts[index],
        }
    }

    /// The devices that can be handed out.
    pub(crate) fn sources(&self) -> impl Iterator<Item = PackedDevice<'_>> {
        (0..self.layout.n_sources()).map(|index| self.device(index))
    }

    /// The object again, with its name as only metadata.
    pub(crate) fn restore(&self) -> ResourceSlice {
        let mut slice = ResourceSlice {
            spec: self.spec.clone(),
            ..ResourceSlice::default()
        };
        slice.metadata.name = self.name.to_string();
        let devices = (0..self.facts.len()).map(|index| self.device(index).restore());
        slice.spec.devices = self.layout.has_device_list.then(|| devices.collect());
        slice.spec.shared_counters.clone_from(&self.layout.shared_counters);
        slice.spec.skip_node_operations.clone_from(&self.layout.skip_node_operations);
        slice
    }
}

/// The names of a device's attributes, sorted. Equal ids, equal names and driver.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) id: u64,
    names: Box<[Box<str>]>,
}

/// What a device says besides its name and attributes.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Name and attributes are empty.
    pub(crate) device: Device,
    /// Equal for equal capacities, by address as well.
    pub(crate) capacity: Option<Arc<CapacityFacts>>,
}

impl<'a> PackedDevice<'a> {
    pub(crate) fn schema(&self) -> &'a Schema {
        &self.facts.schema
    }

    /// Everything but name and attributes.
    pub(crate) fn kind(&self) -> &'a Kind {
        self.kind
    }

    /// As the selectors' [`DeviceView::is_usable`].
    pub(crate) fn is_usable(&self) -> bool {
        self.facts.is_usable
    }

    pub(crate) fn is_shareable(&self) -> bool {
        self.kind.device.is_shareable()
    }

    /// The value of the attribute published under exactly this name.
    pub(crate) fn attribute(&self, name: &str) -> Option<PackedValue<'a>> {
        self.schema().position(name).map(|at| self.value_at(at))
    }

    /// The value of the schema's attribute number `at`.
    pub(crate) fn value_at(&self, at: usize) -> PackedValue<'a> {
        let mut rest = &*self.facts.values;
        for _ in 0..at {
            rest = &rest[len_of(rest)..];
        }
        PackedValue(&rest[..len_of(rest)])
    }

    /// The bytes of all attribute values; equal for equal values under equal schemas.
    pub(crate) fn value_bytes(&self) -> &'a [u8] {
        &self.facts.values
    }

    /// The object again.
    pub(crate) fn restore(&self) -> Device {
        let mut rest = &*self.facts.values;
        let mut attributes = BTreeMap::new();
        for name in &self.schema().names {
            let len = len_of(rest);
            attributes.insert(name.to_string(), PackedValue(&rest[..len]).restore());
            rest = &rest[len..];
        }
        Device {
            name: self.name.clone(),
            attributes,
            ..self.kind.device.clone()
        }
    }
}

impl Schema {
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|known| (**known).cmp(name)).ok()
    }
}

/// One attribute value as bytes.
///
/// A tag, then what belongs to it: 1 int (8 bytes), 2 bool, 3 string, 4 version (length and text), 5–8 lists of these (count and
/// elements). An object that sets no field has tag 0, one that sets several has tag 255, their number, and each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedValue<'a>(&'a [u8]);

impl<'a> PackedValue<'a> {
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Its kind, whether it is a list, and its elements as bytes, which are equal for equal elements of one kind. As the object's
    /// [`DeviceAttribute::value`]: the first field that is set.
    pub(crate) fn elements(self) -> (ValueKind, bool, Elements<'a>) {
        let value = match self.0.first() {
            Some(&SEVERAL) => &self.0[2..],
            _ => self.0,
        };
        let (kind, is_list) = match value.first() {
            Some(1) => (ValueKind::Int, false),
            Some(2) => (ValueKind::Bool, false),
            Some(3) => (ValueKind::String, false),
            Some(4) => (ValueKind::Version, false),
            Some(5) => (ValueKind::Int, true),
            Some(6) => (ValueKind::Bool, true),
            Some(7) => (ValueKind::String, true),
            Some(8) => (ValueKind::Version, true),
            _ => (ValueKind::Unknown, false),
        };
        let (left, rest) = match (kind, is_list) {
            (ValueKind::Unknown, _) => (0, &value[..0]),
            (_, false) => (1, &value[1..]),
            (_, true) => {
                let (count, n) = read_len(&value[1..]);
                (count, &value[1 + n..])
            }
        };
        (kind, is_list, Elements { kind, left, rest })
    }

    /// The attribute of the object again.
    pub(crate) fn restore(self) -> DeviceAttribute {
        let mut attribute = DeviceAttribute::default();
        let (mut left, mut rest) = match self.0.first() {
            Some(&SEVERAL) => (usize::from(self.0[1]), &self.0[2..]),
            _ => (1, self.0),
        };
        while left > 0 {
            let len = len_of(rest);
            let (kind, is_list, elements) = PackedValue(&rest[..len]).elements();
            let ints = |bytes: &[u8]| i64::from_le_bytes(std::array::from_fn(|at| bytes[at]));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let elements: Vec<&[u8]> = elements.collect();
            let first = elements.first().copied().unwrap_or_default();
            match (kind, is_list) {
                (ValueKind::Int, false) => attribute.int = Some(ints(first)),
                (ValueKind::Bool, false) => attribute.bool = Some(first == [1]),
                (ValueKind::String, false) => attribute.string = Some(text(first)),
                (ValueKind::Version, false) => attribute.version = Some(text(first)),
                (ValueKind::Int, true) => attribute.ints = Some(elements.into_iter().map(ints).collect()),
                (ValueKind::Bool, true) => attribute.bools = Some(elements.into_iter().map(|bytes| bytes == [1]).collect()),
                (ValueKind::String, true) => attribute.strings = Some(elements.into_iter().map(text).collect()),
                (ValueKind::Version, true) => attribute.versions = Some(elements.into_iter().map(text).collect()),
                (ValueKind::Unknown, _) => {}
            }
            rest = &rest[len..];
            left -= 1;
        }
        attribute
    }
}

/// See [`PackedValue::elements`].
#[derive(Clone, Debug)]
pub(crate) struct Elements<'a> {
    kind: ValueKind,
    left: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (from, len) = match self.kind {
            ValueKind::Int => (0, 8),
            ValueKind::Bool => (0, 1),
            ValueKind::String | ValueKind::Version => {
                let (len, n) = read_len(self.rest);
                (n, len)
            }
            ValueKind::Unknown => return None,
        };
        let element = &self.rest[from..from + len];
        self.rest = &self.rest[from + len..];
        Some(element)
    }
}

/// The bytes that stand for a value of the object, in the form of [`PackedValue`].
pub(crate) fn pack_value(attribute: &DeviceAttribute, into: &mut Vec<u8>) {
    match attribute.values().count() {
        0 => into.push(0),
        1 => attribute.values().for_each(|value| pack_one(value, into)),
        several => {
            into.extend([SEVERAL, u8::try_from(several).unwrap_or(u8::MAX)]);
            attribute.values().for_each(|value| pack_one(value, into));
        }
    }
}

/// As [`pack_value`], of an attribute that a device lacks; no value looks like it.
pub(crate) fn pack_absent(into: &mut impl Extend<u8>) {
    into.extend([ABSENT]);
}

/// The value in packed form, to be looked at with [`packed`].
pub(crate) fn packed(bytes: &[u8]) -> PackedValue<'_> {
    PackedValue(bytes)
}

fn pack_one(value: AttributeValue<'_>, into: &mut Vec<u8>) {
    let text = |into: &mut Vec<u8>, text: &str| {
        put_len(into, text.len());
        into.extend_from_slice(text.as_bytes());
    };
    match value {
        AttributeValue::Int(int) => {
            into.push(1);
            into.extend(int.to_le_bytes());
        }
        AttributeValue::Bool(bool) => into.extend([2, u8::from(bool)]),
        AttributeValue::String(string) => {
            into.push(3);
            text(into, string);
        }
        AttributeValue::Version(version) => {
            into.push(4);
            text(into, version);
        }
        AttributeValue::Ints(ints) => {
            into.push(5);
            put_len(into, ints.len());
            ints.iter().for_each(|int| into.extend(int.to_le_bytes()));
        }
        AttributeValue::Bools(bools) => {
            into.push(6);
            put_len(into, bools.len());
            into.extend(bools.iter().map(|bool| u8::from(*bool)));
        }
        AttributeValue::Strings(strings) => {
            into.push(7);
            put_len(into, strings.len());
            strings.iter().for_each(|string| text(into, string));
        }
        AttributeValue::Versions(versions) => {
            into.push(8);
            put_len(into, versions.len());
            versions.iter().for_each(|version| text(into, version));
        }
    }
}

/// The length of the value that begins here.
fn len_of(bytes: &[u8]) -> usize {
    match bytes.first() {
        Some(1) => 9,
        Some(2) => 2,
        Some(3 | 4) => {
            let (len, n) = read_len(&bytes[1..]);
            1 + n + len
        }
        Some(tag @ 5..=8) => {
            let (count, n) = read_len(&bytes[1..]);
            let head = 1 + n;
            match tag {
                5 => head + 8 * count,
                6 => head + count,
                _ => (0..count).fold(head, |at, _| {
                    let (len, n) = read_len(&bytes[at..]);
                    at + n + len
                }),
            }
        }
        Some(&SEVERAL) => (0..bytes[1]).fold(2, |at, _| at + len_of(&bytes[at..])),
        Some(_) => 1,
        None => 0,
    }
}

/// Seven bits a byte, the last one below 128.
fn put_len(into: &mut Vec<u8>, mut len: usize) {
    while len >= 128 {
        into.push((len & 127) as u8 | 128);
        len >>= 7;
    }
    into.push(len as u8);
}

/// The number that begins here, and how many bytes it takes.
fn read_len(bytes: &[u8]) -> (usize, usize) {
    let mut len = 0;
    for (at, byte) in bytes.iter().enumerate() {
        len |= usize::from(byte & 127) << (7 * at);
        if byte & 128 == 0 {
            return (len, at + 1);
        }
    }
    (len, bytes.len())
}

/// Packs slices and keeps the parts that they share.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    schemas: FxHashMap<Box<[u8]>, Arc<Schema>>,
    kinds: FxHashMap<Box<[u8]>, Arc<Kind>>,
    layouts: FxHashMap<Box<[u8]>, Arc<SliceLayout>>,
    capacities: FxHashSet<Arc<CapacityFacts>>,
    /// The latest slice of each driver: the next one mostly has equal parts at the same places, or at the place before.
    patterns: FxHashMap<DriverName, Arc<PackedSlice>>,
    next_schema: u64,
    sweep_at: usize,
    buffer: Vec<u8>,
}

impl Packer {
    /// O(bytes of the slice).
    pub(crate) fn pack(&mut self, slice: &ResourceSlice) -> Arc<PackedSlice> {
        self.sweep();
        let driver = &slice.spec.driver;
        let pattern = self.patterns.get(driver).cloned();
        let published = slice.spec.devices();
        let mut facts: Vec<DeviceFacts> = Vec::with_capacity(published.len());
        let mut kinds: Vec<Arc<Kind>> = Vec::with_capacity(published.len());
        for (at, device) in published.iter().enumerate() {
            let alike = pattern.as_ref().and_then(|pattern| pattern.facts.get(at));
            let likely = [facts.last(), alike].into_iter().flatten().map(|other| &other.schema);
            let known = likely.into_iter().find(|schema| schema.is_of(&device.attributes)).cloned();
            let schema = known.unwrap_or_else(|| self.schema(driver, &device.attributes));
            let alike = pattern.as_ref().and_then(|pattern| pattern.layout.kinds.get(at));
            let likely = [kinds.last(), alike].into_iter().flatten();
            let known = likely.into_iter().find(|kind| is_like(&kind.device, device)).cloned();
            let kind = known.unwrap_or_else(|| self.kind(device));
            kinds.push(kind);
            self.buffer.clear();
            device
                .attributes
                .values()
                .for_each(|attribute| pack_value(attribute, &mut self.buffer));
            facts.push(DeviceFacts {
                schema,
                values: self.buffer.as_slice().into(),
                is_usable: DeviceView::new(driver, device).is_usable(),
            });
        }
        let layout = match &pattern {
            Some(pattern) if pattern.layout.is_of(&slice.spec, &kinds) => Arc::clone(&pattern.layout),
            _ => self.layout(&slice.spec, kinds),
        };
        let mut spec = clone_without_devices(&slice.spec);
        if let Some(pattern) = &pattern {
            spec.driver = pattern.spec.driver.clone();
        }
        let packed = Arc::new(PackedSlice {
            name: slice.metadata.name.as_str().into(),
            spec,
            layout,
            facts: facts.into(),
        });
        if self.patterns.len() >= PATTERNS_MAX && pattern.is_none() {
            self.patterns.clear();
        }
        self.patterns.insert(packed.spec.driver.clone(), Arc::clone(&packed));
        packed
    }

    fn layout(&mut self, spec: &ResourceSliceSpec, kinds: Vec<Arc<Kind>>) -> Arc<SliceLayout> {
        let mut key = Vec::new();
        for (device, kind) in spec.devices().iter().zip(&kinds) {
            put_len(&mut key, device.name.len());
            key.extend_from_slice(device.name.as_bytes());
            // A layout keeps its kinds, so the address means this kind as long as the layout is known.
            key.extend(Arc::as_ptr(kind).addr().to_le_bytes());
        }
        let rest = serde_json::to_vec(&(spec.devices.is_some(), &spec.shared_counters, &spec.skip_node_operations)).ok();
        let key = rest.map(|rest| {
            key.extend(rest);
            key
        });
        if let Some(known) = key.as_ref().and_then(|key| self.layouts.get(key.as_slice())) {
            return Arc::clone(known);
        }
        let names: Box<[DeviceName]> = spec.devices().iter().map(|device| device.name.clone()).collect();
        let order = u16::try_from(names.len())
            .ok()
            .filter(|len| usize::from(*len) > NAMES_SCANNED_MAX)
            .map(|len| {
                let mut order: Box<[u16]> = (0..len).collect();
                order.sort_by_key(|at| &names[usize::from(*at)]);
                order
            });
        let layout = Arc::new(SliceLayout {
            names,
            order: order.filter(|_| spec.shared_counters().is_empty()),
            kinds: kinds.into(),
            has_device_list: spec.devices.is_some(),
            shared_counters: spec.shared_counters.clone(),
            skip_node_operations: spec.skip_node_operations.clone(),
        });
        if let Some(key) = key {
            self.layouts.insert(key.into(), Arc::clone(&layout));
        }
        layout
    }

    fn schema(&mut self, driver: &DriverName, attributes: &BTreeMap<QualifiedName, DeviceAttribute>) -> Arc<Schema> {
        let key = &mut self.buffer;
        key.clear();
        for text in std::iter::once(driver.as_str()).chain(attributes.keys().map(String::as_str)) {
            put_len(key, text.len());
            key.extend_from_slice(text.as_bytes());
        }
        if let Some(known) = self.schemas.get(key.as_slice()) {
            return Arc::clone(known);
        }
        self.next_schema += 1;
        let schema = Arc::new(Schema {
            id: self.next_schema,
            names: attributes.keys().map(|name| name.as_str().into()).collect(),
        });
        self.schemas.insert(key.as_slice().into(), Arc::clone(&schema));
        schema
    }

    fn kind(&mut self, device: &Device) -> Arc<Kind> {
        let bare = clone_without_attributes(device);
        // Every field is in the text, so it identifies the content; an object that cannot be written shares nothing.
        let key = serde_json::to_vec(&bare).ok();
        if let Some(known) = key.as_ref().and_then(|key| self.kinds.get(key.as_slice())) {
            return Arc::clone(known);
        }
        let capacity = CapacityFacts::of(&bare).map(|facts| match self.capacities.get(&facts) {
            Some(known) => Arc::clone(known),
            None => {
                let facts = Arc::new(facts);
                self.capacities.insert(Arc::clone(&facts));
                facts
            }
        });
        let kind = Arc::new(Kind { device: bare, capacity });
        if let Some(key) = key {
            self.kinds.insert(key.into(), Arc::clone(&kind));
        }
        kind
    }

    /// Drops what no slice uses any more, each time the tables have doubled.
    fn sweep(&mut self) {
        let len = |tables: &Self| tables.schemas.len() + tables.kinds.len() + tables.capacities.len() + tables.layouts.len();
        if len(self) <= self.sweep_at.max(SWEEP_FROM) {
            return;
        }
        self.layouts.retain(|_, layout| Arc::strong_count(layout) > 1);
        self.schemas.retain(|_, schema| Arc::strong_count(schema) > 1);
        self.kinds.retain(|_, kind| Arc::strong_count(kind) > 1);
        self.capacities.retain(|facts| Arc::strong_count(facts) > 1);
        self.sweep_at = 2 * len(self);
    }
}

impl Schema {
    fn is_of(&self, attributes: &BTreeMap<QualifiedName, DeviceAttribute>) -> bool {
        self.names.len() == attributes.len() && self.names.iter().zip(attributes.keys()).all(|(own, other)| **own == **other)
    }
}

impl SliceLayout {
    fn is_of(&self, spec: &ResourceSliceSpec, kinds: &[Arc<Kind>]) -> bool {
        self.has_device_list == spec.devices.is_some()
            && self.kinds.len() == kinds.len()
            && self.kinds.iter().zip(kinds).all(|(own, other)| Arc::ptr_eq(own, other))
            && self.names.iter().zip(spec.devices()).all(|(own, device)| *own == device.name)
            && self.shared_counters == spec.shared_counters
            && self.skip_node_operations == spec.skip_node_operations
    }
}

/// Whether two devices agree on all but name and attributes.
fn is_like(kind: &Device, device: &Device) -> bool {
    let Device {
        name: _,
        attributes: _,
        capacity,
        consumes_counters,
        node_name,
        node_selector,
        all_nodes,
        taints,
        binds_to_node,
        binding_conditions,
        binding_failure_conditions,
        allow_multiple_allocations,
        node_allocatable_resources,
    } = device;
    kind.capacity == *capacity
        && kind.consumes_counters == *consumes_counters
        && kind.node_name == *node_name
        && kind.node_selector == *node_selector
        && kind.all_nodes == *all_nodes
        && kind.taints == *taints
        && kind.binds_to_node == *binds_to_node
        && kind.binding_conditions == *binding_conditions
        && kind.binding_failure_conditions == *binding_failure_conditions
        && kind.allow_multiple_allocations == *allow_multiple_allocations
        && kind.node_allocatable_resources == *node_allocatable_resources
}

fn clone_without_attributes(device: &Device) -> Device {
    Device {
        name: DeviceName::default(),
        attributes: BTreeMap::new(),
        capacity: device.capacity.clone(),
        consumes_counters: device.consumes_counters.clone(),
        node_name: device.node_name.clone(),
        node_selector: device.node_selector.clone(),
        all_nodes: device.all_nodes,
        taints: device.taints.clone(),
        binds_to_node: device.binds_to_node,
        binding_conditions: device.binding_conditions.clone(),
        binding_failure_conditions: device.binding_failure_conditions.clone(),
        allow_multiple_allocations: device.allow_multiple_allocations,
        node_allocatable_resources: device.node_allocatable_resources.clone(),
    }
}

fn clone_without_devices(spec: &ResourceSliceSpec) -> ResourceSliceSpec {
    ResourceSliceSpec {
        driver: spec.driver.clone(),
        pool: spec.pool.clone(),
        node_name: spec.node_name.clone(),
        node_selector: spec.node_selector.clone(),
        all_nodes: spec.all_nodes,
        devices: None,
        per_device_node_selection: spec.per_device_node_selection,
        shared_counters: None,
        partition_type_attribute: spec.partition_type_attribute.clone(),
        skip_node_operations: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(name: &str, driver: &str) -> ResourceSlice {
        let long = "ü".repeat(100);
        let attributes = json!({
            "int": {"int": -7}, "no": {"bool": false}, "yes": {"bool": true}, "text": {"string": long}, "empty": {"string": ""},
            "version": {"version": "1.2.3-rc.1"}, "ints": {"ints": [1, i64::MIN]}, "bools": {"bools": [true, false]},
            "texts": {"strings": ["a", "", long]}, "versions": {"versions": ["1.0.0"]}, "none": {"ints": []},
            "nothing": {}, "several": {"string": "x", "int": 4, "strings": ["y"]},
        });
        let device = |device: &str| {
            json!({
                "name": device, "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}, "allNodes": true,
                "taints": [{"key": "k", "effect": "NoSchedule"}], "allowMultipleAllocations": true,
                "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
            })
        };
        let spec = json!({
            "driver": driver, "pool": {"name": "p", "generation": 3, "resourceSliceCount": 2}, "perDeviceNodeSelection": true,
            "devices": [device("b"), device("a"), {"name": "plain"}], "skipNodeOperations": ["*"],
        });
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a slice")
    }

    #[test]
    fn what_is_packed_comes_back_as_it_was() {
        let mut packer = Packer::default();
        let mut counters = slice("counters", "d.test");
        counters.spec.devices = None;
        counters.spec.shared_counters =
            serde_json::from_value(json!([{"name": "s", "counters": {"c": {"value": "8"}}}])).expect("counters");
        for slice in [
            slice("one", "d.test"),
            counters,
            slice("two", "d.test"),
            slice("three", "e.test"),
        ] {
            assert_eq!(packer.pack(&slice).restore(), slice);
        }
    }

    #[test]
    fn equal_slices_share_everything_but_the_values() {
        let mut packer = Packer::default();
        let [one, _, two] = ["one", "other", "two"].map(|name| packer.pack(&slice(name, "d.test")));
        assert!(Arc::ptr_eq(one.layout(), two.layout()));
        assert!(std::ptr::eq(one.device(0).schema(), two.device(1).schema()));
        assert!(std::ptr::eq(one.device(0).kind(), two.device(1).kind()));
        assert!(!std::ptr::eq(one.device(0).schema(), one.device(2).schema()));
        let elsewhere = packer.pack(&slice("three", "e.test"));
        assert_ne!(
            one.device(0).schema().id,
            elsewhere.device(0).schema().id,
            "bare names of another driver mean something else"
        );
        assert!(Arc::ptr_eq(
            one.device(0).kind().capacity.as_ref().expect("it has some"),
            elsewhere.device(0).kind().capacity.as_ref().expect("it has some")
        ));
    }

    #[test]
    fn values_compare_by_their_elements() {
        let mut packer = Packer::default();
        let packed = packer.pack(&slice("one", "d.test"));
        let elements = |name: &str| {
            let (kind, is_list, elements) = packed.device(0).attribute(name).expect("published").elements();
            (kind, is_list, elements.map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        assert_eq!(elements("version"), (ValueKind::Version, false, vec![b"1.2.3-rc.1".to_vec()]));
        assert_eq!(elements("versions"), (ValueKind::Version, true, vec![b"1.0.0".to_vec()]));
        assert_eq!(
            elements("several"),
            (ValueKind::Int, false, vec![4_i64.to_le_bytes().to_vec()])
        );
        assert_eq!(elements("none"), (ValueKind::Int, true, vec![]));
        assert_eq!(elements("nothing"), (ValueKind::Unknown, false, vec![]));
        assert_eq!(packed.layout().named("a").as_slice(), [1]);
    }

    #[test]
    fn parts_that_no_slice_uses_are_dropped() {
        let mut packer = Packer::default();
        for n in 0..4 * SWEEP_FROM {
            let mut slice = slice("one", "d.test");
            slice.spec.devices.as_mut().expect("devices")[0].capacity.clear();
            slice.spec.devices.as_mut().expect("devices")[1].node_name = Some(format!("node-{n}"));
            packer.pack(&slice);
        }
        assert!(packer.kinds.len() < 2 * SWEEP_FROM, "{}", packer.kinds.len());
    }
}
