//! Reads the tables.
//!
//! A table is lines. `#` starts a comment line. `package <short> <model prefix>` comes first. `message <Name> [flags]`
//! starts a message; flags: `kind=<apiVersion>` or `kind=*` (in every group version), `typed` (has `apiVersion` and `kind`,
//! implied by `kind=`), `atomic`, `open`. Indented lines are fields: `<protobuf number or -> <JSON name> <type> [flags]`.
//!
//! Types: `string bool int32 int64 bytes quantity time microtime intorstring raw fieldsv1 any`, `[]T`, `items[T]`, `map[T]`, a
//! message name, or `<package>/<Name>` for one of another package. Flags: `opt`, `always`, `required`, `inline`,
//! `list=atomic|set|map(k,…)`, `map=atomic`, `patch=<strategy>[,<strategy>][:<key>]`, `default=<JSON without blanks>`.
//!
//! Descriptions are in a file of their own, because versions share them: `<package>/<Message>: text` and
//! `<package>/<Message>.<field>: text`, the package without its version.

use std::collections::{BTreeMap, BTreeSet};

use super::{Field, GroupVersionKind, ListKind, Message, MessageId, PatchStrategy, Schema, Type};

/// Message of objects of which only the metadata is known.
const CUSTOM: &str = "meta/Custom";

const TABLES: &[&str] = &[
    include_str!("tables/meta.txt"),
    include_str!("tables/core.txt"),
    include_str!("tables/resource.txt"),
    include_str!("tables/resource-v1beta2.txt"),
    include_str!("tables/resource-v1beta1.txt"),
    include_str!("tables/resource-v1alpha3.txt"),
    include_str!("tables/coordination.txt"),
    include_str!("tables/scheduling.txt"),
    include_str!("tables/events.txt"),
    include_str!("tables/apps.txt"),
    include_str!("tables/authorization.txt"),
    include_str!("tables/authentication.txt"),
    include_str!("tables/discovery.txt"),
];

const DESCRIPTIONS: &str = include_str!("tables/descriptions.txt");

/// A fault in a table.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error("line {line:?} is not understood: {why}")]
    Line { line: String, why: &'static str },
    #[error("message {name:?} is not defined")]
    UnknownMessage { name: String },
    #[error("{name:?} is defined twice")]
    Twice { name: String },
    #[error("description of {name:?}, which does not exist")]
    Description { name: String },
}

/// Reads the tables of this crate.
pub(super) fn builtin() -> Result<Schema, TableError> {
    parse(TABLES, DESCRIPTIONS)
}

/// Reads tables; they may refer to each other in any order.
pub(super) fn parse(tables: &[&str], descriptions: &str) -> Result<Schema, TableError> {
    let names = message_names(tables)?;
    let texts = description_texts(descriptions)?;
    let mut read = Reading {
        names: &names,
        texts: &texts,
        described: BTreeSet::new(),
        messages: Vec::with_capacity(names.len()),
        by_kind: BTreeMap::new(),
        everywhere: BTreeMap::new(),
    };
    for table in tables {
        read.table(table)?;
    }
    if let Some(name) = texts.keys().find(|name| !read.described.contains(**name)) {
        return Err(TableError::Description {
            name: (*name).to_owned(),
        });
    }
    let custom = *names
        .get(CUSTOM)
        .ok_or_else(|| TableError::UnknownMessage { name: CUSTOM.to_owned() })?;
    let mut schema = Schema {
        messages: read.messages,
        by_kind: read.by_kind,
        everywhere: read.everywhere,
        by_name: names,
        custom,
    };
    for position in 0..schema.messages.len() {
        schema.messages[position].flat = flat(&schema, MessageId(position))?;
    }
    Ok(schema)
}

fn lines(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
}

fn bad(line: &str, why: &'static str) -> TableError {
    TableError::Line {
        line: line.to_owned(),
        why,
    }
}

/// Every message by package and name, numbered in reading order.
fn message_names(tables: &[&str]) -> Result<BTreeMap<String, MessageId>, TableError> {
    let mut names = BTreeMap::new();
    for table in tables {
        let mut package = "";
        for line in lines(table) {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("package"), Some(short)) => package = short,
                (Some("message"), Some(name)) => {
                    let name = format!("{package}/{name}");
                    let id = MessageId(names.len());
                    if names.insert(name.clone(), id).is_some() {
                        return Err(TableError::Twice { name });
                    }
                }
                _ => {}
            }
        }
    }
    Ok(names)
}

fn description_texts(descriptions: &str) -> Result<BTreeMap<&str, &str>, TableError> {
    lines(descriptions)
        .map(|line| {
            line.split_once(": ")
                .ok_or_else(|| bad(line, "a description is `name: text`"))
        })
        .collect()
}

struct Reading<'a> {
    names: &'a BTreeMap<String, MessageId>,
    texts: &'a BTreeMap<&'a str, &'a str>,
    /// Names for which there was something to describe.
    described: BTreeSet<String>,
    messages: Vec<Message>,
    by_kind: BTreeMap<GroupVersionKind, MessageId>,
    everywhere: BTreeMap<String, MessageId>,
}

impl Reading<'_> {
    fn table(&mut self, table: &str) -> Result<(), TableError> {
        let (mut package, mut prefix) = ("", "");
        for line in lines(table) {
            if line.starts_with(' ') {
                let field = self.field(package, line)?;
                let message = self
                    .messages
                    .last_mut()
                    .ok_or_else(|| bad(line, "a field before any message"))?;
                message.fields.push(field);
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["package", short, model] => (package, prefix) = (short, model),
                ["message", name, flags @ ..] => self.message(line, package, prefix, name, flags)?,
                _ => return Err(bad(line, "neither package, message nor field")),
            }
        }
        for message in &mut self.messages {
            message.fields.sort_by_key(|field| field.number);
        }
        Ok(())
    }

    /// The description of a name, without the version of its package.
    fn description(&mut self, package: &str, name: &str) -> Option<String> {
        let family = package.split_once('-').map_or(package, |(family, _)| family);
        let name = format!("{family}/{name}");
        let text = self.texts.get(name.as_str())?;
        self.described.insert(name);
        Some((*text).to_owned())
    }

    fn message(&mut self, line: &str, package: &str, prefix: &str, name: &str, flags: &[&str]) -> Result<(), TableError> {
        let id = MessageId(self.messages.len());
        let mut message = Message {
            id,
            model: format!("{prefix}.{name}"),
            name: name.to_owned(),
            typed: false,
            atomic: false,
            open: false,
            fields: Vec::new(),
            description: self.description(package, name),
            flat: BTreeMap::new(),
        };
        for flag in flags {
            match (*flag, flag.split_once('=')) {
                ("typed", _) => message.typed = true,
                ("atomic", _) => message.atomic = true,
                ("open", _) => message.open = true,
                (_, Some(("kind", api_version))) => {
                    message.typed = true;
                    let twice = if api_version == "*" {
                        self.everywhere.insert(name.to_owned(), id).is_some()
                    } else {
                        self.by_kind.insert(GroupVersionKind::new(api_version, name), id).is_some()
                    };
                    if twice {
                        return Err(TableError::Twice { name: name.to_owned() });
                    }
                }
                _ => return Err(bad(line, "unknown flag of a message")),
            }
        }
        self.messages.push(message);
        Ok(())
    }

    fn field(&mut self, package: &str, line: &str) -> Result<Field, TableError> {
        let mut words = line.split_whitespace();
        let (Some(number), Some(name), Some(ty)) = (words.next(), words.next(), words.next()) else {
            return Err(bad(line, "a field is `number name type`"));
        };
        let number = match number {
            "-" => None,
            digits => Some(digits.parse().map_err(|_| bad(line, "not a field number"))?),
        };
        let outer = self.messages.last().map(|message| message.name.clone()).unwrap_or_default();
        let description = self.description(package, &format!("{outer}.{name}"));
        let mut field = Field {
            name: name.to_owned(),
            number,
            ty: self.ty(package, ty)?,
            optional: false,
            always: false,
            required: false,
            inline: false,
            list: ListKind::Atomic,
            map_atomic: false,
            patch: PatchStrategy::default(),
            default: None,
            description,
        };
        for flag in words {
            field_flag(&mut field, line, flag)?;
        }
        Ok(field)
    }

    fn ty(&self, package: &str, text: &str) -> Result<Type, TableError> {
        let inner = |prefix: &str, suffix: &str| text.strip_prefix(prefix)?.strip_suffix(suffix);
        if let Some(element) = inner("[]", "") {
            return Ok(Type::List(Box::new(self.ty(package, element)?)));
        }
        if let Some(element) = inner("items[", "]") {
            return Ok(Type::Items(Box::new(self.ty(package, element)?)));
        }
        if let Some(element) = inner("map[", "]") {
            return Ok(Type::Map(Box::new(self.ty(package, element)?)));
        }
        Ok(match text {
            "string" => Type::String,
            "bool" => Type::Bool,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "bytes" => Type::Bytes,
            "quantity" => Type::Quantity,
            "time" => Type::Time,
            "microtime" => Type::MicroTime,
            "intorstring" => Type::IntOrString,
            "raw" => Type::Raw,
            "fieldsv1" => Type::FieldsV1,
            "any" => Type::Any,
            name => {
                let name = if name.contains('/') {
                    name.to_owned()
                } else {
                    format!("{package}/{name}")
                };
                match self.names.get(&name) {
                    Some(id) => Type::Message(*id),
                    None => return Err(TableError::UnknownMessage { name }),
                }
            }
        })
    }
}

fn field_flag(field: &mut Field, line: &str, flag: &str) -> Result<(), TableError> {
    match (flag, flag.split_once('=')) {
        ("opt", _) => field.optional = true,
        ("always", _) => field.always = true,
        ("required", _) => field.required = true,
        ("inline", _) => field.inline = true,
        ("list=atomic", _) => field.list = ListKind::Atomic,
        ("list=set", _) => field.list = ListKind::Set,
        ("map=atomic", _) => field.map_atomic = true,
        (_, Some(("list", text))) => {
            let keys = text.strip_prefix("map(").and_then(|text| text.strip_suffix(')'));
            let keys = keys.ok_or_else(|| bad(line, "unknown kind of list"))?;
            field.list = ListKind::Map(keys.split(',').map(str::to_owned).collect());
        }
        (_, Some(("patch", text))) => {
            let (strategies, key) = text.split_once(':').map_or((text, None), |(text, key)| (text, Some(key)));
            for strategy in strategies.split(',') {
                match strategy {
                    "merge" => field.patch.merge = true,
                    "retainKeys" => field.patch.retain_keys = true,
                    _ => return Err(bad(line, "unknown patch strategy")),
                }
            }
            field.patch.merge_key = key.map(str::to_owned);
        }
        (_, Some(("default", text))) => {
            field.default = Some(serde_json::from_str(text).map_err(|_| bad(line, "the default is not JSON"))?);
        }
        _ => return Err(bad(line, "unknown flag of a field")),
    }
    Ok(())
}

/// JSON names of a message, with the message and position of each field: those of inlined messages are elsewhere.
fn flat(schema: &Schema, id: MessageId) -> Result<BTreeMap<String, (MessageId, usize)>, TableError> {
    let mut names = BTreeMap::new();
    for (position, field) in schema.message(id).fields.iter().enumerate() {
        let found = match &field.ty {
            Type::Message(inner) if field.inline => flat(schema, *inner)?,
            _ => BTreeMap::from([(field.name.clone(), (id, position))]),
        };
        for (name, place) in found {
            if names.insert(name.clone(), place).is_some() {
                return Err(TableError::Twice { name });
            }
        }
    }
    Ok(names)
}
