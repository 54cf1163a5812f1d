//! Runs a program on one device.
//!
//! Evaluation is strict and left to right, except for `&&`, `||`, `? :`, macros, `or`, `orValue` and bound names.
//! An exhausted budget ends everything; `&&` and `||` absorb other errors if the answer does not need them.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::actual::{self, Called};
use crate::arith;
use crate::ast::Macro;
use crate::call::{Patterns, call, failed_call, matched, not_iterable};
use crate::cost::{TRAVERSAL, scaled};
use crate::depth::guarded;
use crate::device::DeviceView;
use crate::error::{EvalError, EvalErrorKind};
use crate::functions::{Cost, Fun};
use crate::meter::Meter;
use crate::program::{Base, Field, Fold, Node, Program, is_key};
use crate::value::{Map, Value, key_order, order_with_text};

/// Costs of making a list and a map.
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
/// Steps of work for one turn of a loop.
const STEPS_PER_TURN: u64 = 8;

/// Evaluates `program` on `device` within the budget of `meter`.
pub(crate) fn run(program: &Program, device: &DeviceView<'_>, meter: &mut Meter) -> Result<Value, EvalError> {
    device.usable()?;
    let mut machine = Machine {
        device,
        meter,
        patterns: Patterns::default(),
        slots: SmallVec::new(),
    };
    machine.slots.resize_with(program.slots, || Slot::Empty);
    machine.eval(&program.root)
}

/// A variable.
#[derive(Clone)]
enum Slot<'p> {
    /// Not in scope yet.
    Empty,
    Value(Value),
    /// Bound to an expression that nobody needed yet.
    Pending(&'p Node),
    Failed(EvalError),
}

struct Machine<'p, 'd, 'm> {
    device: &'d DeviceView<'d>,
    meter: &'m mut Meter,
    patterns: Patterns,
    slots: SmallVec<[Slot<'p>; 4]>,
}

impl<'p, 'd> Machine<'p, 'd, '_> {
    #[inline]
    fn eval(&mut self, node: &'p Node) -> Result<Value, EvalError> {
        self.eval_path(node, 1)
    }

    /// Evaluates a node. If it is a path, its end costs `end`: 1, or 0 where upstream does not observe it.
    fn eval_path(&mut self, node: &'p Node, end: u64) -> Result<Value, EvalError> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Costed { value, cost } => {
                self.meter.charge(*cost)?;
                Ok(value.clone())
            }
            Node::Slot(slot) => self.variable(*slot, end),
            Node::Fact(fact) => {
                self.meter.charge_each(3 + end)?;
                self.device.fact(fact)?.ok_or_else(|| EvalError::no_such_key(&fact.id))
            }
            Node::HasFact { fact, cost } => {
                self.meter.charge_each(*cost)?;
                Ok(Value::Bool(self.device.has(fact)))
            }
            Node::DeviceField(field) => self.device_field(*field, end),
            _ => guarded(|| self.eval_inner(node, end)),
        }
    }

    /// Operations with operands.
    fn eval_inner(&mut self, node: &'p Node, end: u64) -> Result<Value, EvalError> {
        match node {
            Node::And(operands) => self.logic(operands, false),
            Node::Or(operands) => self.logic(operands, true),
            Node::Call {
                fun,
                sole,
                stops_early,
                args,
            } => self.call(*fun, *sole, *stops_early, args),
            Node::InSet { value, set } => self.in_set(value, set),
            Node::Conditional(parts) => self.conditional(parts),
            Node::Bind { slot, init, body } => self.bind(*slot, init, body),
            Node::Fold(fold) => self.fold(fold),
            _ => self.eval_rarer(node, end),
        }
    }

    /// The other operations, apart so that the common ones keep a small stack frame.
    #[inline(never)]
    fn eval_rarer(&mut self, node: &'p Node, end: u64) -> Result<Value, EvalError> {
        match node {
            Node::Unobserved(path) => self.eval_path(path, 0),
            Node::Device => {
                self.meter.charge_each(end)?;
                self.device.whole()
            }
            Node::OptFact(fact) => {
                let found = self.device.fact(fact)?;
                self.meter.charge_each(2 + end + u64::from(found.is_some()))?;
                Ok(Value::Optional(found.map(Arc::new)))
            }
            Node::Domain { of, domain } => {
                self.meter.charge_each(2 + end)?;
                let all = self.device.all(*of)?;
                step_into(&all, &Value::String(Arc::clone(domain)))
            }
            Node::Select { operand, field, base } => {
                let selected = self.base(operand, *base).and_then(|from| self.selected(&from, field));
                self.ended(selected, *base, end)
            }
            Node::Has { operand, field, base } => {
                let found = self.base(operand, *base).and_then(|from| self.has(&from, field));
                if *base == Base::Conditional {
                    self.meter.refund_one()?;
                }
                found
            }
            Node::Index { operand, key, base } => {
                let selected = self.base(operand, *base).and_then(|from| self.indexed(&from, key));
                self.ended(selected, *base, end)
            }
            Node::OptSelect { operand, key, base } => {
                let from = self.base(operand, *base);
                let selected = from.and_then(|from| self.optionally_indexed(&from, key));
                self.ended(selected, *base, end)
            }
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Search {
                fun,
                text,
                pattern_size,
                regex,
                limit,
            } => {
                let text = self.eval(text)?;
                let limit = limit.as_ref().map(|limit| self.eval(limit)).transpose();
                self.meter.charge(actual::search(text.inner_size(), *pattern_size))?;
                match &text {
                    Value::String(text) => matched(self.meter, *fun, regex, text, limit?),
                    _ => limit.and_then(|_| Err(EvalError::no_overload(&format!("{fun:?}")))),
                }
            }
            Node::Alternative { optional, other, unwrap } => self.alternative(optional, other, *unwrap),
            _ => Err(EvalError::invalid("operation cannot be evaluated")),
        }
    }

    fn device_field(&mut self, field: Field, end: u64) -> Result<Value, EvalError> {
        self.meter.charge_each(1 + end)?;
        match field {
            Field::Driver => Ok(self.device.driver()),
            Field::MultipleAllocations => Ok(self.device.allows_multiple_allocations()),
            Field::All(of) => self.device.all(of),
        }
    }

    fn variable(&mut self, slot: usize, end: u64) -> Result<Value, EvalError> {
        let found = match &self.slots[slot] {
            Slot::Value(value) => Ok(value.clone()),
            Slot::Failed(error) => Err(error.clone()),
            Slot::Empty => Err(EvalError::invalid("variable out of scope")),
            Slot::Pending(node) => {
                let node = *node;
                let result = self.eval(node);
                self.slots[slot] = match &result {
                    Ok(value) => Slot::Value(value.clone()),
                    Err(error) => Slot::Failed(error.clone()),
                };
                result
            }
        };
        self.meter.charge_each(end)?;
        found
    }

    /// What a path starts from, or its earlier part, whose end is not the end of the path.
    fn base(&mut self, operand: &'p Node, base: Base) -> Result<Value, EvalError> {
        self.eval_path(operand, u64::from(base == Base::Value))
    }

    /// Counts the end of a path, which also a path has that fails.
    fn ended(&mut self, selected: Result<Value, EvalError>, base: Base, end: u64) -> Result<Value, EvalError> {
        if base != Base::Conditional {
            self.meter.charge_each(end)?;
        }
        selected
    }

    fn bind(&mut self, slot: usize, init: &'p Node, body: &'p Node) -> Result<Value, EvalError> {
        self.slots[slot] = Slot::Pending(init);
        self.eval(body)
    }

    /// `&&` (`decisive` false) or `||` (`decisive` true): one decisive operand wins over any error.
    fn logic(&mut self, operands: &'p [Node], decisive: bool) -> Result<Value, EvalError> {
        let mut first_error = None;
        for operand in operands {
            let error = match self.eval(operand) {
                Ok(Value::Bool(b)) if b == decisive => return Ok(Value::Bool(b)),
                Ok(Value::Bool(_)) => continue,
                Ok(_) => EvalError::no_overload(if decisive { "_||_" } else { "_&&_" }),
                Err(error) if Meter::is_exhaustion(&error) => return Err(error),
                Err(error) => error,
            };
            first_error.get_or_insert(error);
        }
        first_error.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn conditional(&mut self, parts: &'p [Node; 3]) -> Result<Value, EvalError> {
        match self.eval(&parts[0])? {
            Value::Bool(true) => self.eval(&parts[1]),
            Value::Bool(false) => self.eval(&parts[2]),
            _ => Err(EvalError::no_overload("_?_:_")),
        }
    }

    fn call(&mut self, fun: Fun, sole: Option<Cost>, stops_early: bool, args: &'p [Node]) -> Result<Value, EvalError> {
        if let (Fun::Eq | Fun::Ne, [left, Node::Const(Value::String(right))]) = (fun, args)
            && let Some((left, cost)) = self.plain_text(left)
        {
            let shorter = left.chars().count().min(right.chars().count());
            self.meter.charge_each(cost)?;
            self.meter.charge(scaled(shorter as u64, TRAVERSAL))?;
            return Ok(Value::Bool((left == &**right) == (fun == Fun::Eq)));
        }
        let mut failure = None;
        let mut values: SmallVec<[Value; 3]> = SmallVec::new();
        for (i, arg) in args.iter().enumerate() {
            values.push(match self.eval(arg) {
                Ok(value) => value,
                Err(error) if Meter::is_exhaustion(&error) || (stops_early && i + 1 < args.len()) => return Err(error),
                Err(error) => {
                    failure.get_or_insert(error);
                    actual::FAILED
                }
            });
        }
        let called = Called {
            fun,
            sole,
            args: &values,
        };
        match failure {
            None => call(self.meter, &mut self.patterns, &called),
            Some(error) => failed_call(self.meter, &called, error),
        }
    }

    /// The driver's name or a string attribute with the cost of reading it: comparing these with constants is most
    /// of what selectors do, and needs no copy.
    fn plain_text(&self, node: &Node) -> Option<(&'d str, u64)> {
        match node {
            Node::DeviceField(Field::Driver) => Some((self.device.driver_name(), 2)),
            Node::Fact(fact) => Some((self.device.text(fact)?, 4)),
            _ => None,
        }
    }

    fn in_set(&mut self, value: &'p Node, set: &[Value]) -> Result<Value, EvalError> {
        if let Some((text, cost)) = self.plain_text(value) {
            self.meter.charge_each(cost)?;
            return Ok(Value::Bool(
                set.binary_search_by(|element| order_with_text(element, text)).is_ok(),
            ));
        }
        let value = self.eval(value)?;
        match &value {
            // Upstream's set cannot look up a version; it is an error there, not false.
            Value::Semver(_) => Err(EvalError::invalid("a version cannot be looked up in a list of constants")),
            Value::Double(d) if d.is_nan() => Ok(Value::Bool(false)),
            _ => Ok(Value::Bool(
                set.binary_search_by(|element| key_order(element, &value)).is_ok(),
            )),
        }
    }

    /// `operand.field`: a step of the path, which costs 1 also if it fails. On an optional the step is optional.
    fn selected(&mut self, operand: &Value, key: &Value) -> Result<Value, EvalError> {
        match operand {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => self.optionally_selected(inner, key),
            _ => {
                self.meter.charge_each(1)?;
                step_into(operand, key)
            }
        }
    }

    /// `operand[key]`. The key of nothing is not evaluated.
    fn indexed(&mut self, operand: &Value, key: &'p Node) -> Result<Value, EvalError> {
        match operand {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => self.optionally_indexed(inner, key),
            _ => {
                let key = self.eval(key).and_then(qualifier);
                self.meter.charge_each(1)?;
                step_into(operand, &key?)
            }
        }
    }

    /// `operand[?key]`.
    fn optionally_indexed(&mut self, operand: &Value, key: &'p Node) -> Result<Value, EvalError> {
        match operand {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => self.optionally_indexed(inner, key),
            _ => {
                let key = qualifier(self.eval(key)?)?;
                self.optionally_selected(operand, &key)
            }
        }
    }

    /// `e.?f`, `e[?k]`: none where there is nothing; then the step costs nothing.
    fn optionally_selected(&mut self, operand: &Value, key: &Value) -> Result<Value, EvalError> {
        let found = match operand {
            Value::Optional(None) => None,
            Value::Optional(Some(inner)) => return self.optionally_selected(inner, key),
            Value::Map(map) => map.find(key),
            Value::List(list) => match arith::element(list, key) {
                Ok(element) => Some(element),
                Err(error) if error.kind() == EvalErrorKind::OutOfRange => None,
                Err(error) => return Err(error),
            },
            _ => None,
        };
        self.meter.charge_each(u64::from(found.is_some()))?;
        Ok(Value::Optional(found.map(Arc::new)))
    }

    fn has(&mut self, operand: &Value, field: &Value) -> Result<Value, EvalError> {
        let (map, optional) = match operand {
            Value::Optional(None) => return Ok(Value::Bool(false)),
            Value::Optional(Some(inner)) => (&**inner, true),
            _ => (operand, false),
        };
        let found = match map {
            Value::Map(map) => Ok(map.find(field).is_some()),
            Value::List(list) => arith::element(list, field).map(|_| true),
            // Other values have no fields, and that can be asked.
            _ => Ok(false),
        };
        let counts = !optional || matches!(found, Ok(true));
        self.meter.charge_each(u64::from(counts))?;
        found.map(Value::Bool)
    }

    /// What an optional element of a literal contributes.
    fn unwrapped(value: Value, optional: bool) -> Result<Option<Value>, EvalError> {
        match value {
            value if !optional => Ok(Some(value)),
            Value::Optional(inner) => Ok(inner.map(|inner| (*inner).clone())),
            _ => Err(EvalError::no_overload("optional element of a literal")),
        }
    }

    fn list(&mut self, elements: &'p [(Node, bool)]) -> Result<Value, EvalError> {
        let values = self.elements(elements);
        self.meter.charge(LIST_COST)?;
        values.map(Value::list)
    }

    fn elements(&mut self, elements: &'p [(Node, bool)]) -> Result<Vec<Value>, EvalError> {
        let mut values = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            let value = self.eval(element)?;
            values.extend(Self::unwrapped(value, *optional)?);
        }
        Ok(values)
    }

    fn map(&mut self, entries: &'p [(Node, Node, bool)]) -> Result<Value, EvalError> {
        let map = self.entries(entries);
        self.meter.charge(MAP_COST)?;
        map.map(|map| Value::Map(Arc::new(map)))
    }

    fn entries(&mut self, entries: &'p [(Node, Node, bool)]) -> Result<Map, EvalError> {
        let mut map = Map::default();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let value = self.eval(value)?;
            if !is_key(&key) {
                return Err(EvalError::invalid(format!("unsupported key type: {}", key.type_name())));
            }
            if let Some(value) = Self::unwrapped(value, *optional)? {
                map.insert(key, value);
            }
        }
        Ok(map)
    }

    fn alternative(&mut self, optional: &'p Node, other: &'p Node, unwrap: bool) -> Result<Value, EvalError> {
        match self.eval(optional)? {
            Value::Optional(Some(value)) if unwrap => Ok((*value).clone()),
            some @ Value::Optional(Some(_)) => Ok(some),
            // What `or` gives is not looked at: behind `dyn` it need not be an optional.
            Value::Optional(None) => self.eval(other),
            _ => Err(EvalError::no_overload(if unwrap { "orValue" } else { "or" })),
        }
    }

    fn fold(&mut self, fold: &'p Fold) -> Result<Value, EvalError> {
        let range = self.eval(&fold.range)?;
        let mut state = State::new(fold.of);
        match &range {
            Value::List(list) => {
                for (i, element) in list.iter().enumerate() {
                    let index = || Value::Int(i64::try_from(i).unwrap_or(i64::MAX));
                    let (first, second) = match fold.slot2 {
                        Some(_) => (index(), Some(element)),
                        None => (element.clone(), None),
                    };
                    if !self.round(fold, &mut state, first, second)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for (key, value) in &map.entries {
                    if !self.round(fold, &mut state, key.clone(), fold.slot2.map(|_| value))? {
                        break;
                    }
                }
            }
            other => return Err(not_iterable(other)),
        }
        // The result is a look at the accumulator, in `exists_one` compared with 1.
        self.meter.charge_each(if fold.of == Macro::ExistsOne { 2 } else { 1 })?;
        state.finish()
    }

    /// One turn of a loop. False: the answer is known. The error means that nothing can go on; that of an element is
    /// kept in the state, as upstream goes on with the loop.
    fn round(&mut self, fold: &'p Fold, state: &mut State, first: Value, second: Option<&Value>) -> Result<bool, EvalError> {
        // The condition of the loop: a look at the accumulator, for `exists` its negation, and a call around them.
        self.meter.charge_each(match fold.of {
            Macro::All => 2,
            Macro::Exists => 3,
            _ => 0,
        })?;
        if state.decided {
            return Ok(false);
        }
        // A turn can be free of cost, so loops in loops need a bound of their own.
        self.meter.work(STEPS_PER_TURN)?;
        let key = matches!(fold.of, Macro::Insert { .. }).then(|| first.clone());
        self.slots[fold.slot] = Slot::Value(first);
        if let Some((slot, value)) = fold.slot2.zip(second) {
            self.slots[slot] = Slot::Value(value.clone());
        }
        let outcome = match fold.of {
            Macro::All => self.quantify(fold, state, false),
            Macro::Exists => self.quantify(fold, state, true),
            Macro::ExistsOne => self.count(fold, state),
            _ => self.build(fold, state, key),
        };
        match outcome {
            Ok(()) => {}
            Err(error) if Meter::is_exhaustion(&error) => return Err(error),
            Err(error) => state.error = Some(error),
        }
        Ok(true)
    }

    fn quantify(&mut self, fold: &'p Fold, state: &mut State, decisive: bool) -> Result<(), EvalError> {
        self.meter.charge_each(1)?;
        let error = match self.eval(&fold.step) {
            Ok(Value::Bool(b)) => {
                state.decided = b == decisive;
                return Ok(());
            }
            Ok(_) => EvalError::no_overload("predicate of a macro"),
            Err(error) => error,
        };
        // The first error stays the error of the loop.
        match &state.error {
            Some(earlier) if !Meter::is_exhaustion(&error) => Err(earlier.clone()),
            _ => Err(error),
        }
    }

    fn count(&mut self, fold: &'p Fold, state: &mut State) -> Result<(), EvalError> {
        match self.eval(&fold.step)? {
            Value::Bool(true) => {
                self.meter.charge_each(2)?;
                state.count += 1;
                Ok(())
            }
            Value::Bool(false) => Ok(()),
            _ => Err(EvalError::no_overload("predicate of a macro")),
        }
    }

    /// Appends or inserts, if the condition allows.
    fn build(&mut self, fold: &'p Fold, state: &mut State, key: Option<Value>) -> Result<(), EvalError> {
        if let Some(test) = &fold.test {
            match self.eval(test)? {
                Value::Bool(true) => {}
                Value::Bool(false) => return Ok(()),
                _ => return Err(EvalError::no_overload("_?_:_")),
            }
        }
        self.meter.charge_each(1)?;
        match fold.of {
            Macro::Insert { .. } => self.insert(fold, state, key),
            Macro::InsertEntries { .. } => self.insert_entries(fold, state),
            _ => self.append(fold, state),
        }
    }

    /// `accumulator + [element]`.
    fn append(&mut self, fold: &'p Fold, state: &mut State) -> Result<(), EvalError> {
        let value = self.eval(&fold.step);
        // The list around a constant is a constant.
        if !matches!(fold.step, Node::Const(_)) {
            self.meter.charge(LIST_COST)?;
        }
        self.meter.charge_each(1)?;
        self.meter.allocate(size_of::<Value>())?;
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        state.list.push(value?);
        Ok(())
    }

    /// Insertion of a key and a value: three operands, so a failed accumulator ends it at once.
    fn insert(&mut self, fold: &'p Fold, state: &mut State, key: Option<Value>) -> Result<(), EvalError> {
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        self.meter.charge_each(1)?;
        let value = self.eval(&fold.step);
        self.meter.charge_each(1)?;
        self.inserting(state)?;
        match key {
            Some(key) => state.insert(key, value?),
            None => Err(EvalError::invalid("nothing to insert")),
        }
    }

    /// Insertion of all entries of a map: two operands.
    fn insert_entries(&mut self, fold: &'p Fold, state: &mut State) -> Result<(), EvalError> {
        let entries = self.eval(&fold.step);
        self.meter.charge_each(1)?;
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        let Value::Map(entries) = entries? else {
            return Err(EvalError::no_overload("transformMapEntry"));
        };
        for (key, value) in &entries.entries {
            self.inserting(state)?;
            state.insert(key.clone(), value.clone())?;
        }
        Ok(())
    }

    /// Announces an insertion. It moves the sorted entries behind.
    fn inserting(&mut self, state: &State) -> Result<(), EvalError> {
        self.meter.allocate(2 * size_of::<Value>())?;
        self.meter.work(state.map.entries.len() as u64 / 64)
    }
}

/// The value of a key, if it is of a type by which something can be selected.
fn qualifier(key: Value) -> Result<Value, EvalError> {
    if is_key(&key) {
        Ok(key)
    } else {
        Err(EvalError::invalid(format!("invalid qualifier type: {}", key.type_name())))
    }
}

fn step_into(operand: &Value, key: &Value) -> Result<Value, EvalError> {
    match operand {
        Value::Map(map) => map.find(key).ok_or_else(|| EvalError::no_such_key(shown(key))),
        Value::List(list) => arith::element(list, key),
        _ => Err(EvalError::no_such_key(shown(key))),
    }
}

fn shown(key: &Value) -> String {
    match key {
        Value::String(text) => text.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Uint(n) => n.to_string(),
        Value::Bool(b) => b.to_string(),
        other => other.type_name().to_owned(),
    }
}

/// What a loop has gathered so far.
struct State {
    of: Macro,
    decided: bool,
    error: Option<EvalError>,
    count: u64,
    list: Vec<Value>,
    map: Map,
}

impl State {
    fn new(of: Macro) -> Self {
        Self {
            of,
            decided: false,
            error: None,
            count: 0,
            list: Vec::new(),
            map: Map::default(),
        }
    }

    fn insert(&mut self, key: Value, value: Value) -> Result<(), EvalError> {
        let text = shown(&key);
        if self.map.insert(key, value) {
            return Err(EvalError::invalid(format!("insert failed: key {text} already exists")));
        }
        Ok(())
    }

    fn finish(self) -> Result<Value, EvalError> {
        match self.of {
            Macro::All | Macro::Exists if self.decided => Ok(Value::Bool(self.of == Macro::Exists)),
            _ if self.error.is_some() => self.error.map_or(Ok(Value::Null), Err),
            Macro::All | Macro::Exists => Ok(Value::Bool(self.of == Macro::All)),
            Macro::ExistsOne => Ok(Value::Bool(self.count == 1)),
            Macro::Insert { .. } | Macro::InsertEntries { .. } => Ok(Value::Map(Arc::new(self.map))),
            Macro::Collect { .. } | Macro::Bind => Ok(Value::list(self.list)),
        }
    }
}
