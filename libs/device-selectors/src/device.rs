//! A device as expressions see it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use resource_api::Quantity;
use resource_api::device::{Device, DeviceAttribute};

use crate::error::{EvalError, EvalErrorKind};
use crate::program::{FactRef, Facts};
use crate::quantity::Amount;
use crate::semver::Version;
use crate::value::{Map, Value};

/// A published device with the name of its driver, ready to be looked at by selectors.
///
/// Cheap to make (one pass over the attributes, no copies); make one per device and use it for all selectors.
#[derive(Debug)]
pub struct DeviceView<'a> {
    driver: &'a str,
    device: &'a Device,
    /// Set if some attribute has no usable value; then every expression fails.
    unusable: Option<EvalError>,
    /// All attributes, all capacities, as maps of maps; made when an expression asks for one as a whole.
    attributes: OnceLock<Value>,
    capacity: OnceLock<Value>,
}

impl<'a> DeviceView<'a> {
    /// Looks at `device` as published by `driver` (`spec.driver` of its slice).
    pub fn new(driver: &'a str, device: &'a Device) -> Self {
        let unusable = device
            .attributes
            .iter()
            .find_map(|(name, attribute)| unusable(name, attribute));
        Self {
            driver,
            device,
            unusable,
            attributes: OnceLock::new(),
            capacity: OnceLock::new(),
        }
    }

    /// False if some attribute has no usable value; then every expression fails on this device.
    pub fn is_usable(&self) -> bool {
        self.unusable.is_none()
    }

    /// The attribute that expressions see as `device.attributes[domain][id]`.
    pub fn attribute(&self, domain: &str, id: &str) -> Option<&'a DeviceAttribute> {
        self.find(domain, id, &format!("{domain}/{id}"), &self.device.attributes)
    }

    /// The amount that expressions see as `device.capacity[domain][id]`.
    pub fn capacity(&self, domain: &str, id: &str) -> Option<&'a Quantity> {
        self.find(domain, id, &format!("{domain}/{id}"), &self.device.capacity)
            .map(|capacity| &capacity.value)
    }

    /// An error if no expression can be evaluated on this device.
    pub(crate) fn usable(&self) -> Result<(), EvalError> {
        self.unusable.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn driver_name(&self) -> &'a str {
        self.driver
    }

    pub(crate) fn driver(&self) -> Value {
        Value::string(self.driver)
    }

    pub(crate) fn allows_multiple_allocations(&self) -> Value {
        Value::Bool(self.device.is_shareable())
    }

    /// The value of a fact, if the device has it.
    pub(crate) fn fact(&self, fact: &FactRef) -> Result<Option<Value>, EvalError> {
        match fact.of {
            Facts::Attributes => self.named(fact, &self.device.attributes).map(attribute_value).transpose(),
            Facts::Capacity => {
                let found = self.named(fact, &self.device.capacity);
                Ok(found.map(|capacity| Value::Quantity(Arc::new(Amount::of(&capacity.value)))))
            }
        }
    }

    /// The value of an attribute that is a plain string, without a copy.
    pub(crate) fn text(&self, fact: &FactRef) -> Option<&'a str> {
        let found = if fact.of == Facts::Attributes {
            self.named(fact, &self.device.attributes)
        } else {
            None
        };
        match found {
            Some(DeviceAttribute {
                string: Some(text),
                ints: None,
                bools: None,
                strings: None,
                versions: None,
                int: None,
                bool: None,
                ..
            }) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn has(&self, fact: &FactRef) -> bool {
        match fact.of {
            Facts::Attributes => self.named(fact, &self.device.attributes).is_some(),
            Facts::Capacity => self.named(fact, &self.device.capacity).is_some(),
        }
    }

    fn named<T>(&self, fact: &FactRef, published: &'a BTreeMap<String, T>) -> Option<&'a T> {
        self.find(&fact.domain, &fact.id, &fact.qualified, published)
    }

    /// Finds `domain/id` (also given whole), or the bare `id` if the domain is the driver's. The explicit name wins.
    fn find<T>(&self, domain: &str, id: &str, qualified: &str, published: &'a BTreeMap<String, T>) -> Option<&'a T> {
        // A published name splits at its first slash, so no domain has one.
        if domain.contains('/') {
            return None;
        }
        let is_own = *domain == *self.driver && !id.contains('/');
        published
            .get(qualified)
            .or_else(|| if is_own { published.get(id) } else { None })
    }

    /// Everything published of one sort: domain → id → value.
    pub(crate) fn all(&self, of: Facts) -> Result<Value, EvalError> {
        let cell = match of {
            Facts::Attributes => &self.attributes,
            Facts::Capacity => &self.capacity,
        };
        if let Some(map) = cell.get() {
            return Ok(map.clone());
        }
        let mut domains = BTreeMap::new();
        match of {
            Facts::Attributes => {
                for (name, attribute) in &self.device.attributes {
                    self.publish(&mut domains, name, attribute_value(attribute)?);
                }
            }
            Facts::Capacity => {
                for (name, capacity) in &self.device.capacity {
                    self.publish(&mut domains, name, Value::Quantity(Arc::new(Amount::of(&capacity.value))));
                }
            }
        }
        let entries = domains
            .into_iter()
            .map(|(domain, ids)| (Value::string(domain), Value::Map(Arc::new(ids))));
        let map = Map {
            entries: entries.collect(),
            empty_by_default: true,
        };
        Ok(cell.get_or_init(|| Value::Map(Arc::new(map))).clone())
    }

    /// Files a value under its domain and id. An explicit domain wins over a bare name.
    fn publish(&self, domains: &mut BTreeMap<&'a str, Map>, name: &'a str, value: Value) {
        let (domain, id, explicit) = match name.split_once('/') {
            Some((domain, id)) => (domain, id, true),
            None => (self.driver, name, false),
        };
        let ids = domains.entry(domain).or_default();
        let id = Value::string(id);
        if explicit || ids.get(&id).is_none() {
            ids.insert(id, value);
        }
    }

    /// The device as a map, which is what upstream hands to expressions.
    pub(crate) fn whole(&self) -> Result<Value, EvalError> {
        let mut fields = Map::default();
        fields.insert(Value::string("driver"), self.driver());
        fields.insert(Value::string("attributes"), self.all(Facts::Attributes)?);
        fields.insert(Value::string("capacity"), self.all(Facts::Capacity)?);
        fields.insert(Value::string("allowMultipleAllocations"), self.allows_multiple_allocations());
        Ok(Value::Map(Arc::new(fields)))
    }
}

fn unusable(name: &str, attribute: &DeviceAttribute) -> Option<EvalError> {
    let checked = match attribute {
        // Nothing to parse in these, and they come first when several are set.
        DeviceAttribute { ints: Some(_), .. }
        | DeviceAttribute { bools: Some(_), .. }
        | DeviceAttribute { strings: Some(_), .. } => Ok(()),
        DeviceAttribute {
            versions: Some(versions),
            ..
        } => versions.iter().try_for_each(|v| Version::parse(v).map(|_| ())),
        DeviceAttribute { int: Some(_), .. }
        | DeviceAttribute { bool: Some(_), .. }
        | DeviceAttribute { string: Some(_), .. } => Ok(()),
        DeviceAttribute {
            version: Some(version), ..
        } => Version::parse(version).map(|_| ()),
        _ => Err(EvalError::invalid("unsupported attribute value")),
    };
    checked
        .err()
        .map(|error| EvalError::new(EvalErrorKind::BadDevice, format!("attribute {name}: {error}")))
}

/// The value expressions see; lists come first if several fields are set.
fn attribute_value(attribute: &DeviceAttribute) -> Result<Value, EvalError> {
    let version = |text: &str| Ok::<_, EvalError>(Value::Semver(Arc::new(Version::parse(text)?)));
    Ok(match attribute {
        DeviceAttribute { ints: Some(ints), .. } => Value::list(ints.iter().map(|n| Value::Int(*n)).collect()),
        DeviceAttribute { bools: Some(bools), .. } => Value::list(bools.iter().map(|b| Value::Bool(*b)).collect()),
        DeviceAttribute {
            strings: Some(strings), ..
        } => Value::list(strings.iter().map(|text| Value::string(text.as_str())).collect()),
        DeviceAttribute {
            versions: Some(versions),
            ..
        } => Value::list(versions.iter().map(|text| version(text)).collect::<Result<_, _>>()?),
        DeviceAttribute { int: Some(n), .. } => Value::Int(*n),
        DeviceAttribute { bool: Some(b), .. } => Value::Bool(*b),
        DeviceAttribute { string: Some(text), .. } => Value::string(text.as_str()),
        DeviceAttribute { version: Some(text), .. } => version(text)?,
        _ => return Err(EvalError::new(EvalErrorKind::BadDevice, "unsupported attribute value")),
    })
}
