//! Selectors compiled once, and evaluated once per distinct device shape.
//!
//! An expression's answer is remembered by the values that the expression reads, so that a fleet of equal devices costs
//! one evaluation. Class and request selectors that are asked together form a filter; the same texts give the same filter.
//! Everything is keyed by content and therefore never stale; tables are bounded and start over when full.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use device_selectors::{CompileError, DerivedAttribute, DeviceView, Mode, Options, Reads, Selector};
use resource_api::claim::DeviceSelector;
use resource_api::device::{AttributeValue, Device, DeviceAttribute};
use resource_api::ids::DeviceId;
use resource_api::quantity::Quantity;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::explain::Reason;
use crate::fault::{Fault, FaultKind};
use crate::request::{Choice, CompiledUnit};

/// Filters and expressions kept that no live unit uses.
const IDLE_MAX: usize = 4096;

/// Shapes remembered per expression.
const SHAPES_MAX: usize = 65_536;

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
}

/// One expression with the answers known so far.
#[derive(Debug)]
struct Expression {
    text: Arc<str>,
    program: Result<Selector, CompileError>,
    reads: ShapeReads,
    /// By shape; `None`: it fails.
    answers: Mutex<FxHashMap<Box<[u8]>, Option<bool>>>,
}

impl Filter {
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
    pub(crate) fn judge(&self, driver: &str, device: &Device) -> Verdict {
        let view = DeviceView::new(driver, device);
        for (selector, expression) in self.expressions.iter().enumerate() {
            match expression.answer(driver, device, &view) {
                Some(true) => {}
                Some(false) => return Verdict::Refused { selector },
                None => return Verdict::Failed { selector },
            }
        }
        Verdict::Selected
    }

    /// What to tell about a device for which [`Filter::judge`] said that a selector fails.
    pub(crate) fn fault(&self, unit: &CompiledUnit, choice: &Choice, driver: &str, device: &Device, id: &DeviceId) -> Fault {
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
                let error = program.matches(&DeviceView::new(driver, device)).err();
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
        let program = Selector::compile(text, Mode::Stored, Options::default());
        let reads = program
            .as_ref()
            .map_or(ShapeReads::Driver, |program| ShapeReads::of(program.reads()));
        Self {
            text: text.into(),
            program,
            reads,
            answers: Mutex::default(),
        }
    }

    /// `None`: the expression does not compile, or fails on this device.
    fn answer(&self, driver: &str, device: &Device, view: &DeviceView<'_>) -> Option<bool> {
        let program = self.program.as_ref().ok()?;
        if !view.is_usable() {
            return None;
        }
        let shape = self.reads.shape(driver, device);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answers.get(shape.as_slice()) {
            return *answer;
        }
        let answer = program.matches(view).ok();
        if answers.len() >= SHAPES_MAX {
            answers.clear();
        }
        answers.insert(shape.into_boxed_slice(), answer);
        answer
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
        let filter = Arc::new(Filter {
            id: self.next_id,
            expressions,
            n_of_class,
        });
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

/// Which parts of a device make its shape for one expression.
#[derive(Debug)]
enum ShapeReads {
    /// The name of the driver alone.
    Driver,
    Facts {
        driver: bool,
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

    fn find<'a, T>(&self, driver: &str, facts: &'a BTreeMap<String, T>) -> Option<&'a T> {
        facts
            .get(&self.full)
            .or_else(|| if *self.domain == *driver { facts.get(&*self.id) } else { None })
    }
}

impl ShapeReads {
    fn of(reads: &Reads) -> Self {
        let Reads::Only(set) = reads else { return Self::Everything };
        if !(set.attribute_domains.is_empty() && set.capacity_domains.is_empty()) {
            return Self::Everything;
        }
        if set.attributes.is_empty() && set.capacity.is_empty() && !set.multiple_allocations {
            return Self::Driver;
        }
        Self::Facts {
            driver: set.driver,
            shareable: set.multiple_allocations,
            attributes: set.attributes.iter().map(Fact::of).collect(),
            capacity: set.capacity.iter().map(Fact::of).collect(),
        }
    }

    /// Bytes that are equal only for devices that agree on what is read.
    fn shape(&self, driver: &str, device: &Device) -> SmallVec<[u8; 64]> {
        let mut shape = Shape::default();
        match self {
            Self::Driver => shape.text(driver),
            Self::Facts {
                driver: reads_driver,
                shareable,
                attributes,
                capacity,
            } => {
                if *reads_driver {
                    shape.text(driver);
                }
                if *shareable {
                    shape.bytes.push(u8::from(device.is_shareable()));
                }
                for fact in attributes {
                    match fact.find(driver, &device.attributes) {
                        Some(attribute) => shape.attribute(attribute),
                        None => shape.bytes.push(u8::MAX),
                    }
                }
                for fact in capacity {
                    shape.quantity(fact.find(driver, &device.capacity).map(|capacity| &capacity.value));
                }
            }
            Self::Everything => {
                shape.text(driver);
                shape.bytes.push(u8::from(device.is_shareable()));
                for (name, attribute) in &device.attributes {
                    shape.text(name);
                    shape.attribute(attribute);
                }
                for (name, capacity) in &device.capacity {
                    shape.text(name);
                    shape.quantity(Some(&capacity.value));
                }
            }
        }
        shape.bytes
    }
}

#[derive(Default)]
struct Shape {
    bytes: SmallVec<[u8; 64]>,
}

impl Shape {
    fn text(&mut self, text: &str) {
        self.bytes.extend((text.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn quantity(&mut self, quantity: Option<&Quantity>) {
        match quantity.map(Quantity::nanos) {
            None => self.bytes.push(0),
            Some(Some(nanos)) => {
                self.bytes.push(1);
                self.bytes.extend(nanos.to_le_bytes());
            }
            Some(None) => {
                self.bytes.push(2);
                self.text(&quantity.map(ToString::to_string).unwrap_or_default());
            }
        }
    }

    fn texts(&mut self, tag: u8, texts: &[String]) {
        self.bytes.push(tag);
        self.bytes.extend((texts.len() as u64).to_le_bytes());
        texts.iter().for_each(|text| self.text(text));
    }

    fn attribute(&mut self, attribute: &DeviceAttribute) {
        match attribute.value() {
            None => self.bytes.push(0),
            Some(AttributeValue::Int(int)) => {
                self.bytes.push(1);
                self.bytes.extend(int.to_le_bytes());
            }
            Some(AttributeValue::Bool(bool)) => self.bytes.extend([2, u8::from(bool)]),
            Some(AttributeValue::String(text)) => {
                self.bytes.push(3);
                self.text(text);
            }
            Some(AttributeValue::Version(text)) => {
                self.bytes.push(4);
                self.text(text);
            }
            Some(AttributeValue::Ints(ints)) => {
                self.bytes.push(5);
                self.bytes.extend((ints.len() as u64).to_le_bytes());
                ints.iter().for_each(|int| self.bytes.extend(int.to_le_bytes()));
            }
            Some(AttributeValue::Bools(bools)) => {
                self.bytes.push(6);
                self.bytes.extend((bools.len() as u64).to_le_bytes());
                self.bytes.extend(bools.iter().map(|bool| u8::from(*bool)));
            }
            Some(AttributeValue::Strings(texts)) => self.texts(7, texts),
            Some(AttributeValue::Versions(texts)) => self.texts(8, texts),
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
