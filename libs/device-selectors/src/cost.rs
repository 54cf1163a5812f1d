//! Estimated cost of a checked expression: the number that decides whether a new expression is accepted.
//!
//! Must agree with upstream to the unit, quirks included (cel-go's estimator with the Kubernetes and list
//! library rules), because objects that one server accepts the other must accept too. All arithmetic
//! saturates; products with a factor round up.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::ast::{Comprehension, Expr, ExprKind, Literal, Macro};
use crate::check::Checked;
use crate::depth::guarded;
use crate::functions::{Cost, Fun};
use crate::types::Type;

/// Cost of looking at a string, per code point; also of equality, per element.
pub(crate) const TRAVERSAL: f64 = 0.1;
/// Cost of a pattern, per code point.
pub(crate) const PATTERN: f64 = 0.25;
const LIST: u64 = 10;
const MAP: u64 = 30;
/// Cost of a call that makes a new list, besides its elements.
pub(crate) const ALLOCATING_CALL: u64 = 1 + LIST;
/// Cost the estimate gives to the unknown pattern of a named format.
const NAMED_FORMAT_PATTERN: f64 = 32.0;
/// Longest name of a named format, which bounds comparing two.
const FORMAT_NAME_MAX: u64 = 64;

/// The largest cost the expression can have, saturating at `u64::MAX` where no bound is known.
pub(crate) fn estimate(expr: &Expr, checked: &Checked) -> u64 {
    let mut estimator = Estimator {
        checked,
        sizes: FxHashMap::default(),
        entries: FxHashMap::default(),
        places: FxHashMap::default(),
        variables: Vec::new(),
    };
    estimator.cost(expr)
}

/// An interval of sizes: code points, bytes, elements or entries.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Size {
    min: u64,
    max: u64,
}

impl Size {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    fn exactly(n: u64) -> Self {
        Self { min: n, max: n }
    }

    fn up_to(max: u64) -> Self {
        Self { min: 0, max }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// `n · factor`, rounded up, in the floating-point arithmetic of upstream.
pub(crate) fn scaled(n: u64, factor: f64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "upstream rounds the same way")]
    let product = (n as f64) * factor;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is never negative"
    )]
    let rounded = product.ceil() as u64;
    rounded
}

/// `n · factor`, rounded down.
pub(crate) fn floored(n: u64, factor: f64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "upstream rounds the same way")]
    let product = (n as f64) * factor;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is never negative"
    )]
    let rounded = product as u64;
    rounded
}

/// Sizes of the keys (or indexes) and values of a container.
#[derive(Clone, Copy)]
struct EntrySize {
    is_list: bool,
    key: Size,
    value: Size,
}

/// Where in the declared structure of `device` an expression points.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Device,
    Driver,
    MultipleAllocations,
    Attributes,
    Capacity,
    AttributesOfDomain,
    CapacityOfDomain,
    AttributeValue,
    Domain,
    Id,
}

enum Step<'a> {
    Field(&'a str),
    Values,
    Keys,
}

impl Place {
    /// Follows one step; `None` where the declarations end.
    fn then(self, step: &Step<'_>) -> Option<Self> {
        match (self, step) {
            (Self::Device, Step::Field("driver")) => Some(Self::Driver),
            (Self::Device, Step::Field("attributes")) => Some(Self::Attributes),
            (Self::Device, Step::Field("capacity")) => Some(Self::Capacity),
            (Self::Device, Step::Field("allowMultipleAllocations")) => Some(Self::MultipleAllocations),
            (Self::Attributes, Step::Values) => Some(Self::AttributesOfDomain),
            (Self::Capacity, Step::Values) => Some(Self::CapacityOfDomain),
            (Self::Attributes | Self::Capacity, Step::Keys) => Some(Self::Domain),
            (Self::AttributesOfDomain, Step::Values | Step::Field(_)) => Some(Self::AttributeValue),
            (Self::AttributesOfDomain | Self::CapacityOfDomain, Step::Keys) => Some(Self::Id),
            _ => None,
        }
    }

    /// Limits of the API: names of drivers and domains, ids, entries per device, length of a value.
    fn size(self) -> Size {
        match self {
            Self::Device => Size::up_to(0),
            Self::Driver | Self::Domain => Size::up_to(63),
            Self::MultipleAllocations => Size::up_to(1),
            Self::Attributes | Self::Capacity | Self::AttributesOfDomain | Self::CapacityOfDomain => Size::up_to(32),
            Self::AttributeValue => Size::up_to(64),
            Self::Id => Size::up_to(32),
        }
    }
}

/// What is known about a variable of a macro.
struct Variable {
    name: Arc<str>,
    place: Option<Place>,
    size: Option<Size>,
    entries: Option<EntrySize>,
}

struct Estimator<'a> {
    checked: &'a Checked,
    /// Sizes computed for nodes so far, by node id.
    sizes: FxHashMap<u32, Size>,
    entries: FxHashMap<u32, EntrySize>,
    places: FxHashMap<u32, Place>,
    variables: Vec<Variable>,
}

impl<'a> Estimator<'a> {
    fn cost(&mut self, expr: &'a Expr) -> u64 {
        guarded(|| self.cost_of_node(expr))
    }

    fn cost_of_node(&mut self, expr: &'a Expr) -> u64 {
        match &expr.kind {
            ExprKind::Literal(_) => 0,
            ExprKind::Ident(name) => self.ident(expr, name),
            ExprKind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            ExprKind::Call { target, args, .. } => self.call(expr, target.as_deref(), args),
            ExprKind::List { elements } => self.list(expr, elements.iter().map(|e| &e.value)),
            ExprKind::Map { entries } => self.map(expr, entries.iter().map(|e| (&e.key, &e.value))),
            ExprKind::Comprehension(c) if c.of == Macro::Bind => self.bind(expr, c),
            ExprKind::Comprehension(c) => self.comprehension(expr, c),
        }
    }

    fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().rev().find(|v| *v.name == *name)
    }

    fn ident(&mut self, expr: &Expr, name: &str) -> u64 {
        let place = match self.variable(name) {
            Some(variable) => variable.place,
            None => (name == "device").then_some(Place::Device),
        };
        self.set_place(expr, place);
        1
    }

    fn set_place(&mut self, expr: &Expr, place: Option<Place>) {
        match place {
            Some(place) => self.places.insert(expr.id, place),
            None => self.places.remove(&expr.id),
        };
    }

    fn place(&self, expr: &Expr) -> Option<Place> {
        if let ExprKind::Ident(name) = &expr.kind
            && let Some(variable) = self.variable(name)
        {
            return variable.place;
        }
        self.places.get(&expr.id).copied()
    }

    fn select(&mut self, expr: &Expr, operand: &'a Expr, field: &str, test: bool) -> u64 {
        let cost = self.cost(operand);
        if test {
            return cost;
        }
        let place = self.place(operand).and_then(|p| p.then(&Step::Field(field)));
        self.set_place(expr, place);
        // The type of a name such as `net.IP` has no operand of its own.
        match self.checked.type_of(operand) {
            Type::Map(_) | Type::Device => cost.saturating_add(1),
            _ => cost,
        }
    }

    /// Size of a node, if anything is known about it.
    fn size(&mut self, expr: &Expr) -> Option<Size> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(size);
        }
        if let Some(place) = self.place(expr) {
            self.sizes.insert(expr.id, place.size());
            return Some(place.size());
        }
        if self.checked.type_of(expr).is_scalar() {
            return Some(Size::exactly(1));
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.variable(name).and_then(|v| v.size),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Size {
        self.size(expr).unwrap_or(Size::UNKNOWN)
    }

    fn entry_size(&self, expr: &Expr) -> Option<EntrySize> {
        if let Some(size) = self.entries.get(&expr.id) {
            return Some(*size);
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.variable(name).and_then(|v| v.entries),
            _ => None,
        }
    }

    fn set_size(&mut self, expr: &Expr, size: Option<Size>) {
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
    }

    fn set_entry_size(&mut self, expr: &Expr, size: Option<EntrySize>) {
        if let Some(size) = size {
            self.entries.insert(expr.id, size);
        }
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        let size = self.size(from);
        self.set_size(to, size);
        self.set_entry_size(to, self.entry_size(from));
    }

    /// Size over all `parts`; of none, zero.
    fn joined(&mut self, parts: impl Iterator<Item = &'a Expr>) -> Size {
        let sizes = parts.map(|part| self.size_or_unknown(part));
        sizes.reduce(Size::union).unwrap_or(Size::exactly(0))
    }

    fn list(&mut self, expr: &Expr, elements: impl Iterator<Item = &'a Expr> + Clone) -> u64 {
        let cost = elements.clone().fold(LIST, |sum, e| sum.saturating_add(self.cost(e)));
        let value = self.joined(elements);
        self.entries.insert(
            expr.id,
            EntrySize {
                is_list: true,
                key: Size::exactly(1),
                value,
            },
        );
        cost
    }

    fn map(&mut self, expr: &Expr, entries: impl Iterator<Item = (&'a Expr, &'a Expr)> + Clone) -> u64 {
        let cost = entries.clone().fold(MAP, |sum, (key, value)| {
            sum.saturating_add(self.cost(key)).saturating_add(self.cost(value))
        });
        let key = self.joined(entries.clone().map(|(key, _)| key));
        let value = self.joined(entries.map(|(_, value)| value));
        self.entries.insert(
            expr.id,
            EntrySize {
                is_list: false,
                key,
                value,
            },
        );
        cost
    }

    /// A variable that stands for `expr`.
    fn push_alias(&mut self, name: &Arc<str>, expr: &Expr) {
        let size = self.size(expr);
        let (place, entries) = (self.place(expr), self.entry_size(expr));
        self.variables.push(Variable {
            name: Arc::clone(name),
            place,
            size,
            entries,
        });
    }

    /// A loop variable over the keys or values of `range`.
    fn push_part(&mut self, name: &Arc<str>, range: &Expr, keys: bool) {
        let entries = self.entry_size(range);
        let is_list = self.is_list(range);
        let step = match (keys, is_list) {
            (true, true) => None, // an index has no place
            (true, false) => Some(Step::Keys),
            (false, _) => Some(Step::Values),
        };
        let place = self.place(range).zip(step).and_then(|(place, step)| place.then(&step));
        let size = entries.map(|e| if keys { e.key } else { e.value });
        self.variables.push(Variable {
            name: Arc::clone(name),
            place,
            size,
            entries: None,
        });
    }

    fn is_list(&self, range: &Expr) -> bool {
        match self.entry_size(range) {
            Some(entries) => entries.is_list,
            None => matches!(self.checked.type_of(range), Type::List(_)),
        }
    }

    fn bind(&mut self, expr: &Expr, c: &'a Comprehension) -> u64 {
        let mut cost = self.cost(&c.range);
        cost = cost.saturating_add(self.cost(&c.init));
        self.push_alias(&c.accu, &c.init);
        cost = cost.saturating_add(self.cost(&c.result));
        self.variables.pop();
        self.copy_sizes(expr, &c.result);
        cost
    }

    fn comprehension(&mut self, expr: &Expr, c: &'a Comprehension) -> u64 {
        let mut cost = self.cost(&c.range);
        cost = cost.saturating_add(self.cost(&c.init));
        self.push_alias(&c.accu, &c.init);
        let depth = self.variables.len();
        match &c.var2 {
            Some(var2) => {
                self.push_part(&c.var, &c.range, true);
                self.push_part(var2, &c.range, false);
            }
            None => self.push_part(&c.var, &c.range, !self.is_list(&c.range)),
        }
        let round = self.cost(&c.condition).saturating_add(self.cost(&c.step));
        self.variables.truncate(depth);
        cost = cost.saturating_add(self.cost(&c.result));
        self.variables.pop();
        let range = self.size_or_unknown(&c.range);
        match c.init.kind {
            ExprKind::Literal(_) => {
                let size = self.size(&c.init);
                self.set_size(expr, size);
            }
            _ => {
                self.set_size(expr, Some(range));
                self.set_entry_size(expr, self.entry_size(&c.step));
            }
        }
        cost.saturating_add(range.max.saturating_mul(round))
    }

    fn call(&mut self, expr: &Expr, target: Option<&'a Expr>, args: &'a [Expr]) -> u64 {
        if self.checked.fun(expr) == Some(Fun::Dyn) {
            let cost = self.cost(&args[0]).saturating_add(1);
            self.copy_sizes(expr, &args[0]);
            return cost;
        }
        let target = self.checked.receiver(expr, target);
        let arg_costs: Vec<u64> = args.iter().map(|arg| self.cost(arg)).collect();
        let arg_sum = arg_costs.iter().fold(0_u64, |sum, cost| sum.saturating_add(*cost));
        let target_cost = target.map_or(0, |t| self.cost(t));
        let mut call = Call {
            expr,
            target,
            args,
            arg_costs: &arg_costs,
        };
        let (mut most, mut result): (u64, Option<Size>) = (0, None);
        let checked = self.checked;
        for overload in checked.overloads(expr) {
            let (own, size) = self.overload(&mut call, overload.cost);
            let with_args = match overload.cost {
                Cost::Conditional => own,
                _ => own.saturating_add(arg_sum),
            };
            most = most.max(with_args);
            result = match (result, size) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            };
            if overload.cost == Cost::Index {
                result = self.entry_size(&args[0]).map(|e| e.value);
                let place = self.place(&args[0]).and_then(|p| p.then(&Step::Values));
                self.set_place(expr, place);
            }
            result = result.or_else(|| self.size(expr));
        }
        self.set_size(expr, result);
        target_cost.saturating_add(most)
    }

    /// Cost of one overload without its operands (the conditional: with them), and the size of its result.
    fn overload(&mut self, call: &mut Call<'_, 'a>, cost: Cost) -> (u64, Option<Size>) {
        match cost {
            Cost::Unit | Cost::Index => (1, None),
            Cost::Logic => (0, None),
            Cost::Conditional => self.conditional(call),
            Cost::Compare => (self.compare(call), None),
            Cost::Equal => (self.equal(call), None),
            Cost::InList => (self.arg(call, 1).max, None),
            Cost::Concat | Cost::ConcatLists => self.concat(call, cost),
            Cost::Prefix => (scaled(self.arg(call, 0).max, TRAVERSAL), None),
            Cost::Contains => {
                let text = scaled(self.receiver(call).max, TRAVERSAL);
                (text.saturating_mul(scaled(self.arg(call, 0).max, TRAVERSAL)), None)
            }
            Cost::Matches => {
                let (text, pattern) = match call.target {
                    Some(_) => (self.receiver(call), self.arg(call, 0)),
                    None => (self.arg(call, 0), self.arg(call, 1)),
                };
                (search(text, pattern), None)
            }
            Cost::Find => {
                let text = self.receiver(call);
                (search(text, self.arg(call, 0)), Some(Size::up_to(text.max)))
            }
            Cost::Format => (scaled(self.receiver(call).max, TRAVERSAL), None),
            Cost::StringToBytes | Cost::BytesToString | Cost::Quote => self.text_conversion(call, cost),
            Cost::Url => {
                let size = self.arg(call, 0);
                (scaled(size.max, TRAVERSAL), Some(size))
            }
            Cost::ParseText => (scaled(self.arg(call, 0).max, TRAVERSAL), None),
            Cost::ParseTwice => (scaled(self.arg(call, 0).max, 2.0 * TRAVERSAL), None),
            Cost::MapText => {
                let size = self.receiver(call);
                (scaled(size.max, TRAVERSAL), Some(size))
            }
            Cost::Replace => self.replace(call),
            Cost::Split => self.split(call),
            Cost::Join => self.join(call),
            Cost::Traverse | Cost::Includes => (self.traverse(call, cost), None),
            Cost::ContainsIp { .. } | Cost::ContainsCidr { .. } => (self.contains_address(call, cost), None),
            Cost::Validate => (scaled(scaled(self.arg(call, 0).max, TRAVERSAL), NAMED_FORMAT_PATTERN), None),
            Cost::Slice
            | Cost::Range
            | Cost::Reverse
            | Cost::Flatten
            | Cost::Distinct
            | Cost::Sort { .. }
            | Cost::SortBy { .. } => self.list_library(call, cost),
            Cost::Sets { factor } => {
                let product = self.arg(call, 0).times(self.arg(call, 1)).max;
                (product.saturating_mul(factor).saturating_add(1), None)
            }
        }
    }

    fn arg(&mut self, call: &Call<'_, 'a>, n: usize) -> Size {
        call.args.get(n).map_or(Size::UNKNOWN, |arg| self.size_or_unknown(arg))
    }

    fn receiver(&mut self, call: &Call<'_, 'a>) -> Size {
        call.target.map_or(Size::UNKNOWN, |target| self.size_or_unknown(target))
    }

    fn conditional(&mut self, call: &Call<'_, 'a>) -> (u64, Option<Size>) {
        let size = self.arg(call, 1).union(self.arg(call, 2));
        let entries = union_entries(self.entry_size(&call.args[1]), self.entry_size(&call.args[2]));
        self.set_entry_size(call.expr, entries);
        let branch = call.arg_costs[1].max(call.arg_costs[2]);
        (call.arg_costs[0].saturating_add(branch), Some(size))
    }

    fn compare(&mut self, call: &Call<'_, 'a>) -> u64 {
        scaled(self.arg(call, 0).max.min(self.arg(call, 1).max), TRAVERSAL)
    }

    fn equal(&mut self, call: &Call<'_, 'a>) -> u64 {
        let left = self.checked.type_of(&call.args[0]);
        if left != self.checked.type_of(&call.args[1]) {
            return self.compare(call);
        }
        match left {
            Type::Quantity | Type::Semver | Type::Ip | Type::Cidr => 1,
            Type::Format => scaled(FORMAT_NAME_MAX, TRAVERSAL),
            Type::Url => self.size(&call.args[0]).map_or(1, |size| scaled(size.max, TRAVERSAL)),
            _ => self.compare(call),
        }
    }

    fn concat(&mut self, call: &Call<'_, 'a>, cost: Cost) -> (u64, Option<Size>) {
        let size = self.arg(call, 0).plus(self.arg(call, 1));
        let entries = union_entries(self.entry_size(&call.args[0]), self.entry_size(&call.args[1]));
        self.set_entry_size(call.expr, entries);
        let own = if cost == Cost::Concat {
            scaled(size.max, TRAVERSAL)
        } else {
            1
        };
        (own, Some(size))
    }

    fn text_conversion(&mut self, call: &Call<'_, 'a>, cost: Cost) -> (u64, Option<Size>) {
        let Size { min, max } = self.arg(call, 0);
        let size = match cost {
            Cost::StringToBytes => Size {
                min,
                max: max.saturating_mul(4),
            },
            Cost::BytesToString => Size { min: min / 4, max },
            _ => Size {
                min: min.saturating_add(2),
                max: max.saturating_mul(2).saturating_add(2),
            },
        };
        (scaled(max, TRAVERSAL), Some(size))
    }

    fn replace(&mut self, call: &Call<'_, 'a>) -> (u64, Option<Size>) {
        let (text, old, new) = (self.receiver(call), self.arg(call, 0), self.arg(call, 1));
        let longest = if old.min == 0 {
            text.max.saturating_add(1).saturating_mul(new.max).saturating_add(text.max)
        } else if new.max <= old.min {
            text.max
        } else {
            text.max.div_ceil(old.min).saturating_mul(new.max)
        };
        let shortest = if old.max == 0 {
            text.min.saturating_add(1).saturating_mul(new.min).saturating_add(text.min)
        } else if old.max <= new.min {
            text.min
        } else {
            text.min.div_ceil(old.max).saturating_mul(new.min)
        };
        (
            scaled(text.max, 2.0 * TRAVERSAL),
            Some(Size {
                min: shortest,
                max: longest,
            }),
        )
    }

    fn split(&mut self, call: &Call<'_, 'a>) -> (u64, Option<Size>) {
        let text = self.receiver(call);
        let most = match call.args.get(1).map(|arg| &arg.kind) {
            Some(ExprKind::Literal(Literal::Int(n))) => u64::try_from(*n).unwrap_or(text.max),
            _ => text.max,
        };
        (scaled(text.max, 2.0 * TRAVERSAL), Some(Size::up_to(most)))
    }

    fn join(&mut self, call: &Call<'_, 'a>) -> (u64, Option<Size>) {
        let list = self.receiver(call);
        // Element sizes are not tracked here, so a typed list counts as unbounded (unless it is empty).
        let typed = call
            .target
            .is_some_and(|t| self.checked.type_of(t).first_argument().is_some());
        let mut size = if typed { list.times(Size::UNKNOWN) } else { Size::exactly(0) };
        if !call.args.is_empty() {
            let separators = Size {
                min: list.min.saturating_sub(1),
                max: list.max.saturating_sub(1),
            };
            size = size.plus(self.arg(call, 0).times(separators));
        }
        (scaled(size.max, TRAVERSAL), Some(size))
    }

    fn traverse(&mut self, call: &Call<'_, 'a>, cost: Cost) -> u64 {
        let size = self.receiver(call).max;
        let element = call.target.and_then(|t| self.checked.type_of(t).first_argument());
        match element {
            Some(Type::String | Type::Bytes) => size.saturating_mul(scaled(u64::MAX, TRAVERSAL).saturating_add(1)),
            Some(_) => size,
            None if cost == Cost::Includes => size,
            None => scaled(size, TRAVERSAL),
        }
    }

    fn contains_address(&mut self, call: &Call<'_, 'a>, cost: Cost) -> u64 {
        const ADDRESS_BYTES_MAX: u64 = 16;
        let both = scaled(2 * ADDRESS_BYTES_MAX, TRAVERSAL);
        let (own, text) = match cost {
            Cost::ContainsCidr { text } => (both + scaled(ADDRESS_BYTES_MAX, TRAVERSAL) + 1, text),
            Cost::ContainsIp { text } => (both, text),
            _ => (both, false),
        };
        let parse = if text { scaled(self.arg(call, 0).max, TRAVERSAL) } else { 0 };
        own.saturating_add(parse)
    }

    /// Functions of cel-go's list library: a base, plus the elements times a factor.
    fn list_library(&mut self, call: &Call<'_, 'a>, cost: Cost) -> (u64, Option<Size>) {
        let square = |size: Size| size.times(size);
        let (size, factor) = match cost {
            Cost::Slice => {
                let receiver = self.receiver(call).max;
                let (start, end) = (count(call.args.first(), 0), count(call.args.get(1), receiver));
                (Size::exactly(end.wrapping_sub(start)), 1.0)
            }
            Cost::Range => (Size::exactly(count(call.args.first(), u64::MAX)), 1.0),
            Cost::Flatten => {
                let depth = if call.args.is_empty() {
                    1
                } else {
                    count(call.args.first(), u64::MAX)
                };
                #[expect(clippy::cast_precision_loss, reason = "upstream rounds the same way")]
                let factor = depth as f64;
                (self.receiver(call), factor)
            }
            Cost::Distinct => (square(self.receiver(call)), 2.0),
            Cost::Sort { text } => (square(self.receiver(call)), sort_factor(text)),
            Cost::SortBy { text } => (square(self.arg(call, 0)), sort_factor(text)),
            _ => (self.receiver(call), 1.0),
        };
        (scaled(size.max, factor).saturating_add(ALLOCATING_CALL), Some(size))
    }
}

struct Call<'c, 'a> {
    expr: &'c Expr,
    target: Option<&'a Expr>,
    args: &'a [Expr],
    arg_costs: &'c [u64],
}

/// Largest cost of searching a text for a pattern.
fn search(text: Size, pattern: Size) -> u64 {
    scaled(text.max.saturating_add(1), TRAVERSAL).saturating_mul(scaled(pattern.max, PATTERN))
}

/// Comparing text costs a traversal on top of the comparison.
pub(crate) fn sort_factor(text: bool) -> f64 {
    if text { 2.0 + TRAVERSAL } else { 2.0 }
}

/// The literal whole number `arg`, negative ones as 0; `default` for anything else.
fn count(arg: Option<&Expr>, default: u64) -> u64 {
    match arg.map(|a| &a.kind) {
        Some(ExprKind::Literal(Literal::Int(n))) => u64::try_from(*n).unwrap_or(0),
        Some(ExprKind::Literal(Literal::Uint(n))) => *n,
        _ => default,
    }
}

fn union_entries(a: Option<EntrySize>, b: Option<EntrySize>) -> Option<EntrySize> {
    let (a, b) = a.zip(b)?;
    Some(EntrySize {
        is_list: a.is_list,
        key: a.key.union(b.key),
        value: a.value.union(b.value),
    })
}

fn literal_size(expr: &Expr) -> Option<Size> {
    let n = match &expr.kind {
        ExprKind::Literal(Literal::String(text)) => text.chars().count(),
        ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len(),
        ExprKind::Literal(_) => 1,
        ExprKind::List { elements } => elements.len(),
        ExprKind::Map { entries } => entries.len(),
        _ => return None,
    };
    Some(Size::exactly(n as u64))
}
