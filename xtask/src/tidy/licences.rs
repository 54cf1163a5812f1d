//! Licences and sources of what we link. The allowed licences are those of `deny.toml`, so that there is one list.

use serde::Deserialize;

use super::graph::Graph;
use crate::shell;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Deserialize)]
struct DenyFile {
    licenses: Licenses,
}
#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

/// Packages with a licence that is not allowed, or from elsewhere than crates.io.
pub(super) fn check(graph: &Graph) -> anyhow::Result<Vec<String>> {
    let deny: DenyFile = toml::from_str(&std::fs::read_to_string(shell::root().join("deny.toml"))?)?;
    let mut findings = Vec::new();
    for package in &graph.all {
        let licence = package.license.as_deref().unwrap_or("none");
        if !is_allowed(licence, &deny.licenses.allow) {
            findings.push(format!(
                "{} {} has the licence {licence}, which deny.toml does not allow",
                package.name, package.version
            ));
        }
        if package.source.as_deref().is_some_and(|source| source != CRATES_IO) {
            findings.push(format!("{} {} does not come from crates.io", package.name, package.version));
        }
    }
    Ok(findings)
}

/// Whether one alternative of the SPDX expression is allowed as a whole. `/` is the old way to write `OR`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let plain = expression.replace('/', " OR ").replace(['(', ')'], " ");
    let known = |licence: &str| allowed.iter().any(|one| one == licence.trim());
    // An expression with parentheses is read as `(…) AND (…)`, the only such form in use.
    if expression.contains('(') {
        return plain.split(" AND ").all(|part| part.split(" OR ").any(known));
    }
    plain.split(" OR ").any(|alternative| alternative.split(" AND ").all(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_alternative_is_enough_and_all_its_parts_are_needed() {
        let allowed = ["MIT".to_owned(), "Unicode-3.0".to_owned(), "Apache-2.0".to_owned()];
        for good in [
            "MIT",
            "MIT/Unlicense",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "MIT AND Unicode-3.0",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in ["none", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND GPL-3.0"] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }
}
