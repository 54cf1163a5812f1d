//! How a write changes who owns what.
//!
//! Source: sigs.k8s.io/structured-merge-diff, package `merge`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::{FieldSet, path_text};
use super::managed::{Managed, Manager, Owned};
use super::typed::{Comparison, Typed};
use super::{Conflict, Versions};
use crate::schema::{GroupVersionKind, Schema};

/// What stays the same during one write.
pub(super) struct Owners<'a> {
    pub(super) schema: &'a Schema,
    /// In which the write and its objects are.
    pub(super) kind: &'a GroupVersionKind,
    pub(super) reset: &'a FieldSet,
    pub(super) versions: &'a dyn Versions,
}

impl<'a> Owners<'a> {
    /// An object in the version of the write.
    pub(super) fn typed(&self, object: Map<String, Value>) -> Typed<'a> {
        Typed::new(self.schema, self.schema.of_kind_or_custom(self.kind), object)
    }

    /// An object in another version; `None` if there is no such version.
    fn converted(&self, object: &Typed<'a>, api_version: &str) -> Option<Typed<'a>> {
        if api_version == self.kind.api_version() {
            return Some(object.clone());
        }
        let Value::Object(fields) = &object.value else { return None };
        let converted = self.versions.convert(fields, api_version)?;
        let kind = GroupVersionKind::new(api_version, &self.kind.kind);
        Some(Typed::new(self.schema, self.schema.of_kind_or_custom(&kind), converted))
    }

    /// An object that was converted, back in the version of the write.
    fn back(&self, object: Typed<'a>, api_version: &str) -> Option<Typed<'a>> {
        let wanted = self.kind.api_version();
        if api_version == wanted {
            return Some(object);
        }
        let Value::Object(fields) = &object.value else { return None };
        Some(self.typed(self.versions.convert(fields, &wanted)?))
    }

    /// Takes from the other managers what `writer` changes. `Err` with what they own of it, unless `force`.
    fn take(
        &self,
        old: &Typed<'a>,
        new: &Typed<'a>,
        managed: &mut Managed,
        writer: &Manager,
        force: bool,
    ) -> Result<Comparison, Vec<Conflict>> {
        let own = old.compare(new);
        let mut by_version: BTreeMap<String, Option<Comparison>> = BTreeMap::new();
        by_version.insert(self.kind.api_version(), Some(own.clone().without(self.reset)));
        let mut conflicts = Vec::new();
        let mut left = Managed::new();
        for (manager, owned) in managed.iter() {
            if manager == writer {
                left.insert(manager.clone(), owned.clone());
                continue;
            }
            let compared = by_version.entry(owned.api_version.clone()).or_insert_with(|| {
                let old = self.converted(old, &owned.api_version)?;
                let new = self.converted(new, &owned.api_version)?;
                Some(old.compare(&new).without(self.reset))
            });
            // Of a version that is gone nothing is known, and its entry goes.
            let Some(compared) = compared else { continue };
            let contested = owned.set.intersection(&compared.modified.union(&compared.added));
            conflicts.extend(contested.paths().iter().map(|path| Conflict {
                manager: manager.clone(),
                path: path_text(path),
                elements: path.clone(),
            }));
            let set = owned.set.difference(&contested).difference(&compared.removed);
            left.insert(manager.clone(), Owned { set, ..owned.clone() });
        }
        if !force && !conflicts.is_empty() {
            return Err(conflicts);
        }
        left.retain(|_, owned| !owned.set.is_empty());
        *managed = left;
        Ok(own)
    }

    /// Notes a write that replaced `old` by `new`: `writer` owns what it changed, and nobody else does.
    pub(super) fn update(&self, old: &Typed<'a>, new: &Typed<'a>, managed: &mut Managed, writer: &Manager) {
        // With force there are no conflicts.
        let compared = self.take(old, new, managed, writer, true).unwrap_or_default();
        let owned = managed.remove(writer).map(|owned| owned.set).unwrap_or_default();
        let set = owned
            .difference(&compared.removed)
            .union(&compared.modified)
            .union(&compared.added)
            .recursive_difference(self.reset);
        if !set.is_empty() {
            let owned = Owned {
                set,
                api_version: self.kind.api_version(),
                time: None,
            };
            managed.insert(writer.clone(), owned);
        }
    }

    /// Merges `config` into `old` and removes what `writer` applied before, applies no more and nobody else owns. `writer` then
    /// owns what `config` sets. `Err` if others own what changes, unless `force`.
    pub(super) fn apply(
        &self,
        old: &Typed<'a>,
        config: &Typed<'a>,
        managed: &mut Managed,
        writer: &Manager,
        force: bool,
    ) -> Result<Typed<'a>, Vec<Conflict>> {
        let last = managed.remove(writer);
        let owned = Owned {
            set: config.field_set().recursive_difference(self.reset),
            api_version: self.kind.api_version(),
            time: last.as_ref().and_then(|last| last.time.clone()),
        };
        managed.insert(writer.clone(), owned);
        let merged = old.merge(config);
        let new = match last.filter(|last| !last.set.is_empty()) {
            Some(last) => self.pruned(&merged, managed, &last).unwrap_or(merged),
            None => merged,
        };
        self.take(old, &new, managed, writer, force)?;
        Ok(new)
    }

    /// `merged` without what only `last` holds. `None` if the version of `last` is gone.
    fn pruned(&self, merged: &Typed<'a>, managed: &Managed, last: &Owned) -> Option<Typed<'a>> {
        let version = &last.api_version;
        let merged = self.converted(merged, version)?;
        let mut pruned = merged.without(&merged.with_named_fields(&last.set));

        // What is owned in any version comes back; that of the pruned version first, so that converting does not fail.
        let mut owned_in: BTreeMap<&str, FieldSet> = BTreeMap::new();
        for owned in managed.values() {
            let set = owned_in.entry(&owned.api_version).or_default();
            *set = set.union(&owned.set);
        }
        let own = owned_in.remove(version.as_str());
        for (other, owned) in own
            .iter()
            .map(|set| (version.as_str(), set))
            .chain(owned_in.iter().map(|(other, set)| (*other, set)))
        {
            if other == version {
                pruned = with_owned(&merged, &pruned, owned);
                continue;
            }
            let in_other = |object: &Typed<'a>| self.converted(&self.back(object.clone(), version)?, other);
            let (Some(merged_there), Some(pruned_there)) = (in_other(&merged), in_other(&pruned)) else {
                continue;
            };
            let back_there = with_owned(&merged_there, &pruned_there, owned);
            let back_here = self
                .back(back_there, other)
                .and_then(|object| self.converted(&object, version));
            pruned = back_here.unwrap_or(pruned);
        }

        // Only what the writer itself held goes; what nobody owned stays.
        let gone = merged
            .with_named_fields(&merged.field_set())
            .difference(&merged.with_named_fields(&pruned.field_set()));
        let gone = gone.intersection(&merged.with_named_fields(&last.set));
        self.back(merged.without(&gone), version)
    }
}

/// `pruned` with those fields of `merged` that are owned.
fn with_owned<'a>(merged: &Typed<'a>, pruned: &Typed<'a>, owned: &FieldSet) -> Typed<'a> {
    let kept = merged
        .with_named_fields(&pruned.field_set())
        .union(&merged.with_named_fields(owned));
    merged.without(&merged.with_named_fields(&merged.field_set()).difference(&kept))
}
