//! The form that runs: names resolved to slots, constants folded, patterns compiled, accesses to the device
//! recognised. Made from a checked tree by [`lower`].

use std::sync::Arc;

use ::regex::Regex;

use crate::actual::Called;
use crate::ast::{Comprehension, Element, Entry, Expr, ExprKind, Literal, Macro};
use crate::call::{Patterns, call};
use crate::check::{Checked, Resolution};
use crate::depth::guarded;
use crate::error::{CompileErrorKind, Refusal};
use crate::functions::{Cost, Fun};
use crate::meter::Meter;
use crate::types::Type;
use crate::value::{Map, Value, key_order};

/// One operation with its operands.
#[derive(Debug)]
pub(crate) enum Node {
    Const(Value),
    /// A value that is always the same but costs something: `quantity("1Gi")`.
    Costed {
        value: Value,
        cost: u64,
    },
    /// A variable of a macro.
    Slot(usize),
    /// The whole device as a value.
    Device,
    DeviceField(Field),
    /// All attributes or capacities of one domain.
    Domain {
        of: Facts,
        domain: Arc<str>,
    },
    /// One attribute or capacity, by constant names.
    Fact(FactRef),
    /// `has(…)` on it (cost 3), `"id" in …` (cost 4).
    HasFact {
        fact: FactRef,
        cost: u64,
    },
    /// `device.attributes["d"].?x`.
    OptFact(FactRef),
    Select {
        operand: Box<Node>,
        field: Value,
        base: Base,
    },
    Has {
        operand: Box<Node>,
        field: Value,
        base: Base,
    },
    OptSelect {
        operand: Box<Node>,
        key: Box<Node>,
        base: Base,
    },
    Index {
        operand: Box<Node>,
        key: Box<Node>,
        base: Base,
    },
    /// A path whose end is not counted: upstream resolves branches of `? :` and keys of an index without observing
    /// them.
    Unobserved(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Conditional(Box<[Node; 3]>),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    /// `value in [constants]`, sorted by [`key_order`].
    InSet {
        value: Box<Node>,
        set: Vec<Value>,
    },
    /// `matches`, `find` and `findAll` with a constant pattern.
    Search {
        fun: Fun,
        text: Box<Node>,
        pattern_size: u64,
        regex: Regex,
        limit: Option<Box<Node>>,
    },
    /// `o.or(p)`, `o.orValue(x)`.
    Alternative {
        optional: Box<Node>,
        other: Box<Node>,
        unwrap: bool,
    },
    Call {
        fun: Fun,
        /// The cost rule of its overload, if the checker found exactly one.
        sole: Option<Cost>,
        /// An operand that fails ends the call at once; else all operands are evaluated first.
        stops_early: bool,
        args: Vec<Node>,
    },
    Fold(Box<Fold>),
    /// `slot` stands for `init` in `body`; evaluated on first use.
    Bind {
        slot: usize,
        init: Box<Node>,
        body: Box<Node>,
    },
}

/// What a path of selections and indexes starts from. Upstream counts 1 for each step and 1 for the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Variable,
    /// The result of some operation, which has a cost of its own.
    Value,
    /// One of two paths: its end is not counted.
    Conditional,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Facts {
    Attributes,
    Capacity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Driver,
    MultipleAllocations,
    All(Facts),
}

/// A constant name of an attribute or capacity.
#[derive(Debug)]
pub(crate) struct FactRef {
    pub(crate) of: Facts,
    pub(crate) domain: Arc<str>,
    pub(crate) id: Arc<str>,
    /// `domain/id`, as published.
    pub(crate) qualified: String,
}

/// A loop over a list or map.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) of: Macro,
    pub(crate) range: Node,
    pub(crate) slot: usize,
    pub(crate) slot2: Option<usize>,
    /// Condition of `filter` and three-argument forms.
    pub(crate) test: Option<Node>,
    /// Predicate, element, value, or map of entries.
    pub(crate) step: Node,
}

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) root: Node,
    pub(crate) slots: usize,
}

/// Cost of `has()` on a fact: three steps.
const HAS_COST: u64 = 3;

/// Size of all constant patterns of one expression. Twice the largest single one.
const PATTERN_STATES_MAX: u64 = 2 * crate::regex::STATES_MAX;

/// Lowers a checked expression. Refuses constants that cannot be computed.
pub(crate) fn lower(expr: &Expr, checked: &Checked) -> Result<Program, Refusal> {
    let mut lowering = Lowering {
        checked,
        scope: Vec::new(),
        slots: 0,
        pattern_states: 0,
    };
    let root = lowering.node(expr)?;
    Ok(Program {
        root,
        slots: lowering.slots,
    })
}

struct Lowering<'a> {
    checked: &'a Checked,
    /// Variables in sight with their slots. Every variable has a slot of its own, because a bound expression is
    /// evaluated later than its place says.
    scope: Vec<(Arc<str>, usize)>,
    slots: usize,
    /// Size of all patterns so far, see [`crate::regex`].
    pattern_states: u64,
}

impl Lowering<'_> {
    fn boxed(&mut self, expr: &Expr) -> Result<Box<Node>, Refusal> {
        Ok(Box::new(self.node(expr)?))
    }

    fn node(&mut self, expr: &Expr) -> Result<Node, Refusal> {
        guarded(|| self.lowered(expr))
    }

    fn lowered(&mut self, expr: &Expr) -> Result<Node, Refusal> {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(Node::Const(constant(literal))),
            ExprKind::Ident(name) => self.ident(expr, name),
            ExprKind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            ExprKind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List { elements } => self.list(elements),
            ExprKind::Map { entries } => self.map(entries),
            ExprKind::Comprehension(c) if c.of == Macro::Bind => self.bind(c),
            ExprKind::Comprehension(c) => self.fold(c),
        }
    }

    fn ident(&mut self, expr: &Expr, name: &str) -> Result<Node, Refusal> {
        if let Some((_, slot)) = self.scope.iter().rev().find(|(n, _)| **n == *name) {
            self.no_type_variable(expr, name)?;
            return Ok(Node::Slot(*slot));
        }
        match self.checked.resolution(expr) {
            Resolution::TypeName(named) => type_constant(expr, named),
            _ => Ok(Node::Device),
        }
    }

    /// Upstream takes a variable whose static type is `type(…)` for the name of a type and does not find it.
    fn no_type_variable(&self, expr: &Expr, name: &str) -> Result<(), Refusal> {
        match self.checked.type_of(expr) {
            Type::Of(_) => Err(not_instantiated(expr, format!("reference to undefined type: {name}"))),
            _ => Ok(()),
        }
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &Arc<str>, test: bool) -> Result<Node, Refusal> {
        if let Resolution::TypeName(named) = self.checked.resolution(expr) {
            return type_constant(expr, named);
        }
        let operand = self.node(operand)?;
        if let Some(node) = device_access(&operand, field, test) {
            return Ok(node);
        }
        let field = Value::String(Arc::clone(field));
        let base = base(&operand);
        let operand = Box::new(operand);
        Ok(if test {
            Node::Has { operand, field, base }
        } else {
            Node::Select { operand, field, base }
        })
    }

    fn call(&mut self, expr: &Expr, function: &str, target: Option<&Expr>, args: &[Expr]) -> Result<Node, Refusal> {
        let Some(fun) = self.checked.fun(expr) else {
            return Err(Refusal::new(
                CompileErrorKind::NoOverload,
                expr.pos,
                format!("unresolved call of '{function}'"),
            ));
        };
        let mut operands = Vec::with_capacity(args.len() + 1);
        for operand in self.checked.receiver(expr, target).into_iter().chain(args) {
            operands.push(self.node(operand)?);
        }
        if is_conversion(fun) && operands.iter().all(|o| matches!(o, Node::Const(_))) {
            return fold_constant(expr, fun, operands);
        }
        match fun {
            Fun::And => Ok(Node::And(operands)),
            Fun::Or => Ok(Node::Or(operands)),
            Fun::Conditional => match <[Node; 3]>::try_from(operands) {
                Ok([condition, yes, no]) => Ok(Node::Conditional(Box::new([condition, unobserved(yes), unobserved(no)]))),
                Err(_) => Err(Refusal::new(CompileErrorKind::NoOverload, expr.pos, "malformed conditional")),
            },
            Fun::Index | Fun::OptSelect | Fun::OptIndex => {
                if let Some(Node::Const(key)) = operands.get(1)
                    && !is_key(key)
                {
                    return Err(not_instantiated(expr, format!("invalid qualifier type: {}", key.type_name())));
                }
                pair(operands, if fun == Fun::Index { index_node } else { optional_node })
            }
            Fun::Or_ | Fun::OrValue => pair(operands, |optional, other| Node::Alternative {
                optional: Box::new(optional),
                other: Box::new(other),
                unwrap: fun == Fun::OrValue,
            }),
            Fun::In => pair(operands, |value, container| in_node(value, container, self.sole_rule(expr))),
            Fun::Matches | Fun::Find | Fun::FindAll => self.search(expr, fun, operands),
            Fun::Quantity | Fun::Semver | Fun::Ip | Fun::Cidr | Fun::Url => Ok(self.parsed_once(expr, fun, operands)),
            _ => Ok(self.plain_call(expr, fun, operands)),
        }
    }

    fn sole_rule(&self, expr: &Expr) -> Option<Cost> {
        match self.checked.overloads(expr) {
            [overload] => Some(overload.cost),
            _ => None,
        }
    }

    fn plain_call(&self, expr: &Expr, fun: Fun, args: Vec<Node>) -> Node {
        let sole = self.sole_rule(expr);
        Node::Call {
            fun,
            sole,
            stops_early: stops_early(fun, args.len(), sole.is_some()),
            args,
        }
    }

    /// Parses a constant text once. One that is invalid is left to fail when it is evaluated, as upstream has it.
    fn parsed_once(&self, expr: &Expr, fun: Fun, operands: Vec<Node>) -> Node {
        let constant = |node: &Node| {
            if let Node::Const(value) = node {
                Some(value.clone())
            } else {
                None
            }
        };
        let values: Option<Vec<Value>> = operands.iter().map(constant).collect();
        let mut meter = Meter::new(u64::MAX);
        let parsed = values.and_then(|values| {
            let call_of = Called {
                fun,
                sole: self.sole_rule(expr),
                args: &values,
            };
            call(&mut meter, &mut Patterns::default(), &call_of).ok()
        });
        match parsed {
            Some(value) => Node::Costed {
                value,
                cost: meter.cost(),
            },
            None => self.plain_call(expr, fun, operands),
        }
    }

    fn list(&mut self, elements: &[Element]) -> Result<Node, Refusal> {
        let mut nodes = Vec::with_capacity(elements.len());
        for element in elements {
            nodes.push((self.node(&element.value)?, element.optional));
        }
        if !nodes
            .iter()
            .all(|(node, optional)| matches!(node, Node::Const(_)) && !optional)
        {
            return Ok(Node::List(nodes));
        }
        Ok(Node::Const(Value::list(
            nodes.into_iter().filter_map(|(node, _)| node.into_constant()).collect(),
        )))
    }

    fn map(&mut self, entries: &[Entry]) -> Result<Node, Refusal> {
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            nodes.push((self.node(&entry.key)?, self.node(&entry.value)?, entry.optional));
        }
        let constant = nodes
            .iter()
            .all(|(key, value, optional)| matches!((key, value), (Node::Const(key), Node::Const(_)) if is_key(key)) && !optional);
        if !constant {
            return Ok(Node::Map(nodes));
        }
        let mut map = Map::default();
        for (key, value, _) in nodes {
            if let (Some(key), Some(value)) = (key.into_constant(), value.into_constant()) {
                map.insert(key, value);
            }
        }
        Ok(Node::Const(Value::Map(Arc::new(map))))
    }

    /// Compiles a constant pattern once.
    fn search(&mut self, expr: &Expr, fun: Fun, mut operands: Vec<Node>) -> Result<Node, Refusal> {
        let Some(Node::Const(pattern @ Value::String(text))) = operands.get(1) else {
            return Ok(self.plain_call(expr, fun, operands));
        };
        let pattern_size = pattern.size();
        let built = crate::regex::prepare(text).and_then(|prepared| {
            self.pattern_states = self.pattern_states.saturating_add(prepared.states);
            if self.pattern_states > PATTERN_STATES_MAX {
                Err("patterns too large".to_owned())
            } else {
                prepared.build()
            }
        });
        let regex = built.map_err(|message| match fun {
            Fun::Matches => Refusal::new(
                CompileErrorKind::BadLiteral,
                expr.pos,
                format!("invalid matches argument: {message}"),
            ),
            _ => not_instantiated(expr, message),
        })?;
        let limit = (operands.len() > 2).then(|| Box::new(operands.swap_remove(2)));
        let text = Box::new(operands.swap_remove(0));
        Ok(Node::Search {
            fun,
            text,
            pattern_size,
            regex,
            limit,
        })
    }

    fn slot(&mut self, name: &Arc<str>) -> usize {
        self.scope.push((Arc::clone(name), self.slots));
        self.slots += 1;
        self.slots - 1
    }

    fn bind(&mut self, c: &Comprehension) -> Result<Node, Refusal> {
        self.no_type_variable(&c.step, &c.accu)?;
        let init = self.boxed(&c.init)?;
        let slot = self.slot(&c.accu);
        let body = self.boxed(&c.result)?;
        self.scope.pop();
        Ok(Node::Bind { slot, init, body })
    }

    /// Takes a loop apart again: its macro says which part of the step the user wrote.
    fn fold(&mut self, c: &Comprehension) -> Result<Node, Refusal> {
        let range = self.node(&c.range)?;
        let depth = self.scope.len();
        let slot = self.slot(&c.var);
        let slot2 = c.var2.as_ref().map(|name| self.slot(name));
        let malformed = || Refusal::new(CompileErrorKind::Macro, c.step.pos, "malformed macro expansion");
        let (test, step) = match c.of {
            Macro::Collect { filtered: true } | Macro::Insert { filtered: true } | Macro::InsertEntries { filtered: true } => {
                (argument(&c.step, 0), argument(&c.step, 1))
            }
            _ => (None, Some(&c.step)),
        };
        let test = test.map(|test| self.node(test)).transpose()?;
        let user_part = match c.of {
            Macro::All | Macro::Exists | Macro::InsertEntries { .. } => step.and_then(|s| argument(s, 1)),
            Macro::ExistsOne => step.and_then(|s| argument(s, 0)),
            Macro::Insert { .. } => step.and_then(|s| argument(s, 2)),
            Macro::Collect { .. } => step.and_then(|s| argument(s, 1)).and_then(only_element),
            Macro::Bind => None,
        };
        let step = self.node(user_part.ok_or_else(malformed)?)?;
        self.scope.truncate(depth);
        Ok(Node::Fold(Box::new(Fold {
            of: c.of,
            range,
            slot,
            slot2,
            test,
            step,
        })))
    }
}

impl Node {
    fn into_constant(self) -> Option<Value> {
        match self {
            Self::Const(value) => Some(value),
            _ => None,
        }
    }
}

fn argument(call: &Expr, n: usize) -> Option<&Expr> {
    match &call.kind {
        ExprKind::Call { args, .. } => args.get(n),
        _ => None,
    }
}

fn only_element(list: &Expr) -> Option<&Expr> {
    match &list.kind {
        ExprKind::List { elements } => elements.first().map(|e| &e.value),
        _ => None,
    }
}

fn constant(literal: &Literal) -> Value {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(b) => Value::Bool(*b),
        Literal::Int(n) => Value::Int(*n),
        Literal::Uint(n) => Value::Uint(*n),
        Literal::Double(d) => Value::Double(*d),
        Literal::String(text) => Value::String(Arc::clone(text)),
        Literal::Bytes(bytes) => Value::Bytes(Arc::clone(bytes)),
    }
}

fn type_constant(expr: &Expr, named: &Type) -> Result<Node, Refusal> {
    let name = match named {
        Type::List(_) => "list",
        Type::Map(_) => "map",
        Type::Null => "null_type",
        Type::Optional(_) => "optional_type",
        Type::Of(_) => "type",
        Type::Bool => "bool",
        Type::Int => "int",
        Type::Uint => "uint",
        Type::Double => "double",
        Type::String => "string",
        Type::Bytes => "bytes",
        Type::Duration => "google.protobuf.Duration",
        Type::Timestamp => "google.protobuf.Timestamp",
        Type::Ip => "net.IP",
        Type::Cidr => "net.CIDR",
        other => {
            return Err(not_instantiated(expr, format!("unknown type: {other}")));
        }
    };
    Ok(Node::Const(Value::Type(name)))
}

fn is_conversion(fun: Fun) -> bool {
    matches!(
        fun,
        Fun::ToInt
            | Fun::ToUint
            | Fun::ToDouble
            | Fun::ToString
            | Fun::ToBool
            | Fun::ToBytes
            | Fun::ToDuration
            | Fun::ToTimestamp
            | Fun::Dyn
            | Fun::TypeOf
    )
}

fn not_instantiated(expr: &Expr, cause: impl std::fmt::Display) -> Refusal {
    let message = format!("program instantiation failed: {cause}");
    Refusal::new(CompileErrorKind::ConstantFolding, expr.pos, message)
}

fn fold_constant(expr: &Expr, fun: Fun, operands: Vec<Node>) -> Result<Node, Refusal> {
    let values: Vec<Value> = operands.into_iter().filter_map(Node::into_constant).collect();
    let folded = values
        .first()
        .map_or(Ok(Value::Null), |value| crate::call::convert(fun, value));
    folded.map(Node::Const).map_err(|error| not_instantiated(expr, error))
}

/// Hands the two operands of a binary operation on.
fn pair(operands: Vec<Node>, make: impl FnOnce(Node, Node) -> Node) -> Result<Node, Refusal> {
    let [a, b]: [Node; 2] = match operands.try_into() {
        Ok(pair) => pair,
        Err(_) => return Err(Refusal::new(CompileErrorKind::NoOverload, 0, "malformed call")),
    };
    Ok(make(a, b))
}

/// What a selection on `operand` starts from.
fn base(operand: &Node) -> Base {
    match operand {
        Node::Slot(_) | Node::Device | Node::DeviceField(_) | Node::Domain { .. } | Node::Fact(_) | Node::OptFact(_) => {
            Base::Variable
        }
        Node::Conditional(_) => Base::Conditional,
        Node::Select { base, .. } | Node::Index { base, .. } | Node::OptSelect { base, .. } if *base == Base::Conditional => {
            Base::Conditional
        }
        // However such a path started, it is one.
        Node::Select { .. } | Node::Index { .. } | Node::OptSelect { .. } => Base::Variable,
        _ => Base::Value,
    }
}

/// A node in a place where upstream does not count the end of a path.
fn unobserved(node: Node) -> Node {
    match base(&node) {
        Base::Variable => Node::Unobserved(Box::new(node)),
        Base::Value | Base::Conditional => node,
    }
}

/// True if upstream gives up a call at the first operand that fails: calls with three operands or more, and those of two
/// that it cannot bind to a binary implementation.
fn stops_early(fun: Fun, operands: usize, sole: bool) -> bool {
    let dispatched = matches!(
        fun,
        Fun::IndexOf
            | Fun::LastIndexOf
            | Fun::ContainsIp
            | Fun::ContainsCidr
            | Fun::AddQuantity
            | Fun::SubQuantity
            | Fun::IsGreaterThan
            | Fun::IsLessThan
            | Fun::CompareTo
    );
    operands > 2 || fun == Fun::Format || (dispatched && !sole)
}

/// Recognises `device.driver`, `device.attributes["d"].x` and the like.
fn device_access(operand: &Node, field: &Arc<str>, test: bool) -> Option<Node> {
    match operand {
        Node::Device if !test => Some(Node::DeviceField(match &**field {
            "driver" => Field::Driver,
            "attributes" => Field::All(Facts::Attributes),
            "capacity" => Field::All(Facts::Capacity),
            "allowMultipleAllocations" => Field::MultipleAllocations,
            _ => return None,
        })),
        Node::DeviceField(Field::All(of)) if !test => Some(Node::Domain {
            of: *of,
            domain: Arc::clone(field),
        }),
        Node::Domain { of, domain } => {
            let fact = FactRef::new(*of, domain, field);
            Some(if test {
                Node::HasFact { fact, cost: HAS_COST }
            } else {
                Node::Fact(fact)
            })
        }
        _ => None,
    }
}

impl FactRef {
    fn new(of: Facts, domain: &Arc<str>, id: &Arc<str>) -> Self {
        let qualified = format!("{domain}/{id}");
        Self {
            of,
            domain: Arc::clone(domain),
            id: Arc::clone(id),
            qualified,
        }
    }
}

fn index_node(operand: Node, key: Node) -> Node {
    if let Node::Const(Value::String(name)) = &key
        && !matches!(operand, Node::Device)
        && let Some(node) = device_access(&operand, name, false)
    {
        return node;
    }
    let base = base(&operand);
    Node::Index {
        operand: Box::new(operand),
        key: Box::new(unobserved(key)),
        base,
    }
}

fn optional_node(operand: Node, key: Node) -> Node {
    if let (Node::Domain { of, domain }, Node::Const(Value::String(id))) = (&operand, &key) {
        return Node::OptFact(FactRef::new(*of, domain, id));
    }
    let base = base(&operand);
    Node::OptSelect {
        operand: Box::new(operand),
        key: Box::new(unobserved(key)),
        base,
    }
}

/// True for values that can be keys of maps and by which something can be selected.
pub(crate) fn is_key(value: &Value) -> bool {
    value.is_number() || matches!(value, Value::String(_) | Value::Bool(_))
}

/// Membership in a constant list of simple values becomes a lookup.
fn in_node(value: Node, container: Node, sole: Option<Cost>) -> Node {
    if let (Node::Const(Value::String(id)), Node::Domain { of, domain }) = (&value, &container) {
        return Node::HasFact {
            fact: FactRef::new(*of, domain, id),
            cost: 4,
        };
    }
    let is_list = sole == Some(Cost::InList);
    match container {
        // Upstream does not evaluate the value then.
        Node::Const(Value::List(list)) if is_list && list.is_empty() => Node::Const(Value::Bool(false)),
        Node::Const(Value::List(list)) if is_list && list.iter().all(is_key) => {
            let mut set = list.to_vec();
            set.sort_by(key_order);
            Node::InSet {
                value: Box::new(value),
                set,
            }
        }
        container => Node::Call {
            fun: Fun::In,
            sole,
            stops_early: false,
            args: vec![value, container],
        },
    }
}
