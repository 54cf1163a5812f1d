//! What is served: one [`ResourceType`] for each plural of each version, and the [`Catalog`] of all of them.
//!
//! Data only. The kinds of Kubernetes are a table in [`kinds`]; kinds of custom resources are added while running. What is done
//! with objects is in the modules that read this.

pub mod kinds;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::schema::GroupVersionKind;
use crate::status::GroupResource;

/// What can be done with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

impl Verb {
    /// The word in discovery documents and authorization rules.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Where objects live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// Who counts `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Nobody: what a client gives on create stays.
    Unmanaged,
    /// 1 on create, then unchanged.
    One,
    /// 1 on create, then one more with each change of the spec.
    Spec,
    /// As [`Generation::Spec`]; changes of annotations count too.
    SpecAndAnnotations,
    /// 1 on create, then one more with each change outside of metadata (and of the status, if that is a subresource).
    OutsideMetadata,
}

/// What a write to `…/status` does with labels, annotations, finalizers and owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusMetadata {
    /// They stay as they are stored.
    Kept,
    /// They are taken from the body.
    Written,
    /// As [`StatusMetadata::Written`], but labels stay.
    WrittenButLabels,
}

/// What DELETE of one object answers when the object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteAnswer {
    /// The deleted object.
    Object,
    /// A `Status` with name and uid.
    Status,
}

/// How objects go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// At once, or when the last finalizer is removed.
    Plain,
    /// As [`Deletion::Plain`]; finalizers of the garbage collector are never added.
    Uncollected,
    /// With time to stop: marked first, removed by a second delete without grace.
    Graceful,
    /// Marked and put into phase `Terminating`; removed when `spec.finalizers` are empty.
    Namespace,
}

/// The grammar of `metadata.name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS subdomain.
    Subdomain,
    /// DNS label.
    Label,
    /// Anything that fits in a path.
    PathSegment,
}

/// A path below an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Name in the path, such as `status`.
    pub name: String,
    /// Group, version and kind of bodies there, where they differ from those of the object.
    pub body: Option<GroupVersionKind>,
    pub verbs: Vec<Verb>,
}

/// The text of `apiVersion`: `group/version`, or the version alone in the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// How the value of a field selector is read from an object. Missing fields read as the empty text, flags as `false`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The text, number or flag at a path of field names.
    Path(Vec<String>),
    /// A flag at a path.
    Flag(Vec<String>),
    /// The first of several paths that holds a text.
    FirstOf(Vec<Vec<String>>),
    /// A field of the first item of the list at a path.
    FirstItem { list: Vec<String>, field: String },
}

/// A path that field selectors may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The path as selectors write it.
    pub label: String,
    pub reading: Reading,
}

/// Which of upstream's texts an unknown path of a field selector gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorTable {
    /// The kind has a list of its own, and the text names version and kind.
    OwnWithKind,
    /// The kind has a list of its own.
    Own,
    /// Name and namespace only, as for every kind.
    Common,
}

/// How a table row of the kind is made, see [`crate::table`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Printer {
    /// Name and age.
    NameAge,
    ResourceClaim,
    ResourceSlice,
    DeviceTaintRule,
    ResourcePoolStatusRequest,
    Lease,
    Namespace,
    Node,
    Pod,
    Event,
    DaemonSet,
    Deployment,
    ConfigMap,
    Secret,
    ResourceQuota,
    PriorityClass,
    /// Name, the columns of a custom resource, and age if none of them shows it.
    Columns(Vec<CustomColumn>),
}

/// A column that a custom resource defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomColumn {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    pub description: String,
    /// Above 0: shown in wide output only.
    pub priority: i32,
    /// Field names from the object's root.
    pub path: Vec<String>,
}

/// All that is known about one plural in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceType {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    /// Kind of lists; empty if the resource cannot be listed.
    pub list_kind: String,
    pub scope: Scope,
    pub verbs: Vec<Verb>,
    pub subresources: Vec<Subresource>,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub printer: Printer,
    pub selectable: Vec<SelectableField>,
    pub selector_table: SelectorTable,
    pub generation: Generation,
    pub status_metadata: StatusMetadata,
    /// POST takes the status from the body, although it has a path of its own.
    pub create_takes_status: bool,
    /// PUT to a missing name creates.
    pub update_creates: bool,
    /// PUT must say which version it replaces.
    pub update_needs_version: bool,
    pub delete_answer: DeleteAnswer,
    pub deletion: Deletion,
    pub name_rule: NameRule,
    /// A kind that was added while running: JSON and YAML only, no strategic merge patch.
    pub is_custom: bool,
}

impl ResourceType {
    /// A custom resource with the usual verbs; `has_status` gives it `…/status`.
    ///
    /// Everything else may be changed before it goes into a [`Catalog`].
    pub fn custom(gvk: &GroupVersionKind, plural: &str, scope: Scope, has_status: bool) -> Self {
        let mut made = kinds::plain(&gvk.group, &gvk.version, plural, &gvk.kind, scope);
        made.generation = Generation::OutsideMetadata;
        made.printer = Printer::Columns(Vec::new());
        made.update_needs_version = true;
        // Custom resources answer with a Status, unless finalizers keep the object.
        made.delete_answer = DeleteAnswer::Status;
        made.status_metadata = StatusMetadata::Kept;
        made.is_custom = true;
        if has_status {
            made.subresources.push(kinds::status());
        }
        made
    }

    /// True if objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// The text of `apiVersion`.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The type of single objects.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
        }
    }

    /// Group and plural, as messages name the resource.
    pub fn group_resource(&self) -> GroupResource<'_> {
        GroupResource::new(&self.group, &self.plural)
    }

    /// Group and kind, as messages about invalid objects name it.
    pub fn group_kind(&self) -> GroupResource<'_> {
        GroupResource::new(&self.group, &self.kind)
    }

    /// The subresource with this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// True if the status has a path of its own, so that writes to the object leave it alone.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// True if the resource itself has the verb.
    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }
}

/// A resource that cannot be added to a [`Catalog`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    #[error("{plural} is served in {api_version} already")]
    PluralTaken { api_version: String, plural: String },
    #[error("kind {kind} is served in {api_version} already")]
    KindTaken { api_version: String, kind: String },
    #[error("only custom resources can be removed")]
    NotCustom,
}

/// A group and version that is served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersion {
    pub group: String,
    pub version: String,
}

/// Everything that is served. Cheap to clone: a server swaps whole catalogs when custom resources come and go.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    by_plural: BTreeMap<(GroupVersion, String), Arc<ResourceType>>,
    by_kind: BTreeMap<(GroupVersion, String), Arc<ResourceType>>,
    /// In order of preference: groups in the order of their first version, versions within.
    versions: Vec<GroupVersion>,
}

impl Catalog {
    /// Nothing served.
    pub fn new() -> Self {
        Self::default()
    }

    /// The kinds of the table in [`kinds`] for which `is_served` holds.
    pub fn standard(is_served: impl Fn(&ResourceType) -> bool) -> Self {
        let mut catalog = Self::new();
        for resource in kinds::all().into_iter().filter(is_served) {
            // The table has each plural and each kind once, which a test checks.
            let added = catalog.add(resource);
            debug_assert!(added.is_ok(), "{added:?}");
        }
        catalog
    }

    /// Adds a resource. Its version becomes the last of its group, its group the last of all, if they are new.
    ///
    /// `PluralTaken` or `KindTaken` if the version has one already; then nothing changes.
    pub fn add(&mut self, resource: ResourceType) -> Result<(), CatalogError> {
        let version = GroupVersion {
            group: resource.group.clone(),
            version: resource.version.clone(),
        };
        let plural = (version.clone(), resource.plural.clone());
        let kind = (version.clone(), resource.kind.clone());
        if self.by_plural.contains_key(&plural) {
            return Err(CatalogError::PluralTaken {
                api_version: resource.api_version(),
                plural: resource.plural,
            });
        }
        if self.by_kind.contains_key(&kind) {
            return Err(CatalogError::KindTaken {
                api_version: resource.api_version(),
                kind: resource.kind,
            });
        }
        if !self.versions.contains(&version) {
            let last = self.versions.iter().rposition(|known| known.group == version.group);
            self.versions.insert(last.map_or(self.versions.len(), |at| at + 1), version);
        }
        let resource = Arc::new(resource);
        self.by_plural.insert(plural, Arc::clone(&resource));
        self.by_kind.insert(kind, resource);
        Ok(())
    }

    /// Removes a custom resource; its version goes with its last resource. Returns what was removed.
    ///
    /// `NotCustom` for kinds of the table.
    pub fn remove(&mut self, group: &str, version: &str, plural: &str) -> Result<Option<Arc<ResourceType>>, CatalogError> {
        let Some(resource) = self.find(group, version, plural).cloned() else {
            return Ok(None);
        };
        if !resource.is_custom {
            return Err(CatalogError::NotCustom);
        }
        let version = GroupVersion {
            group: group.to_owned(),
            version: version.to_owned(),
        };
        self.by_plural.remove(&(version.clone(), plural.to_owned()));
        self.by_kind.remove(&(version.clone(), resource.kind.clone()));
        if self.in_version(&version.group, &version.version).next().is_none() {
            self.versions.retain(|known| *known != version);
        }
        Ok(Some(resource))
    }

    /// The resource at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceType>> {
        self.by_plural.get(&(key(group, version), plural.to_owned()))
    }

    /// The resource whose objects are of a type.
    pub fn find_kind(&self, gvk: &GroupVersionKind) -> Option<&Arc<ResourceType>> {
        self.by_kind.get(&(key(&gvk.group, &gvk.version), gvk.kind.clone()))
    }

    /// True if the group has the version.
    pub fn serves(&self, group: &str, version: &str) -> bool {
        self.versions
            .iter()
            .any(|known| known.group == group && known.version == version)
    }

    /// Every version of every group, the preferred ones first.
    pub fn versions(&self) -> &[GroupVersion] {
        &self.versions
    }

    /// The groups, each with its versions, in order of preference. The core group, if served, has an empty name.
    pub fn groups(&self) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for known in &self.versions {
            match groups.iter_mut().find(|(group, _)| *group == known.group) {
                Some((_, versions)) => versions.push(&known.version),
                None => groups.push((&known.group, vec![&known.version])),
            }
        }
        groups
    }

    /// The resources of a version, by plural.
    pub fn in_version<'a>(&'a self, group: &str, version: &str) -> impl Iterator<Item = &'a Arc<ResourceType>> + use<'a> {
        let wanted = key(group, version);
        let first = (wanted.clone(), String::new());
        self.by_plural
            .range(first..)
            .take_while(move |((version, _), _)| *version == wanted)
            .map(|(_, resource)| resource)
    }

    /// Every resource, by group, version and plural.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.by_plural.values()
    }
}

fn key(group: &str, version: &str) -> GroupVersion {
    GroupVersion {
        group: group.to_owned(),
        version: version.to_owned(),
    }
}

#[cfg(test)]
mod tests;
