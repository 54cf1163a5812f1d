//! The front door for services: compiles expressions, remembers the last ones, and answers validation.

use std::sync::{Arc, Mutex, PoisonError};

use resource_api::validation::{ExpressionChecker, ExpressionMode, ExpressionProblem, ExpressionProblemKind};
use rustc_hash::FxHashMap;

use crate::compile::{Gates, Mode};
use crate::derived::DerivedAttribute;
use crate::error::{CompileError, CompileErrorKind};
use crate::selector::{Options, Selector};

/// Selectors remembered, in each of two generations. A cluster has tens of distinct ones; a hostile client can
/// only push others out.
const GENERATION_MAX: usize = 512;

/// Compiles device expressions and keeps the selectors last used. Cheap to share by `Arc`.
#[derive(Debug, Default)]
pub struct DeviceExpressions {
    gates: Gates,
    cache: Mutex<Cache>,
}

type Key = (Arc<str>, Mode);

/// Two generations: when the young one is full it becomes the old one, whose rest is forgotten.
#[derive(Debug, Default)]
struct Cache {
    young: FxHashMap<Key, Arc<Selector>>,
    old: FxHashMap<Key, Arc<Selector>>,
}

impl Cache {
    fn get(&mut self, key: &Key) -> Option<Arc<Selector>> {
        if let Some(selector) = self.young.get(key) {
            return Some(Arc::clone(selector));
        }
        let selector = self.old.remove(key)?;
        self.insert(key.clone(), Arc::clone(&selector));
        Some(selector)
    }

    fn insert(&mut self, key: Key, selector: Arc<Selector>) {
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, selector);
    }
}

impl DeviceExpressions {
    /// `gates`: what new expressions may use.
    pub fn new(gates: Gates) -> Self {
        Self {
            gates,
            cache: Mutex::default(),
        }
    }

    /// The compiled form of a selector that was accepted before, as the allocator evaluates it.
    pub fn stored(&self, expression: &str) -> Result<Arc<Selector>, CompileError> {
        self.selector(expression, Mode::Stored)
    }

    fn selector(&self, expression: &str, mode: Mode) -> Result<Arc<Selector>, CompileError> {
        let key: Key = (expression.into(), mode);
        let cached = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(&key);
        if let Some(selector) = cached {
            return Ok(selector);
        }
        // Compiled outside of the lock: two callers may do it at once, which costs less than waiting.
        let selector = Arc::new(Selector::compile(expression, mode, Options::default())?);
        self.cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, Arc::clone(&selector));
        Ok(selector)
    }

    fn mode(&self, mode: ExpressionMode) -> Mode {
        match mode {
            ExpressionMode::New => Mode::New(self.gates),
            ExpressionMode::Stored => Mode::Stored,
        }
    }
}

impl ExpressionChecker for DeviceExpressions {
    fn check(&self, expression: &str, mode: ExpressionMode) -> Result<(), ExpressionProblem> {
        self.selector(expression, self.mode(mode)).map(|_| ()).map_err(problem)
    }

    fn check_derived(&self, expression: &str, mode: ExpressionMode) -> Result<u64, ExpressionProblem> {
        DerivedAttribute::compile(expression, self.mode(mode))
            .map(|derived| derived.estimated_cost())
            .map_err(problem)
    }
}

fn problem(error: CompileError) -> ExpressionProblem {
    let kind = match error.kind {
        CompileErrorKind::TooExpensive => ExpressionProblemKind::TooExpensive,
        _ => ExpressionProblemKind::Invalid,
    };
    ExpressionProblem {
        kind,
        detail: error.text,
    }
}
