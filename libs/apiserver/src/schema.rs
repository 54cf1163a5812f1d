//! What the kinds of the API look like, field by field: the one source from which bodies, protobuf, patches, server-side
//! apply and the OpenAPI documents follow.
//!
//! The facts are text tables in `schema/tables`, read once. A message is a struct of the API; a kind is a message that
//! clients can name. This module knows shapes only: no limits of values, no defaults beyond those of list keys.

#[cfg(test)]
pub(crate) mod arbitrary;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

pub use table::TableError;

/// Group, version and kind of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionKind {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl GroupVersionKind {
    /// From the two fields of an object. The text before the last `/` of `api_version` is the group.
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        }
    }

    /// The text of the `apiVersion` field.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Position of a message in a [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(usize);

/// Type of a field or element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    String,
    Bool,
    Int32,
    Int64,
    /// Base64 text in JSON.
    Bytes,
    /// An exact amount such as `500m`.
    Quantity,
    /// RFC 3339 in whole seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    IntOrString,
    /// An embedded JSON value that is not looked into; bytes of JSON in protobuf. The order of its keys and the spelling of its
    /// numbers are not kept.
    Raw,
    /// The field set of a `managedFields` entry; bytes of JSON in protobuf.
    FieldsV1,
    /// Any JSON value. Has no protobuf form.
    Any,
    Message(MessageId),
    List(Box<Type>),
    /// A list that protobuf wraps in a message with the one field `items`.
    Items(Box<Type>),
    /// From text to the type.
    Map(Box<Type>),
}

/// How lists merge in server-side apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    /// One value, owned as a whole.
    #[default]
    Atomic,
    /// Scalars, each owned on its own.
    Set,
    /// Objects, told apart by these fields.
    Map(Vec<String>),
}

/// What a strategic merge patch does with a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Lists are merged instead of replaced.
    pub merge: bool,
    /// The patch may name the only keys to stay.
    pub retain_keys: bool,
    /// Field that tells the elements of a merged list apart; `None` for lists of scalars.
    pub merge_key: Option<String>,
}

/// A field of a [`Message`].
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Name in JSON; of an inlined message, its name in protobuf.
    pub name: String,
    /// Number in protobuf. `None`: the message has no protobuf form.
    pub number: Option<u32>,
    pub ty: Type,
    /// Absent and zero are different.
    pub optional: bool,
    /// Written in JSON even if absent or zero.
    pub always: bool,
    /// Declared as required in the OpenAPI document.
    pub required: bool,
    /// The fields of the message are those of the outer one in JSON.
    pub inline: bool,
    pub list: ListKind,
    /// The map is owned as a whole in server-side apply.
    pub map_atomic: bool,
    pub patch: PatchStrategy,
    /// Declared default; stands in for a missing list key.
    pub default: Option<Value>,
    pub description: Option<String>,
}

/// A struct of the API.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub id: MessageId,
    /// Name in OpenAPI, such as `io.k8s.api.resource.v1.ResourceClaim`.
    pub model: String,
    /// Last part of the name.
    pub name: String,
    /// Has `apiVersion` and `kind` in JSON.
    pub typed: bool,
    /// Owned as a whole in server-side apply.
    pub atomic: bool,
    /// Fields that are not declared are kept, as [`Type::Any`].
    pub open: bool,
    /// By protobuf number.
    pub fields: Vec<Field>,
    pub description: Option<String>,
    /// JSON name to the message and position of the field: not this message for fields of inlined ones.
    flat: BTreeMap<String, (MessageId, usize)>,
}

/// Every message and kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    messages: Vec<Message>,
    /// By package and name, such as `core/Pod`.
    by_name: BTreeMap<String, MessageId>,
    by_kind: BTreeMap<GroupVersionKind, MessageId>,
    /// Kinds that exist in every group version, such as `DeleteOptions`.
    everywhere: BTreeMap<String, MessageId>,
    custom: MessageId,
}

impl Schema {
    /// The kinds of Kubernetes v1.37 that the tables of this crate hold.
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Schema> = OnceLock::new();
        BUILTIN.get_or_init(|| table::builtin().expect("a test reads the tables"))
    }

    /// The message of a kind; `None` for kinds without a schema.
    pub fn of_kind(&self, kind: &GroupVersionKind) -> Option<&Message> {
        let id = self.by_kind.get(kind).or_else(|| self.everywhere.get(&kind.kind))?;
        Some(self.message(*id))
    }

    /// The message of a kind, or that of a custom resource if the kind has none.
    pub fn of_kind_or_custom(&self, kind: &GroupVersionKind) -> &Message {
        self.of_kind(kind).unwrap_or_else(|| self.message(self.custom))
    }

    /// The message with this package and name, such as `meta/ObjectMeta`.
    pub fn named(&self, name: &str) -> Option<&Message> {
        self.by_name.get(name).map(|id| self.message(*id))
    }

    /// The message at a position.
    pub fn message(&self, id: MessageId) -> &Message {
        &self.messages[id.0]
    }

    /// Every kind with its message, sorted. Without the kinds that exist in every group version.
    pub fn kinds(&self) -> impl Iterator<Item = (&GroupVersionKind, &Message)> {
        self.by_kind.iter().map(|(kind, id)| (kind, self.message(*id)))
    }

    /// The kinds that exist in every group version, such as `DeleteOptions`.
    pub fn kinds_everywhere(&self) -> impl Iterator<Item = (&str, &Message)> {
        self.everywhere.iter().map(|(kind, id)| (kind.as_str(), self.message(*id)))
    }

    /// Every message.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }

    /// The field with a JSON name, also if it is that of an inlined message. Not `apiVersion` and `kind`.
    pub fn field(&self, message: &Message, name: &str) -> Option<&Field> {
        let (owner, position) = message.flat.get(name)?;
        self.message(*owner).fields.get(*position)
    }

    /// The inlined message that a field with a JSON name comes from; `None` if it is the message's own.
    pub fn inlined_from(&self, message: &Message, name: &str) -> Option<&Message> {
        let (owner, _) = message.flat.get(name)?;
        (*owner != message.id).then(|| self.message(*owner))
    }

    /// The fields by JSON name, those of inlined messages among them. Sorted by name. Not `apiVersion` and `kind`.
    pub fn json_fields<'s>(&'s self, message: &'s Message) -> impl Iterator<Item = &'s Field> {
        message
            .flat
            .values()
            .map(|(owner, position)| &self.message(*owner).fields[*position])
    }
}
