//! What every Rust file of ours must have, and what none may contain.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::graph::Graph;
use crate::shell;

/// Marks of unfinished work. Written in two halves, so that this file passes its own check.
const UNFINISHED: &[(&str, &str)] = &[
    ("todo", "!("),
    ("unimplemented", "!("),
    ("#[", "ignore]"),
    ("assert", "!(true)"),
];

/// Checks all files below each crate's folder.
pub(super) fn check(graph: &Graph) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for krate in graph.ours.values() {
        let folder = krate.manifest_path.parent().context("a manifest without a folder")?;
        for file in rust_files(folder)? {
            let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let shown = file.strip_prefix(shell::root()).unwrap_or(&file).display().to_string();
            // A `tests.rs` belongs to the file that names it, and the reason is there.
            let is_test_part = file.file_name().is_some_and(|name| name == "tests.rs");
            findings.extend(
                check_text(&text, !is_test_part)
                    .into_iter()
                    .map(|finding| format!("{shown}: {finding}")),
            );
        }
    }
    Ok(findings)
}

fn check_text(text: &str, needs_doc: bool) -> Vec<String> {
    let mut findings = Vec::new();
    if needs_doc && !text.starts_with("//!") {
        findings.push("does not start with a module doc (`//!`: why this file exists)".to_owned());
    }
    for (left, right) in UNFINISHED {
        let mark = format!("{left}{right}");
        if text.contains(&mark) {
            findings.push(format!("contains `{mark}`"));
        }
    }
    findings
}

fn rust_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_needs_a_module_doc_and_no_unfinished_work() {
        assert!(check_text("//! Why.\nfn f() {}\n", true).is_empty());
        let unfinished = format!("fn f() {{ {}!() }}", "todo");
        assert_eq!(check_text(&unfinished, true).len(), 2);
        assert_eq!(check_text(&unfinished, false).len(), 1);
    }
}
