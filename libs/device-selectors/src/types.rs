//! Static types and their unification.
//!
//! Gradual: `dyn` and `any` fit everything. Type parameters are bound in a [`Bindings`] table with an undo log,
//! and every step counts against a budget, because types share structure and a hostile expression could
//! otherwise make one of exponential size.

use std::fmt;
use std::sync::Arc;

use crate::depth::guarded;

/// Steps of unification and substitution one expression may take. A real selector needs a few thousand.
const STEPS_MAX: u32 = 4_000_000;

/// Levels of a type, of which the deepest literal has 250.
const DEPTH_MAX: u32 = 2_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Type {
    /// Decided at run time.
    #[default]
    Dyn,
    /// Like `dyn`, but no range of a macro: the type of attribute values while lists are not enabled.
    Any,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    Optional(Arc<Type>),
    /// The type of a type.
    Of(Arc<Type>),
    Quantity,
    Semver,
    Url,
    Format,
    Ip,
    Cidr,
    /// The structure `device`.
    Device,
    Param(u32),
}

impl Type {
    pub(crate) fn list(element: Type) -> Self {
        Self::List(Arc::new(element))
    }

    pub(crate) fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(inner: Type) -> Self {
        Self::Optional(Arc::new(inner))
    }

    pub(crate) fn is_dynamic(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    /// Types of the extension libraries, the device and the well-known messages: these accept `null`.
    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Duration
                | Self::Timestamp
                | Self::Optional(_)
                | Self::Quantity
                | Self::Semver
                | Self::Url
                | Self::Format
                | Self::Ip
                | Self::Cidr
                | Self::Device
        )
    }

    /// The first type argument, if there is one.
    pub(crate) fn first_argument(&self) -> Option<&Type> {
        match self {
            Self::List(inner) | Self::Optional(inner) | Self::Of(inner) => Some(inner),
            Self::Map(pair) => Some(&pair.0),
            _ => None,
        }
    }

    /// A value of this type counts as size 1 in the cost estimate.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Double | Self::Duration | Self::Int | Self::Timestamp | Self::Uint => true,
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("google.protobuf.Duration"),
            Self::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Self::List(inner) => write!(f, "list({inner})"),
            Self::Map(pair) => write!(f, "map({}, {})", pair.0, pair.1),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
            Self::Of(inner) => write!(f, "type({inner})"),
            Self::Quantity => f.write_str("kubernetes.Quantity"),
            Self::Semver => f.write_str("kubernetes.Semver"),
            Self::Url => f.write_str("kubernetes.URL"),
            Self::Format => f.write_str("kubernetes.NamedFormat"),
            Self::Ip => f.write_str("net.IP"),
            Self::Cidr => f.write_str("net.CIDR"),
            Self::Device => f.write_str("kubernetes.DRADevice"),
            Self::Param(n) => write!(f, "_var{n}"),
        }
    }
}

/// What the type parameters stand for so far.
#[derive(Default)]
pub(crate) struct Bindings {
    bound: Vec<Option<Type>>,
    /// Earlier values of parameters changed since the last commit.
    undo: Vec<(u32, Option<Type>)>,
    steps: u32,
    depth: u32,
}

impl Bindings {
    /// A fresh parameter.
    pub(crate) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param(self.bound.len() as u32 - 1)
    }

    /// True when the budget of steps is used up; every answer after that is arbitrary and must be discarded.
    pub(crate) fn exhausted(&self) -> bool {
        self.steps > STEPS_MAX
    }

    /// Runs one level of a walk over a type; `otherwise` is the answer once the budget is used up.
    fn level<T>(&mut self, otherwise: T, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.steps = self.steps.saturating_add(if self.depth > DEPTH_MAX { STEPS_MAX } else { 1 });
        if self.exhausted() {
            return otherwise;
        }
        self.depth += 1;
        let answer = guarded(|| walk(self));
        self.depth -= 1;
        answer
    }

    fn find(&self, t: &Type) -> Option<Type> {
        match t {
            Type::Param(n) => self.bound.get(*n as usize).cloned().flatten(),
            _ => None,
        }
    }

    fn bind(&mut self, param: u32, to: Type) {
        if let Some(slot) = self.bound.get_mut(param as usize) {
            self.undo.push((param, slot.replace(to)));
        }
    }

    /// Binds parameters so that each `from` is assignable to its `to`. On failure nothing is changed.
    pub(crate) fn assign_all(&mut self, from: &[&Type], to: &[Type]) -> bool {
        self.undo.clear();
        let fits = from.len() == to.len() && from.iter().zip(to).all(|(f, t)| self.assignable(f, t));
        if !fits {
            while let Some((param, earlier)) = self.undo.pop() {
                self.bound[param as usize] = earlier;
            }
        }
        fits
    }

    /// Whether a value of type `from` may stand where `to` is wanted.
    pub(crate) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(&[from], std::slice::from_ref(to))
    }

    fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.level(false, |this| this.assignable_here(from, to))
    }

    fn assignable_here(&mut self, from: &Type, to: &Type) -> bool {
        if let (Type::Param(a), Type::Param(b)) = (from, to)
            && a == b
        {
            return true;
        }
        if let Type::Param(param) = to {
            match self.substitutes(from, *param) {
                Substitution::Fits => return true,
                Substitution::Conflicts => return false,
                Substitution::Recursive => {}
            }
        }
        if let Type::Param(param) = from {
            return matches!(self.substitutes(to, *param), Substitution::Fits);
        }
        if from.is_dynamic() || to.is_dynamic() {
            return true;
        }
        match (from, to) {
            (Type::Null, _) => to.is_nullable(),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.assignable(a, b),
            (Type::Map(a), Type::Map(b)) => self.assignable(&a.0, &b.0) && self.assignable(&a.1, &b.1),
            (Type::Of(_), Type::Of(_)) => true,
            _ => from == to,
        }
    }

    /// Whether parameter `param` can stand for `t`, binding or widening it.
    fn substitutes(&mut self, t: &Type, param: u32) -> Substitution {
        let as_type = Type::Param(param);
        if let Some(bound) = self.find(&as_type) {
            if *t == bound {
                return Substitution::Fits;
            }
            if self.assignable(t, &bound) {
                // Widening must not make the parameter a part of itself.
                let general = if self.less_specific(t, &bound) && !self.occurs(&as_type, t) {
                    t.clone()
                } else {
                    bound
                };
                self.bind(param, general);
                return Substitution::Fits;
            }
            return Substitution::Conflicts;
        }
        if self.occurs(&as_type, t) {
            return Substitution::Recursive;
        }
        self.bind(param, t.clone());
        Substitution::Fits
    }

    fn occurs(&mut self, param: &Type, within: &Type) -> bool {
        self.level(true, |this| match within {
            within if param == within => true,
            Type::Param(_) => this.find(within).is_some_and(|bound| this.occurs(param, &bound)),
            Type::List(inner) | Type::Optional(inner) => this.occurs(param, inner),
            Type::Map(pair) => this.occurs(param, &pair.0) || this.occurs(param, &pair.1),
            _ => false,
        })
    }

    /// Whether `a` equals `b` or matches it through `dyn`.
    fn less_specific(&mut self, a: &Type, b: &Type) -> bool {
        self.level(false, |this| this.less_specific_here(a, b))
    }

    fn less_specific_here(&mut self, a: &Type, b: &Type) -> bool {
        if a.is_dynamic() || matches!(a, Type::Param(_)) {
            return true;
        }
        if b.is_dynamic() || matches!(b, Type::Param(_)) {
            return false;
        }
        match (a, b) {
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.less_specific(a, b),
            (Type::Map(a), Type::Map(b)) => self.less_specific(&a.0, &b.0) && self.less_specific(&a.1, &b.1),
            (Type::Of(_), Type::Of(_)) => true,
            _ => a == b,
        }
    }

    /// The more general of two types known to unify.
    pub(crate) fn most_general(&mut self, a: &Type, b: &Type) -> Type {
        if self.less_specific(a, b) { a.clone() } else { b.clone() }
    }

    /// `t` with bound parameters replaced; unbound ones become `dyn` if `to_dyn`.
    pub(crate) fn substitute(&mut self, t: &Type, to_dyn: bool) -> Type {
        self.level(Type::Dyn, |this| this.substitute_here(t, to_dyn))
    }

    fn substitute_here(&mut self, t: &Type, to_dyn: bool) -> Type {
        if let Some(bound) = self.find(t) {
            return self.substitute(&bound, to_dyn);
        }
        match t {
            Type::Param(_) if to_dyn => Type::Dyn,
            Type::List(inner) => Type::list(self.substitute(inner, to_dyn)),
            Type::Optional(inner) => Type::optional(self.substitute(inner, to_dyn)),
            Type::Of(inner) => Type::Of(Arc::new(self.substitute(inner, to_dyn))),
            Type::Map(pair) => Type::map(self.substitute(&pair.0, to_dyn), self.substitute(&pair.1, to_dyn)),
            _ => t.clone(),
        }
    }

    /// `t`, a type of a declaration with parameters `0..`, over the parameters `fresh`.
    pub(crate) fn instantiate(&self, t: &Type, fresh: &[Type]) -> Type {
        match t {
            Type::Param(n) => fresh.get(*n as usize).cloned().unwrap_or(Type::Dyn),
            Type::List(inner) => Type::list(self.instantiate(inner, fresh)),
            Type::Optional(inner) => Type::optional(self.instantiate(inner, fresh)),
            Type::Of(inner) => Type::Of(Arc::new(self.instantiate(inner, fresh))),
            Type::Map(pair) => Type::map(self.instantiate(&pair.0, fresh), self.instantiate(&pair.1, fresh)),
            _ => t.clone(),
        }
    }
}

enum Substitution {
    Fits,
    /// Bound to something else.
    Conflicts,
    /// Would contain itself.
    Recursive,
}
