//! Static type check: gives every node a type and every call its overloads, or refuses the expression.
//!
//! Gradual typing as in cel-go: `dyn` and `any` fit every overload; several fitting overloads with different
//! results give `dyn`. The first mistake ends the check, in the order a reader meets them.

use std::sync::Arc;

use crate::ast::{Comprehension, Element, Entry, Expr, ExprKind, Literal, op};
use crate::depth::guarded;
use crate::error::{CompileErrorKind, Refusal};
use crate::functions::{self, Fun, Overload};
use crate::types::{Bindings, Type};

/// What an environment allows; see [`crate::Mode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    /// Attribute values are `dyn` (lists possible) instead of `any`; `includes` exists.
    pub(crate) list_attributes: bool,
    /// `device.allowMultipleAllocations` exists.
    pub(crate) multiple_allocations: bool,
}

impl Environment {
    pub(crate) fn attribute_type(self) -> Type {
        if self.list_attributes { Type::Dyn } else { Type::Any }
    }
}

/// The outcome, indexed by node id.
pub(crate) struct Checked {
    types: Vec<Type>,
    resolutions: Vec<Resolution>,
}

/// What a name or call means.
#[derive(Clone, Debug, Default)]
pub(crate) enum Resolution {
    /// Nothing to resolve, or a variable.
    #[default]
    None,
    /// The name of a type used as a value.
    TypeName(Type),
    /// A call; `global` also when written with dots (`sets.contains(…)`), whose prefix is then no operand.
    Call {
        overloads: Vec<&'static Overload>,
        global: bool,
    },
}

impl Checked {
    pub(crate) fn type_of(&self, expr: &Expr) -> &Type {
        self.types.get(expr.id as usize).unwrap_or(&Type::Dyn)
    }

    pub(crate) fn resolution(&self, expr: &Expr) -> &Resolution {
        self.resolutions.get(expr.id as usize).unwrap_or(&Resolution::None)
    }

    /// Overloads of a call; empty for other nodes.
    pub(crate) fn overloads(&self, expr: &Expr) -> &[&'static Overload] {
        match self.resolution(expr) {
            Resolution::Call { overloads, .. } => overloads,
            _ => &[],
        }
    }

    /// What the call does when it runs.
    pub(crate) fn fun(&self, expr: &Expr) -> Option<Fun> {
        self.overloads(expr).first().map(|o| o.fun)
    }

    /// The receiver of a member call; the prefix of a dotted global function is none.
    pub(crate) fn receiver<'a>(&self, call: &Expr, target: Option<&'a Expr>) -> Option<&'a Expr> {
        match self.resolution(call) {
            Resolution::Call { global: true, .. } => None,
            _ => target,
        }
    }
}

/// Checks the whole expression.
pub(crate) fn check(expr: &Expr, env: Environment) -> Result<Checked, Refusal> {
    let mut checker = Checker {
        env,
        bindings: Bindings::default(),
        scope: vec![("device".into(), Type::Device)],
        types: Vec::new(),
        resolutions: Vec::new(),
    };
    checker.check(expr)?;
    let mut types = std::mem::take(&mut checker.types);
    for t in &mut types {
        *t = checker.bindings.substitute(t, true);
    }
    checker.within_budget(expr)?;
    Ok(Checked {
        types,
        resolutions: checker.resolutions,
    })
}

struct Checker {
    env: Environment,
    bindings: Bindings,
    /// Variables in sight, innermost last.
    scope: Vec<(Arc<str>, Type)>,
    types: Vec<Type>,
    resolutions: Vec<Resolution>,
}

fn refuse<T>(kind: CompileErrorKind, pos: u32, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(kind, pos, message))
}

impl Checker {
    fn within_budget(&self, expr: &Expr) -> Result<(), Refusal> {
        if !self.bindings.exhausted() {
            return Ok(());
        }
        refuse(
            CompileErrorKind::TooDeep,
            expr.pos,
            "the types of the expression are too large to check",
        )
    }

    fn set<T: Clone + Default>(table: &mut Vec<T>, id: u32, value: T) {
        let index = id as usize;
        if table.len() <= index {
            table.resize(index + 1, T::default());
        }
        table[index] = value;
    }

    /// Checks one node and returns its type, with what is known so far put in.
    fn check(&mut self, expr: &Expr) -> Result<Type, Refusal> {
        let found = guarded(|| self.type_of_node(expr))?;
        self.within_budget(expr)?;
        Self::set(&mut self.types, expr.id, found.clone());
        Ok(found)
    }

    fn type_of_node(&mut self, expr: &Expr) -> Result<Type, Refusal> {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(literal_type(literal)),
            ExprKind::Ident(name) => self.ident(expr, name),
            ExprKind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            ExprKind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List { elements } => self.list(elements),
            ExprKind::Map { entries } => self.map(entries),
            ExprKind::Comprehension(c) => self.comprehension(c),
        }
    }

    fn lookup(&self, name: &str) -> Option<Type> {
        self.scope.iter().rev().find(|(n, _)| **n == *name).map(|(_, t)| t.clone())
    }

    fn ident(&mut self, expr: &Expr, name: &str) -> Result<Type, Refusal> {
        if let Some(found) = self.lookup(name) {
            return Ok(found);
        }
        match self.type_name(expr, name) {
            Some(found) => Ok(found),
            None => refuse(
                CompileErrorKind::Undeclared,
                expr.pos,
                format!("undeclared reference to '{name}'"),
            ),
        }
    }

    /// Resolves `name` as the name of a type.
    fn type_name(&mut self, expr: &Expr, name: &str) -> Option<Type> {
        let named = type_named(name)?;
        Self::set(&mut self.resolutions, expr.id, Resolution::TypeName(named.clone()));
        Some(Type::Of(Arc::new(named)))
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) -> Result<Type, Refusal> {
        let qualified = if test { None } else { expr.qualified_name() };
        if let Some(found) = qualified.and_then(|name| self.type_name(expr, &name)) {
            return Ok(found);
        }
        let (inner, wrapped) = self.selectable(operand)?;
        let found = self.field(expr, &inner, field)?;
        Ok(match (test, wrapped) {
            (true, _) => Type::Bool,
            (false, true) => Type::optional(found),
            (false, false) => found,
        })
    }

    /// Type of a selection's operand, without the optional around it if there is one.
    fn selectable(&mut self, operand: &Expr) -> Result<(Type, bool), Refusal> {
        let found = self.check(operand)?;
        Ok(match self.bindings.substitute(&found, false) {
            Type::Optional(inner) => ((*inner).clone(), true),
            other => (other, false),
        })
    }

    fn field(&mut self, expr: &Expr, operand: &Type, field: &str) -> Result<Type, Refusal> {
        match operand {
            Type::Dyn | Type::Any => Ok(Type::Dyn),
            Type::Map(pair) => Ok(pair.1.clone()),
            Type::Device => match self.device_field(field) {
                Some(found) => Ok(found),
                None => refuse(
                    CompileErrorKind::UndefinedField,
                    expr.pos,
                    format!("undefined field '{field}'"),
                ),
            },
            Type::Param(_) => {
                self.bindings.assign(operand, &Type::Dyn);
                Ok(Type::Dyn)
            }
            other => {
                let message = format!("type '{other}' does not support field selection");
                refuse(CompileErrorKind::NoOverload, expr.pos, message)
            }
        }
    }

    fn device_field(&self, field: &str) -> Option<Type> {
        let by_domain_and_id = |value| Type::map(Type::String, Type::map(Type::String, value));
        match field {
            "driver" => Some(Type::String),
            "attributes" => Some(by_domain_and_id(self.env.attribute_type())),
            "capacity" => Some(by_domain_and_id(Type::Quantity)),
            "allowMultipleAllocations" if self.env.multiple_allocations => Some(Type::Bool),
            _ => None,
        }
    }

    fn call(&mut self, expr: &Expr, function: &str, target: Option<&Expr>, args: &[Expr]) -> Result<Type, Refusal> {
        if function == op::OPT_SELECT {
            return self.optional_select(expr, args);
        }
        let mut types = Vec::with_capacity(args.len() + 1);
        for arg in args {
            types.push(self.check(arg)?);
        }
        let Some(target) = target else {
            return self.resolve(expr, function, function, &types, false);
        };
        if let Some(prefix) = target.qualified_name() {
            let qualified = format!("{prefix}.{function}");
            if functions::overloads(&qualified).is_some() {
                return self.resolve(expr, &qualified, function, &types, false);
            }
        }
        types.insert(0, self.check(target)?);
        self.resolve(expr, function, function, &types, true)
    }

    fn optional_select(&mut self, expr: &Expr, args: &[Expr]) -> Result<Type, Refusal> {
        let [
            operand,
            Expr {
                kind: ExprKind::Literal(Literal::String(field)),
                ..
            },
        ] = args
        else {
            return refuse(CompileErrorKind::Syntax, expr.pos, "unsupported optional field selection");
        };
        let (inner, _) = self.selectable(operand)?;
        let found = self.field(expr, &inner, field)?;
        Self::set(&mut self.types, args[1].id, Type::String);
        let overloads = functions::overloads(op::OPT_SELECT).unwrap_or_default().iter().collect();
        Self::set(&mut self.resolutions, expr.id, Resolution::Call { overloads, global: true });
        Ok(Type::optional(found))
    }

    /// Finds the overloads of `name` that fit `types` (receiver first for `member`).
    fn resolve(&mut self, expr: &Expr, name: &str, shown: &str, types: &[Type], member: bool) -> Result<Type, Refusal> {
        let hidden = name == "includes" && !self.env.list_attributes;
        let Some(candidates) = functions::overloads(name).filter(|_| !hidden) else {
            return refuse(
                CompileErrorKind::Undeclared,
                expr.pos,
                format!("undeclared reference to '{shown}'"),
            );
        };
        if name == op::AND || name == op::OR {
            return self.logic(expr, name, types, candidates);
        }
        let given: Vec<&Type> = types.iter().collect();
        let mut fitting = Vec::new();
        let mut result: Option<Type> = None;
        for overload in candidates
            .iter()
            .filter(|o| o.member == member && o.params.len() == types.len())
        {
            let Some(found) = self.fit(overload, &given) else { continue };
            fitting.push(overload);
            result = Some(match result {
                None => found,
                Some(earlier) if earlier.is_dynamic() || earlier == found => earlier,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            return self.no_overload(expr, name, types, member);
        };
        Self::set(
            &mut self.resolutions,
            expr.id,
            Resolution::Call {
                overloads: fitting,
                global: !member,
            },
        );
        Ok(result)
    }

    /// The result type if the arguments fit; binds type parameters then.
    fn fit(&mut self, overload: &Overload, given: &[&Type]) -> Option<Type> {
        let fresh: Vec<Type> = (0..overload.type_params).map(|_| self.bindings.fresh()).collect();
        let wanted: Vec<Type> = overload.params.iter().map(|p| self.bindings.instantiate(p, &fresh)).collect();
        if !self.bindings.assign_all(given, &wanted) {
            return None;
        }
        let result = self.bindings.instantiate(&overload.result, &fresh);
        Some(self.bindings.substitute(&result, false))
    }

    fn no_overload(&mut self, expr: &Expr, name: &str, types: &[Type], member: bool) -> Result<Type, Refusal> {
        let shown: Vec<String> = types.iter().map(|t| self.bindings.substitute(t, true).to_string()).collect();
        let applied = match shown.split_first() {
            Some((receiver, rest)) if member => format!("{receiver}.({})", rest.join(", ")),
            _ => format!("({})", shown.join(", ")),
        };
        let message = format!("found no matching overload for '{name}' applied to '{applied}'");
        refuse(CompileErrorKind::NoOverload, expr.pos, message)
    }

    /// `&&` and `||` over any number of operands.
    fn logic(&mut self, expr: &Expr, name: &str, types: &[Type], overloads: &'static [Overload]) -> Result<Type, Refusal> {
        for t in types {
            if !self.bindings.assign(t, &Type::Bool) {
                let shown = self.bindings.substitute(t, true);
                let message = format!("expected type 'bool' but found '{shown}' as operand of '{name}'");
                return refuse(CompileErrorKind::TypeMismatch, expr.pos, message);
            }
        }
        let overloads = overloads.iter().collect();
        Self::set(&mut self.resolutions, expr.id, Resolution::Call { overloads, global: true });
        Ok(Type::Bool)
    }

    fn list(&mut self, elements: &[Element]) -> Result<Type, Refusal> {
        let mut joined = None;
        for element in elements {
            let found = self.literal_part(&element.value, element.optional)?;
            joined = Some(self.join(joined, found));
        }
        let element = joined.unwrap_or_else(|| self.bindings.fresh());
        Ok(Type::list(element))
    }

    fn map(&mut self, entries: &[Entry]) -> Result<Type, Refusal> {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let key = self.check(&entry.key)?;
            keys = Some(self.join(keys, key));
            let value = self.literal_part(&entry.value, entry.optional)?;
            values = Some(self.join(values, value));
        }
        let key = keys.unwrap_or_else(|| self.bindings.fresh());
        let value = values.unwrap_or_else(|| self.bindings.fresh());
        Ok(Type::map(key, value))
    }

    /// An element or value of a literal; behind `?` it must be an optional and counts by what is inside.
    fn literal_part(&mut self, value: &Expr, optional: bool) -> Result<Type, Refusal> {
        let found = self.check(value)?;
        if !optional {
            return Ok(found);
        }
        match self.bindings.substitute(&found, false) {
            Type::Optional(inner) => Ok((*inner).clone()),
            Type::Dyn | Type::Any => Ok(Type::Dyn),
            other => {
                let message = format!("expected type 'optional_type' but found '{other}'");
                refuse(CompileErrorKind::TypeMismatch, value.pos, message)
            }
        }
    }

    /// The common type of a literal's parts. Parts that differ are found later, when all types are final.
    fn join(&mut self, earlier: Option<Type>, found: Type) -> Type {
        match earlier {
            None => found,
            Some(earlier) if self.bindings.assign(&earlier, &found) => self.bindings.most_general(&earlier, &found),
            Some(_) => Type::Dyn,
        }
    }

    fn comprehension(&mut self, c: &Comprehension) -> Result<Type, Refusal> {
        let range = self.check(&c.range)?;
        let accu = self.check(&c.init)?;
        let (first, second) = self.variables(c, &range)?;
        let depth = self.scope.len();
        self.scope.push((Arc::clone(&c.accu), accu.clone()));
        self.scope.push((Arc::clone(&c.var), first));
        if let Some(var2) = &c.var2 {
            self.scope.push((Arc::clone(var2), second));
        }
        let condition = self.check(&c.condition)?;
        self.expect(&c.condition, &condition, &Type::Bool)?;
        let step = self.check(&c.step)?;
        self.expect(&c.step, &step, &accu)?;
        self.scope.truncate(depth + 1);
        let result = self.check(&c.result)?;
        self.scope.truncate(depth);
        Ok(self.bindings.substitute(&result, false))
    }

    /// Types of the loop variables: element, or index and element; key, or key and value.
    fn variables(&mut self, c: &Comprehension, range: &Type) -> Result<(Type, Type), Refusal> {
        let two = c.var2.is_some();
        match self.bindings.substitute(range, false) {
            Type::List(element) if two => Ok((Type::Int, (*element).clone())),
            Type::List(element) => Ok(((*element).clone(), Type::Dyn)),
            Type::Map(pair) => Ok(((pair.0).clone(), (pair.1).clone())),
            Type::Dyn => Ok((Type::Dyn, Type::Dyn)),
            param @ Type::Param(_) => {
                self.bindings.assign(&Type::Dyn, &param);
                Ok((Type::Dyn, Type::Dyn))
            }
            other => {
                let message =
                    format!("expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)");
                refuse(CompileErrorKind::NotIterable, c.range.pos, message)
            }
        }
    }

    fn expect(&mut self, expr: &Expr, found: &Type, wanted: &Type) -> Result<(), Refusal> {
        if self.bindings.assign(wanted, found) {
            return Ok(());
        }
        let (wanted, found) = (self.bindings.substitute(wanted, true), self.bindings.substitute(found, true));
        let message = format!("expected type '{wanted}' but found '{found}'");
        refuse(CompileErrorKind::TypeMismatch, expr.pos, message)
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// Types whose names are identifiers.
fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Of(Arc::new(Type::Dyn)),
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" => Type::Ip,
        "net.CIDR" => Type::Cidr,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        // Known to the checker, but no program can be made from it; the lowering refuses it.
        "kubernetes.DRADevice" => Type::Device,
        _ => return None,
    })
}
