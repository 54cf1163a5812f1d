//! The closed list of functions and operators: signatures, what evaluates them, what they cost.
//!
//! Signatures are written as text (`string.(string, int) int` is a member function, `(A, A) bool` a global
//! one; capital letters are type parameters) and parsed once. A function that is not here does not exist.

use std::sync::{Arc, LazyLock};

use rustc_hash::FxHashMap;

use crate::types::Type;

/// What a call does when it runs. One per name and calling style; operand types are looked at on the spot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fun {
    // Operators.
    And,
    Or,
    Conditional,
    NotStrictlyFalse,
    MapInsert,
    Not,
    Negate,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Index,
    OptIndex,
    OptSelect,
    // Core.
    Size,
    TypeOf,
    Dyn,
    ToInt,
    ToUint,
    ToDouble,
    ToString,
    ToBytes,
    ToBool,
    ToDuration,
    ToTimestamp,
    Contains,
    StartsWith,
    EndsWith,
    Matches,
    TimePart(TimePart),
    // Strings.
    CharAt,
    IndexOf,
    LastIndexOf,
    LowerAscii,
    UpperAscii,
    Replace,
    Split,
    Substring,
    Trim,
    Join,
    Quote,
    Format,
    Find,
    FindAll,
    // Lists and sets.
    IsSorted,
    Sum,
    Min,
    Max,
    Includes,
    Slice,
    Flatten,
    Sort,
    SortBy,
    Range,
    Reverse,
    Distinct,
    First,
    Last,
    SetsContains,
    SetsIntersects,
    SetsEquivalent,
    // Optionals.
    OptionalOf,
    OptionalOfNonZero,
    OptionalNone,
    HasValue,
    OptionalValue,
    Or_,
    OrValue,
    Unwrap,
    // Quantities and versions.
    Quantity,
    IsQuantity,
    Sign,
    IsInteger,
    AsInteger,
    AsApproximateFloat,
    AddQuantity,
    SubQuantity,
    IsGreaterThan,
    IsLessThan,
    CompareTo,
    Semver,
    IsSemver,
    Major,
    Minor,
    Patch,
    // Networks.
    Ip,
    IsIp,
    IsCanonical,
    Family,
    IpIs(IpClass),
    Cidr,
    IsCidr,
    ContainsIp,
    ContainsCidr,
    CidrIp,
    PrefixLength,
    Masked,
    Url,
    IsUrl,
    UrlPart(UrlPart),
    UrlQuery,
    // Named formats.
    FormatNamed,
    FormatOf(&'static str),
    Validate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TimePart {
    FullYear,
    Month,
    Date,
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IpClass {
    Unspecified,
    Loopback,
    LinkLocalUnicast,
    LinkLocalMulticast,
    GlobalUnicast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UrlPart {
    Scheme,
    Host,
    Hostname,
    Port,
    EscapedPath,
}

/// How the estimate counts an overload, besides its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cost {
    /// 1.
    Unit,
    /// Nothing besides the operands: `&&`, `||`.
    Logic,
    /// The larger branch.
    Conditional,
    /// 1, and the element's size becomes the result's.
    Index,
    /// A tenth of the smaller operand.
    Compare,
    /// As `Compare`, except for two values of one extension type.
    Equal,
    /// Size of the list.
    InList,
    /// A tenth of both sizes, which add up.
    Concat,
    /// 1; sizes add up.
    ConcatLists,
    /// A tenth of the argument.
    Prefix,
    /// A tenth of the receiver times a tenth of the argument.
    Contains,
    /// Text times pattern; the receiver, or the first of two arguments, is the text.
    Matches,
    /// As `Matches`; the result is no larger than the text.
    Find,
    /// A tenth of the receiver.
    Format,
    StringToBytes,
    BytesToString,
    Quote,
    /// A tenth of the argument, which also is the result's size.
    Url,
    /// A tenth of the first argument.
    ParseText,
    /// A fifth of the first argument.
    ParseTwice,
    /// A tenth of the receiver, which also is the result's size.
    MapText,
    Replace,
    Split,
    Join,
    /// Each element of the receiver, strings by their length.
    Traverse,
    Includes,
    Slice,
    Range,
    Reverse,
    Flatten,
    Distinct,
    /// Quadratic in the receiver; strings and bytes cost a little more.
    Sort {
        text: bool,
    },
    /// Quadratic in the list of keys.
    SortBy {
        text: bool,
    },
    /// 1 plus a multiple of the product of both sizes.
    Sets {
        factor: u64,
    },
    ContainsIp {
        text: bool,
    },
    ContainsCidr {
        text: bool,
    },
    Validate,
}

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) fun: Fun,
    pub(crate) member: bool,
    /// Receiver first, if there is one.
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// Number of type parameters.
    pub(crate) type_params: u32,
    pub(crate) cost: Cost,
}

/// All overloads of the function or operator `name`, or `None` if there is no such function.
pub(crate) fn overloads(name: &str) -> Option<&'static [Overload]> {
    static TABLE: LazyLock<FxHashMap<&'static str, Vec<Overload>>> = LazyLock::new(table);
    TABLE.get(name).map(Vec::as_slice)
}

fn table() -> FxHashMap<&'static str, Vec<Overload>> {
    let mut table = Table(FxHashMap::default());
    operators(&mut table);
    conversions(&mut table);
    strings(&mut table);
    time(&mut table);
    lists(&mut table);
    optionals(&mut table);
    kubernetes(&mut table);
    networks(&mut table);
    table.0
}

struct Table(FxHashMap<&'static str, Vec<Overload>>);

impl Table {
    /// Adds overloads of `name` with one meaning and one cost rule.
    fn add(&mut self, name: &'static str, fun: Fun, cost: Cost, signatures: &[&str]) {
        let list = self.0.entry(name).or_default();
        list.extend(signatures.iter().map(|text| overload(fun, cost, text)));
    }

    /// Adds one overload for every type that has an order, written as `T` in `signature`.
    fn add_ordered(&mut self, name: &'static str, fun: Fun, signature: &str, cost: fn(bool) -> Cost) {
        for t in ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"] {
            let text = t == "string" || t == "bytes";
            self.add(name, fun, cost(text), &[&signature.replace('T', t)]);
        }
    }
}

fn operators(table: &mut Table) {
    use crate::ast::op;
    table.add(op::AND, Fun::And, Cost::Logic, &["(bool, bool) bool"]);
    table.add(op::OR, Fun::Or, Cost::Logic, &["(bool, bool) bool"]);
    table.add(op::CONDITIONAL, Fun::Conditional, Cost::Conditional, &["(bool, A, A) A"]);
    table.add(op::NOT_STRICTLY_FALSE, Fun::NotStrictlyFalse, Cost::Unit, &["(bool) bool"]);
    table.add(
        op::MAP_INSERT,
        Fun::MapInsert,
        Cost::Unit,
        &["(map(A, B), A, B) map(A, B)", "(map(A, B), map(A, B)) map(A, B)"],
    );
    table.add(op::NOT, Fun::Not, Cost::Unit, &["(bool) bool"]);
    table.add(op::NEGATE, Fun::Negate, Cost::Unit, &["(int) int", "(double) double"]);
    table.add(op::EQ, Fun::Eq, Cost::Equal, &["(A, A) bool"]);
    table.add(op::NE, Fun::Ne, Cost::Compare, &["(A, A) bool"]);
    for (name, fun) in [(op::LT, Fun::Lt), (op::LE, Fun::Le), (op::GT, Fun::Gt), (op::GE, Fun::Ge)] {
        ordering(table, name, fun);
    }
    table.add(op::IN, Fun::In, Cost::InList, &["(A, list(A)) bool"]);
    table.add(op::IN, Fun::In, Cost::Unit, &["(A, map(A, B)) bool"]);
    arithmetic(table);
    table.add(op::INDEX, Fun::Index, Cost::Index, &["(list(A), int) A", "(map(A, B), A) B"]);
    table.add(
        op::INDEX,
        Fun::Index,
        Cost::Unit,
        &["(optional(list(A)), int) optional(A)", "(optional(map(A, B)), A) optional(B)"],
    );
    table.add(
        op::OPT_INDEX,
        Fun::OptIndex,
        Cost::Unit,
        &[
            "(list(A), int) optional(A)",
            "(optional(list(A)), int) optional(A)",
            "(map(A, B), A) optional(B)",
            "(optional(map(A, B)), A) optional(B)",
        ],
    );
    table.add(op::OPT_SELECT, Fun::OptSelect, Cost::Unit, &["(dyn, string) optional(A)"]);
}

fn ordering(table: &mut Table, name: &'static str, fun: Fun) {
    for left in ["int", "uint", "double"] {
        for right in ["int", "uint", "double"] {
            table.add(name, fun, Cost::Unit, &[&format!("({left}, {right}) bool")]);
        }
    }
    table.add(name, fun, Cost::Compare, &["(string, string) bool", "(bytes, bytes) bool"]);
    table.add(
        name,
        fun,
        Cost::Unit,
        &[
            "(bool, bool) bool",
            "(timestamp, timestamp) bool",
            "(duration, duration) bool",
        ],
    );
}

fn arithmetic(table: &mut Table) {
    use crate::ast::op;
    const NUMBERS: [&str; 3] = ["(int, int) int", "(uint, uint) uint", "(double, double) double"];
    table.add(
        op::ADD,
        Fun::Add,
        Cost::Concat,
        &["(bytes, bytes) bytes", "(string, string) string"],
    );
    table.add(op::ADD, Fun::Add, Cost::ConcatLists, &["(list(A), list(A)) list(A)"]);
    table.add(op::ADD, Fun::Add, Cost::Unit, &NUMBERS);
    table.add(
        op::ADD,
        Fun::Add,
        Cost::Unit,
        &[
            "(duration, duration) duration",
            "(duration, timestamp) timestamp",
            "(timestamp, duration) timestamp",
        ],
    );
    table.add(op::SUB, Fun::Sub, Cost::Unit, &NUMBERS);
    table.add(
        op::SUB,
        Fun::Sub,
        Cost::Unit,
        &[
            "(duration, duration) duration",
            "(timestamp, duration) timestamp",
            "(timestamp, timestamp) duration",
        ],
    );
    table.add(op::MUL, Fun::Mul, Cost::Unit, &NUMBERS);
    table.add(op::DIV, Fun::Div, Cost::Unit, &NUMBERS);
    table.add(op::REM, Fun::Rem, Cost::Unit, &NUMBERS[..2]);
}

fn conversions(table: &mut Table) {
    table.add(
        "size",
        Fun::Size,
        Cost::Unit,
        &["(string) int", "(bytes) int", "(list(A)) int", "(map(A, B)) int"],
    );
    table.add(
        "size",
        Fun::Size,
        Cost::Unit,
        &["string.() int", "bytes.() int", "list(A).() int", "map(A, B).() int"],
    );
    table.add("type", Fun::TypeOf, Cost::Unit, &["(A) type(A)"]);
    table.add("dyn", Fun::Dyn, Cost::Unit, &["(A) dyn"]);
    table.add(
        "int",
        Fun::ToInt,
        Cost::Unit,
        &[
            "(int) int",
            "(uint) int",
            "(double) int",
            "(string) int",
            "(duration) int",
            "(timestamp) int",
        ],
    );
    table.add(
        "uint",
        Fun::ToUint,
        Cost::Unit,
        &["(uint) uint", "(int) uint", "(double) uint", "(string) uint"],
    );
    table.add(
        "double",
        Fun::ToDouble,
        Cost::Unit,
        &["(double) double", "(int) double", "(uint) double", "(string) double"],
    );
    table.add("string", Fun::ToString, Cost::BytesToString, &["(bytes) string"]);
    table.add(
        "string",
        Fun::ToString,
        Cost::Unit,
        &[
            "(string) string",
            "(bool) string",
            "(int) string",
            "(uint) string",
            "(double) string",
            "(duration) string",
            "(timestamp) string",
            "(ip) string",
            "(cidr) string",
        ],
    );
    table.add("bytes", Fun::ToBytes, Cost::StringToBytes, &["(string) bytes"]);
    table.add("bytes", Fun::ToBytes, Cost::Unit, &["(bytes) bytes"]);
    table.add("bool", Fun::ToBool, Cost::Unit, &["(bool) bool", "(string) bool"]);
    table.add(
        "duration",
        Fun::ToDuration,
        Cost::Unit,
        &["(duration) duration", "(string) duration"],
    );
    table.add(
        "timestamp",
        Fun::ToTimestamp,
        Cost::Unit,
        &["(timestamp) timestamp", "(string) timestamp", "(int) timestamp"],
    );
}

fn strings(table: &mut Table) {
    table.add("contains", Fun::Contains, Cost::Contains, &["string.(string) bool"]);
    table.add("startsWith", Fun::StartsWith, Cost::Prefix, &["string.(string) bool"]);
    table.add("endsWith", Fun::EndsWith, Cost::Prefix, &["string.(string) bool"]);
    table.add("matches", Fun::Matches, Cost::Matches, &["string.(string) bool"]);
    table.add("matches", Fun::Matches, Cost::Matches, &["(string, string) bool"]);
    table.add("charAt", Fun::CharAt, Cost::Unit, &["string.(int) string"]);
    for (name, fun) in [("indexOf", Fun::IndexOf), ("lastIndexOf", Fun::LastIndexOf)] {
        table.add(
            name,
            fun,
            Cost::Traverse,
            &["string.(string) int", "string.(string, int) int", "list(A).(A) int"],
        );
    }
    table.add("lowerAscii", Fun::LowerAscii, Cost::MapText, &["string.() string"]);
    table.add("upperAscii", Fun::UpperAscii, Cost::MapText, &["string.() string"]);
    table.add("trim", Fun::Trim, Cost::MapText, &["string.() string"]);
    table.add(
        "substring",
        Fun::Substring,
        Cost::MapText,
        &["string.(int) string", "string.(int, int) string"],
    );
    table.add(
        "replace",
        Fun::Replace,
        Cost::Replace,
        &["string.(string, string) string", "string.(string, string, int) string"],
    );
    table.add(
        "split",
        Fun::Split,
        Cost::Split,
        &["string.(string) list(string)", "string.(string, int) list(string)"],
    );
    table.add(
        "join",
        Fun::Join,
        Cost::Join,
        &["list(string).() string", "list(string).(string) string"],
    );
    table.add("strings.quote", Fun::Quote, Cost::Quote, &["(string) string"]);
    table.add("format", Fun::Format, Cost::Format, &["string.(list(dyn)) string"]);
    table.add("find", Fun::Find, Cost::Find, &["string.(string) string"]);
    table.add(
        "findAll",
        Fun::FindAll,
        Cost::Find,
        &["string.(string) list(string)", "string.(string, int) list(string)"],
    );
}

fn time(table: &mut Table) {
    let parts = [
        ("getFullYear", TimePart::FullYear),
        ("getMonth", TimePart::Month),
        ("getDate", TimePart::Date),
        ("getDayOfMonth", TimePart::DayOfMonth),
        ("getDayOfWeek", TimePart::DayOfWeek),
        ("getDayOfYear", TimePart::DayOfYear),
        ("getHours", TimePart::Hours),
        ("getMinutes", TimePart::Minutes),
        ("getSeconds", TimePart::Seconds),
        ("getMilliseconds", TimePart::Milliseconds),
    ];
    for (name, part) in parts {
        let fun = Fun::TimePart(part);
        table.add(name, fun, Cost::Unit, &["timestamp.() int", "timestamp.(string) int"]);
        let of_duration = matches!(
            part,
            TimePart::Hours | TimePart::Minutes | TimePart::Seconds | TimePart::Milliseconds
        );
        if of_duration {
            table.add(name, fun, Cost::Unit, &["duration.() int"]);
        }
    }
}

fn lists(table: &mut Table) {
    table.add_ordered("isSorted", Fun::IsSorted, "list(T).() bool", |_| Cost::Traverse);
    table.add_ordered("min", Fun::Min, "list(T).() T", |_| Cost::Traverse);
    table.add_ordered("max", Fun::Max, "list(T).() T", |_| Cost::Traverse);
    for t in ["int", "uint", "double", "duration"] {
        table.add("sum", Fun::Sum, Cost::Traverse, &[&format!("list({t}).() {t}")]);
    }
    table.add("includes", Fun::Includes, Cost::Includes, &["dyn.(dyn) bool"]);
    table.add("slice", Fun::Slice, Cost::Slice, &["list(A).(int, int) list(A)"]);
    table.add(
        "flatten",
        Fun::Flatten,
        Cost::Flatten,
        &["list(list(A)).() list(A)", "list(dyn).(int) list(dyn)"],
    );
    table.add_ordered("sort", Fun::Sort, "list(T).() list(T)", |text| Cost::Sort { text });
    table.add_ordered(crate::ast::op::SORT_BY, Fun::SortBy, "list(A).(list(T)) list(A)", |text| {
        Cost::SortBy { text }
    });
    table.add("lists.range", Fun::Range, Cost::Range, &["(int) list(int)"]);
    table.add("reverse", Fun::Reverse, Cost::Reverse, &["list(A).() list(A)"]);
    table.add("distinct", Fun::Distinct, Cost::Distinct, &["list(A).() list(A)"]);
    table.add("first", Fun::First, Cost::Unit, &["list(A).() optional(A)"]);
    table.add("last", Fun::Last, Cost::Unit, &["list(A).() optional(A)"]);
    table.add(
        "sets.contains",
        Fun::SetsContains,
        Cost::Sets { factor: 1 },
        &["(list(A), list(A)) bool"],
    );
    table.add(
        "sets.intersects",
        Fun::SetsIntersects,
        Cost::Sets { factor: 1 },
        &["(list(A), list(A)) bool"],
    );
    table.add(
        "sets.equivalent",
        Fun::SetsEquivalent,
        Cost::Sets { factor: 2 },
        &["(list(A), list(A)) bool"],
    );
}

fn optionals(table: &mut Table) {
    table.add("optional.of", Fun::OptionalOf, Cost::Unit, &["(A) optional(A)"]);
    table.add(
        "optional.ofNonZeroValue",
        Fun::OptionalOfNonZero,
        Cost::Unit,
        &["(A) optional(A)"],
    );
    table.add("optional.none", Fun::OptionalNone, Cost::Unit, &["() optional(A)"]);
    table.add("hasValue", Fun::HasValue, Cost::Unit, &["optional(A).() bool"]);
    table.add("value", Fun::OptionalValue, Cost::Unit, &["optional(A).() A"]);
    table.add("or", Fun::Or_, Cost::Unit, &["optional(A).(optional(A)) optional(A)"]);
    table.add("orValue", Fun::OrValue, Cost::Unit, &["optional(A).(A) A"]);
    table.add("optional.unwrap", Fun::Unwrap, Cost::Unit, &["(list(optional(A))) list(A)"]);
    table.add("unwrapOpt", Fun::Unwrap, Cost::Unit, &["list(optional(A)).() list(A)"]);
}

fn kubernetes(table: &mut Table) {
    table.add("quantity", Fun::Quantity, Cost::ParseText, &["(string) quantity"]);
    table.add("isQuantity", Fun::IsQuantity, Cost::ParseText, &["(string) bool"]);
    table.add("sign", Fun::Sign, Cost::Unit, &["(quantity) int"]);
    table.add("isInteger", Fun::IsInteger, Cost::Unit, &["quantity.() bool"]);
    table.add("asInteger", Fun::AsInteger, Cost::Unit, &["quantity.() int"]);
    table.add(
        "asApproximateFloat",
        Fun::AsApproximateFloat,
        Cost::Unit,
        &["quantity.() double"],
    );
    const ADD: [&str; 2] = ["quantity.(quantity) quantity", "quantity.(int) quantity"];
    table.add("add", Fun::AddQuantity, Cost::Unit, &ADD);
    table.add("sub", Fun::SubQuantity, Cost::Unit, &ADD);
    const COMPARE: [&str; 2] = ["quantity.(quantity) bool", "semver.(semver) bool"];
    table.add("isGreaterThan", Fun::IsGreaterThan, Cost::Unit, &COMPARE);
    table.add("isLessThan", Fun::IsLessThan, Cost::Unit, &COMPARE);
    table.add(
        "compareTo",
        Fun::CompareTo,
        Cost::Unit,
        &["quantity.(quantity) int", "semver.(semver) int"],
    );
    table.add(
        "semver",
        Fun::Semver,
        Cost::ParseText,
        &["(string) semver", "(string, bool) semver"],
    );
    table.add(
        "isSemver",
        Fun::IsSemver,
        Cost::ParseText,
        &["(string) bool", "(string, bool) bool"],
    );
    table.add("major", Fun::Major, Cost::Unit, &["semver.() int"]);
    table.add("minor", Fun::Minor, Cost::Unit, &["semver.() int"]);
    table.add("patch", Fun::Patch, Cost::Unit, &["semver.() int"]);
    table.add("format.named", Fun::FormatNamed, Cost::Unit, &["(string) optional(format)"]);
    for (qualified, name) in crate::formats::CONSTRUCTORS {
        table.add(qualified, Fun::FormatOf(name), Cost::Unit, &["() format"]);
    }
    table.add(
        "validate",
        Fun::Validate,
        Cost::Validate,
        &["format.(string) optional(list(string))"],
    );
}

fn networks(table: &mut Table) {
    table.add("ip", Fun::Ip, Cost::ParseText, &["(string) ip"]);
    table.add("ip", Fun::CidrIp, Cost::Unit, &["cidr.() ip"]);
    table.add("isIP", Fun::IsIp, Cost::ParseText, &["(string) bool"]);
    table.add("ip.isCanonical", Fun::IsCanonical, Cost::ParseTwice, &["(string) bool"]);
    table.add("family", Fun::Family, Cost::Unit, &["ip.() int"]);
    let classes = [
        ("isUnspecified", IpClass::Unspecified),
        ("isLoopback", IpClass::Loopback),
        ("isLinkLocalUnicast", IpClass::LinkLocalUnicast),
        ("isLinkLocalMulticast", IpClass::LinkLocalMulticast),
        ("isGlobalUnicast", IpClass::GlobalUnicast),
    ];
    for (name, class) in classes {
        table.add(name, Fun::IpIs(class), Cost::Unit, &["ip.() bool"]);
    }
    table.add("cidr", Fun::Cidr, Cost::ParseText, &["(string) cidr"]);
    table.add("isCIDR", Fun::IsCidr, Cost::ParseText, &["(string) bool"]);
    table.add(
        "containsIP",
        Fun::ContainsIp,
        Cost::ContainsIp { text: false },
        &["cidr.(ip) bool"],
    );
    table.add(
        "containsIP",
        Fun::ContainsIp,
        Cost::ContainsIp { text: true },
        &["cidr.(string) bool"],
    );
    table.add(
        "containsCIDR",
        Fun::ContainsCidr,
        Cost::ContainsCidr { text: false },
        &["cidr.(cidr) bool"],
    );
    table.add(
        "containsCIDR",
        Fun::ContainsCidr,
        Cost::ContainsCidr { text: true },
        &["cidr.(string) bool"],
    );
    table.add("prefixLength", Fun::PrefixLength, Cost::Unit, &["cidr.() int"]);
    table.add("masked", Fun::Masked, Cost::Unit, &["cidr.() cidr"]);
    table.add("url", Fun::Url, Cost::Url, &["(string) url"]);
    table.add("isURL", Fun::IsUrl, Cost::Unit, &["(string) bool"]);
    let parts = [
        ("getScheme", UrlPart::Scheme),
        ("getHost", UrlPart::Host),
        ("getHostname", UrlPart::Hostname),
        ("getPort", UrlPart::Port),
        ("getEscapedPath", UrlPart::EscapedPath),
    ];
    for (name, part) in parts {
        table.add(name, Fun::UrlPart(part), Cost::Unit, &["url.() string"]);
    }
    table.add("getQuery", Fun::UrlQuery, Cost::Unit, &["url.() map(string, list(string))"]);
}

/// Parses a signature of this file; the tests read every one, so a slip cannot reach a release.
fn overload(fun: Fun, cost: Cost, text: &str) -> Overload {
    let mut reader = Signature {
        rest: text,
        type_params: 0,
    };
    let mut params = Vec::new();
    let member = !reader.rest.starts_with('(');
    if member {
        params.push(reader.read_type());
        reader.eat(".");
    }
    reader.eat("(");
    while !reader.eat(")") {
        params.push(reader.read_type());
        reader.eat(", ");
    }
    reader.eat(" ");
    let result = reader.read_type();
    assert!(reader.rest.is_empty(), "signature {text:?} is malformed");
    Overload {
        fun,
        member,
        params,
        result,
        type_params: reader.type_params,
        cost,
    }
}

struct Signature<'a> {
    rest: &'a str,
    type_params: u32,
}

impl Signature<'_> {
    fn eat(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn read_type(&mut self) -> Type {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        match name {
            "A" => self.param(0),
            "B" => self.param(1),
            "list" => Type::list(self.read_argument()),
            "optional" => Type::optional(self.read_argument()),
            "type" => Type::Of(Arc::new(self.read_argument())),
            "map" => {
                self.eat("(");
                let key = self.read_type();
                self.eat(", ");
                let value = self.read_type();
                self.eat(")");
                Type::map(key, value)
            }
            _ => named(name),
        }
    }

    fn read_argument(&mut self) -> Type {
        self.eat("(");
        let argument = self.read_type();
        self.eat(")");
        argument
    }

    fn param(&mut self, n: u32) -> Type {
        self.type_params = self.type_params.max(n + 1);
        Type::Param(n)
    }
}

fn named(name: &str) -> Type {
    match name {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "quantity" => Type::Quantity,
        "semver" => Type::Semver,
        "url" => Type::Url,
        "format" => Type::Format,
        "ip" => Type::Ip,
        "cidr" => Type::Cidr,
        _ => unreachable!("type {name:?} in a signature"),
    }
}
