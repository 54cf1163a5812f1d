//! Derived attributes: what is accepted in which mode, and what value comes out.

use device_selectors::{CompileErrorKind, DerivedAttribute, DeviceView, EvalErrorKind, Gates, Mode};
use resource_api::device::{Device, DeviceAttribute, DeviceCapacity};

const LISTS_OFF: Mode = Mode::New(Gates {
    list_type_attributes: false,
    consumable_capacity: true,
});
const LISTS_ON: Mode = Mode::New(Gates {
    list_type_attributes: true,
    consumable_capacity: true,
});

fn device() -> Device {
    let mut device = Device::default();
    let attributes = [
        (
            "s",
            DeviceAttribute {
                string: Some("abc".to_owned()),
                ..Default::default()
            },
        ),
        (
            "i",
            DeviceAttribute {
                int: Some(7),
                ..Default::default()
            },
        ),
        (
            "v",
            DeviceAttribute {
                version: Some("1.2.3+build".to_owned()),
                ..Default::default()
            },
        ),
        (
            "l",
            DeviceAttribute {
                strings: Some(vec!["p".to_owned(), "q".to_owned()]),
                ..Default::default()
            },
        ),
        (
            "li",
            DeviceAttribute {
                ints: Some(vec![3, 1]),
                ..Default::default()
            },
        ),
    ];
    for (name, attribute) in attributes {
        device.attributes.insert(name.to_owned(), attribute);
    }
    let value = "4Ki".parse().expect("a quantity");
    device.capacity.insert(
        "mem".to_owned(),
        DeviceCapacity {
            value,
            ..Default::default()
        },
    );
    device
}

/// The value in the API's JSON, or why there is none. `A` stands for the attributes of the driver's domain.
fn derive(expression: &str, mode: Mode) -> Result<serde_json::Value, String> {
    let expression = expression.replace("A.", r#"device.attributes["d"]."#);
    let derived = DerivedAttribute::compile(&expression, mode).map_err(|error| error.kind.as_str().to_owned())?;
    let device = device();
    let attribute = derived
        .evaluate(&DeviceView::new("d", &device))
        .map_err(|error| error.kind().as_str().to_owned())?;
    serde_json::to_value(&attribute).map_err(|error| error.to_string())
}

#[track_caller]
fn check(expression: &str, lists_off: Result<&str, &str>, otherwise: Result<&str, &str>) {
    let json = |text: &str| serde_json::from_str(text).expect("the expectation is JSON");
    for (mode, expected) in [(LISTS_OFF, lists_off), (LISTS_ON, otherwise), (Mode::Stored, otherwise)] {
        assert_eq!(
            derive(expression, mode),
            expected.map(json).map_err(str::to_owned),
            "{expression} in {mode:?}"
        );
    }
}

#[test]
fn scalars_become_attributes_in_every_mode() {
    for (expression, expected) in [
        (r#""lit""#, r#"{"string": "lit"}"#),
        ("1", r#"{"int": 1}"#),
        ("true", r#"{"bool": true}"#),
        (r#"semver("1.2.3")"#, r#"{"version": "1.2.3"}"#),
        ("A.s", r#"{"string": "abc"}"#),
        ("A.v", r#"{"version": "1.2.3+build"}"#),
        ("A.l", r#"{"strings": ["p", "q"]}"#),
        ("A.li.sort()", r#"{"ints": [1, 3]}"#),
        (r#"A.s + "-x""#, r#"{"string": "abc-x"}"#),
        (r#"A.i > 5 ? "big" : "small""#, r#"{"string": "big"}"#),
        ("device.driver", r#"{"string": "d"}"#),
        (r#"A.?missing.orValue("none")"#, r#"{"string": "none"}"#),
        (r#"device.capacity["d"].mem.asInteger()"#, r#"{"int": 4096}"#),
    ] {
        check(expression, Ok(expected), Ok(expected));
    }
}

#[test]
fn lists_need_the_gate() {
    for (expression, expected) in [
        ("[1, 2]", r#"{"ints": [1, 2]}"#),
        (r#"["a"]"#, r#"{"strings": ["a"]}"#),
        ("[true]", r#"{"bools": [true]}"#),
        (r#"[semver("1.0.0")]"#, r#"{"versions": ["1.0.0"]}"#),
        ("[A.s]", r#"{"strings": ["abc"]}"#),
        ("[]", r#"{}"#),
        (r#"A.s.split("b")"#, r#"{"strings": ["a", "c"]}"#),
    ] {
        check(expression, Err("result-type"), Ok(expected));
    }
    // The size of a list's elements is unknown, so adding to them has no bound when new.
    let longer = r#"A.l.map(x, x + "!")"#;
    assert_eq!(derive(longer, LISTS_OFF), Err("not-iterable".to_owned()));
    assert_eq!(derive(longer, LISTS_ON), Err("too-expensive".to_owned()));
    assert_eq!(derive(longer, Mode::Stored), Ok(serde_json::json!({"strings": ["p!", "q!"]})));
}

#[test]
fn other_types_are_refused() {
    for expression in [
        "1.5",
        "1u",
        "null",
        r#"quantity("1")"#,
        r#"duration("1s")"#,
        r#"{"a": 1}"#,
        "type(1)",
        r#"optional.of("a")"#,
        "device.attributes",
        r#"device.attributes["nope"]"#,
        r#"device.capacity["d"].mem"#,
        "[1.5]",
        "[[1]]",
    ] {
        check(expression, Err("result-type"), Err("result-type"));
    }
    check(r#"[1, dyn("a")]"#, Err("type-mismatch"), Err("type-mismatch"));
}

#[test]
fn values_that_are_no_attribute_fail_when_evaluated() {
    for expression in [
        "dyn(1.5)",
        "dyn(1u)",
        "dyn(null)",
        r#"dyn({"a": 1})"#,
        "dyn([1.5])",
        r#"[dyn(1), dyn("a")]"#,
    ] {
        assert_eq!(
            derive(expression, Mode::Stored),
            Err("invalid-value".to_owned()),
            "{expression}"
        );
    }
    assert_eq!(
        derive("A.missing", Mode::Stored),
        Err(EvalErrorKind::NoSuchKey.as_str().to_owned())
    );
    assert_eq!(
        derive("1/0", Mode::Stored),
        Err(EvalErrorKind::DivideByZero.as_str().to_owned())
    );
}

#[test]
fn costs_are_estimated_and_limited_when_new() {
    let cheap = DerivedAttribute::compile("device.driver", LISTS_OFF).expect("compiles");
    assert_eq!(cheap.estimated_cost(), 2);
    let costly = "lists.range(1000000).map(x, x).size()";
    let refused = DerivedAttribute::compile(costly, LISTS_OFF)
        .map(|_| ())
        .map_err(|error| error.kind);
    assert_eq!(refused, Err(CompileErrorKind::TooExpensive));
    assert!(DerivedAttribute::compile(costly, Mode::Stored).is_ok());
}
