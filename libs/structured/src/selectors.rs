//! Selectors compiled once, and evaluated once per distinct device shape.
//!
//! Class and request selectors that are asked together form a filter; the same texts give the same filter. A filter's verdict is
//! remembered by the bytes of the values that its expressions read, so that a fleet of equal devices costs one evaluation.
//! Everything is keyed by content and therefore never stale; tables are bounded and start over when full.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use device_selectors::{CompileError, DerivedAttribute, DeviceView, Mode, Options, Reads, Selector};
use resource_api::claim::DeviceSelector;
use resource_api::device::{Device, DeviceAttribute};
use resource_api::ids::DeviceId;
use resource_api::quantity::Quantity;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::explain::Reason;
use crate::fault::{Fault, FaultKind};
use crate::packed::{PackedDevice, pack_absent};
use crate::request::{Choice, CompiledUnit};

/// Filters and expressions kept that no live unit uses.
const IDLE_MAX: usize = 4096;

/// Shapes remembered per filter. Devices that all differ in what is read are not worth remembering; pools keep their answers anyway.
const SHAPES_MAX: usize = 4096;

/// Schemas remembered per filter.
const SCHEMAS_MAX: usize = 256;

/// What a filter says about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Selected,
    /// By the selector at this place in the filter, the first that is false.
    Refused {
        selector: usize,
    },
    /// The selector at this place could not be evaluated.
    Failed {
        selector: usize,
    },
}

/// The selectors of a class followed by those of a request.
#[derive(Debug)]
pub(crate) struct Filter {
    id: u64,
    expressions: Vec<Arc<Expression>>,
    n_of_class: usize,
    reads: ShapeReads,
    memo: Mutex<Memo>,
}

/// One expression, compiled.
#[derive(Debug)]
struct Expression {
    text: Arc<str>,
    program: Result<Selector, CompileError>,
}

#[derive(Debug, Default)]
struct Memo {
    /// By shape.
    verdicts: FxHashMap<Box<[u8]>, Verdict>,
    /// By schema: where the attributes that are read stand in it.
    places: FxHashMap<u64, Places>,
    shape: Vec<u8>,
    previous: Option<(Vec<u8>, Verdict)>,
}

type Places = SmallVec<[Option<u32>; 4]>;

impl Filter {
    fn new(id: u64, expressions: Vec<Arc<Expression>>, n_of_class: usize) -> Self {
        let programs = expressions.iter().filter_map(|expression| expression.program.as_ref().ok());
        Self {
            id,
            reads: ShapeReads::of(programs),
            expressions,
            n_of_class,
            memo: Mutex::default(),
        }
    }

    /// Equal for filters with equal texts, within one cluster.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn n_selectors(&self) -> usize {
        self.expressions.len()
    }

    /// How refusals by the selector at this place are counted.
    pub(crate) fn reason(&self, selector: usize) -> Reason {
        match selector.checked_sub(self.n_of_class) {
            None => Reason::ClassSelector(selector),
            Some(of_request) => Reason::RequestSelector(of_request),
        }
    }

    /// Asks the selectors in order and stops at the first that does not say yes.
    pub(crate) fn judge(&self, driver: &str, device: PackedDevice<'_>) -> Verdict {
        self.judge_one(driver, device, &mut self.memo())
    }

    /// As [`Filter::judge`], for many devices at once.
    pub(crate) fn judge_all<'a>(
        &self,
        driver: &str,
        devices: impl Iterator<Item = PackedDevice<'a>>,
        mut tell: impl FnMut(usize, Verdict),
    ) {
        let mut memo = self.memo();
        for (at, device) in devices.enumerate() {
            tell(at, self.judge_one(driver, device, &mut memo));
        }
    }

    fn memo(&self) -> std::sync::MutexGuard<'_, Memo> {
        self.memo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge_one(&self, driver: &str, device: PackedDevice<'_>, memo: &mut Memo) -> Verdict {
        if self.expressions.is_empty() {
            return Verdict::Selected;
        }
        if !device.is_usable() {
            return Verdict::Failed { selector: 0 };
        }
        let mut shape = std::mem::take(&mut memo.shape);
        shape.clear();
        self.reads.shape(driver, device, &mut memo.places, &mut shape);
        let verdict = match &memo.previous {
            Some((previous, verdict)) if *previous == shape => *verdict,
            _ => {
                let known = memo.verdicts.get(shape.as_slice()).copied();
                let verdict = known.unwrap_or_else(|| {
                    let verdict = self.evaluate(driver, &self.reads.restore(driver, device));
                    if memo.verdicts.len() >= SHAPES_MAX {
                        memo.verdicts.clear();
                    }
                    memo.verdicts.insert(shape.as_slice().into(), verdict);
                    verdict
                });
                let (mut previous, _) = memo.previous.take().unwrap_or_else(|| (Vec::new(), verdict));
                previous.clone_from(&shape);
                memo.previous = Some((previous, verdict));
                verdict
            }
        };
        memo.shape = shape;
        verdict
    }

    fn evaluate(&self, driver: &str, device: &Device) -> Verdict {
        let view = DeviceView::new(driver, device);
        for (selector, expression) in self.expressions.iter().enumerate() {
            match expression.program.as_ref().map(|program| program.matches(&view)) {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Verdict::Refused { selector },
                Ok(Err(_)) | Err(_) => return Verdict::Failed { selector },
            }
        }
        Verdict::Selected
    }

    /// What to tell about a device for which [`Filter::judge`] said that a selector fails.
    pub(crate) fn fault(
        &self,
        unit: &CompiledUnit,
        choice: &Choice,
        driver: &str,
        device: PackedDevice<'_>,
        id: &DeviceId,
    ) -> Fault {
        let selector = match self.judge(driver, device) {
            Verdict::Failed { selector } => selector,
            Verdict::Selected | Verdict::Refused { .. } => 0,
        };
        let place = unit.place_of(choice);
        let owner = match selector.checked_sub(self.n_of_class) {
            None => {
                let class = choice.class.as_ref().map_or("", |class| class.metadata.name.as_str());
                format!("selector #{selector} of device class {class}")
            }
            Some(of_request) => format!("selector #{of_request}"),
        };
        let Some(expression) = self.expressions.get(selector) else {
            return Fault::claim(FaultKind::CelRuntime, format!("{place}: {owner} failed on device {id}"));
        };
        match &expression.program {
            Err(error) => Fault::claim(FaultKind::CelCompile, format!("{place}: {owner} does not compile: {error}")),
            Ok(program) => {
                let error = program.matches(&DeviceView::new(driver, &device.restore())).err();
                let error = error.map_or_else(String::new, |error| error.to_string());
                let text = &expression.text;
                Fault::claim(
                    FaultKind::CelRuntime,
                    format!("{place}: {owner} ({text}) failed on device {id}: {error}"),
                )
            }
        }
    }
}

impl Expression {
    fn compile(text: &str) -> Self {
        Self {
            text: text.into(),
            program: Selector::compile(text, Mode::Stored, Options::default()),
        }
    }
}

/// Filters and expressions by content.
#[derive(Debug, Default)]
pub(crate) struct FilterTable {
    filters: FxHashMap<(Vec<Arc<str>>, usize), Arc<Filter>>,
    expressions: FxHashMap<Arc<str>, Arc<Expression>>,
    next_id: u64,
}

impl FilterTable {
    /// The filter for these selectors. One without CEL expression says nothing here; the checks before the search refuse it.
    pub(crate) fn filter(&mut self, class: &[DeviceSelector], request: &[DeviceSelector]) -> Arc<Filter> {
        let expressions_of = |selectors: &[DeviceSelector]| -> Vec<Arc<str>> {
            selectors
                .iter()
                .filter_map(|selector| Some(selector.cel.as_ref()?.expression.as_str().into()))
                .collect()
        };
        let mut texts = expressions_of(class);
        let n_of_class = texts.len();
        texts.extend(expressions_of(request));
        if let Some(filter) = self.filters.get(&(texts.clone(), n_of_class)) {
            return Arc::clone(filter);
        }
        self.drop_idle();
        self.next_id += 1;
        let expressions = texts.iter().map(|text| self.expression(text)).collect();
        let filter = Arc::new(Filter::new(self.next_id, expressions, n_of_class));
        self.filters.insert((texts, n_of_class), Arc::clone(&filter));
        filter
    }

    fn expression(&mut self, text: &Arc<str>) -> Arc<Expression> {
        let known = self.expressions.entry(Arc::clone(text));
        Arc::clone(known.or_insert_with(|| Arc::new(Expression::compile(text))))
    }

    fn drop_idle(&mut self) {
        if self.filters.len() >= IDLE_MAX {
            self.filters.retain(|_, filter| Arc::strong_count(filter) > 1);
        }
        if self.expressions.len() >= IDLE_MAX {
            self.expressions.retain(|_, expression| Arc::strong_count(expression) > 1);
        }
    }
}

/// Which parts of a device make its shape for a filter.
#[derive(Debug)]
enum ShapeReads {
    Facts {
        shareable: bool,
        attributes: Vec<Fact>,
        capacity: Vec<Fact>,
    },
    Everything,
}

/// A fact by its full name; published under its bare name it belongs to the driver's domain.
#[derive(Debug)]
struct Fact {
    domain: Arc<str>,
    id: Arc<str>,
    full: String,
}

impl Fact {
    fn of((domain, id): &(Arc<str>, Arc<str>)) -> Self {
        Self {
            domain: Arc::clone(domain),
            id: Arc::clone(id),
            full: format!("{domain}/{id}"),
        }
    }

    /// Asks for the full name, then for the bare one if it means the same.
    fn find<T>(&self, driver: &str, look_up: impl Fn(&str) -> Option<T>) -> Option<T> {
        look_up(&self.full).or_else(|| if *self.domain == *driver { look_up(&self.id) } else { None })
    }
}

impl ShapeReads {
    /// What any of the programs reads.
    fn of<'a>(programs: impl Iterator<Item = &'a Selector>) -> Self {
        let mut shareable = false;
        let mut attributes = BTreeSet::new();
        let mut capacity = BTreeSet::new();
        for program in programs {
            let Reads::Only(set) = program.reads() else {
                return Self::Everything;
            };
            if !(set.attribute_domains.is_empty() && set.capacity_domains.is_empty()) {
                return Self::Everything;
            }
            shareable |= set.multiple_allocations;
            attributes.extend(&set.attributes);
            capacity.extend(&set.capacity);
        }
        Self::Facts {
            shareable,
            attributes: attributes.into_iter().map(Fact::of).collect(),
            capacity: capacity.into_iter().map(Fact::of).collect(),
        }
    }

    /// Writes bytes that are equal only for devices that agree on what is read. The driver's name always counts: names of
    /// attributes mean something only together with it.
    fn shape(&self, driver: &str, device: PackedDevice<'_>, places: &mut FxHashMap<u64, Places>, shape: &mut Vec<u8>) {
        let kind = device.kind();
        shape_text(shape, driver);
        match self {
            Self::Facts {
                shareable,
                attributes,
                capacity,
            } => {
                if *shareable {
                    shape.push(u8::from(device.is_shareable()));
                }
                if !attributes.is_empty() {
                    let schema = device.schema();
                    if places.len() >= SCHEMAS_MAX && !places.contains_key(&schema.id) {
                        places.clear();
                    }
                    let places = places.entry(schema.id).or_insert_with(|| {
                        let place = |fact: &Fact| fact.find(driver, |name| schema.position(name));
                        attributes
                            .iter()
                            .map(|fact| place(fact).and_then(|at| u32::try_from(at).ok()))
                            .collect()
                    });
                    for place in places {
                        match place {
                            Some(at) => shape.extend_from_slice(device.value_at(*at as usize).bytes()),
                            None => pack_absent(shape),
                        }
                    }
                }
                for fact in capacity {
                    let found = fact.find(driver, |name| kind.device.capacity.get(name));
                    shape_quantity(shape, found.map(|capacity| &capacity.value));
                }
            }
            Self::Everything => {
                shape.push(u8::from(device.is_shareable()));
                shape.extend(device.schema().id.to_le_bytes());
                shape.extend_from_slice(device.value_bytes());
                for (name, capacity) in &kind.device.capacity {
                    shape_text(shape, name);
                    shape_quantity(shape, Some(&capacity.value));
                }
            }
        }
    }

    /// The device with all that the expressions can read.
    fn restore(&self, driver: &str, device: PackedDevice<'_>) -> Device {
        let Self::Facts {
            attributes, capacity, ..
        } = self
        else {
            return device.restore();
        };
        let kind = &device.kind().device;
        let attributes = attributes
            .iter()
            .filter_map(|fact| fact.find(driver, |name| Some((name.to_owned(), device.attribute(name)?.restore()))));
        let capacity = capacity
            .iter()
            .filter_map(|fact| fact.find(driver, |name| kind.capacity.get_key_value(name)))
            .map(|(name, capacity)| (name.clone(), capacity.clone()));
        Device {
            name: device.name.clone(),
            attributes: attributes.collect(),
            capacity: capacity.collect::<BTreeMap<_, _>>(),
            allow_multiple_allocations: kind.allow_multiple_allocations,
            ..Device::default()
        }
    }
}

fn shape_text(shape: &mut Vec<u8>, text: &str) {
    shape.extend((text.len() as u64).to_le_bytes());
    shape.extend_from_slice(text.as_bytes());
}

fn shape_quantity(shape: &mut Vec<u8>, quantity: Option<&Quantity>) {
    match quantity.map(Quantity::nanos) {
        None => shape.push(0),
        Some(Some(nanos)) => {
            shape.push(1);
            shape.extend(nanos.to_le_bytes());
        }
        Some(None) => {
            shape.push(2);
            shape_text(shape, &quantity.map(ToString::to_string).unwrap_or_default());
        }
    }
}

/// Evaluates the expression of a derived attribute. Error: why there is no value.
pub(crate) fn derive(expression: &str, driver: &str, device: &Device) -> Result<DeviceAttribute, String> {
    let program = DerivedAttribute::compile(expression, Mode::Stored).map_err(|error| error.to_string())?;
    program
        .evaluate(&DeviceView::new(driver, device))
        .map_err(|error| error.to_string())
}
