//! Properties over random input: no panic, same answer twice, actual cost within the estimate, and devices that
//! agree on what a selector reads get the same answer.

use std::collections::BTreeMap;

use device_selectors::{DerivedAttribute, DeviceView, EvalErrorKind, Gates, Mode, Options, Reads, Selector};
use proptest::prelude::*;
use resource_api::device::{Device, DeviceAttribute, DeviceCapacity};

const DRIVER: &str = "dra.example.com";

fn attribute() -> impl Strategy<Value = DeviceAttribute> {
    prop_oneof![
        any::<i64>().prop_map(|n| DeviceAttribute {
            int: Some(n),
            ..Default::default()
        }),
        (-3_i64..3).prop_map(|n| DeviceAttribute {
            int: Some(n),
            ..Default::default()
        }),
        any::<bool>().prop_map(|b| DeviceAttribute {
            bool: Some(b),
            ..Default::default()
        }),
        "[a-c]{0,3}".prop_map(|s| DeviceAttribute {
            string: Some(s),
            ..Default::default()
        }),
        Just(DeviceAttribute {
            version: Some("1.2.3-rc.1+b".to_owned()),
            ..Default::default()
        }),
        prop::collection::vec(0_i64..4, 0..4).prop_map(|l| DeviceAttribute {
            ints: Some(l),
            ..Default::default()
        }),
        prop::collection::vec("[a-c]{0,2}", 0..4).prop_map(|l| DeviceAttribute {
            strings: Some(l),
            ..Default::default()
        }),
    ]
}

fn device() -> impl Strategy<Value = Device> {
    let names = prop_oneof![Just("a"), Just("b"), Just("dra.example.com/a"), Just("other.example.com/c")];
    let attributes = prop::collection::btree_map(names.prop_map(str::to_owned), attribute(), 0..4);
    let amounts = prop_oneof![Just("1"), Just("1500m"), Just("1Gi")];
    (attributes, prop::option::of(amounts), any::<bool>()).prop_map(|(attributes, memory, shareable)| {
        let mut capacity = BTreeMap::new();
        if let Some(amount) = memory {
            let value = amount.parse().expect("a quantity");
            capacity.insert(
                "memory".to_owned(),
                DeviceCapacity {
                    value,
                    ..Default::default()
                },
            );
        }
        Device {
            attributes,
            capacity,
            allow_multiple_allocations: Some(shareable),
            ..Device::default()
        }
    })
}

/// Expressions that are mostly well formed, often well typed.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("true".to_owned()),
        Just("null".to_owned()),
        (-2_i64..5).prop_map(|n| n.to_string()),
        Just("2u".to_owned()),
        Just("1.5".to_owned()),
        "[a-c%.]{0,4}".prop_map(|s| format!("'{s}'")),
        Just("b'ab'".to_owned()),
        Just("x".to_owned()),
        Just("device.driver".to_owned()),
        Just("device.allowMultipleAllocations".to_owned()),
        Just("device.attributes".to_owned()),
        Just("device.attributes['dra.example.com']".to_owned()),
        Just("device.attributes['dra.example.com'].a".to_owned()),
        Just("device.attributes['dra.example.com'].b".to_owned()),
        Just("device.attributes['other.example.com'].?c".to_owned()),
        Just("device.capacity['dra.example.com'].memory".to_owned()),
        Just("quantity('1Gi')".to_owned()),
        Just("semver('1.2.3')".to_owned()),
        Just("duration('90m')".to_owned()),
        Just("timestamp('2024-02-29T12:00:00Z')".to_owned()),
        Just("lists.range(3)".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 3, |inner| {
        // Behind `dyn` an operand passes the checker whatever it is, and evaluation gets to see it.
        let inner = prop_oneof![3 => inner.clone().prop_map(|e| format!("dyn({e})")), 1 => inner];
        const OPERATORS: &[&str] = &["==", "!=", "<", ">=", "&&", "||", "+", "-", "*", "/", "%", "in"];
        const METHODS: &[&str] = &[
            "size",
            "trim",
            "sort",
            "sum",
            "max",
            "isSorted",
            "reverse",
            "distinct",
            "first",
            "hasValue",
            "value",
            "flatten",
            "lowerAscii",
            "isInteger",
            "asInteger",
            "major",
            "getHours",
            "join",
            "unwrapOpt",
        ];
        const BINARY: &[&str] = &[
            "contains",
            "startsWith",
            "matches",
            "indexOf",
            "includes",
            "split",
            "compareTo",
            "add",
            "orValue",
            "format",
            "charAt",
            "find",
        ];
        const MACROS: &[&str] = &["all", "exists", "exists_one", "map", "filter", "sortBy", "optMap"];
        const FUNCTIONS: &[&str] = &[
            "string",
            "int",
            "double",
            "bool",
            "bytes",
            "dyn",
            "type",
            "size",
            "optional.of",
            "isQuantity",
            "sign",
            "ip",
            "isURL",
        ];
        prop_oneof![
            (inner.clone(), prop::sample::select(OPERATORS), inner.clone()).prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
            (inner.clone(), prop::sample::select(METHODS)).prop_map(|(a, m)| format!("({a}).{m}()")),
            (inner.clone(), prop::sample::select(BINARY), inner.clone()).prop_map(|(a, m, b)| format!("({a}).{m}({b})")),
            (inner.clone(), prop::sample::select(MACROS), inner.clone()).prop_map(|(a, m, b)| format!("({a}).{m}(x, {b})")),
            (prop::sample::select(FUNCTIONS), inner.clone()).prop_map(|(f, a)| format!("{f}({a})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(c, a, b)| format!("({c}) ? ({a}) : ({b})")),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|list| format!("[{}]", list.join(", "))),
            (inner.clone(), inner.clone()).prop_map(|(k, v)| format!("{{{k}: {v}}}")),
            (inner.clone(), inner.clone()).prop_map(|(a, k)| format!("({a})[{k}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, k)| format!("({a})[?{k}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("cel.bind(x, {a}, {b})")),
            inner.clone().prop_map(|a| format!("!({a})")),
            inner.clone().prop_map(|a| format!("-({a})")),
            inner.clone().prop_map(|a| format!("dyn({a}) == dyn(1) || dyn({a})")),
            inner.prop_map(|a| format!("has(({a}).a)")),
        ]
    })
}

/// A selector that evaluates the expression, whatever its type, with `x` bound to a list.
fn stored(expression: &str) -> Option<Selector> {
    Selector::compile(
        &format!("cel.bind(x, dyn([1, 2]), dyn({expression}) != dyn(null))"),
        Mode::Stored,
        Options::default(),
    )
    .ok()
}

/// What a selector reads of a device, as text that is equal exactly if the facts are.
fn seen(reads: &Reads, view: &DeviceView<'_>, device: &Device) -> String {
    let Reads::Only(set) = reads else {
        return format!("{device:?}");
    };
    let mut seen = String::new();
    if set.multiple_allocations {
        seen.push_str(&format!("{:?};", device.allow_multiple_allocations));
    }
    for (domain, id) in &set.attributes {
        seen.push_str(&format!("{domain}/{id}={:?};", view.attribute(domain, id)));
    }
    for (domain, id) in &set.capacity {
        seen.push_str(&format!(
            "{domain}/{id}={:?};",
            view.capacity(domain, id).map(ToString::to_string)
        ));
    }
    if !set.attribute_domains.is_empty() {
        seen.push_str(&format!("{:?};", device.attributes));
    }
    if !set.capacity_domains.is_empty() {
        seen.push_str(&format!("{:?};", device.capacity));
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,60}") {
        for mode in [Mode::Stored, Mode::New(Gates::default())] {
            let _refused_or_not = Selector::compile(&text, mode, Options::default());
            let _refused_or_not = DerivedAttribute::compile(&text, mode);
        }
    }

    #[test]
    fn text_of_the_languages_own_characters_never_panics(text in r#"[a-c0-9.?:\[\](){}"'`\\+\-*/%!&|<>=, rbux]{0,40}"#) {
        let _refused_or_not = Selector::compile(&text, Mode::Stored, Options::default());
    }

    #[test]
    fn answers_are_repeatable_and_within_the_estimate(text in expression(), device in device()) {
        let Some(selector) = stored(&text) else { return Ok(()) };
        let (answer, cost) = selector.matches_with_cost(&DeviceView::new(DRIVER, &device));
        let again = selector.matches(&DeviceView::new(DRIVER, &device));
        prop_assert_eq!(&answer, &again, "{}", text);
        if let Err(error) = &answer {
            prop_assert_ne!(error.kind(), EvalErrorKind::BadDevice);
        }
        // Selections on dynamic values are free in the estimate, and patterns made at run time cost extra.
        let dynamic = ["?", "[", "has(", "matches", "find"].iter().any(|part| text.contains(part));
        prop_assert!(dynamic || cost <= selector.estimated_cost(), "{}: {} > {}", text, cost, selector.estimated_cost());
    }

    #[test]
    fn devices_that_agree_on_what_is_read_get_one_answer(text in expression(), one in device(), other in device()) {
        let Some(selector) = stored(&text) else { return Ok(()) };
        let (one_view, other_view) = (DeviceView::new(DRIVER, &one), DeviceView::new(DRIVER, &other));
        if seen(selector.reads(), &one_view, &one) == seen(selector.reads(), &other_view, &other) {
            prop_assert_eq!(selector.matches(&one_view), selector.matches(&other_view), "{}", text);
        }
    }

    #[test]
    fn derived_values_never_panic(text in expression(), device in device()) {
        if let Ok(derived) = DerivedAttribute::compile(&text, Mode::Stored)
            && let Ok(attribute) = derived.evaluate(&DeviceView::new(DRIVER, &device))
        {
            prop_assert_eq!(attribute.values().count(), 1, "{}", text);
        }
    }

    #[test]
    fn random_patterns_never_panic(pattern in r"[a-c\\dwspPQEbB\[\](){}|*+?^$.,0-9:<>=!-]{0,16}", text in "[a-c0-9 ]{0,8}") {
        let quote = |s: &str| s.replace('\\', "\\\\").replace('\'', "\\'");
        let expression = format!("'{}'.find(string(dyn('{}'))) == ''", quote(&text), quote(&pattern));
        if let Some(selector) = stored(&expression) {
            let device = Device::default();
            let _found_or_invalid = selector.matches(&DeviceView::new(DRIVER, &device));
        }
    }
}
