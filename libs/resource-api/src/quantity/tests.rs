use std::cmp::Ordering;

use super::{Format, Quantity, QuantityError};

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[track_caller]
fn check_canonical(text: &str, canonical: &str) {
    let parsed = quantity(text);
    assert_eq!(parsed.to_string(), canonical, "canonical text of {text}");
    let again = quantity(canonical);
    assert_eq!(again, parsed, "{canonical} reads back as another value");
    assert_eq!(again.to_string(), canonical, "canonical text of {canonical} is not stable");
}

#[test]
fn canonical_text_has_no_fraction_and_the_largest_suffix() {
    for (text, canonical) in [
        ("1.5", "1500m"),
        ("0.5Gi", "512Mi"),
        ("1024Ki", "1Mi"),
        ("1000k", "1M"),
        ("1000m", "1"),
        ("00.50", "500m"),
        ("-1.5", "-1500m"),
        ("1500", "1500"),
        ("1500k", "1500k"),
        ("1E", "1E"),
        ("1000E", "1000E"),
        ("-0.5Gi", "-512Mi"),
    ] {
        check_canonical(text, canonical);
    }
}

#[test]
fn binary_quantities_that_are_small_or_not_whole_print_as_decimal() {
    for (text, canonical) in [
        ("1.5Ki", "1536"),
        ("0.3Ki", "307200m"),
        ("1.000001Gi", "1073742897741824u"),
        ("0Ki", "0"),
    ] {
        check_canonical(text, canonical);
    }
    check_canonical("1536Ki", "1536Ki");
}

#[test]
fn exponents_print_as_multiples_of_three() {
    for (text, canonical) in [
        ("1e1000", "10e999"),
        ("1E3", "1e3"),
        ("1e30", "1e30"),
        ("12e2", "1200"),
        ("1e-3", "1e-3"),
        ("1e4", "10e3"),
    ] {
        check_canonical(text, canonical);
    }
}

#[test]
fn finer_than_nano_rounds_away_from_zero() {
    for (text, canonical) in [
        ("0.1n", "1n"),
        ("1.1n", "2n"),
        ("-0.1n", "-1n"),
        ("1e-4000", "1e-9"),
        ("0.0000000001", "1n"),
    ] {
        check_canonical(text, canonical);
    }
}

#[test]
fn binary_quantities_are_capped_and_decimal_ones_are_not() {
    for text in [
        "8Ei",
        "16Ei",
        "9223372036854775808Ki",
        "99999999999999999999999999999999999999999Mi",
        "8.5Ei",
    ] {
        check_canonical(text, "9223372036854775807");
    }
    assert_eq!(quantity("-16Ei"), quantity("-9223372036854775807"));
    assert!(quantity("1e30") > quantity("1e29"));
}

#[test]
fn odd_texts_are_accepted() {
    for (text, canonical) in [
        ("5.", "5"),
        (".5", "500m"),
        (".", "0"),
        ("-", "0"),
        ("+1", "1"),
        ("m", "0"),
        ("Mi", "0"),
        ("0000", "0"),
    ] {
        check_canonical(text, canonical);
    }
}

#[test]
fn bad_texts_are_refused_for_the_right_reason() {
    for text in ["", "1x", "1.2.3", "a", "1 Gi", "1Gi ", "0x10", "1e3.5", "１"] {
        assert_eq!(text.parse::<Quantity>(), Err(QuantityError::Form), "{text}");
    }
    for text in ["1K", "1mi", "1e", "1kM", "1Gi5", "1e+", "1+5", "1ee3", "--1"] {
        let refused = text.parse::<Quantity>();
        assert!(matches!(refused, Err(QuantityError::Suffix)), "{text}: {refused:?}");
    }
    assert_eq!("1e999999999".parse::<Quantity>(), Err(QuantityError::Number));
    assert_eq!("9".repeat(5000).parse::<Quantity>(), Err(QuantityError::Number));
}

#[test]
fn comparison_is_by_value() {
    assert_eq!(quantity("1Gi"), quantity("1024Mi"));
    assert_eq!(quantity("1"), quantity("1000m"));
    assert_eq!(quantity("1e30").cmp(&quantity("1e30").plus(&quantity("1n"))), Ordering::Less);
    assert!(quantity("-1") < quantity("1n"));
}

#[test]
fn arithmetic_is_exact_beyond_128_bits() {
    let large = quantity("1e40");
    let sum = large.plus(&quantity("1n"));
    assert_eq!(sum.minus(&large), quantity("1n"));
    assert_eq!(sum.minus(&large).nanos(), Some(1));
    let edge = Quantity::from_nanos(i128::MAX, Format::DecimalSi);
    assert_eq!(edge.plus(&quantity("1n")).minus(&quantity("1n")).nanos(), Some(i128::MAX));
    assert_eq!(
        Quantity::from_nanos(i128::MIN, Format::DecimalSi).negated().negated().nanos(),
        Some(i128::MIN)
    );
}

#[test]
fn sums_keep_the_format_of_what_is_not_zero() {
    assert_eq!(quantity("1Gi").plus(&quantity("1073741824")).to_string(), "2Gi");
    assert_eq!(Quantity::ZERO.plus(&quantity("1Gi")).to_string(), "1Gi");
    assert_eq!(quantity("2Gi").minus(&quantity("1Gi")).to_string(), "1Gi");
}

#[test]
fn integer_views_round_away_from_zero_and_never_wrap() {
    assert_eq!(quantity("1500m").round_up(), Some(2));
    assert_eq!(quantity("-1500m").round_up(), Some(-2));
    assert_eq!(quantity("1e30").round_up(), None);
    assert_eq!(quantity("1500m").as_whole(), None);
    assert_eq!(quantity("5Gi").as_whole(), Some(5 << 30));
    assert_eq!(quantity("9223372036854775808").as_whole(), None);
}

#[test]
fn multiples_and_steps_are_exact() {
    assert!(quantity("1500m").is_multiple_of(&quantity("500m")));
    assert!(!quantity("1500m").is_multiple_of(&quantity("1")));
    assert!(quantity("1e40").is_multiple_of(&quantity("10")));
    assert!(quantity("0").is_multiple_of(&quantity("0")));
    assert!(!quantity("1").is_multiple_of(&quantity("0")));
    assert_eq!(quantity("1500m").steps_up(&quantity("1")), Some(2));
    assert_eq!(quantity("2").steps_up(&quantity("1")), Some(2));
    assert_eq!(quantity("-2").steps_up(&quantity("1")), Some(-2));
    assert_eq!(quantity("1e40").steps_up(&quantity("1n")), None);
    assert_eq!(quantity("1").steps_up(&quantity("0")), None);
    assert_eq!(quantity("1.5").times(&quantity("2Gi")), quantity("3Gi"));
    assert_eq!(quantity("1n").times(&quantity("500m")), quantity("1n"));
}

#[test]
fn json_is_a_string_a_number_or_null() {
    let read = |json: &str| {
        serde_json::from_str::<Quantity>(json)
            .map(|quantity| quantity.to_string())
            .ok()
    };
    assert_eq!(read("\" 1Gi \"").as_deref(), Some("1Gi"));
    assert_eq!(read("5").as_deref(), Some("5"));
    assert_eq!(read("-5").as_deref(), Some("-5"));
    assert_eq!(read("1.5").as_deref(), Some("1500m"));
    assert_eq!(read("18446744073709551615").as_deref(), Some("18446744073709551615"));
    assert_eq!(read("true"), None);
    assert_eq!(read("\"x\""), None);
    let counter: crate::device::Counter = serde_json::from_str("{\"value\":null}").unwrap();
    assert_eq!(counter.value, Quantity::ZERO);
    assert_eq!(serde_json::to_string(&quantity("1024Mi")).unwrap(), "\"1Gi\"");
}

#[test]
fn a_quantity_stays_small() {
    assert_eq!(size_of::<Quantity>(), 32);
}

/// Each line: a text, and what Kubernetes v1.37.2 makes of it: the canonical text, or `!` and why it is refused.
#[test]
fn texts_mean_what_they_mean_to_kubernetes() {
    let wrong: Vec<String> = include_str!("../../testdata/quantities.tsv")
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(differs)
        .collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn differs((text, wanted): (&str, &str)) -> Option<String> {
    let found = match text.parse::<Quantity>() {
        Ok(quantity) => quantity.to_string(),
        Err(QuantityError::Form) => "!form".to_owned(),
        Err(QuantityError::Suffix) => "!suffix".to_owned(),
        Err(QuantityError::Number) => "!number".to_owned(),
    };
    (found != wanted).then(|| format!("{text}: wanted {wanted}, found {found}"))
}
