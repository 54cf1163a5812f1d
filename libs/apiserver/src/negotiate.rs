//! Which form an answer takes and which form a body has: `Accept` and `Content-Type`.
//!
//! Decides only; encoding and decoding are elsewhere. Source: `k8s.io/apiserver/pkg/endpoints/handlers/negotiation`.

use crate::body::Format;
use crate::status::Status;

/// JSON.
pub const JSON: &str = "application/json";
/// YAML.
pub const YAML: &str = "application/yaml";
/// Protobuf in the envelope of Kubernetes.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// JSON patch, RFC 6902.
pub const JSON_PATCH: &str = "application/json-patch+json";
/// Merge patch, RFC 7386.
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// Merge patch that knows lists.
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
/// Server-side apply.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Clauses of one `Accept` header; the rest is not looked at. Clients send up to five.
const CLAUSES_MAX: usize = 64;

/// The media type of a format.
pub const fn media_type(format: Format) -> &'static str {
    match format {
        Format::Json => JSON,
        Format::Yaml => YAML,
        Format::Protobuf => PROTOBUF,
    }
}

/// The header `Content-Type` of a watch.
pub const fn stream_content_type(format: Format) -> &'static str {
    match format {
        Format::Json | Format::Yaml => JSON,
        Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
    }
}

/// A version of `meta.k8s.io` in which converted answers are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    V1,
    V1Beta1,
}

impl MetaVersion {
    /// The text of `apiVersion`.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// What the answer shows of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// The objects themselves.
    Object,
    /// Rows for people.
    Table(MetaVersion),
    /// Metadata only.
    Metadata(MetaVersion),
    /// The aggregated discovery document.
    Discovery(DiscoveryVersion),
}

/// A version of `apidiscovery.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryVersion {
    V2,
    V2Beta1,
}

/// What is answered, which decides what can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// One object.
    Object,
    /// A list of objects.
    List,
    /// Events, one after the other.
    Watch,
    /// The groups, at `/api` and `/apis`.
    Groups,
    /// Any other document: discovery of one version, reviews, `Status`.
    Document,
}

/// What the server is able to send for a request.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    pub answer: Answer,
    /// Whether the objects can be written as protobuf.
    pub has_protobuf: bool,
}

/// The chosen form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub format: Format,
    pub representation: Representation,
    /// The clause asked for indented JSON.
    pub is_pretty: bool,
}

impl Accepted {
    /// Plain JSON: what is answered when nothing is asked for, and to errors when nothing fits.
    pub const JSON: Self = Self {
        format: Format::Json,
        representation: Representation::Object,
        is_pretty: false,
    };

    /// The header `Content-Type` of an answer that is not a watch.
    pub const fn content_type(&self) -> &'static str {
        match self.representation {
            Representation::Discovery(DiscoveryVersion::V2) => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            Representation::Discovery(DiscoveryVersion::V2Beta1) => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            Representation::Object | Representation::Table(_) | Representation::Metadata(_) => media_type(self.format),
        }
    }
}

/// Chooses the form of an answer. No header, or an empty one, takes JSON.
///
/// 406 if nothing that the client takes can be sent, or if metadata is asked for as one object where there is a list, and the
/// other way around.
pub fn accept(header: Option<&str>, offer: Offer) -> Result<Accepted, Status> {
    let header = header.map(str::trim).filter(|header| !header.is_empty());
    let Some(header) = header else {
        return Ok(Accepted::JSON);
    };
    for clause in clauses(header) {
        for format in [Format::Json, Format::Yaml, Format::Protobuf] {
            let is_offered = match format {
                Format::Json => true,
                Format::Yaml => offer.answer != Answer::Watch,
                Format::Protobuf => offer.has_protobuf,
            };
            if !is_offered || !clause.covers(format) {
                continue;
            }
            if let Some(accepted) = clause.accepted(format, offer)? {
                return Ok(accepted);
            }
        }
    }
    Err(Status::not_acceptable(&media_types(offer)))
}

/// The form of an answer that reports an error: what the client takes if it can be had, else JSON.
pub fn accept_error(header: Option<&str>, has_protobuf: bool) -> Accepted {
    let offer = Offer {
        answer: Answer::Document,
        has_protobuf,
    };
    accept(header, offer).unwrap_or(Accepted::JSON)
}

fn media_types(offer: Offer) -> String {
    let types: Vec<&str> = match (offer.answer, offer.has_protobuf) {
        (Answer::Watch, true) => vec![
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf;stream=watch",
        ],
        (Answer::Watch, false) => vec!["application/json;stream=watch"],
        (_, true) => vec![JSON, YAML, PROTOBUF],
        (_, false) => vec![JSON, YAML],
    };
    types.join(", ")
}

/// One entry of an `Accept` header.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// In thousandths.
    quality: u32,
}

/// The clauses, the most wanted one first: by quality, then the more specific, then as written.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = header.split(',').take(CLAUSES_MAX).filter_map(clause).collect();
    clauses.retain(|clause| clause.quality > 0);
    clauses.sort_by_key(|clause| (std::cmp::Reverse(clause.quality), clause.kind == "*", clause.subtype == "*"));
    clauses
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next().filter(|media_type| !media_type.is_empty())?;
    let (kind, subtype) = match media_type {
        "*" => ("*", "*"),
        other => other.split_once('/')?,
    };
    let mut quality = 1000;
    let mut parameters = Vec::new();
    for part in parts.filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if name == "q" {
            quality = thousandths(value);
        } else {
            parameters.push((name, value));
        }
    }
    Some(Clause {
        kind: kind.trim(),
        subtype: subtype.trim(),
        parameters,
        quality,
    })
}

/// A quality such as `0.5`; anything else counts as 1.
fn thousandths(text: &str) -> u32 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = fraction.get(..fraction.len().min(3)).unwrap_or_default();
    let fraction = format!("{digits:0<3}").parse::<u32>();
    match (whole, fraction) {
        ("0", Ok(fraction)) => fraction,
        _ => 1000,
    }
}

impl Clause<'_> {
    fn covers(&self, format: Format) -> bool {
        let (kind, subtype) = media_type(format).split_once('/').unwrap_or_default();
        let same = |wanted: &str, offered: &str| wanted == "*" || wanted.eq_ignore_ascii_case(offered);
        same(self.kind, kind) && same(self.subtype, subtype)
    }

    fn parameter(&self, name: &str) -> &str {
        let mut found = self.parameters.iter().rev();
        found.find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// `None`: another clause may fit.
    fn accepted(&self, format: Format, offer: Offer) -> Result<Option<Accepted>, Status> {
        let stream = self.parameter("stream");
        if !(stream.is_empty() || stream == "watch") {
            return Ok(None);
        }
        let is_pretty = self.parameter("pretty") == "1";
        let representation = match self.representation(format, offer)? {
            Some(representation) => representation,
            None => return Ok(None),
        };
        Ok(Some(Accepted {
            format,
            representation,
            is_pretty,
        }))
    }

    fn representation(&self, format: Format, offer: Offer) -> Result<Option<Representation>, Status> {
        let (wanted, group, version) = (self.parameter("as"), self.parameter("g"), self.parameter("v"));
        if wanted.is_empty() && group.is_empty() && version.is_empty() {
            return Ok(Some(Representation::Object));
        }
        if offer.answer == Answer::Groups {
            let version = match version {
                "v2" => DiscoveryVersion::V2,
                "v2beta1" => DiscoveryVersion::V2Beta1,
                _ => return Ok(None),
            };
            let fits = wanted == "APIGroupDiscoveryList" && group == "apidiscovery.k8s.io" && format == Format::Json;
            return Ok(fits.then_some(Representation::Discovery(version)));
        }
        let version = match (group, version) {
            ("meta.k8s.io", "v1") => MetaVersion::V1,
            ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
            _ => return Ok(None),
        };
        let shows_objects = matches!(offer.answer, Answer::Object | Answer::List | Answer::Watch);
        match wanted {
            "Table" if shows_objects && format != Format::Protobuf => Ok(Some(Representation::Table(version))),
            "PartialObjectMetadata" | "PartialObjectMetadataList" if shows_objects => {
                let (wants_list, is_list) = (wanted.ends_with("List"), offer.answer == Answer::List);
                if wants_list == is_list {
                    return Ok(Some(Representation::Metadata(version)));
                }
                let found = if is_list { "a list" } else { "not a list" };
                let text = format!("you requested {wanted}, but the requested object is {found}");
                Err(Status::not_convertible(text))
            }
            _ => Ok(None),
        }
    }
}

/// How a patch changes an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    /// The patch as a change of what is stored. `None` for server-side apply, which says what is wanted instead.
    pub const fn change(self) -> Option<crate::patch::PatchType> {
        match self {
            Self::Json => Some(crate::patch::PatchType::Json),
            Self::Merge => Some(crate::patch::PatchType::Merge),
            Self::Strategic => Some(crate::patch::PatchType::Strategic),
            Self::Apply => None,
        }
    }

    /// The media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => JSON_PATCH,
            Self::Merge => MERGE_PATCH,
            Self::Strategic => STRATEGIC_PATCH,
            Self::Apply => APPLY_PATCH,
        }
    }
}

/// The format of a body that is an object. No header means JSON; parameters are not looked at.
///
/// 415 if it is none of the three; custom resources have no protobuf.
pub fn body_format(content_type: Option<&str>, has_protobuf: bool) -> Result<Format, Status> {
    let accepted: &[&str] = if has_protobuf {
        &[JSON, YAML, PROTOBUF]
    } else {
        &[JSON, YAML]
    };
    match bare(content_type).as_str() {
        "" | JSON => Ok(Format::Json),
        YAML => Ok(Format::Yaml),
        PROTOBUF if has_protobuf => Ok(Format::Protobuf),
        _ => Err(Status::unsupported_media_type(accepted)),
    }
}

/// The type of a patch. Custom resources have no strategic merge patch.
///
/// 415 if it is none of them.
pub fn patch_type(content_type: Option<&str>, is_custom: bool) -> Result<PatchType, Status> {
    match bare(content_type).as_str() {
        JSON_PATCH => Ok(PatchType::Json),
        MERGE_PATCH => Ok(PatchType::Merge),
        APPLY_PATCH => Ok(PatchType::Apply),
        STRATEGIC_PATCH if is_custom => Err(Status::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, APPLY_PATCH])),
        STRATEGIC_PATCH => Ok(PatchType::Strategic),
        _ => Err(Status::unsupported_patch_type()),
    }
}

/// The media type without parameters, in lower case; empty if there is none.
fn bare(header: Option<&str>) -> String {
    let header = header.unwrap_or_default();
    header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
