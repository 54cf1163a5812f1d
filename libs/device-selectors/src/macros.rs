//! Macro expansion. A call whose name, style and argument count fit a macro becomes a loop; everything else
//! stays a call. The shapes are upstream's, because the cost of an expression is defined over them.

use std::sync::Arc;

use crate::ast::{ACCUMULATOR, Comprehension, Element, Entry, Expr, ExprKind, Literal, Macro, op};
use crate::depth::guarded;
use crate::error::{CompileErrorKind, Refusal};
use crate::parse::Nodes;

/// Name of the loop variable of `cel.bind`, which never gets a value.
const UNUSED: &str = "#unused";
/// Name `sortBy` binds its receiver to; no user can write it.
const SORT_INPUT: &str = "@__sortBy_input__";

/// `name(args)`: only `has` is a macro here.
pub(crate) fn global_call(nodes: &mut Nodes, pos: u32, name: &str, mut args: Vec<Expr>) -> Result<Expr, Refusal> {
    if name != "has" || args.len() != 1 {
        return nodes.node(
            pos,
            ExprKind::Call {
                function: name.into(),
                target: None,
                args,
            },
        );
    }
    match args.swap_remove(0).kind {
        ExprKind::Select {
            operand,
            field,
            test: false,
        } => nodes.node(
            pos,
            ExprKind::Select {
                operand,
                field,
                test: true,
            },
        ),
        _ => Err(Refusal::new(CompileErrorKind::Macro, pos, "invalid argument to has() macro")),
    }
}

/// `target.name(args)`.
pub(crate) fn member_call(nodes: &mut Nodes, pos: u32, target: Expr, name: &Arc<str>, args: Vec<Expr>) -> Result<Expr, Refusal> {
    let mut expansion = Expansion { nodes, pos };
    let tallest = args.iter().chain([&target]).map(|e| e.height).max().unwrap_or(0);
    let mut expanded = match (&**name, args.len()) {
        ("all", 2 | 3) => expansion.quantifier(Macro::All, target, args),
        ("exists", 2 | 3) => expansion.quantifier(Macro::Exists, target, args),
        ("exists_one", 2 | 3) | ("existsOne", 3) => expansion.quantifier(Macro::ExistsOne, target, args),
        ("map", 2 | 3) => expansion.collect(target, args, 1),
        ("filter", 2) => expansion.filter(target, args),
        ("transformList", 3 | 4) => expansion.collect(target, args, 2),
        ("transformMap", 3 | 4) => expansion.transform_map(target, args),
        ("transformMapEntry", 3 | 4) => expansion.transform_entries(target, args),
        ("sortBy", 2) => expansion.sort_by(target, args),
        ("optMap", 2) => expansion.opt_map(target, args, true),
        ("optFlatMap", 2) => expansion.opt_map(target, args, false),
        ("bind", 3) if matches!(&target.kind, ExprKind::Ident(cel) if &**cel == "cel") => {
            let [var, init, body] = exactly(args);
            let var = expansion.variable(&var)?;
            expansion.bind(var, init, body)
        }
        _ => {
            let kind = ExprKind::Call {
                function: Arc::clone(name),
                target: Some(Box::new(target)),
                args,
            };
            return expansion.nodes.node(pos, kind);
        }
    }?;
    expanded.height = tallest + 1;
    nodes.within_limit(expanded)
}

/// The arguments as an array; the caller has matched their number.
fn exactly<const N: usize>(args: Vec<Expr>) -> [Expr; N] {
    match args.try_into() {
        Ok(array) => array,
        Err(_) => unreachable!("the number of macro arguments was matched before"),
    }
}

struct Expansion<'a> {
    nodes: &'a mut Nodes,
    pos: u32,
}

/// Range and variables of one loop.
struct Loop {
    range: Expr,
    var: Arc<str>,
    var2: Option<Arc<str>>,
}

impl Expansion<'_> {
    fn make(&mut self, kind: ExprKind) -> Result<Expr, Refusal> {
        self.nodes.expanded(self.pos, kind)
    }

    fn ident(&mut self, name: &str) -> Result<Expr, Refusal> {
        self.make(ExprKind::Ident(name.into()))
    }

    fn accu(&mut self) -> Result<Expr, Refusal> {
        self.ident(ACCUMULATOR)
    }

    fn literal(&mut self, literal: Literal) -> Result<Expr, Refusal> {
        self.make(ExprKind::Literal(literal))
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Result<Expr, Refusal> {
        self.make(ExprKind::Call {
            function: function.into(),
            target: None,
            args,
        })
    }

    fn method(&mut self, target: Expr, function: &str) -> Result<Expr, Refusal> {
        self.make(ExprKind::Call {
            function: function.into(),
            target: Some(Box::new(target)),
            args: Vec::new(),
        })
    }

    fn list(&mut self, values: Vec<Expr>) -> Result<Expr, Refusal> {
        let elements = values.into_iter().map(|value| Element { value, optional: false }).collect();
        self.make(ExprKind::List { elements })
    }

    fn error<T>(&self, message: &str) -> Result<T, Refusal> {
        Err(Refusal::new(CompileErrorKind::Macro, self.pos, message))
    }

    /// A plain name that is not the accumulator's.
    fn variable(&self, expr: &Expr) -> Result<Arc<str>, Refusal> {
        match &expr.kind {
            ExprKind::Ident(name) if &**name != ACCUMULATOR => Ok(Arc::clone(name)),
            ExprKind::Ident(_) => self.error("iteration variable overwrites accumulator variable"),
            _ => self.error("argument must be a simple name"),
        }
    }

    fn variables(&self, range: Expr, first: &Expr, second: Option<&Expr>) -> Result<Loop, Refusal> {
        let var = self.variable(first)?;
        let var2 = second.map(|e| self.variable(e)).transpose()?;
        if var2.as_ref() == Some(&var) {
            return self.error(&format!("duplicate iteration variable: {var}"));
        }
        Ok(Loop { range, var, var2 })
    }

    fn comprehension(&mut self, of: Macro, over: Loop, [init, condition, step, result]: [Expr; 4]) -> Result<Expr, Refusal> {
        let Loop { range, var, var2 } = over;
        let accu = ACCUMULATOR.into();
        let loop_ = Comprehension {
            of,
            range,
            var,
            var2,
            accu,
            init,
            condition,
            step,
            result,
        };
        self.make(ExprKind::Comprehension(Box::new(loop_)))
    }

    /// `all`, `exists` and `exists_one` with one or two variables.
    fn quantifier(&mut self, of: Macro, range: Expr, mut args: Vec<Expr>) -> Result<Expr, Refusal> {
        let test = args.remove(args.len() - 1);
        let over = self.variables(range, &args[0], args.get(1))?;
        let parts = match of {
            Macro::All => self.all_parts(test)?,
            Macro::Exists => self.exists_parts(test)?,
            _ => self.exists_one_parts(test)?,
        };
        self.comprehension(of, over, parts)
    }

    fn all_parts(&mut self, test: Expr) -> Result<[Expr; 4], Refusal> {
        let accu = self.accu()?;
        let condition = self.call(op::NOT_STRICTLY_FALSE, vec![accu])?;
        let accu = self.accu()?;
        let step = self.call(op::AND, vec![accu, test])?;
        Ok([self.literal(Literal::Bool(true))?, condition, step, self.accu()?])
    }

    fn exists_parts(&mut self, test: Expr) -> Result<[Expr; 4], Refusal> {
        let accu = self.accu()?;
        let none_yet = self.call(op::NOT, vec![accu])?;
        let condition = self.call(op::NOT_STRICTLY_FALSE, vec![none_yet])?;
        let accu = self.accu()?;
        let step = self.call(op::OR, vec![accu, test])?;
        Ok([self.literal(Literal::Bool(false))?, condition, step, self.accu()?])
    }

    fn exists_one_parts(&mut self, test: Expr) -> Result<[Expr; 4], Refusal> {
        let (accu, one) = (self.accu()?, self.literal(Literal::Int(1))?);
        let more = self.call(op::ADD, vec![accu, one])?;
        let same = self.accu()?;
        let step = self.call(op::CONDITIONAL, vec![test, more, same])?;
        let (accu, one) = (self.accu()?, self.literal(Literal::Int(1))?);
        let result = self.call(op::EQ, vec![accu, one])?;
        Ok([
            self.literal(Literal::Int(0))?,
            self.literal(Literal::Bool(true))?,
            step,
            result,
        ])
    }

    /// A loop that runs over the whole range and changes its accumulator by `step`, if `test` allows.
    fn build(&mut self, of: Macro, over: Loop, init: Expr, step: Expr, test: Option<Expr>) -> Result<Expr, Refusal> {
        let step = match test {
            None => step,
            Some(test) => {
                let same = self.accu()?;
                self.call(op::CONDITIONAL, vec![test, step, same])?
            }
        };
        let parts = [init, self.literal(Literal::Bool(true))?, step, self.accu()?];
        self.comprehension(of, over, parts)
    }

    /// `map(x, [p,] e)` with one variable, `transformList(i, v, [p,] e)` with two.
    fn collect(&mut self, range: Expr, mut args: Vec<Expr>, vars: usize) -> Result<Expr, Refusal> {
        let value = args.remove(args.len() - 1);
        let test = (args.len() > vars).then(|| args.remove(vars));
        let over = self.variables(range, &args[0], args.get(1))?;
        self.append(over, value, test)
    }

    fn filter(&mut self, range: Expr, args: Vec<Expr>) -> Result<Expr, Refusal> {
        let [var, test] = exactly(args);
        let over = self.variables(range, &var, None)?;
        self.append(over, var, Some(test))
    }

    fn append(&mut self, over: Loop, value: Expr, test: Option<Expr>) -> Result<Expr, Refusal> {
        let of = Macro::Collect {
            filtered: test.is_some(),
        };
        let init = self.list(Vec::new())?;
        let (accu, one) = (self.accu()?, self.list(vec![value])?);
        let step = self.call(op::ADD, vec![accu, one])?;
        self.build(of, over, init, step, test)
    }

    fn transform_map(&mut self, range: Expr, mut args: Vec<Expr>) -> Result<Expr, Refusal> {
        let value = args.remove(args.len() - 1);
        let test = (args.len() > 2).then(|| args.remove(2));
        let over = self.variables(range, &args[0], args.get(1))?;
        let of = Macro::Insert {
            filtered: test.is_some(),
        };
        let init = self.make(ExprKind::Map { entries: Vec::new() })?;
        let (accu, key) = (self.accu()?, self.ident(&over.var.clone())?);
        let step = self.call(op::MAP_INSERT, vec![accu, key, value])?;
        self.build(of, over, init, step, test)
    }

    fn transform_entries(&mut self, range: Expr, mut args: Vec<Expr>) -> Result<Expr, Refusal> {
        let entries = args.remove(args.len() - 1);
        let test = (args.len() > 2).then(|| args.remove(2));
        let over = self.variables(range, &args[0], args.get(1))?;
        let of = Macro::InsertEntries {
            filtered: test.is_some(),
        };
        let init = self.make(ExprKind::Map { entries: Vec::new() })?;
        let accu = self.accu()?;
        let step = self.call(op::MAP_INSERT, vec![accu, entries])?;
        self.build(of, over, init, step, test)
    }

    /// `body` with `var` standing for `init`: a loop over nothing whose accumulator has the user's name.
    fn bind(&mut self, var: Arc<str>, init: Expr, body: Expr) -> Result<Expr, Refusal> {
        let range = self.list(Vec::new())?;
        let condition = self.literal(Literal::Bool(false))?;
        let step = self.ident(&var)?;
        let unused = UNUSED.into();
        let of = Macro::Bind;
        let loop_ = Comprehension {
            of,
            range,
            var: unused,
            var2: None,
            accu: var,
            init,
            condition,
            step,
            result: body,
        };
        self.make(ExprKind::Comprehension(Box::new(loop_)))
    }

    /// `bind(input, receiver, @sort(input, input.map(x, key)))`.
    fn sort_by(&mut self, target: Expr, args: Vec<Expr>) -> Result<Expr, Refusal> {
        if matches!(target.kind, ExprKind::Literal(_) | ExprKind::Map { .. }) {
            return self.error("sortBy can only be applied to a list, identifier, comprehension, call or select expression");
        }
        let input = self.ident(SORT_INPUT)?;
        let keys = self.collect(input, args, 1)?;
        let input = self.ident(SORT_INPUT)?;
        let kind = ExprKind::Call {
            function: op::SORT_BY.into(),
            target: Some(Box::new(input)),
            args: vec![keys],
        };
        let sorted = self.make(kind)?;
        self.bind(SORT_INPUT.into(), target, sorted)
    }

    /// `o.hasValue() ? optional.of(bind(v, o.value(), e)) : optional.none()`; the flat form without the wrapping.
    fn opt_map(&mut self, target: Expr, args: Vec<Expr>, wrap: bool) -> Result<Expr, Refusal> {
        let [var, body] = exactly(args);
        let var = self.variable(&var)?;
        let again = self.copy(&target)?;
        let test = self.method(target, "hasValue")?;
        let value = self.method(again, "value")?;
        let mut mapped = self.bind(var, value, body)?;
        if wrap {
            mapped = self.call("optional.of", vec![mapped])?;
        }
        let none = self.call("optional.none", Vec::new())?;
        self.call(op::CONDITIONAL, vec![test, mapped, none])
    }

    /// A copy with ids of its own. Counts against the limit of nodes, as chains of copies double.
    fn copy(&mut self, expr: &Expr) -> Result<Expr, Refusal> {
        guarded(|| self.copy_node(expr))
    }

    fn copy_node(&mut self, expr: &Expr) -> Result<Expr, Refusal> {
        let kind = match &expr.kind {
            ExprKind::Literal(literal) => ExprKind::Literal(literal.clone()),
            ExprKind::Ident(name) => ExprKind::Ident(Arc::clone(name)),
            ExprKind::Select { operand, field, test } => ExprKind::Select {
                operand: self.copy_boxed(operand)?,
                field: Arc::clone(field),
                test: *test,
            },
            ExprKind::Call { function, target, args } => ExprKind::Call {
                function: Arc::clone(function),
                target: target.as_ref().map(|t| self.copy_boxed(t)).transpose()?,
                args: args.iter().map(|a| self.copy(a)).collect::<Result<_, _>>()?,
            },
            ExprKind::List { elements } => ExprKind::List {
                elements: self.copy_elements(elements)?,
            },
            ExprKind::Map { entries } => ExprKind::Map {
                entries: self.copy_entries(entries)?,
            },
            ExprKind::Comprehension(c) => ExprKind::Comprehension(self.copy_comprehension(c)?),
        };
        let mut copy = self.nodes.expanded(expr.pos, kind)?;
        copy.height = expr.height;
        Ok(copy)
    }

    fn copy_boxed(&mut self, expr: &Expr) -> Result<Box<Expr>, Refusal> {
        Ok(Box::new(self.copy(expr)?))
    }

    fn copy_elements(&mut self, elements: &[Element]) -> Result<Vec<Element>, Refusal> {
        elements
            .iter()
            .map(|e| {
                Ok(Element {
                    value: self.copy(&e.value)?,
                    optional: e.optional,
                })
            })
            .collect()
    }

    fn copy_entries(&mut self, entries: &[Entry]) -> Result<Vec<Entry>, Refusal> {
        let copy = |e: &Entry| {
            Ok(Entry {
                key: self.copy(&e.key)?,
                value: self.copy(&e.value)?,
                optional: e.optional,
            })
        };
        entries.iter().map(copy).collect()
    }

    fn copy_comprehension(&mut self, c: &Comprehension) -> Result<Box<Comprehension>, Refusal> {
        Ok(Box::new(Comprehension {
            of: c.of,
            range: self.copy(&c.range)?,
            var: Arc::clone(&c.var),
            var2: c.var2.clone(),
            accu: Arc::clone(&c.accu),
            init: self.copy(&c.init)?,
            condition: self.copy(&c.condition)?,
            step: self.copy(&c.step)?,
            result: self.copy(&c.result)?,
        }))
    }
}
