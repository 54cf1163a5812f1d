//! Who calls, and what they may do.

pub(crate) mod credentials;
pub(crate) mod roles;

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use roles::{AUTHENTICATED_GROUP, NODE_USER_PREFIX, NODES_GROUP};

/// Who calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct User {
    #[serde(rename = "user")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) uid: String,
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    /// What else is known of the user.
    #[serde(default)]
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user in no group.
    pub(crate) fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Whoever shows no credential.
    pub(crate) fn anonymous() -> Self {
        Self {
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::named("system:anonymous")
        }
    }

    /// Marks a user who has shown a credential.
    fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED_GROUP) {
            self.groups.push(AUTHENTICATED_GROUP.to_owned());
        }
        self
    }

    /// The node, of a node agent.
    pub(crate) fn node(&self) -> Option<&str> {
        let is_node = self.groups.iter().any(|group| group == NODES_GROUP);
        self.name
            .strip_prefix(NODE_USER_PREFIX)
            .filter(|node| is_node && !node.is_empty())
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)
    }
}
