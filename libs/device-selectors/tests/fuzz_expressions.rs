//! Random expressions through all that is done with them: compile in every mode, as selector and as derived attribute,
//! evaluate on random devices. Nothing panics, and what must hold of every expression holds. How to run it for longer is in
//! `docs/fuzzing.md`.

mod random;

use std::path::Path;
use std::sync::LazyLock;

use arbtest::arbitrary::{self, Result, Unstructured};
use arbtest::arbtest;
use device_selectors::{
    COST_LIMIT, DerivedAttribute, DeviceView, EXPRESSION_MAX_BYTES, EvalErrorKind, Gates, Mode, Options, Selector,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use random::{DRIVER, device, expression};
use resource_api::device::Device;
use serde::Deserialize;

/// Words and signs that are put between what is there.
const TOKENS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ".?",
    "[?",
    ",",
    ":",
    "?",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    ">=",
    "&&",
    "||",
    " in ",
    "'a'",
    "\"\"",
    "b'\\xff'",
    "r'\\d'",
    "1",
    "0",
    "1u",
    "-9223372036854775808",
    "0x7f",
    "1e308",
    ".5",
    "true",
    "null",
    "x",
    "device",
    ".driver",
    ".attributes",
    ".capacity",
    "dyn(",
    "has(",
    "size(",
    "quantity(",
    "semver(",
    ".all(x, ",
    ".map(x, ",
    ".exists(i, x, ",
    ".sortBy(x, ",
    ".optMap(x, ",
    "cel.bind(x, ",
    ".matches(",
    ".format([",
    "lists.range(",
    ".transformMap(k, v, ",
    ".replace(",
    ".flatten(",
    "// c\n",
    "`a-b`",
    "'''",
    "\\u{1F600}",
    "é",
    "\u{0}",
];

fn files(folder: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/fuzz").join(folder);
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| String::from_utf8_lossy(&std::fs::read(path).expect("a file")).into_owned();
    paths.iter().map(read).collect()
}

/// The expressions of the conformance vectors and of the cost table.
static SEEDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct Vector {
        expression: String,
    }
    let vectors: Vec<Vector> = serde_json::from_str(include_str!("../testdata/cel.json")).expect("the vectors are readable");
    let costs = include_str!("../testdata/costs.tsv").lines();
    let costs = costs.filter_map(|line| line.split('\t').next());
    vectors
        .into_iter()
        .map(|vector| vector.expression)
        .chain(costs.map(str::to_owned))
        .collect()
});

/// A tree of random expressions and devices, grown from the same bytes as everything else.
fn grown<S: Strategy>(u: &mut Unstructured<'_>, strategy: &S) -> Result<S::Value> {
    let seed: [u8; 32] = u.arbitrary()?;
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let tree = strategy
        .new_tree(&mut runner)
        .map_err(|_| arbitrary::Error::IncorrectFormat)?;
    Ok(tree.current())
}

fn text(u: &mut Unstructured<'_>) -> Result<String> {
    let text = match u.int_in_range(0..=9)? {
        0..=3 => {
            let tree = grown(u, &expression())?;
            format!("cel.bind(x, dyn([1, 2]), cel.bind(y, dyn(1), dyn({tree}) != dyn(null)))")
        }
        4..=6 => combined(u)?,
        7 => nested(u)?,
        _ => u.choose(&SEEDS)?.clone(),
    };
    if u.ratio(2, 3)? {
        return Ok(text);
    }
    let mut bytes = text.into_bytes();
    for _ in 0..u.int_in_range(1..=3)? {
        change(u, &mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Conditions put together to a condition.
fn combined(u: &mut Unstructured<'_>) -> Result<String> {
    const WAYS: &[&str] = &[
        "(#) && (#)",
        "(#) || (#)",
        "(#) ? (#) : (#)",
        "!(#)",
        "(#) == (#)",
        "(#) in [(#), (#)]",
        "[1, 2].all(i, (#) || i == 1)",
        "[1, 2].exists_one(i, (#))",
        "[0, 1].map(i, i == 0 || (#)).size() == 2",
        "{'a': (#)}.exists(k, v, v || (#))",
        "cel.bind(z, (#), z && (z || (#)))",
        "optional.of((#)).optMap(o, o == (#)).orValue((#))",
        "[[1, 2].filter(i, (#)), []][?1].hasValue() || (#)",
        "[2, 1].sortBy(i, (#) ? i : -i).size() == 2",
        "[(#), (#)][(#) ? 0 : 1]",
        "string((#)).matches('^[a-z]+$')",
    ];
    let mut text = (*u.choose(WAYS)?).to_owned();
    while let Some(at) = text.find('#') {
        let part = match u.int_in_range(0..=9)? {
            0..=3 if text.len() < 2000 => (*u.choose(WAYS)?).to_owned(),
            _ => u.choose(&SEEDS)?.replace('#', "_"),
        };
        text.replace_range(at..=at, &part);
    }
    Ok(text)
}

/// A piece around itself, or after itself, many times.
fn nested(u: &mut Unstructured<'_>) -> Result<String> {
    let (open, close) = (*u.choose(TOKENS)?, *u.choose(TOKENS)?);
    let inner = u.choose(&SEEDS)?;
    let n = u.int_in_range(1..=400)?;
    Ok(format!("{}{inner}{}", open.repeat(n), close.repeat(n)))
}

fn change(u: &mut Unstructured<'_>, bytes: &mut Vec<u8>) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let at = u.choose_index(bytes.len())?;
    let end = (at + u.int_in_range(1..=40_usize)?).min(bytes.len());
    match u.int_in_range(0..=5)? {
        0 => bytes[at] = u.arbitrary()?,
        1 => drop(bytes.drain(at..end)),
        2 => {
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        3 => {
            let other = u.choose(&SEEDS)?.as_bytes();
            bytes.splice(at..end, other.iter().copied());
        }
        _ => {
            let token = u.choose(TOKENS)?;
            bytes.splice(at..at, token.bytes());
        }
    }
    Ok(())
}

fn target(u: &mut Unstructured<'_>) -> Result<()> {
    let text = text(u)?;
    let device = grown(u, &device())?;
    check(&text, &device);
    Ok(())
}

/// Everything that must hold of a text, whatever it is.
fn check(text: &str, device: &Device) {
    let view = DeviceView::new(DRIVER, device);
    for list_type_attributes in [false, true] {
        for consumable_capacity in [false, true] {
            let gates = Gates {
                list_type_attributes,
                consumable_capacity,
            };
            check_new(text, gates, &view);
        }
    }
    if let Ok(derived) = DerivedAttribute::compile(text, Mode::Stored) {
        let once = derived.evaluate(&view);
        assert_eq!(once, derived.evaluate(&view), "{text}");
        if let Ok(attribute) = once {
            assert_eq!(attribute.values().count(), 1, "{text}");
        }
    }
    let Ok(selector) = Selector::compile(text, Mode::Stored, Options::default()) else {
        return;
    };
    assert!(text.len() <= EXPRESSION_MAX_BYTES);
    assert_eq!(selector.expression(), text);
    check_evaluation(text, &selector, &view);
}

/// What is accepted as new is accepted when it is stored, and is within the limit.
fn check_new(text: &str, gates: Gates, view: &DeviceView<'_>) {
    if let Ok(new) = Selector::compile(text, Mode::New(gates), Options::default()) {
        assert!(new.estimated_cost() <= COST_LIMIT, "{text}");
        let stored = Selector::compile(text, Mode::Stored, Options::default());
        let stored = stored.unwrap_or_else(|error| panic!("{text}: accepted as new, refused as stored: {}", error.text));
        assert_eq!(new.matches(view), stored.matches(view), "{text}");
    }
    if DerivedAttribute::compile(text, Mode::New(gates)).is_ok() {
        assert!(DerivedAttribute::compile(text, Mode::Stored).is_ok(), "{text}");
    }
}

fn check_evaluation(text: &str, selector: &Selector, view: &DeviceView<'_>) {
    let (answer, cost) = selector.matches_with_cost(view);
    assert_eq!((answer.clone(), cost), selector.matches_with_cost(view), "{text}");
    match &answer {
        // The operation that is over the limit still counts; none costs more than what it looks at.
        Err(error) if error.kind() == EvalErrorKind::CostLimit => {}
        _ => assert!(cost <= COST_LIMIT, "{text}: {cost}"),
    }
    // A smaller limit stops the evaluation, and only that.
    let limit = cost.min(COST_LIMIT) / 2;
    let limited = Selector::compile(text, Mode::Stored, Options { cost_limit: limit }).expect("the limit is not one of the text");
    match limited.matches(view) {
        Err(error) if error.kind() == EvalErrorKind::CostLimit => assert!(cost > limit, "{text}"),
        found => assert_eq!((found, cost <= limit), (answer, true), "{text}"),
    }
}

#[test]
fn random_expressions() {
    arbtest(target).size_min(512).size_max(8192).budget_ms(4000).run();
}

/// Runs for `ARBTEST_BUDGET_MS`, a tenth of a second if that is not set.
#[test]
#[ignore = "runs as long as it is told to"]
fn random_expressions_for_longer() {
    arbtest(target).size_min(512).size_max(8192).run();
}

/// Each file once broke something; its name says what.
#[test]
fn expressions_that_were_found() {
    for text in files("found") {
        check(&text, &Device::default());
    }
}
