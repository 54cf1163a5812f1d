//! What services rely on beyond single answers: what a selector reads, how refusals read, and the shared cache.

use std::collections::BTreeSet;
use std::sync::Arc;

use device_selectors::{CompileErrorKind, DeviceExpressions, DeviceView, Gates, Mode, Options, Reads, Selector};
use resource_api::device::{Device, DeviceAttribute};
use resource_api::validation::{ExpressionChecker, ExpressionMode, ExpressionProblemKind};

fn compile(expression: &str) -> Selector {
    Selector::compile(expression, Mode::Stored, Options::default()).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// Facts by name as `a:domain/id` and `c:domain/id`, whole domains as `a:domain/*`, and `driver`, `multiple`;
/// `None` for everything.
fn reads(expression: &str) -> Option<BTreeSet<String>> {
    let selector = compile(expression);
    let Reads::Only(set) = selector.reads() else { return None };
    let mut names: BTreeSet<String> = set.attributes.iter().map(|(domain, id)| format!("a:{domain}/{id}")).collect();
    names.extend(set.capacity.iter().map(|(domain, id)| format!("c:{domain}/{id}")));
    names.extend(set.attribute_domains.iter().map(|domain| format!("a:{domain}/*")));
    names.extend(set.capacity_domains.iter().map(|domain| format!("c:{domain}/*")));
    names.extend(set.driver.then(|| "driver".to_owned()));
    names.extend(set.multiple_allocations.then(|| "multiple".to_owned()));
    Some(names)
}

#[track_caller]
fn check_reads(expression: &str, names: &[&str]) {
    let expected: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(reads(expression), Some(expected), "{expression}");
}

#[test]
fn compiled_forms_can_be_shared_between_threads() {
    fn shareable<T: Send + Sync>() {}
    shareable::<Selector>();
    shareable::<DeviceView<'_>>();
    shareable::<DeviceExpressions>();
}

#[test]
fn constant_names_are_read_by_name() {
    check_reads("true", &[]);
    check_reads(r#"device.driver == "d""#, &["driver"]);
    check_reads("device.allowMultipleAllocations", &["multiple"]);
    check_reads(
        r#"device.attributes["d"].x == 1 || device.attributes.d["y"]"#,
        &["a:d/x", "a:d/y"],
    );
    check_reads(
        r#"has(device.attributes["d"].x) && device.attributes["d"].?y.orValue(true)"#,
        &["a:d/x", "a:d/y"],
    );
    check_reads(
        r#""x" in device.attributes["d"] && device.attributes["d"][?"y"].hasValue()"#,
        &["a:d/x", "a:d/y"],
    );
    check_reads(r#"device.capacity["d"].mem.compareTo(quantity("1Gi")) >= 0"#, &["c:d/mem"]);
    check_reads(r#"[1, 2].all(i, device.attributes["d"].x > i)"#, &["a:d/x"]);
}

#[test]
fn computed_ids_read_their_domain() {
    check_reads(r#"device.attributes["d"].exists(id, id == "x")"#, &["a:d/*"]);
    check_reads(r#"cel.bind(d, device.attributes["d"], d.x && d.y)"#, &["a:d/*"]);
    check_reads(r#"device.attributes["d"][device.driver] == 1"#, &["a:d/*", "driver"]);
    check_reads(r#"device.capacity["d"].size() == 2"#, &["c:d/*"]);
}

#[test]
fn computed_domains_read_everything() {
    for expression in [
        "device.attributes.size() == 1",
        "device.attributes[device.driver].x == 1",
        r#""d" in device.capacity"#,
        "device.attributes.all(d, m, m.size() > 0)",
        "dyn(device).driver == 'd'",
        "has(device.attributes)",
    ] {
        assert_eq!(reads(expression), None, "{expression}");
    }
}

#[test]
fn facts_are_found_as_expressions_find_them() {
    let mut device = Device::default();
    for (name, int) in [("x", 1), ("d/y", 2), ("e/x", 3), ("y", 4), ("e/a/b", 5)] {
        device.attributes.insert(
            name.to_owned(),
            DeviceAttribute {
                int: Some(int),
                ..Default::default()
            },
        );
    }
    let view = DeviceView::new("d", &device);
    for (domain, id, expected) in [
        ("d", "x", Some(1)),
        ("d", "y", Some(2)), // the explicit name, not the bare one
        ("e", "x", Some(3)),
        ("e", "a/b", Some(5)),
        ("e/a", "b", None),
        ("f", "x", None),
    ] {
        let found = view.attribute(domain, id).and_then(|attribute| attribute.int);
        assert_eq!(found, expected, "{domain} {id}");
        let selector = compile(&format!(
            r#"device.attributes["{domain}"][?"{id}"].orValue(0) == {}"#,
            expected.unwrap_or(0)
        ));
        assert_eq!(selector.matches(&view), Ok(true), "{domain} {id}");
    }
}

#[test]
fn refusals_point_at_the_place() {
    let error =
        Selector::compile("device.driver ==\n  device.name", Mode::Stored, Options::default()).expect_err("unknown field");
    assert_eq!(error.kind, CompileErrorKind::UndefinedField);
    assert_eq!(
        error.text,
        "compilation failed: ERROR: <input>:2:9: undefined field 'name'\n |   device.name\n | ........^"
    );
}

#[test]
fn missing_keys_come_with_advice() {
    let device = Device::default();
    let error = compile(r#"device.attributes["d"].x == 1"#)
        .matches(&DeviceView::new("d", &device))
        .expect_err("no such key");
    assert!(error.to_string().starts_with("no such key: x"), "{error}");
    assert!(error.to_string().contains(".?x.orValue"), "{error}");
}

#[test]
fn a_smaller_limit_stops_evaluation_earlier() {
    let device = Device::default();
    let selector =
        Selector::compile("lists.range(100).all(x, x >= 0)", Mode::Stored, Options { cost_limit: 100 }).expect("compiles");
    let (answer, cost) = selector.matches_with_cost(&DeviceView::new("d", &device));
    assert_eq!(answer.map_err(|error| error.kind().as_str()), Err("cost-limit"));
    assert!(cost < 200, "{cost}");
}

#[test]
fn the_checker_knows_modes_and_costs() {
    let expressions = DeviceExpressions::new(Gates::default());
    let kind = |expression: &str, mode| expressions.check(expression, mode).map_err(|problem| problem.kind);
    assert_eq!(kind("true", ExpressionMode::New), Ok(()));
    assert_eq!(kind("1", ExpressionMode::New), Err(ExpressionProblemKind::Invalid));
    let gated = "device.allowMultipleAllocations";
    assert_eq!(kind(gated, ExpressionMode::New), Err(ExpressionProblemKind::Invalid));
    assert_eq!(kind(gated, ExpressionMode::Stored), Ok(()));
    let costly = "lists.range(1000000).all(x, x >= 0)";
    assert_eq!(kind(costly, ExpressionMode::New), Err(ExpressionProblemKind::TooExpensive));
    assert_eq!(kind(costly, ExpressionMode::Stored), Ok(()));
    assert_eq!(expressions.check_derived("device.driver", ExpressionMode::New), Ok(2));
}

#[test]
fn the_cache_keeps_what_is_used_and_stays_bounded() {
    let expressions = DeviceExpressions::new(Gates::default());
    let kept = expressions.stored("true").expect("compiles");
    for n in 0..5000 {
        expressions.stored(&format!("{n} == {n}")).expect("compiles");
        let again = expressions.stored("true").expect("compiles");
        assert!(Arc::ptr_eq(&kept, &again), "forgotten although in use, after {n} others");
    }
    let first = expressions.stored("0 == 0").expect("compiles");
    assert_eq!(Arc::strong_count(&first), 2, "one here, one in the cache");
}
