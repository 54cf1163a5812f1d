//! Reading objects from files, folders and standard input: YAML with many documents, or JSON.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::Value;

/// Kinds in the order in which they are written, so that what others refer to exists before. Unknown kinds go last.
const ORDER: &[&str] = &[
    "Namespace",
    "Node",
    "DeviceClass",
    "ResourceQuota",
    "ResourceSlice",
    "DeviceTaintRule",
    "ResourceClaimTemplate",
    "Pod",
    "ResourceClaim",
];

/// An object and where it was read.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// File and number of the document in it, from 1.
    pub(crate) origin: String,
    pub(crate) object: Value,
}

impl Document {
    /// A text field below the object, empty if it is not there.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        text(&self.object, pointer)
    }

    /// `Kind/name`, as messages show it.
    pub(crate) fn shown(&self) -> String {
        format!("{}/{}", self.text("/kind"), self.text("/metadata/name"))
    }
}

/// A text below `value`, empty if it is not there or no text.
pub(crate) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Reads all documents of all `sources` (a file, a folder of `.yaml`, `.yml` and `.json` files, or `-`), in writing order.
pub(crate) fn read(sources: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for source in sources {
        for file in files(source)? {
            let text = read_text(&file)?;
            documents.extend(parse(&file.display().to_string(), &text)?);
        }
    }
    if documents.is_empty() {
        bail!("nothing to read: no object in the named files");
    }
    documents.sort_by_key(|document| rank(document.text("/kind")));
    Ok(documents)
}

fn rank(kind: &str) -> usize {
    ORDER.iter().position(|known| *known == kind).unwrap_or(ORDER.len())
}

fn files(source: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !source.is_dir() {
        return Ok(vec![source.to_owned()]);
    }
    let is_manifest = |path: &PathBuf| {
        path.extension()
            .is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known))
    };
    let entries = std::fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_manifest).collect();
    found.sort();
    Ok(found)
}

fn read_text(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The objects of one text. Empty documents are skipped and a `List` counts as its items.
fn parse(origin: &str, text: &str) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for (index, document) in serde_yaml_ng::Deserializer::from_str(text).enumerate() {
        let origin = format!("{origin}, document {}", index + 1);
        let object = Value::deserialize(document).with_context(|| format!("cannot read {origin}"))?;
        match object {
            Value::Null => {}
            Value::Object(ref fields) if fields.get("kind").is_some_and(|kind| kind == "List") => {
                let items = fields.get("items").and_then(Value::as_array).into_iter().flatten();
                documents.extend(items.map(|item| Document {
                    origin: origin.clone(),
                    object: item.clone(),
                }));
            }
            Value::Object(_) => documents.push(Document { origin, object }),
            _ => bail!("{origin} is not an object"),
        }
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_come_in_writing_order_and_lists_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let claim = "kind: ResourceClaim\nmetadata: {name: a}\n---\n---\nkind: DeviceClass\nmetadata: {name: b}\n";
        std::fs::write(folder.path().join("1.yaml"), claim).unwrap();
        std::fs::write(
            folder.path().join("2.json"),
            r#"{"kind":"List","items":[{"kind":"Node","metadata":{"name":"c"}}]}"#,
        )
        .unwrap();
        std::fs::write(folder.path().join("notes.txt"), "not: [an object").unwrap();
        let documents = read(&[folder.path().to_owned()]).unwrap();
        let shown: Vec<String> = documents.iter().map(Document::shown).collect();
        assert_eq!(shown, ["Node/c", "DeviceClass/b", "ResourceClaim/a"]);
    }

    #[test]
    fn a_broken_document_is_named() {
        let error = parse("f.yaml", "a: 1\n---\nb: [").unwrap_err();
        assert!(error.to_string().contains("f.yaml, document 2"), "{error}");
    }
}
