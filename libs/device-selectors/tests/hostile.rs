//! Hostile input: whatever the text, compiling and evaluating end quickly with an answer or an error, on a small
//! stack and without a panic.

use device_selectors::{
    CompileErrorKind, DerivedAttribute, DeviceView, EXPRESSION_MAX_BYTES, EvalErrorKind, Gates, Mode, Options, Selector,
};
use resource_api::device::Device;

/// An eighth of what threads usually get, and this is with unoptimised stack frames.
const STACK_BYTES: usize = 256 << 10;

/// Runs `work` on a thread with a small stack; a panic or overflow fails the test.
fn on_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(work)
        .expect("a thread starts");
    thread.join().expect("no panic")
}

#[derive(Debug, PartialEq)]
enum End {
    Answer(bool),
    Refused(CompileErrorKind),
    Failed(EvalErrorKind),
}

/// Compiles as new, as a derived attribute and as stored; evaluates the stored forms.
fn run(expression: &str) -> End {
    let device = Device::default();
    for list_type_attributes in [false, true] {
        let gates = Gates {
            list_type_attributes,
            consumable_capacity: true,
        };
        let _as_new = Selector::compile(expression, Mode::New(gates), Options::default());
        let _as_new = DerivedAttribute::compile(expression, Mode::New(gates));
    }
    if let Ok(derived) = DerivedAttribute::compile(expression, Mode::Stored) {
        let _value_or_error = derived.evaluate(&DeviceView::new("dra.example.com", &device));
    }
    match Selector::compile(expression, Mode::Stored, Options::default()) {
        Err(error) => End::Refused(error.kind),
        Ok(selector) => match selector.matches(&DeviceView::new("dra.example.com", &device)) {
            Ok(answer) => End::Answer(answer),
            Err(error) => End::Failed(error.kind()),
        },
    }
}

/// Ways to nest: what opens a level, what is innermost, what closes it.
const NESTS: [(&str, &str, &str); 42] = [
    ("(", "true", ")"),
    ("!(1 == 1 && !", "true", ")"),
    ("-(1 - ", "1", ")"),
    ("[", "1", "]"),
    ("{1: ", "1", "}"),
    ("{1: 2}[", "1", "]"),
    ("1 + (", "1", ")"),
    ("", "1", " + 1"),
    ("", "device", ".x"),
    ("", "dyn(1)", "[0]"),
    ("", "'a'", ".trim()"),
    ("dyn(", "1", ")"),
    ("string(", "1", ")"),
    ("optional.of(", "1", ")"),
    ("true ? true : (false ? true : ", "true", ")"),
    ("[1].all(x, x == 1 && ", "true", ")"),
    ("[1].map(x, ", "x", ")"),
    ("cel.bind(x, 1, x == 1 && ", "true", ")"),
    ("cel.bind(x, ", "true", ", x)"),
    ("", "optional.of(1)", ".optMap(a, a)"),
    ("", "optional.of(1)", ".optFlatMap(a, optional.of(a))"),
    ("(", "true", " ? true : false)"),
    ("(true ? ", "true", " : false)"),
    ("{'a': true}['a' + string(", "1", ")] || true"),
    ("[0][", "0", "]"),
    ("[0][?", "0", "].orValue(0)"),
    ("", "device", ".?x"),
    ("", "dyn(1)", "[?0]"),
    ("has(dyn(", "device", ").x)"),
    ("[?optional.of(", "1", ")]"),
    ("{", "1", ": 1}"),
    ("{'a': ", "1", "}.a"),
    ("!", "true", ""),
    ("- ", "1", ""),
    ("", "1", " == 1"),
    ("(true && (false || ", "true", "))"),
    ("", "[1]", ".map(x, x)"),
    ("[1].filter(x, x == 1 && ", "true", ")"),
    ("[1].exists_one(x, x == 1 && ", "true", ")"),
    ("[1].transformMap(i, x, ", "x", ")"),
    ("[2, 1].sortBy(x, size(", "[x]", "))"),
    ("'a'.replace('a', ", "'b'", ")"),
];

#[test]
fn deep_nesting_is_answered_or_refused() {
    for (open, middle, close) in NESTS {
        for depth in [60, 200, 240, 260, 4000] {
            let expression = format!("{}{middle}{}", open.repeat(depth), close.repeat(depth));
            let fits = expression.len() <= EXPRESSION_MAX_BYTES;
            let end = on_small_stack(move || run(&expression));
            // Repeated signs are one level: pairs of them cancel.
            let is_sign = close.is_empty() && matches!(open, "!" | "- ");
            if depth >= 260 && fits && !is_sign {
                assert_eq!(
                    end,
                    End::Refused(CompileErrorKind::TooDeep),
                    "{open}{middle}{close} at {depth}"
                );
            }
        }
    }
}

#[test]
fn text_over_the_limit_is_refused() {
    let expression = format!("true{}", " ".repeat(EXPRESSION_MAX_BYTES - 3));
    assert_eq!(run(&expression), End::Refused(CompileErrorKind::TooLong));
}

#[test]
fn long_chains_of_logic_are_no_nesting() {
    let expression = ["true"; 1000].join(" && ");
    assert_eq!(run(&expression), End::Answer(true));
}

#[test]
fn copies_made_by_macros_are_bounded() {
    let expression = format!("optional.of(1){}.hasValue()", ".optMap(a, a)".repeat(100));
    assert_eq!(run(&expression), End::Refused(CompileErrorKind::TooDeep));
}

/// `cel.bind(v0, first, cel.bind(v1, next(v0), …))`: each name uses the one before.
fn bound(first: &str, next: fn(usize) -> String, levels: usize, last: &str) -> String {
    let mut text = format!("cel.bind(v0, {first}, ");
    for i in 1..levels {
        text.push_str(&format!("cel.bind(v{i}, {}, ", next(i - 1)));
    }
    text.push_str(&last.replace('$', &(levels - 1).to_string()));
    text.push_str(&")".repeat(levels));
    text
}

#[test]
fn doubling_values_run_into_the_budget() {
    let strings = bound("'abcdefgh'", |i| format!("v{i} + v{i}"), 60, "v$.size() > 0");
    assert_eq!(run(&strings), End::Failed(EvalErrorKind::CostLimit));
    let lists = bound("[1, 2, 3]", |i| format!("v{i} + v{i}"), 60, "v$.size() > 0");
    assert_eq!(run(&lists), End::Failed(EvalErrorKind::CostLimit));
    let replaced = bound(
        "'aaaaaaaaaaaaaaaa'",
        |i| format!("v{i}.replace('a', v{i})"),
        12,
        "v$.size() > 0",
    );
    assert_eq!(run(&replaced), End::Failed(EvalErrorKind::CostLimit));
}

#[test]
fn values_that_share_structure_are_compared_within_the_budget() {
    let nested = bound("dyn([1])", |i| format!("dyn([v{i}, v{i}])"), 60, "v$ == v$");
    assert_eq!(run(&nested), End::Failed(EvalErrorKind::CostLimit));
}

#[test]
fn loops_without_cost_are_bounded() {
    let nested = "cel.bind(l, lists.range(900000), l.exists_one(x, l.exists_one(y, false)))";
    assert_eq!(run(nested), End::Failed(EvalErrorKind::CostLimit));
    let failing = "cel.bind(l, lists.range(900000), l.filter(x, l.filter(y, dyn(1)) == []) == [])";
    assert_eq!(run(failing), End::Failed(EvalErrorKind::CostLimit));
}

#[test]
fn types_that_double_are_refused() {
    let doubled = bound("[1]", |i| format!("{{v{i}: v{i}}}"), 60, "v$ == v$");
    assert!(matches!(run(&doubled), End::Refused(_)), "{:?}", run(&doubled));
}

#[test]
fn work_of_cheap_functions_on_large_values_is_bounded() {
    let text = format!(
        "cel.bind(s, 'x'{}, lists.range(60000).all(i, s.charAt(i) != 'y'))",
        ".replace('x', 'xxxxxxxx')".repeat(6)
    );
    assert_eq!(run(&text), End::Failed(EvalErrorKind::CostLimit));
    let patterns = "lists.range(60000).all(i, !'a'.matches(string(i) + '[0-9]{500}'))";
    assert_eq!(run(patterns), End::Failed(EvalErrorKind::CostLimit));
}
