//! Runs a program on one device.
//!
//! Evaluation is strict and left to right, except for `&&`, `||`, `? :`, macros, `or`, `orValue` and bound names.
//! An exhausted budget ends everything; `&&` and `||` absorb other errors if the answer does not need them.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::ast::Macro;
use crate::call::{Patterns, call, matched, not_iterable};
use crate::cost::{TRAVERSAL, scaled};
use crate::depth::guarded;
use crate::device::DeviceView;
use crate::error::EvalError;
use crate::functions::Fun;
use crate::meter::Meter;
use crate::program::{Field, Fold, Node, Program};
use crate::value::{Map, Value, key_order, order_with_text};
use crate::{actual, arith};

/// Costs of making a list and a map.
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;

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
    fn eval(&mut self, node: &'p Node) -> Result<Value, EvalError> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Costed { value, cost } => {
                self.meter.charge(*cost)?;
                Ok(value.clone())
            }
            Node::Slot(slot) => self.variable(*slot),
            Node::Fact(fact) => {
                self.meter.charge(4)?;
                self.device.fact(fact)?.ok_or_else(|| EvalError::no_such_key(&fact.id))
            }
            Node::HasFact { fact, cost } => {
                self.meter.charge(*cost)?;
                Ok(Value::Bool(self.device.has(fact)))
            }
            Node::DeviceField(field) => self.device_field(*field),
            _ => guarded(|| self.eval_inner(node)),
        }
    }

    /// Operations with operands.
    fn eval_inner(&mut self, node: &'p Node) -> Result<Value, EvalError> {
        match node {
            Node::And(operands) => self.logic(operands, false),
            Node::Or(operands) => self.logic(operands, true),
            Node::Call { fun, args } => self.call(*fun, args),
            Node::InSet { value, set } => self.in_set(value, set),
            Node::Conditional(parts) => self.conditional(parts),
            Node::Bind { slot, init, body } => self.bind(*slot, init, body),
            Node::Fold(fold) => self.fold(fold),
            _ => self.eval_rarer(node),
        }
    }

    /// The other operations, apart so that the common ones keep a small stack frame.
    #[inline(never)]
    fn eval_rarer(&mut self, node: &'p Node) -> Result<Value, EvalError> {
        match node {
            Node::Device => {
                self.meter.charge(1)?;
                self.device.whole()
            }
            Node::OptFact(fact) => {
                self.meter.charge(4)?;
                Ok(Value::Optional(self.device.fact(fact)?.map(Arc::new)))
            }
            Node::Domain { of, domain } => {
                self.meter.charge(3)?;
                let all = self.device.all(*of)?;
                self.step_into(&all, &Value::String(Arc::clone(domain)))
            }
            Node::Select {
                operand,
                field,
                starts_path,
            } => {
                let operand = self.operand(operand, *starts_path)?;
                self.selected(&operand, field)
            }
            Node::Has { operand, field } => {
                let operand = self.eval(operand)?;
                self.has(&operand, field)
            }
            Node::Index {
                operand,
                key,
                starts_path,
            } => {
                let operand = self.operand(operand, *starts_path)?;
                let key = self.eval(key)?;
                self.selected(&operand, &key)
            }
            Node::OptSelect {
                operand,
                key,
                starts_path,
            } => {
                let operand = self.operand(operand, *starts_path)?;
                let key = self.eval(key)?;
                self.optionally_selected(&operand, &key)
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
                let limit = limit.as_ref().map(|limit| self.eval(limit)).transpose()?;
                self.meter.charge(actual::search(text.size(), *pattern_size))?;
                match &text {
                    Value::String(text) => matched(self.meter, *fun, regex, text, limit),
                    _ => Err(EvalError::no_overload(&format!("{fun:?}"))),
                }
            }
            Node::Alternative { optional, other, unwrap } => self.alternative(optional, other, *unwrap),
            _ => Err(EvalError::invalid("operation cannot be evaluated")),
        }
    }

    fn device_field(&mut self, field: Field) -> Result<Value, EvalError> {
        self.meter.charge(2)?;
        match field {
            Field::Driver => Ok(self.device.driver()),
            Field::MultipleAllocations => Ok(self.device.allows_multiple_allocations()),
            Field::All(of) => self.device.all(of),
        }
    }

    fn variable(&mut self, slot: usize) -> Result<Value, EvalError> {
        self.meter.charge(1)?;
        match &self.slots[slot] {
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
        }
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

    fn call(&mut self, fun: Fun, args: &'p [Node]) -> Result<Value, EvalError> {
        if let (Fun::Eq | Fun::Ne, [left, Node::Const(Value::String(right))]) = (fun, args)
            && let Some((left, cost)) = self.plain_text(left)
        {
            let shorter = left.chars().count().min(right.chars().count());
            self.meter.charge(cost.saturating_add(scaled(shorter as u64, TRAVERSAL)))?;
            return Ok(Value::Bool((left == &**right) == (fun == Fun::Eq)));
        }
        let mut values: SmallVec<[Value; 3]> = SmallVec::new();
        for arg in args {
            values.push(self.eval(arg)?);
        }
        call(self.meter, &mut self.patterns, fun, &values)
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
            self.meter.charge(cost)?;
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

    /// The operand of a selection; starting a path anywhere but at a variable costs one more.
    fn operand(&mut self, operand: &'p Node, starts_path: bool) -> Result<Value, EvalError> {
        let value = self.eval(operand)?;
        self.meter.charge(1 + u64::from(starts_path))?;
        Ok(value)
    }

    fn selected(&mut self, operand: &Value, key: &Value) -> Result<Value, EvalError> {
        match operand {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => self.optionally_selected(inner, key),
            _ => self.step_into(operand, key),
        }
    }

    fn step_into(&mut self, operand: &Value, key: &Value) -> Result<Value, EvalError> {
        match operand {
            Value::Map(map) => map.find(key).ok_or_else(|| EvalError::no_such_key(shown(key))),
            Value::List(list) => arith::element(list, key),
            _ => Err(EvalError::no_such_key(shown(key))),
        }
    }

    /// `e.?f`, `e[?k]`: none where there is nothing.
    fn optionally_selected(&mut self, operand: &Value, key: &Value) -> Result<Value, EvalError> {
        let found = match operand {
            Value::Optional(None) => None,
            Value::Optional(Some(inner)) => return self.optionally_selected(inner, key),
            Value::Map(map) => map.find(key),
            Value::List(list) => arith::element(list, key).ok(),
            _ => None,
        };
        Ok(Value::Optional(found.map(Arc::new)))
    }

    fn has(&mut self, operand: &Value, field: &Value) -> Result<Value, EvalError> {
        match operand {
            Value::Map(map) => Ok(Value::Bool(map.find(field).is_some())),
            Value::Optional(None) => Ok(Value::Bool(false)),
            Value::Optional(Some(inner)) => self.has(inner, field),
            _ => Err(EvalError::no_such_key(shown(field))),
        }
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
        let mut values = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            let value = self.eval(element)?;
            values.extend(Self::unwrapped(value, *optional)?);
        }
        self.meter.charge(LIST_COST)?;
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'p [(Node, Node, bool)]) -> Result<Value, EvalError> {
        let mut map = Map::default();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let value = self.eval(value)?;
            if !key.is_number() && !matches!(key, Value::String(_) | Value::Bool(_)) {
                return Err(EvalError::invalid(format!("unsupported key type: {}", key.type_name())));
            }
            if let Some(value) = Self::unwrapped(value, *optional)? {
                map.insert(key, value);
            }
        }
        self.meter.charge(MAP_COST)?;
        Ok(Value::Map(Arc::new(map)))
    }

    fn alternative(&mut self, optional: &'p Node, other: &'p Node, unwrap: bool) -> Result<Value, EvalError> {
        match self.eval(optional)? {
            Value::Optional(Some(value)) if unwrap => Ok((*value).clone()),
            some @ Value::Optional(Some(_)) => Ok(some),
            Value::Optional(None) => match self.eval(other)? {
                value if unwrap => Ok(value),
                value @ Value::Optional(_) => Ok(value),
                _ => Err(EvalError::no_overload("or")),
            },
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
        self.meter.charge(if fold.of == Macro::ExistsOne { 2 } else { 1 })?;
        state.finish()
    }

    /// One turn of a loop. False: the answer is known.
    fn round(&mut self, fold: &'p Fold, state: &mut State, first: Value, second: Option<&Value>) -> Result<bool, EvalError> {
        let key = matches!(fold.of, Macro::Insert { .. }).then(|| first.clone());
        self.slots[fold.slot] = Slot::Value(first);
        if let Some((slot, value)) = fold.slot2.zip(second) {
            self.slots[slot] = Slot::Value(value.clone());
        }
        match fold.of {
            Macro::All => self.quantify(fold, state, 3, false),
            Macro::Exists => self.quantify(fold, state, 4, true),
            Macro::ExistsOne => self.count(fold, state),
            _ => self.build(fold, state, key).map(|()| true),
        }
    }

    fn quantify(&mut self, fold: &'p Fold, state: &mut State, cost: u64, decisive: bool) -> Result<bool, EvalError> {
        self.meter.charge(cost)?;
        let error = match self.eval(&fold.step) {
            Ok(Value::Bool(b)) if b == decisive => {
                state.decided = true;
                return Ok(false);
            }
            Ok(Value::Bool(_)) => return Ok(true),
            Ok(_) => EvalError::no_overload("predicate of a macro"),
            Err(error) if Meter::is_exhaustion(&error) => return Err(error),
            Err(error) => error,
        };
        state.error.get_or_insert(error);
        Ok(true)
    }

    fn count(&mut self, fold: &'p Fold, state: &mut State) -> Result<bool, EvalError> {
        match self.eval(&fold.step)? {
            Value::Bool(true) => {
                self.meter.charge(2)?;
                state.count += 1;
                Ok(true)
            }
            Value::Bool(false) => Ok(true),
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
        let value = self.eval(&fold.step)?;
        self.meter.allocate(size_of::<Value>())?;
        // Inserting into the sorted entries moves those behind.
        self.meter.work(state.map.entries.len() as u64 / 64)?;
        match (fold.of, key, value) {
            (Macro::Insert { .. }, Some(key), value) => {
                self.meter.charge(3)?;
                state.insert(key, value)
            }
            (Macro::InsertEntries { .. }, _, Value::Map(entries)) => {
                self.meter.charge(2)?;
                entries
                    .entries
                    .iter()
                    .try_for_each(|(key, value)| state.insert(key.clone(), value.clone()))
            }
            (Macro::InsertEntries { .. }, ..) => Err(EvalError::no_overload("transformMapEntry")),
            (_, _, value) => {
                self.meter.charge(2 + LIST_COST)?;
                state.list.push(value);
                Ok(())
            }
        }
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
            Macro::All | Macro::Exists => self.error.map_or(Ok(Value::Bool(self.of == Macro::All)), Err),
            Macro::ExistsOne => Ok(Value::Bool(self.count == 1)),
            Macro::Insert { .. } | Macro::InsertEntries { .. } => Ok(Value::Map(Arc::new(self.map))),
            Macro::Collect { .. } | Macro::Bind => Ok(Value::list(self.list)),
        }
    }
}
