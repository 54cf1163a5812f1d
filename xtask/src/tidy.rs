//! `cargo xtask tidy`: keeps the architecture. Who may depend on what is one table, [`ALLOWED`]; a new edge is a decision
//! that shows in its diff. Also what every source file must have, and the licences and sources of dependencies.

mod files;
mod graph;
mod licences;

use std::collections::BTreeSet;

use anyhow::bail;

use graph::Graph;

/// For each of our crates: those of ours that it may use, and those that only its tests may use.
///
/// Libs never see services, services never see each other, and only the binary sees them all.
#[rustfmt::skip]
const ALLOWED: &[(&str, &[&str], &[&str])] = &[
    ("resource-api", &[], &[]),
    ("device-selectors", &["resource-api"], &[]),
    ("structured", &["resource-api", "device-selectors"], &[]),
    ("apiserver", &["resource-api"], &[]),
    ("store", &["resource-api"], &["testkit"]),
    ("bus", &["resource-api"], &["testkit", "embedded"]),
    ("follower", &["resource-api", "store", "bus", "chassis"], &["testkit", "embedded"]),
    ("rpc", &["resource-api"], &[]),
    ("chassis", &[], &["testkit"]),
    ("embedded", &[], &["testkit", "store"]),
    ("testkit", &["embedded", "store", "bus", "rpc", "chassis", "resource-api"], &[]),
    ("ingest", &["resource-api", "apiserver", "device-selectors", "store", "bus", "follower", "rpc", "chassis"], &["testkit", "embedded"]),
    ("allocator", &["resource-api", "device-selectors", "structured", "store", "bus", "follower", "chassis"], &["testkit", "embedded", "rpc"]),
    ("node-agent", &["resource-api", "bus", "rpc", "chassis"], &["testkit", "embedded", "store", "follower"]),
    ("controller", &["resource-api", "store", "bus", "follower", "chassis"], &["testkit", "embedded", "rpc"]),
    ("dray", &["resource-api", "store", "bus", "rpc", "chassis", "embedded", "ingest", "allocator", "node-agent", "controller"], &["testkit"]),
    // Measures from outside, as a client; the floor it compares with is bare SQL of its own.
    ("bench", &["resource-api", "device-selectors", "structured", "store", "bus", "embedded", "rpc"], &["testkit"]),
    ("xtask", &[], &[]),
];

/// Crates of data and decisions: no runtime, no I/O, no clock, no randomness.
const PURE: &[&str] = &["resource-api", "device-selectors", "structured", "apiserver"];

/// What a pure crate may not link.
const IMPURE: &[&str] = &["tokio", "tonic", "sqlx", "async-nats", "axum", "rand", "tracing-subscriber"];

/// Libraries that only some of our crates may use: (library, its users). Tests may use them to be cruel from outside.
const FEW_USERS: &[(&str, &[&str])] = &[("sqlx", &["store", "bench"]), ("async-nats", &["bus"])];

/// Checks everything; an error lists all findings.
pub(crate) fn run() -> anyhow::Result<()> {
    let graph = Graph::read()?;
    let mut findings = edges(&graph);
    findings.extend(few_users(&graph));
    findings.extend(purity(&graph));
    findings.extend(licences::check(&graph)?);
    findings.extend(files::check(&graph)?);
    if findings.is_empty() {
        eprintln!("tidy: ok");
        return Ok(());
    }
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    bail!("tidy found {} faults", findings.len());
}

/// Edges between our crates that the table does not have, and crates that are missing in it.
fn edges(graph: &Graph) -> Vec<String> {
    let mut findings = Vec::new();
    let ours: BTreeSet<&str> = graph.ours.keys().map(String::as_str).collect();
    for (name, krate) in &graph.ours {
        let Some((_, allowed, in_tests)) = ALLOWED.iter().find(|(known, ..)| known == name) else {
            findings.push(format!("crate {name} is missing in the table in xtask/src/tidy.rs"));
            continue;
        };
        for dependency in krate.dependencies.iter().filter(|d| ours.contains(d.name.as_str())) {
            let used = dependency.name.as_str();
            let is_allowed = allowed.contains(&used) || (dependency.is_dev && in_tests.contains(&used));
            if !is_allowed {
                let what = if dependency.is_dev { "use in tests" } else { "use" };
                findings.push(format!("{name} may not {what} {used}"));
            }
        }
    }
    findings
}

fn few_users(graph: &Graph) -> Vec<String> {
    let mut findings = Vec::new();
    for (library, users) in FEW_USERS {
        for (name, krate) in graph.ours.iter().filter(|(name, _)| !users.contains(&name.as_str())) {
            if krate
                .dependencies
                .iter()
                .any(|dependency| dependency.name == *library && !dependency.is_dev)
            {
                findings.push(format!("{name} uses {library}, which only {} may", users.join(", ")));
            }
        }
    }
    findings
}

fn purity(graph: &Graph) -> Vec<String> {
    let mut findings = Vec::new();
    for name in PURE {
        for linked in graph.linked_by(name) {
            if IMPURE.contains(&linked.as_str()) {
                findings.push(format!("{name} is pure but links {linked}"));
            }
        }
    }
    findings
}
