//! The syntax tree after macro expansion: the checker, the cost estimate and the lowering all read it.
//!
//! Every node has a number, unique within its tree, so that passes can keep side tables in plain vectors.

use std::sync::Arc;

/// One node.
#[derive(Debug)]
pub(crate) struct Expr {
    /// Unique within the tree, dense from 0.
    pub(crate) id: u32,
    /// Byte offset in the source, for messages.
    pub(crate) pos: u32,
    /// Levels below this node as the user wrote them (a macro counts as one).
    pub(crate) height: u16,
    pub(crate) kind: ExprKind,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Ident(Arc<str>),
    /// `operand.field`; with `test`, `has(operand.field)`.
    Select {
        operand: Box<Expr>,
        field: Arc<str>,
        test: bool,
    },
    /// Function or operator; `&&` and `||` have two or more arguments, all others what was written.
    Call {
        function: Arc<str>,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    List {
        elements: Vec<Element>,
    },
    Map {
        entries: Vec<Entry>,
    },
    Comprehension(Box<Comprehension>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) value: Expr,
    /// Written with `?`: an empty optional leaves the element out.
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// Which macro a comprehension came from. The expansion decides types and cost, the macro how it is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Macro {
    All,
    Exists,
    ExistsOne,
    /// `map`, `filter` and `transformList`: the step appends one element, perhaps under a condition.
    Collect {
        filtered: bool,
    },
    /// `transformMap`: the step inserts (key, value), perhaps under a condition.
    Insert {
        filtered: bool,
    },
    /// `transformMapEntry`: the step inserts a map literal, perhaps under a condition.
    InsertEntries {
        filtered: bool,
    },
    /// `cel.bind` and everything built on it: `accu` is a name for `init`, the range is empty.
    Bind,
}

/// The general loop all macros expand to.
#[derive(Debug)]
pub(crate) struct Comprehension {
    pub(crate) of: Macro,
    pub(crate) range: Expr,
    pub(crate) var: Arc<str>,
    pub(crate) var2: Option<Arc<str>>,
    pub(crate) accu: Arc<str>,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

/// Names of operators as functions; none can be written by a user.
pub(crate) mod op {
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const EQ: &str = "_==_";
    pub(crate) const NE: &str = "_!=_";
    pub(crate) const LT: &str = "_<_";
    pub(crate) const LE: &str = "_<=_";
    pub(crate) const GT: &str = "_>_";
    pub(crate) const GE: &str = "_>=_";
    pub(crate) const IN: &str = "@in";
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const SUB: &str = "_-_";
    pub(crate) const MUL: &str = "_*_";
    pub(crate) const DIV: &str = "_/_";
    pub(crate) const REM: &str = "_%_";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const OPT_INDEX: &str = "_[?_]";
    pub(crate) const OPT_SELECT: &str = "_?._";
    pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
    pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";
    pub(crate) const SORT_BY: &str = "@sortByAssociatedKeys";
}

/// Name of the accumulator variable of every loop; not usable as a variable of a macro.
pub(crate) const ACCUMULATOR: &str = "__result__";

impl Expr {
    /// The dotted name this expression spells, if it is only identifiers and selections.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.to_string()),
            ExprKind::Select {
                operand,
                field,
                test: false,
            } => {
                let mut name = operand.qualified_name()?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }

    /// Calls `visit` for every direct child, in source order.
    pub(crate) fn for_children<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        match &self.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => visit(operand),
            ExprKind::Call { target, args, .. } => {
                target.iter().for_each(|t| visit(t));
                args.iter().for_each(visit);
            }
            ExprKind::List { elements } => elements.iter().for_each(|e| visit(&e.value)),
            ExprKind::Map { entries } => entries.iter().for_each(|e| {
                visit(&e.key);
                visit(&e.value);
            }),
            ExprKind::Comprehension(c) => {
                [&c.range, &c.init, &c.condition, &c.step, &c.result]
                    .into_iter()
                    .for_each(visit);
            }
        }
    }
}
