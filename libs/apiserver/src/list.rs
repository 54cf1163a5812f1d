//! What a list must show: how new, from where, how much of it; and the tokens that continue it.
//!
//! Pure decisions; reading is done by whoever has the objects. Source: the rules of `k8s.io/apiserver/pkg/storage` for
//! `resourceVersion`, `resourceVersionMatch`, `limit` and `continue`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::request::{ListOptions, VersionMatch};
use crate::resources::ResourceType;
use crate::status::Status;

/// Bytes of a continue token. Names and namespaces are short.
const TOKEN_BYTES_MAX: usize = 4096;

/// Which states can be read: from `oldest` to `current`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    pub oldest: u64,
    pub current: u64,
}

/// How new the state must be that a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Any state that is at hand.
    Any,
    /// Every write that was answered before.
    Latest,
    /// This version or a later one.
    AtLeast(u64),
    /// This version.
    Exactly(u64),
}

/// Where an object is in the order of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Empty for cluster kinds.
    pub namespace: String,
    pub name: String,
}

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPlan {
    pub freshness: Freshness,
    /// Objects after this one; `None` from the beginning.
    pub after: Option<Position>,
    /// `None` for all of them.
    pub limit: Option<u64>,
}

/// What a list is about. A token continues only the list that it came from.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    pub resource: &'a ResourceType,
    /// Empty across all namespaces.
    pub namespace: &'a str,
}

/// Decides what a list reads.
///
/// 400 for tokens that are not ours or come with a version; 410 for states that are gone, with a token that continues anyway if
/// there was one; 504 for versions that do not exist yet.
pub fn decide(options: &ListOptions, listed: Listed<'_>, horizon: Horizon) -> Result<ListPlan, Status> {
    if let Some(token) = &options.continue_token {
        return decide_continued(token, options, listed, horizon);
    }
    let freshness = match (options.version, options.version_match) {
        (None, _) => Freshness::Latest,
        (Some(0), _) => Freshness::Any,
        (Some(version), Some(VersionMatch::NotOlderThan)) => Freshness::AtLeast(version),
        (Some(version), Some(VersionMatch::Exact)) => Freshness::Exactly(version),
        (Some(version), None) if options.limit.is_some() => Freshness::Exactly(version),
        (Some(version), None) => Freshness::AtLeast(version),
    };
    match freshness {
        Freshness::AtLeast(version) | Freshness::Exactly(version) if version > horizon.current => {
            return Err(Status::version_too_large(version, horizon.current));
        }
        Freshness::Exactly(version) if version < horizon.oldest => {
            return Err(Status::expired(
                "the state at the resource version of this list is no longer known",
            ));
        }
        Freshness::Any | Freshness::Latest | Freshness::AtLeast(_) | Freshness::Exactly(_) => {}
    }
    Ok(ListPlan {
        freshness,
        after: None,
        // From whatever state is at hand, clients get all of it.
        limit: options.limit.filter(|_| freshness != Freshness::Any),
    })
}

fn decide_continued(token: &str, options: &ListOptions, listed: Listed<'_>, horizon: Horizon) -> Result<ListPlan, Status> {
    if options.version.is_some_and(|version| version > 0) {
        let rule = "specifying resource version is not allowed when using continue";
        return Err(Status::bad_request(rule));
    }
    let Token { version, after } = Token::read(token, listed)?;
    let freshness = match version {
        None => Freshness::Latest,
        Some(version) if version > horizon.current => return Err(Status::version_too_large(version, horizon.current)),
        Some(version) if version < horizon.oldest => {
            let text = "the state that this list began with is no longer known: start again, or use the token in this answer to \
                        go on with the current state, which may show changes made since then";
            let inconsistent = Token { version: None, after };
            return Err(Status::expired(text).with_continue(inconsistent.write(listed)));
        }
        Some(version) => Freshness::Exactly(version),
    };
    Ok(ListPlan {
        freshness,
        after: Some(after),
        limit: options.limit,
    })
}

/// A place in a list.
struct Token {
    /// The version that all pages show; `None` to go on with whatever is current.
    version: Option<u64>,
    after: Position,
}

/// A token's text: JSON in base64, with a digest that also covers what the list is about. The digest finds damage and mistakes;
/// it keeps no secret, since a token gives access to nothing.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenText {
    /// Version of this form.
    v: String,
    /// The version, -1 for none.
    rv: i64,
    namespace: String,
    name: String,
    sum: String,
}

const TOKEN_FORM: &str = "list/1";

impl Token {
    fn read(token: &str, listed: Listed<'_>) -> Result<Self, Status> {
        let invalid = || Status::bad_request("continue key is not valid");
        if token.len() > TOKEN_BYTES_MAX {
            return Err(invalid());
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let text: TokenText = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        let after = Position {
            namespace: text.namespace,
            name: text.name,
        };
        if text.v != TOKEN_FORM || text.sum != sum(text.rv, &after, listed) || after.name.is_empty() {
            return Err(invalid());
        }
        let version = match text.rv {
            -1 => None,
            version => Some(u64::try_from(version).map_err(|_| invalid())?),
        };
        Ok(Self { version, after })
    }

    fn write(self, listed: Listed<'_>) -> String {
        let rv = self.version.map_or(-1, |version| i64::try_from(version).unwrap_or(i64::MAX));
        let text = json!({
            "v": TOKEN_FORM,
            "rv": rv,
            "sum": sum(rv, &self.after, listed),
            "namespace": self.after.namespace,
            "name": self.after.name,
        });
        URL_SAFE_NO_PAD.encode(text.to_string())
    }
}

fn sum(rv: i64, after: &Position, listed: Listed<'_>) -> String {
    let resource = listed.resource;
    let parts = json!([
        rv,
        after.namespace,
        after.name,
        resource.group,
        resource.plural,
        listed.namespace
    ]);
    let digest = Sha256::digest(parts.to_string());
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// What comes after a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextPage {
    /// The last object of this page.
    pub after: Position,
    /// Objects after it, if they were counted; not told when selectors are used.
    pub remaining: Option<u64>,
}

/// The metadata of a list that shows the state at `version`; `next` if the page is not the last one.
///
/// All pages of a list show the version of the first; a list that was continued inconsistently, that of the page.
pub fn metadata(listed: Listed<'_>, version: u64, next: Option<NextPage>) -> Value {
    let mut shown = Map::new();
    shown.insert("resourceVersion".to_owned(), json!(version.to_string()));
    if let Some(NextPage { after, remaining }) = next {
        let token = Token {
            version: Some(version),
            after,
        };
        shown.insert("continue".to_owned(), json!(token.write(listed)));
        if let Some(remaining) = remaining {
            shown.insert("remainingItemCount".to_owned(), json!(remaining));
        }
    }
    Value::Object(shown)
}

/// The list itself.
pub fn body(resource: &ResourceType, items: Vec<Value>, metadata: Value) -> Value {
    json!({
        "kind": resource.list_kind,
        "apiVersion": resource.api_version(),
        "metadata": metadata,
        "items": items,
    })
}

#[cfg(test)]
mod tests;
