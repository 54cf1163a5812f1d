//! Random devices and expressions, for every test that wants some.

use std::collections::BTreeMap;

use proptest::prelude::*;
use resource_api::device::{Device, DeviceAttribute, DeviceCapacity};

pub(crate) const DRIVER: &str = "dra.example.com";

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

/// Devices with few names, so that expressions meet them.
pub(crate) fn device() -> impl Strategy<Value = Device> {
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
pub(crate) fn expression() -> impl Strategy<Value = String> {
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
        Just("y".to_owned()),
        Just("device".to_owned()),
        Just("optional.none()".to_owned()),
        Just("ip('10.0.0.1')".to_owned()),
        Just("cidr('10.0.0.0/8')".to_owned()),
        Just("'10.0.0.1'".to_owned()),
        Just("url('https://a.b/c?d=e')".to_owned()),
        Just("format.dns1123Label()".to_owned()),
        Just("[3, 1, 2]".to_owned()),
        Just("['b', 'a']".to_owned()),
        Just("{'a': 1, 'b': 2}".to_owned()),
        Just("{'a': {'a': 1}}".to_owned()),
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
            "ip",
            "masked",
            "prefixLength",
            "family",
            "patch",
            "getHost",
            "asApproximateFloat",
            "min",
            "last",
            "upperAscii",
            "getFullYear",
            "isLoopback",
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
            "findAll",
            "endsWith",
            "lastIndexOf",
            "isLessThan",
            "isGreaterThan",
            "sub",
            "or",
            "containsIP",
            "containsCIDR",
            "substring",
            "join",
            "flatten",
            "validate",
            "getHours",
        ];
        const TERNARY: &[&str] = &["replace", "substring", "slice", "split", "indexOf", "lastIndexOf", "findAll"];
        const GLOBAL: &[&str] = &[
            "sets.contains",
            "sets.intersects",
            "sets.equivalent",
            "semver",
            "isSemver",
            "matches",
        ];
        const TWO_VARIABLES: &[&str] = &["all", "exists", "existsOne", "transformList", "transformMap"];
        const MACROS: &[&str] = &[
            "all",
            "exists",
            "exists_one",
            "map",
            "filter",
            "sortBy",
            "optMap",
            "optFlatMap",
        ];
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
            "quantity",
            "semver",
            "cidr",
            "url",
            "duration",
            "timestamp",
            "uint",
            "isIP",
            "isCIDR",
            "ip.isCanonical",
            "lists.range",
            "strings.quote",
            "optional.ofNonZeroValue",
            "optional.unwrap",
            "format.named",
        ];
        prop_oneof![
            (inner.clone(), prop::sample::select(OPERATORS), inner.clone()).prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
            (inner.clone(), prop::sample::select(METHODS)).prop_map(|(a, m)| format!("({a}).{m}()")),
            (inner.clone(), prop::sample::select(BINARY), inner.clone()).prop_map(|(a, m, b)| format!("({a}).{m}({b})")),
            (inner.clone(), prop::sample::select(MACROS), inner.clone()).prop_map(|(a, m, b)| format!("({a}).{m}(x, {b})")),
            (inner.clone(), prop::sample::select(TERNARY), inner.clone(), inner.clone())
                .prop_map(|(a, m, b, c)| format!("({a}).{m}({b}, {c})")),
            (inner.clone(), prop::sample::select(GLOBAL), inner.clone()).prop_map(|(a, f, b)| format!("{f}({a}, {b})")),
            (inner.clone(), prop::sample::select(TWO_VARIABLES), inner.clone())
                .prop_map(|(a, m, b)| format!("({a}).{m}(y, x, {b})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, p, b)| format!("({a}).map(x, {p}, {b})")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, k, v)| format!("({a}).transformMapEntry(y, x, {{{k}: {v}}})")),
            (prop::sample::select(FUNCTIONS), inner.clone()).prop_map(|(f, a)| format!("{f}({a})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(c, a, b)| format!("({c}) ? ({a}) : ({b})")),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|list| format!("[{}]", list.join(", "))),
            (inner.clone(), inner.clone()).prop_map(|(k, v)| format!("{{{k}: {v}}}")),
            (inner.clone(), inner.clone()).prop_map(|(a, k)| format!("({a})[{k}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, k)| format!("({a})[?{k}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("cel.bind(x, {a}, {b})")),
            inner.clone().prop_map(|a| format!("!({a})")),
            inner.clone().prop_map(|a| format!("-({a})")),
            inner.clone().prop_map(|a| format!("({a}).a")),
            inner.clone().prop_map(|a| format!("({a}).?a")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(c, a, b)| format!("(({c}) ? ({a}) : ({b})).a")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[?{a}, {b}]")),
            inner.clone().prop_map(|a| format!("dyn({a}) == dyn(1) || dyn({a})")),
            inner.prop_map(|a| format!("has(({a}).a)")),
        ]
    })
}
