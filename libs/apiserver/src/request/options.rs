//! The options of each operation, with the rules that the API has for them.

use resource_api::field_path::{FieldErrors, FieldPath};
use serde_json::Value;

use super::query::Query;
use crate::negotiate::PatchType;
use crate::resources::ResourceType;
use crate::selectors::{FieldSelector, LabelSelector, Selection, SelectorError, fields};
use crate::status::{GroupResource, Status};

/// Bytes of a field manager's name.
pub const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// How `resourceVersion` of a list is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    NotOlderThan,
    Exact,
}

/// Options of a list. What the versions mean together is decided in [`crate::list`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListOptions {
    pub selection: Selection,
    /// `None` if unset.
    pub version: Option<u64>,
    pub version_match: Option<VersionMatch>,
    /// `None` for everything.
    pub limit: Option<u64>,
    pub continue_token: Option<String>,
    pub timeout_seconds: Option<u64>,
}

impl ListOptions {
    /// Reads and checks the query. 400 for malformed values and selectors, 422 for values that do not go together.
    pub fn read(query: &Query, resource: &ResourceType) -> Result<Self, Status> {
        let given = Given::read(query, resource)?;
        let mut errors = FieldErrors::new();
        let path = FieldPath::root("resourceVersionMatch");
        if let Some(text) = given.version_match {
            if given.version_text.is_empty() {
                errors.forbidden(&path, "resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if given.continue_token.is_some() {
                errors.forbidden(&path, "resourceVersionMatch is forbidden when continue is provided");
            }
            if !matches!(text, "Exact" | "NotOlderThan") {
                errors.not_supported(&path, text, &["Exact", "NotOlderThan", ""]);
            }
            if text == "Exact" && given.version_text == "0" {
                errors.forbidden(&path, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
        }
        if given.send_initial_events.is_some() {
            errors.forbidden(
                &FieldPath::root("sendInitialEvents"),
                "sendInitialEvents is forbidden for list",
            );
        }
        refuse(errors, "ListOptions")?;
        Ok(Self {
            version: given.version()?,
            version_match: given.version_match.map(|text| match text {
                "Exact" => VersionMatch::Exact,
                _ => VersionMatch::NotOlderThan,
            }),
            selection: given.selection,
            limit: given.limit,
            continue_token: given.continue_token.map(str::to_owned),
            timeout_seconds: given.timeout_seconds,
        })
    }
}

/// Options of a watch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchOptions {
    pub selection: Selection,
    /// `None` if unset.
    pub version: Option<u64>,
    /// Unset, or whether the state comes first, ended by a marker. `true` and `false` both need `NotOlderThan`.
    pub send_initial_events: Option<bool>,
    pub allows_bookmarks: bool,
    pub timeout_seconds: Option<u64>,
}

impl WatchOptions {
    /// Reads and checks the query; errors as [`ListOptions::read`].
    pub fn read(query: &Query, resource: &ResourceType) -> Result<Self, Status> {
        let given = Given::read(query, resource)?;
        let mut errors = FieldErrors::new();
        let path = FieldPath::root("resourceVersionMatch");
        let text = given.version_match.unwrap_or_default();
        if given.send_initial_events.is_some() && text != "NotOlderThan" {
            let rule = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.forbidden(&path, rule);
        }
        if !text.is_empty() {
            if given.send_initial_events.is_none() {
                let rule = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.forbidden(&path, rule);
            }
            if text != "NotOlderThan" {
                errors.not_supported(&path, text, &["NotOlderThan"]);
            }
            if given.continue_token.is_some() {
                errors.forbidden(&path, "resourceVersionMatch is forbidden when continue is provided");
            }
        }
        refuse(errors, "ListOptions")?;
        Ok(Self {
            version: given.version()?,
            selection: given.selection,
            send_initial_events: given.send_initial_events,
            allows_bookmarks: given.allows_bookmarks,
            timeout_seconds: given.timeout_seconds,
        })
    }

    /// Narrows the watch to one name. 400 if the kind cannot be selected by name.
    pub(super) fn select_name(&mut self, name: &str, resource: &ResourceType) -> Result<(), Status> {
        let mut text = format!("metadata.name={}", fields::escape(name));
        if !self.selection.fields.is_empty() {
            text = format!("{},{text}", self.selection.fields);
        }
        self.selection.fields = FieldSelector::parse(&text).map_err(bad_selector)?.resolve(resource)?;
        Ok(())
    }
}

/// What list and watch have in common, before the rules.
struct Given<'a> {
    selection: Selection,
    version_text: &'a str,
    version_match: Option<&'a str>,
    limit: Option<u64>,
    continue_token: Option<&'a str>,
    send_initial_events: Option<bool>,
    allows_bookmarks: bool,
    timeout_seconds: Option<u64>,
}

impl<'a> Given<'a> {
    fn read(query: &'a Query, resource: &ResourceType) -> Result<Self, Status> {
        let text = |name: &str| query.first(name).unwrap_or_default();
        let labels = LabelSelector::parse(text("labelSelector")).map_err(bad_selector)?;
        let fields = FieldSelector::parse(text("fieldSelector")).map_err(bad_selector)?;
        let positive = |number: Option<i64>| {
            number
                .and_then(|number| u64::try_from(number).ok())
                .filter(|number| *number > 0)
        };
        Ok(Self {
            selection: Selection {
                labels,
                fields: fields.resolve(resource)?,
            },
            version_text: query.first("resourceVersion").unwrap_or_default(),
            version_match: query.first("resourceVersionMatch").filter(|text| !text.is_empty()),
            limit: positive(query.number("limit")?),
            continue_token: query.first("continue").filter(|text| !text.is_empty()),
            send_initial_events: query.flag("sendInitialEvents"),
            allows_bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
            timeout_seconds: positive(query.number("timeoutSeconds")?),
        })
    }

    fn version(&self) -> Result<Option<u64>, Status> {
        parse_version(self.version_text)
    }
}

/// `resourceVersion` of the query. 400 if it is not a whole number.
pub(super) fn version(query: &Query) -> Result<Option<u64>, Status> {
    parse_version(query.first("resourceVersion").unwrap_or_default())
}

fn parse_version(text: &str) -> Result<Option<u64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(Status::bad_request(format!(
            "invalid resource version: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))),
    }
}

/// What happens to fields that nobody knows, and to fields that are given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    /// They are dropped, and the client is warned.
    #[default]
    Warn,
    /// They are an error.
    Strict,
}

/// Options of create, update and patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub is_dry_run: bool,
    pub field_validation: FieldValidation,
    /// `None` if the client does not say who it is, see [`field_manager`].
    pub field_manager: Option<String>,
}

impl WriteOptions {
    /// Reads and checks the query. 422 about options of `kind`.
    pub fn read(query: &Query, kind: &str) -> Result<Self, Status> {
        let mut errors = FieldErrors::new();
        let options = Self::collect(query, &mut errors);
        refuse(errors, kind)?;
        Ok(options)
    }

    fn collect(query: &Query, errors: &mut FieldErrors) -> Self {
        let manager = query.first("fieldManager").unwrap_or_default();
        check_field_manager(manager, &FieldPath::root("fieldManager"), errors);
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        check_dry_run(&dry_run, errors);
        let validation = query.first("fieldValidation").unwrap_or_default();
        let field_validation = match validation {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let known = ["", "Ignore", "Strict", "Warn"];
                errors.not_supported(&FieldPath::root("fieldValidation"), other, &known);
                FieldValidation::Warn
            }
        };
        Self {
            is_dry_run: !dry_run.is_empty(),
            field_validation,
            field_manager: (!manager.is_empty()).then(|| manager.to_owned()),
        }
    }
}

/// Options of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchOptions {
    pub patch_type: PatchType,
    /// Server-side apply takes fields away from other managers.
    pub is_forced: bool,
    pub write: WriteOptions,
}

impl PatchOptions {
    /// Reads and checks the query. 422 as [`WriteOptions::read`], and if apply has no manager or another type is forced.
    pub fn read(query: &Query, patch_type: PatchType) -> Result<Self, Status> {
        let mut errors = FieldErrors::new();
        let force = query.flag("force");
        let has_manager = query.first("fieldManager").is_some_and(|manager| !manager.is_empty());
        match patch_type {
            PatchType::Apply if !has_manager => {
                errors.required(&FieldPath::root("fieldManager"), "is required for apply patch");
            }
            PatchType::Apply => {}
            PatchType::Json | PatchType::Merge | PatchType::Strategic => {
                if force.is_some() {
                    errors.forbidden(&FieldPath::root("force"), "may not be specified for non-apply patch");
                }
            }
        }
        let write = WriteOptions::collect(query, &mut errors);
        refuse(errors, "PatchOptions")?;
        Ok(Self {
            patch_type,
            is_forced: force.unwrap_or_default(),
            write,
        })
    }
}

/// Who a write is recorded as: the manager that it names, else the program in `User-Agent`.
pub fn field_manager(options: &WriteOptions, user_agent: Option<&str>) -> String {
    if let Some(manager) = &options.field_manager {
        return manager.clone();
    }
    let program = user_agent.unwrap_or_default().split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for c in program.chars().filter(|c| is_printable(*c)) {
        if manager.len() + c.len_utf8() > FIELD_MANAGER_BYTES_MAX {
            break;
        }
        manager.push(c);
    }
    manager
}

/// What happens to objects that have the deleted one as owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted later.
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

/// Options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Below 0 counts as 1.
    pub grace_period_seconds: Option<i64>,
    /// The object must have this uid.
    pub uid: Option<String>,
    /// The object must have this version.
    pub resource_version: Option<String>,
    /// `None` if the client leaves it to the kind.
    pub propagation: Option<Propagation>,
    pub is_dry_run: bool,
}

impl DeleteOptions {
    /// Reads the query. 400 for malformed numbers, 422 for values that do not go together.
    pub fn read(query: &Query) -> Result<Self, Status> {
        let given = GivenDelete {
            grace_period_seconds: query.number("gracePeriodSeconds")?,
            uid: query.first("uid"),
            resource_version: None,
            propagation: query.first("propagationPolicy"),
            orphans: query.flag("orphanDependents"),
            dry_run: query.all("dryRun").collect(),
        };
        given.check()
    }

    /// Reads a decoded body of kind `DeleteOptions`, whose fields replace all of the query.
    ///
    /// 400 for fields of the wrong type, 422 for values that do not go together.
    pub fn from_body(body: &Value) -> Result<Self, Status> {
        let preconditions = body.get("preconditions").unwrap_or(&Value::Null);
        let dry_run = match body.get("dryRun") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => {
                let texts = list.iter().map(Value::as_str).collect::<Option<_>>();
                texts.ok_or_else(|| wrong_type("dryRun"))?
            }
            Some(_) => return Err(wrong_type("dryRun")),
        };
        let given = GivenDelete {
            grace_period_seconds: part(body, "gracePeriodSeconds", Value::as_i64)?,
            uid: part(preconditions, "uid", Value::as_str)?,
            resource_version: part(preconditions, "resourceVersion", Value::as_str)?,
            propagation: part(body, "propagationPolicy", Value::as_str)?,
            orphans: part(body, "orphanDependents", Value::as_bool)?,
            dry_run,
        };
        given.check()
    }
}

fn part<'a, T>(of: &'a Value, field: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, Status> {
    match of.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| wrong_type(field)),
    }
}

fn wrong_type(field: &str) -> Status {
    Status::bad_request(format!("DeleteOptions cannot be read: field {field:?} has the wrong type"))
}

struct GivenDelete<'a> {
    grace_period_seconds: Option<i64>,
    uid: Option<&'a str>,
    resource_version: Option<&'a str>,
    propagation: Option<&'a str>,
    orphans: Option<bool>,
    dry_run: Vec<&'a str>,
}

impl GivenDelete<'_> {
    fn check(self) -> Result<DeleteOptions, Status> {
        let mut errors = FieldErrors::new();
        let path = FieldPath::root("propagationPolicy");
        if let (Some(_), Some(policy)) = (self.orphans, self.propagation) {
            errors.invalid(&path, policy, "orphanDependents and deletionPropagation cannot be both set");
        }
        let propagation = match self.propagation {
            None => self.orphans.map(|orphans| {
                if orphans {
                    Propagation::Orphan
                } else {
                    Propagation::Background
                }
            }),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                errors.not_supported(&path, other, &["Foreground", "Background", "Orphan", "nil"]);
                None
            }
        };
        check_dry_run(&self.dry_run, &mut errors);
        refuse(errors, "DeleteOptions")?;
        Ok(DeleteOptions {
            grace_period_seconds: self.grace_period_seconds,
            uid: self.uid.map(str::to_owned),
            resource_version: self.resource_version.map(str::to_owned),
            propagation,
            is_dry_run: !self.dry_run.is_empty(),
        })
    }
}

fn check_dry_run(values: &[&str], errors: &mut FieldErrors) {
    if values.iter().any(|value| *value != "All") {
        errors.not_supported(&FieldPath::root("dryRun"), &values.join(","), &["All"]);
    }
}

fn check_field_manager(manager: &str, path: &FieldPath<'_>, errors: &mut FieldErrors) {
    if manager.len() > FIELD_MANAGER_BYTES_MAX {
        errors.too_long(path, FIELD_MANAGER_BYTES_MAX);
    }
    if let Some((at, c)) = manager.char_indices().find(|(_, c)| !is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.invalid(path, manager, detail);
    }
}

/// Neither control nor format characters, nor blanks other than the space.
fn is_printable(c: char) -> bool {
    let is_format =
        matches!(c, '\u{AD}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}');
    let is_private = matches!(c, '\u{E000}'..='\u{F8FF}' | '\u{F0000}'..);
    c == ' ' || !(c.is_control() || c.is_whitespace() || is_format || is_private)
}

fn refuse(errors: FieldErrors, kind: &str) -> Result<(), Status> {
    let errors = errors.into_vec();
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(GroupResource::new("meta.k8s.io", kind), "", &errors))
}

fn bad_selector(error: SelectorError) -> Status {
    Status::bad_request(error.to_string())
}
