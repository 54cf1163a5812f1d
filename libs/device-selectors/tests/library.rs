//! Facts about the language and its library that no vector covers: each line must hold on a device without facts.

use device_selectors::{DeviceView, Mode, Options, Selector};
use resource_api::device::Device;

/// "true", "false", or the kind of the error.
fn outcome(expression: &str) -> String {
    let device = Device::default();
    match Selector::compile(expression, Mode::Stored, Options::default()) {
        Err(error) => error.kind.as_str().to_owned(),
        Ok(selector) => match selector.matches(&DeviceView::new("dra.example.com", &device)) {
            Ok(answer) => answer.to_string(),
            Err(error) => error.kind().as_str().to_owned(),
        },
    }
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter(|(expression, expected)| outcome(expression) != *expected)
        .map(|(expression, expected)| format!("{expression}: expected {expected}, found {}", outcome(expression)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[track_caller]
fn holds(expressions: &[&str]) {
    let cases: Vec<(&str, &str)> = expressions.iter().map(|expression| (*expression, "true")).collect();
    check(&cases);
}

#[test]
fn syntax() {
    holds(&[
        "'\\x41\\u00e9\\U0001F600' == 'Aé😀'",
        r#"b'\377' == b"\xff""#,
        "R'''a\\n'''.size() == 3 && '''a\nb'''.size() == 3",
        "-0x10 == -16 && 0xFFu == 255u && 1.5E-1 == 0.15",
        "- 9223372036854775808 < 0",
        "1 - -1 == 2 && 2-1 == 1",
        "!!!false && ---1 == -1",
        "{'a-b/c d.e': 1}.`a-b/c d.e` == 1",
        "[1, ?optional.of(2)] == [1, 2]",
        ".optional.none() == optional.none()",
        "[[1], [2]].all(l, l.exists(x, x > 0))",
        "1 in [1, 2] == true",
    ]);
    check(&[
        ("1. == 1.0", "syntax"),
        ("'\\ud800' == ''", "syntax"),
        ("'\\U00110000' == ''", "syntax"),
        ("b'\\u0041' == b'A'", "syntax"),
        ("'a\nb' == ''", "syntax"),
        ("{'a': 1}.`` == 1", "syntax"),
        ("`device`.driver == ''", "syntax"),
        ("true ? false ? true : false : true", "syntax"),
        ("while == 1", "syntax"),
        ("1e999 > 0.0", "syntax"),
        ("18446744073709551616u > 0u", "syntax"),
        ("a & b", "syntax"),
        ("[1].all(__result__, true)", "macro"),
        ("google.protobuf.Int64Value{value: 1} == 1", "undeclared"),
    ]);
}

#[test]
fn operators_and_conversions() {
    holds(&[
        "dyn(1) == 1.0 && dyn(1u) == 1 && dyn([1]) == [1.0] && dyn({1: 'a'}) == {1u: 'a'}",
        "double('nan') != double('nan') && !(double('nan') == double('nan'))",
        "dyn(18446744073709551615u) > dyn(-1) && dyn(-1) < dyn(0u)",
        "false < true && b'a' < b'ab' && 'Z' < 'a'",
        "int(-1.9) == -1 && uint(1.9) == 1u && int(duration('1s')) == 1000000000",
        "string(1e100) == '1e+100' && string(0.00001) == '1e-05' && string(-1.0/0.0) == '-Inf' && string(1.0) == '1'",
        "double('-infinity') < 0.0 && double('0x10p0') == 16.0 && double('1_000.5') == 1000.5",
        "string(b'\\xc3\\xa9') == 'é' && bytes('é').size() == 2",
        "type(null) == null_type && type([]) == list && type({}) == map && type(optional.none()) == optional_type",
        "type(ip('::1')) == net.IP && type(duration('1s')) == google.protobuf.Duration",
        "(false && 1/0 == 0) == false && (1/0 == 0 || true)",
        "{'a': 1}.?a.optMap(x, x + 1) == optional.of(2)",
    ]);
    check(&[
        ("int('1.0') == 1 || true", "constant-folding"),
        ("dyn('a') < dyn(1)", "no-such-overload"),
        ("dyn(1) + dyn(1.0) == 2.0", "no-such-overload"),
        ("-9223372036854775807 - 2 < 0", "overflow"),
        ("dyn(double('nan')) < dyn(1)", "invalid-value"),
        (
            "timestamp('0001-01-01T00:00:00Z') - duration('1s') < timestamp(0)",
            "overflow",
        ),
        ("duration('2000000h') + duration('2000000h') > duration('0s')", "overflow"),
    ]);
}

#[test]
fn strings_and_lists() {
    holds(&[
        "'%5'.size() == 2 && '%%'.format([]) == '%' && '%x'.format([b'\\x01\\xff']) == '01ff'",
        "'%d %s'.format([1, [1u, null, 'a']]) == '1 [1, null, \"a\"]'",
        "'%.1f|%e'.format([-1234.25, 'NaN']) == '-1,234.2|   NaN'",
        "'añb'.lastIndexOf('b') == 2 && 'aXbX'.lastIndexOf('X', 2) == 1 && 'aXbX'.lastIndexOf('X', 1) == 1",
        "'a b'.replace(' ', '', 0) == 'a b' && 'aaa'.replace('', '-', 2) == '-a-aa'",
        "'a,b,c'.split(',', 1) == ['a,b,c'] && 'ab'.split('', 1) == ['ab']",
        "'\\u0085x'.trim() == 'x'",
        "['b', 'a'].sort() == ['a', 'b'] && [3u, 1u].sort() == [1u, 3u] && [true, false].sort() == [false, true]",
        "['aa', 'b'].sortBy(s, s.size()) == ['b', 'aa'] && lists.range(4).slice(1, 1) == []",
        "[1, 2, 3].flatten(0) == [1, 2, 3] && [[[1]], [[2]]].flatten(1) == [[1], [2]]",
        "[dyn(1), dyn('1'), dyn(1u)].distinct().size() == 2",
        "sets.contains([dyn(1)], [1.0]) && sets.intersects(['a'], ['b', 'a']) && !sets.equivalent([1], [1, 2])",
        "[1, 1].lastIndexOf(1) == 1 && dyn('abc').indexOf('c') == 2 && dyn([7]).indexOf(7) == 0",
        "{'b': 2, 'a': 1}.map(k, k) == ['a', 'b']",
        "[1, 2].transformMap(i, v, i > 0, v) == {1: 2} && {'a': 1}.transformMapEntry(k, v, {v: k}) == {1: 'a'}",
        "{'a': 1}.exists(k, v, k == 'a' && v == 1) && [5].all(i, v, i == 0 && v == 5)",
    ]);
    check(&[
        ("[1].flatten(-1) == []", "invalid-value"),
        ("lists.range(1000001) == []", "invalid-value"),
        ("dyn(lists.range(3)).slice(0, dyn(4)) == []", "invalid-value"),
        ("{'b': 2}.sortBy(x, x) == []", "macro"),
        ("'%.2'.format([1]) == ''", "format-literal"),
        ("dyn([1, 'a']).sort() == []", "type-mismatch"),
        ("[1].exists_one(x, dyn(1))", "no-such-overload"),
    ]);
}

#[test]
fn quantities_and_versions() {
    holds(&[
        "quantity('12e6').isInteger() && quantity('1.5k').asInteger() == 1500 && !quantity('0.0').isInteger()",
        "quantity('1k').sub(1000).isInteger() && quantity('1').add(quantity('1')).asInteger() == 2",
        "quantity('-0.5').add(quantity('1')).compareTo(quantity('500m')) == 0 && sign(quantity('-1n')) == -1",
        "quantity('1Mi').asApproximateFloat() == 1048576.0 && quantity('1e-3') == quantity('1m')",
        "semver('1.0.0-alpha.1').isLessThan(semver('1.0.0-alpha.beta')) && semver('2.0.0').isGreaterThan(semver('2.0.0-rc.9'))",
        "!isSemver('1.0.0-') && !isSemver('1.0.0-01') && isSemver('1.0.0-0a+00.b') && !isSemver('1.0.0+')",
        "semver('1.0.00-rc', true) == semver('1.0.0-rc') && !isSemver('1-rc', true)",
    ]);
    check(&[
        ("semver('9223372036854775808.0.0').major() > 0", "overflow"),
        ("quantity('1e5000') == quantity('1')", "invalid-value"),
    ]);
}

#[test]
fn networks_and_formats() {
    holds(&[
        "ip('fe80::1').isLinkLocalUnicast() && !ip('fec0::1').isLinkLocalUnicast() && ip('::').isUnspecified()",
        "!isIP('fe80::1%eth0') && !isCIDR('10.0.0.0/+8') && !isCIDR('10.0.0.0/') && isCIDR('10.1.2.3/8')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('0.0.0.0/0').containsIP('255.1.1.1')",
        "!cidr('10.0.0.0/16').containsCIDR('10.0.0.0/8') && cidr('::/0').containsCIDR('fd00::/8')",
        "url('http://u:p@host:80/a%20b?x=1&x=2&y=a+b#f').getQuery() == {'x': ['1', '2'], 'y': ['a b']}",
        "url('http://u:p@host:80/').getHost() == 'host:80' && url('mailto:a@b').getEscapedPath() == ''",
        "!isURL('http://a b/') && !isURL('1http://a') && !isURL('http://[::1/') && !isURL('/%zz') && !isURL('http://a:b/')",
        "format.uuid().validate('123e4567e89b12d3a456426614174000') == optional.none()",
        "format.qualifiedName().validate('/x').hasValue() && format.labelValue().validate('-').hasValue()",
        "format.byte().validate('YQ=').hasValue() && !format.byte().validate('YQ==').hasValue()",
        "!format.datetime().validate('2024-01-02t03:04:05.25z').hasValue() && format.date().validate('2023-02-29').hasValue()",
    ]);
}

#[test]
fn time() {
    holds(&[
        "timestamp('2024-03-31T00:59:59Z').getHours('Europe/Berlin') == 1",
        "timestamp('2024-03-31T01:00:00Z').getHours('Europe/Berlin') == 3",
        "timestamp('2024-12-31T23:59:59Z').getDayOfYear() == 365 && timestamp('1969-12-31T23:59:59.5Z').getFullYear() == 1969",
        "int(timestamp('1969-12-31T23:59:59.5Z')) == -1",
        "string(timestamp('2024-01-01T00:00:00Z') + duration('90m')) == '2024-01-01T01:30:00Z'",
        "duration('-1.5h') == duration('-90m') && duration('1h1m1s1ms1us1ns') > duration('1h') && duration('0') == duration('0s')",
        "string(duration('-1ms')) == '-0.001s' && duration('1h').getMilliseconds() == 3600000",
    ]);
    check(&[
        ("timestamp(0).getHours('Nowhere/Town') == 0", "invalid-value"),
        ("timestamp('2024-01-01t00:00:00Z') == timestamp(0)", "bad-literal"),
        ("duration('1 h') > duration('0s')", "bad-literal"),
        ("timestamp(253402300800) > timestamp(0)", "constant-folding"),
    ]);
}

#[test]
fn patterns_are_re2() {
    holds(&[
        r"'a b'.matches('a\\sb') && !'a\u00a0b'.matches('a\\sb') && 'a\u00a0b'.matches('a.b')",
        r"'ab12'.find('[[:alpha:]]+') == 'ab' && 'ab12'.find('[^[:alpha:]]+') == '12'",
        r"'x{'.matches('^x{$') && 'x{1,a}'.matches('^x{1,a}$') && 'aa'.matches('^a{2}$')",
        r"'a-b'.find('[a\\-b]+') == 'a-b' && ']'.matches('[]]') && '^'.matches('[\\^]')",
        r"'a.b'.matches('^\\Qa.b\\E$') && !'axb'.matches('^\\Qa.b\\E$')",
        r"'Ab'.matches('^(?i:a)b$') && 'a\nb'.matches('(?m)^b$') && !'a\nb'.matches('^b$')",
        r"'aaa'.find('(?U)a+') == 'a' && 'key=1'.find('(?P<k>[a-z]+)=') == 'key='",
        r"'é'.matches('^\\pL$') && 'α'.matches('^\\p{Greek}$') && !'a'.matches('^\\P{^Greek}$')",
        r"'\u0001'.matches('^\\x01$') && 'A'.matches('^\\101$') && 'A'.matches('^\\x{41}$')",
        r"'foo bar'.find('\\bbar\\b') == 'bar' && 'abc'.find('b*') == ''",
        r"'aXbXc'.findAll('[a-z]', 2) == ['a', 'b'] && 'abc'.findAll('') == ['', '', '', '']",
    ]);
    for pattern in [
        r"a**",
        r"a{2}{3}",
        r"*a",
        r"(?<=a)b",
        r"(?<!a)b",
        r"a\\Z",
        r"\\8",
        r"[b-a]",
        r"[a",
        r"a)",
        r"(a",
        r"(?x)a",
        r"(a{100}){100}",
        r"\\y",
        r"(?P<>a)",
        r"a{2,1}",
        r"(?i",
    ] {
        assert_eq!(outcome(&format!("'a'.matches('{pattern}')")), "bad-literal", "{pattern}");
    }
}
