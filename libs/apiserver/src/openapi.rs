//! OpenAPI v3: the index and one document for each group version, from the schema and the resources that are served.
//!
//! kubectl looks for PATCH operations with a `fieldValidation` parameter before it writes, computes strategic merge patches from the
//! list extensions, and explains kinds from descriptions. Schemas have the names that upstream's have.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::resources::{Catalog, GroupVersion, ResourceType, Subresource, Verb};
use crate::schema::{Field, GroupVersionKind, ListKind, Message, MessageId, Schema, Type};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const FIELDS_V1: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

const BODY_TYPES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The document of one group version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its name in the index, such as `apis/resource.k8s.io/v1` or `api/v1`.
    pub name: String,
    /// The document, JSON.
    pub json: Vec<u8>,
    /// Changes with the document. Hexadecimal digits.
    pub hash: String,
}

impl Document {
    /// Path and query under which the document can be cached for ever.
    pub fn url(&self) -> String {
        format!("/openapi/v3/{}?hash={}", self.name, self.hash)
    }
}

/// The documents of every served group version, in the order of the catalog.
pub fn documents(schema: &Schema, catalog: &Catalog) -> Result<Vec<Document>, serde_json::Error> {
    catalog
        .versions()
        .iter()
        .map(|version| document(schema, catalog, version))
        .collect()
}

/// The index, `GET /openapi/v3`.
pub fn index(documents: &[Document]) -> Value {
    let paths = documents
        .iter()
        .map(|document| (document.name.clone(), json!({"serverRelativeURL": document.url()})));
    json!({"paths": paths.collect::<Map<_, _>>()})
}

/// The document of a group version, `GET /openapi/v3/<name>`.
pub fn document(schema: &Schema, catalog: &Catalog, version: &GroupVersion) -> Result<Document, serde_json::Error> {
    let name = if version.group.is_empty() {
        format!("api/{}", version.version)
    } else {
        format!("apis/{}/{}", version.group, version.version)
    };
    let mut paths = Map::new();
    let mut models = Models::new(schema, version);
    for resource in catalog.in_version(&version.group, &version.version) {
        add_paths(&format!("/{name}"), resource, &mut models, &mut paths);
    }
    let document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": models.finish()},
    });
    let json = serde_json::to_vec(&document)?;
    let mut hash = String::new();
    for byte in Sha256::digest(&json) {
        // Writing to a string does not fail.
        let _ok = write!(hash, "{byte:02X}").is_ok();
    }
    Ok(Document { name, json, hash })
}

/// Adds the paths of a resource and its subresources.
fn add_paths(root: &str, resource: &ResourceType, models: &mut Models<'_>, paths: &mut Map<String, Value>) {
    let plural = &resource.plural;
    let collection = if resource.is_namespaced() {
        format!("{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{root}/{plural}")
    };
    let gvk = resource.gvk();
    let object = models.kind(&gvk);
    let status = models.kind(&GroupVersionKind::new("v1", "Status"));
    let list = match resource.list_kind.as_str() {
        "" => status.clone(),
        kind => models.kind(&GroupVersionKind {
            kind: kind.to_owned(),
            ..gvk.clone()
        }),
    };
    let operation = |verb: Verb, answer: &Value, body: Option<&Value>| Operation {
        verb,
        kind: &gvk,
        answer: answer.clone(),
        body: body.cloned(),
        is_custom: resource.is_custom,
    };
    let mut of_collection = Map::new();
    let mut of_item = Map::new();
    for verb in &resource.verbs {
        match verb {
            Verb::List => operation(*verb, &list, None).add("get", &mut of_collection),
            Verb::Create => operation(*verb, &object, Some(&object)).add("post", &mut of_collection),
            Verb::DeleteCollection => operation(*verb, &status, None).add("delete", &mut of_collection),
            Verb::Get => operation(*verb, &object, None).add("get", &mut of_item),
            Verb::Update => operation(*verb, &object, Some(&object)).add("put", &mut of_item),
            Verb::Patch => operation(*verb, &object, Some(&object)).add("patch", &mut of_item),
            Verb::Delete => operation(*verb, &status, Some(&models.kind(&options_kind()))).add("delete", &mut of_item),
            Verb::Watch => {}
        }
    }
    if resource.is_namespaced() && resource.allows(Verb::List) {
        let mut everywhere = Map::new();
        operation(Verb::List, &list, None).add("get", &mut everywhere);
        paths.insert(format!("{root}/{plural}"), Value::Object(everywhere));
    }
    paths.insert(collection.clone(), with_parameters(of_collection, resource, false));
    if !of_item.is_empty() {
        paths.insert(format!("{collection}/{{name}}"), with_parameters(of_item, resource, true));
    }
    for subresource in &resource.subresources {
        let path = format!("{collection}/{{name}}/{}", subresource.name);
        paths.insert(
            path,
            with_parameters(of_subresource(subresource, resource, models), resource, true),
        );
    }
}

fn options_kind() -> GroupVersionKind {
    GroupVersionKind::new("v1", "DeleteOptions")
}

fn of_subresource(subresource: &Subresource, resource: &ResourceType, models: &mut Models<'_>) -> Map<String, Value> {
    let kind = subresource.body.clone().unwrap_or_else(|| resource.gvk());
    let object = models.kind(&kind);
    let mut operations = Map::new();
    for verb in &subresource.verbs {
        let method = match verb {
            Verb::Get => "get",
            Verb::Create => "post",
            Verb::Update => "put",
            Verb::Patch => "patch",
            Verb::Delete | Verb::DeleteCollection | Verb::List | Verb::Watch => continue,
        };
        let operation = Operation {
            verb: *verb,
            kind: &kind,
            answer: object.clone(),
            body: (*verb != Verb::Get).then(|| object.clone()),
            is_custom: resource.is_custom,
        };
        operation.add(method, &mut operations);
    }
    operations
}

/// The operations of a path with the parameters that are in the path.
fn with_parameters(mut operations: Map<String, Value>, resource: &ResourceType, has_name: bool) -> Value {
    let text = json!({"type": "string", "uniqueItems": true});
    let mut parameters = Vec::new();
    if has_name {
        parameters.push(json!({"name": "name", "in": "path", "required": true, "schema": text}));
    }
    if resource.is_namespaced() {
        parameters.push(json!({"name": "namespace", "in": "path", "required": true, "schema": text}));
    }
    parameters.push(json!({"name": "pretty", "in": "query", "schema": text}));
    operations.insert("parameters".to_owned(), Value::Array(parameters));
    Value::Object(operations)
}

struct Operation<'a> {
    verb: Verb,
    kind: &'a GroupVersionKind,
    answer: Value,
    body: Option<Value>,
    is_custom: bool,
}

impl Operation<'_> {
    fn add(self, method: &str, to: &mut Map<String, Value>) {
        let action = match self.verb {
            Verb::Create => "post",
            Verb::Update => "put",
            other => other.text(),
        };
        let content = |schema: &Value, types: &[&str]| {
            let types = types
                .iter()
                .map(|media_type| ((*media_type).to_owned(), json!({"schema": schema})));
            types.collect::<Map<_, _>>()
        };
        let code = if self.verb == Verb::Create { "201" } else { "200" };
        let mut operation = json!({
            "parameters": self.parameters(),
            "responses": {code: {"description": "OK", "content": content(&self.answer, &BODY_TYPES)}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.kind_value(),
        });
        if let Some(body) = &self.body {
            let types: &[&str] = match (self.verb, self.is_custom) {
                (Verb::Patch, true) => &[
                    "application/apply-patch+yaml",
                    "application/json-patch+json",
                    "application/merge-patch+json",
                ],
                (Verb::Patch, false) => &[
                    "application/apply-patch+yaml",
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/strategic-merge-patch+json",
                ],
                _ => &["*/*"],
            };
            // What a patch is made of is in the schema of its object; its own is any object.
            let patch = json!({"type": "object"});
            let body = if self.verb == Verb::Patch { &patch } else { body };
            let required = self.verb != Verb::Delete;
            operation["requestBody"] = json!({"content": content(body, types), "required": required});
        }
        to.insert(method.to_owned(), operation);
    }

    fn kind_value(&self) -> Value {
        kind_value(self.kind)
    }

    fn parameters(&self) -> Value {
        let names: &[(&str, &str)] = match self.verb {
            Verb::Create | Verb::Update => &[
                ("dryRun", "string"),
                ("fieldManager", "string"),
                ("fieldValidation", "string"),
            ],
            Verb::Patch => &[
                ("dryRun", "string"),
                ("fieldManager", "string"),
                ("fieldValidation", "string"),
                ("force", "boolean"),
            ],
            Verb::Delete => &[
                ("dryRun", "string"),
                ("gracePeriodSeconds", "integer"),
                ("orphanDependents", "boolean"),
                ("propagationPolicy", "string"),
            ],
            Verb::List | Verb::DeleteCollection | Verb::Watch => &[
                ("allowWatchBookmarks", "boolean"),
                ("continue", "string"),
                ("fieldSelector", "string"),
                ("labelSelector", "string"),
                ("limit", "integer"),
                ("resourceVersion", "string"),
                ("resourceVersionMatch", "string"),
                ("sendInitialEvents", "boolean"),
                ("timeoutSeconds", "integer"),
                ("watch", "boolean"),
            ],
            Verb::Get => &[],
        };
        let parameter =
            |(name, ty): &(&str, &str)| json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}});
        names.iter().map(parameter).collect()
    }
}

fn kind_value(kind: &GroupVersionKind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

/// The schemas that a document refers to, gathered on the way.
struct Models<'s> {
    schema: &'s Schema,
    version: &'s GroupVersion,
    wanted: BTreeSet<MessageId>,
    custom: Map<String, Value>,
}

impl<'s> Models<'s> {
    fn new(schema: &'s Schema, version: &'s GroupVersion) -> Self {
        Self {
            schema,
            version,
            wanted: BTreeSet::new(),
            custom: Map::new(),
        }
    }

    /// Refers to the schema of a kind.
    fn kind(&mut self, kind: &GroupVersionKind) -> Value {
        match self.schema.of_kind(kind) {
            Some(message) => {
                self.wanted.insert(message.id);
                reference(&message.model)
            }
            None => {
                let metadata = if kind.kind.ends_with("List") {
                    "meta/ListMeta"
                } else {
                    "meta/ObjectMeta"
                };
                let metadata = self.schema.named(metadata).map(|message| {
                    self.wanted.insert(message.id);
                    reference(&message.model)
                });
                let name = custom_name(kind);
                self.custom.insert(name.clone(), custom(kind, metadata));
                reference(&name)
            }
        }
    }

    /// All schemas, with those that they refer to in turn.
    fn finish(mut self) -> Map<String, Value> {
        let mut schemas = std::mem::take(&mut self.custom);
        let mut open: Vec<MessageId> = self.wanted.iter().copied().collect();
        while let Some(id) = open.pop() {
            let message = self.schema.message(id);
            schemas.insert(message.model.clone(), self.message(message));
            for field in self.schema.json_fields(message) {
                let innermost = innermost(&field.ty);
                if let Some((name, schema)) = leaf_schema(innermost) {
                    schemas.entry(name).or_insert(schema);
                }
                match innermost {
                    Type::Message(inner) if self.wanted.insert(*inner) => open.push(*inner),
                    _ => {}
                }
            }
        }
        schemas
    }

    fn message(&self, message: &Message) -> Value {
        let mut properties = Map::new();
        if message.typed {
            let text = |description: &str| json!({"type": "string", "description": description});
            properties.insert("apiVersion".to_owned(), text("Group and version of the kind."));
            properties.insert("kind".to_owned(), text("What the object is."));
        }
        let mut required = Vec::new();
        for field in self.schema.json_fields(message) {
            properties.insert(field.name.clone(), self.property(field));
            if field.required {
                required.push(Value::from(field.name.clone()));
            }
        }
        let mut schema = json!({"type": "object", "properties": properties});
        if let Some(description) = &message.description {
            schema["description"] = description.as_str().into();
        }
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        if message.atomic {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        let kinds = self.kinds(message);
        if !kinds.is_empty() {
            schema["x-kubernetes-group-version-kind"] = kinds.iter().map(kind_value).collect();
        }
        schema
    }

    /// The kinds that a message is, in this group version.
    fn kinds(&self, message: &Message) -> Vec<GroupVersionKind> {
        let everywhere = self.schema.kinds_everywhere().any(|(_, found)| found.id == message.id);
        let own = self.schema.kinds().filter(|(_, found)| found.id == message.id);
        let mut kinds: Vec<_> = own.map(|(kind, _)| kind.clone()).collect();
        if everywhere {
            kinds.push(GroupVersionKind {
                group: self.version.group.clone(),
                version: self.version.version.clone(),
                kind: message.name.clone(),
            });
        }
        kinds
    }

    fn property(&self, field: &Field) -> Value {
        let mut property = self.value(&field.ty);
        if let Some(default) = default_of(field) {
            property["default"] = default;
        }
        if let Some(description) = &field.description {
            property["description"] = description.as_str().into();
        }
        match (&field.ty, &field.list) {
            (Type::List(_), ListKind::Atomic) => property["x-kubernetes-list-type"] = "atomic".into(),
            (Type::List(_), ListKind::Set) => property["x-kubernetes-list-type"] = "set".into(),
            (Type::List(_), ListKind::Map(keys)) => {
                property["x-kubernetes-list-type"] = "map".into();
                property["x-kubernetes-list-map-keys"] = keys.clone().into();
            }
            _ => {}
        }
        if field.map_atomic {
            property["x-kubernetes-map-type"] = "atomic".into();
        }
        let strategies = [(field.patch.merge, "merge"), (field.patch.retain_keys, "retainKeys")];
        let strategies: Vec<_> = strategies
            .iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, name)| *name)
            .collect();
        if !strategies.is_empty() {
            property["x-kubernetes-patch-strategy"] = strategies.join(",").into();
        }
        if let Some(key) = &field.patch.merge_key {
            property["x-kubernetes-patch-merge-key"] = key.as_str().into();
        }
        property
    }

    /// The schema of a value; references are wrapped, so that something can stand beside them.
    fn value(&self, ty: &Type) -> Value {
        match ty {
            Type::String => json!({"type": "string"}),
            Type::Bool => json!({"type": "boolean"}),
            Type::Int32 => json!({"type": "integer", "format": "int32"}),
            Type::Int64 => json!({"type": "integer", "format": "int64"}),
            Type::Bytes => json!({"type": "string", "format": "byte"}),
            Type::Any => json!({}),
            Type::Quantity => wrapped(QUANTITY),
            Type::Time => wrapped(TIME),
            Type::MicroTime => wrapped(MICRO_TIME),
            Type::IntOrString => wrapped(INT_OR_STRING),
            Type::Raw => wrapped(RAW),
            Type::FieldsV1 => wrapped(FIELDS_V1),
            Type::Message(id) => wrapped(&self.schema.message(*id).model),
            Type::List(element) | Type::Items(element) => json!({"type": "array", "items": self.element(element)}),
            Type::Map(element) => json!({"type": "object", "additionalProperties": self.element(element)}),
        }
    }

    /// The schema of an element; nothing stands beside its reference.
    fn element(&self, ty: &Type) -> Value {
        let schema = self.value(ty);
        match schema["allOf"].as_array().map(Vec::as_slice) {
            Some([reference]) => reference.clone(),
            _ => schema,
        }
    }
}

/// The declared default, or the zero value of what is always there.
fn default_of(field: &Field) -> Option<Value> {
    if field.default.is_some() {
        return field.default.clone();
    }
    if field.optional || !field.always {
        return None;
    }
    match &field.ty {
        Type::String => Some("".into()),
        Type::Bool => Some(false.into()),
        Type::Int32 | Type::Int64 => Some(0.into()),
        Type::Message(_) => Some(json!({})),
        _ => None,
    }
}

fn innermost(ty: &Type) -> &Type {
    match ty {
        Type::List(element) | Type::Items(element) | Type::Map(element) => innermost(element),
        other => other,
    }
}

fn reference(model: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{model}")})
}

fn wrapped(model: &str) -> Value {
    json!({"allOf": [reference(model)]})
}

/// Name and schema of a type that is neither a plain JSON type nor a message.
fn leaf_schema(ty: &Type) -> Option<(&'static str, Value)> {
    Some(match ty {
        Type::Quantity => (
            QUANTITY,
            json!({"oneOf": [{"type": "string"}, {"type": "number"}], "description": "An exact amount with an optional unit, such as 2, 500m or 1Gi."}),
        ),
        Type::Time => (
            TIME,
            json!({"type": "string", "format": "date-time", "description": "A time in RFC 3339, in whole seconds."}),
        ),
        Type::MicroTime => (
            MICRO_TIME,
            json!({"type": "string", "format": "date-time", "description": "A time in RFC 3339, with microseconds."}),
        ),
        Type::IntOrString => (
            INT_OR_STRING,
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}], "description": "A whole number or a text."}),
        ),
        Type::Raw => (
            RAW,
            json!({"type": "object", "description": "Any object; it is not looked into."}),
        ),
        Type::FieldsV1 => (
            FIELDS_V1,
            json!({"type": "object", "description": "A set of fields, as a tree of their names."}),
        ),
        _ => return None,
    })
}

/// Name of the schema of a custom resource: the parts of the group turned around, as upstream does.
fn custom_name(kind: &GroupVersionKind) -> String {
    let group: Vec<_> = kind.group.rsplit('.').collect();
    format!("{}.{}.{}", group.join("."), kind.version, kind.kind)
}

/// Schema of a kind of which only the metadata is known.
fn custom(kind: &GroupVersionKind, metadata: Option<Value>) -> Value {
    let mut properties = json!({"apiVersion": {"type": "string"}, "kind": {"type": "string"}});
    if let Some(metadata) = metadata {
        properties["metadata"] = json!({"allOf": [metadata]});
    }
    json!({
        "type": "object",
        "properties": properties,
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-group-version-kind": [kind_value(kind)],
    })
}
