//! The dependency graph as `cargo metadata` tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;

use crate::shell;

/// Our crates by name, everybody's packages, and who links whom.
pub(super) struct Graph {
    pub(super) ours: BTreeMap<String, Package>,
    pub(super) all: Vec<Package>,
    links: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) id: String,
    /// SPDX expression; `None` if the package says nothing or names a file.
    pub(super) license: Option<String>,
    /// `None` for our own.
    pub(super) source: Option<String>,
    pub(super) manifest_path: PathBuf,
    pub(super) dependencies: Vec<Dependency>,
}

#[derive(Clone, Debug)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) is_dev: bool,
}

impl<'de> Deserialize<'de> for Dependency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            name: String,
            kind: Option<String>,
        }
        let raw = Raw::deserialize(deserializer)?;
        Ok(Self {
            name: raw.name,
            is_dev: raw.kind.as_deref() == Some("dev"),
        })
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    resolve: Resolve,
}
#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}
#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDep>,
}
#[derive(Deserialize)]
struct NodeDep {
    pkg: String,
    dep_kinds: Vec<DepKind>,
}
#[derive(Deserialize)]
struct DepKind {
    kind: Option<String>,
}

impl Graph {
    /// Asks cargo. Only what is built for Linux counts: that is what Dray runs on.
    pub(super) fn read() -> anyhow::Result<Self> {
        let args = ["metadata", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"];
        let metadata: Metadata = serde_json::from_str(&shell::output(shell::cargo().args(args))?)?;
        let is_ours = |package: &&Package| metadata.workspace_members.contains(&package.id);
        let ours = metadata
            .packages
            .iter()
            .filter(is_ours)
            .map(|package| (package.name.clone(), package.clone()))
            .collect();
        let resolved: BTreeSet<&str> = metadata.resolve.nodes.iter().map(|node| node.id.as_str()).collect();
        let all = metadata
            .packages
            .iter()
            .filter(|package| resolved.contains(package.id.as_str()))
            .cloned()
            .collect();
        let links = metadata
            .resolve
            .nodes
            .iter()
            .map(|node| (node.id.clone(), linked(node)))
            .collect();
        Ok(Self { ours, all, links })
    }

    /// Names of all packages that end up in the crate `name`, itself included.
    pub(super) fn linked_by(&self, name: &str) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut todo: Vec<&str> = self.ours.get(name).map(|package| package.id.as_str()).into_iter().collect();
        while let Some(id) = todo.pop() {
            if seen.insert(id) {
                todo.extend(self.links.get(id).into_iter().flatten().map(String::as_str));
            }
        }
        self.all
            .iter()
            .filter(|package| seen.contains(package.id.as_str()))
            .map(|package| package.name.clone())
            .collect()
    }
}

/// Ids of the node's normal dependencies; what only builds or tests it is not in the result.
fn linked(node: &Node) -> Vec<String> {
    let is_normal = |dep: &&NodeDep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none());
    node.deps.iter().filter(is_normal).map(|dep| dep.pkg.clone()).collect()
}
