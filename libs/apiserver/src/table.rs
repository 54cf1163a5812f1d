//! Answers in other shapes than the objects: tables for people, and metadata alone for those who need no more.
//!
//! What the cells of each kind say is in [`cells`]. Source: `k8s.io/kubernetes/pkg/printers`,
//! `k8s.io/apiserver/pkg/endpoints/handlers/response.go`.

pub mod age;
pub mod cells;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::negotiate::MetaVersion;
use crate::object;
use crate::request::Query;
use crate::resources::ResourceType;
use crate::status::Status;
use cells::Column;

/// What rows carry of their objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Metadata.
    #[default]
    Metadata,
    /// Everything.
    Object,
    /// Nothing.
    None,
}

impl IncludeObject {
    /// Reads `includeObject` of a query. 400 if it is none of the three.
    pub fn read(query: &Query) -> Result<Self, Status> {
        match query.first("includeObject").unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', \
                 'None', or empty"
            ))),
        }
    }
}

/// How tables are made: for which version of `meta.k8s.io`, with which objects, at which time.
#[derive(Clone, Copy, Debug)]
pub struct TableStyle {
    pub version: MetaVersion,
    pub include_object: IncludeObject,
    /// Ages count up to here.
    pub now: Timestamp,
}

/// Whether a table names its columns. In a watch only the first one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    Shown,
    Omitted,
}

/// A table of a list. `metadata`: that of the list. One row for each object, in their order.
pub fn list_table(resource: &ResourceType, objects: &[Value], metadata: &Value, style: TableStyle) -> Value {
    table(resource, objects.iter(), metadata.clone(), style, Header::Shown)
}

/// A table of one object: the answer to a get, and the object of a watch event.
pub fn object_table(resource: &ResourceType, object: &Value, style: TableStyle, header: Header) -> Value {
    let mut metadata = Map::new();
    let version = object::resource_version(object);
    if !version.is_empty() {
        metadata.insert("resourceVersion".to_owned(), json!(version));
    }
    table(resource, std::iter::once(object), Value::Object(metadata), style, header)
}

fn table<'a>(
    resource: &ResourceType,
    objects: impl Iterator<Item = &'a Value>,
    metadata: Value,
    style: TableStyle,
    header: Header,
) -> Value {
    let rows: Vec<Value> = objects.map(|object| row(resource, object, style)).collect();
    let columns = match header {
        Header::Shown => Value::Array(cells::columns(&resource.printer).iter().map(column).collect()),
        Header::Omitted => Value::Null,
    };
    json!({
        "kind": "Table",
        "apiVersion": style.version.api_version(),
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn column(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

fn row(resource: &ResourceType, object: &Value, style: TableStyle) -> Value {
    let shown = match style.include_object {
        IncludeObject::Metadata => metadata_only(object, style.version),
        IncludeObject::Object => typed(resource, object),
        IncludeObject::None => Value::Null,
    };
    json!({ "cells": cells::cells(&resource.printer, object, style.now), "object": shown })
}

/// The object with its type, which items of lists may lack.
fn typed(resource: &ResourceType, object: &Value) -> Value {
    let mut object = object.clone();
    object::set_field(&mut object, "kind", Some(json!(resource.kind)));
    object::set_field(&mut object, "apiVersion", Some(json!(resource.api_version())));
    object
}

/// A `PartialObjectMetadata` of an object.
pub fn metadata_only(object: &Value, version: MetaVersion) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// A `PartialObjectMetadataList`. `metadata`: that of the list. Items carry kind and version.
pub fn metadata_list(objects: &[Value], metadata: &Value, version: MetaVersion) -> Value {
    let items: Vec<Value> = objects.iter().map(|object| metadata_only(object, version)).collect();
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": version.api_version(),
        "metadata": metadata,
        "items": items,
    })
}

#[cfg(test)]
mod tests;
