//! The kinds of objects a person can name, by every name that is usual for them.

use std::str::FromStr;

use clap::ValueEnum;

/// A kind that Dray stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Several claims that land on one node together.
    #[value(name = "units", aliases = ["unit", "un"])]
    Units,
    /// What a user asks for.
    #[value(name = "resourceclaims", aliases = ["resourceclaim", "claims", "claim"])]
    ResourceClaims,
    /// Published inventory.
    #[value(name = "resourceslices", aliases = ["resourceslice", "slices", "slice"])]
    ResourceSlices,
    /// Claims to be, for each consumer one.
    #[value(name = "resourceclaimtemplates", aliases = ["resourceclaimtemplate", "templates", "template"])]
    ResourceClaimTemplates,
    /// Taints put on devices from outside of their driver.
    #[value(name = "devicetaintrules", aliases = ["devicetaintrule", "taintrules", "taintrule"])]
    DeviceTaintRules,
    /// Named selections of devices.
    #[value(name = "deviceclasses", aliases = ["deviceclass", "classes", "class"])]
    DeviceClasses,
    /// Machines.
    #[value(name = "nodes", aliases = ["node", "no"])]
    Nodes,
}

impl Kind {
    /// The plural resource name, which is what the API calls a kind.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Units => "units",
            Self::ResourceClaims => "resourceclaims",
            Self::ResourceSlices => "resourceslices",
            Self::ResourceClaimTemplates => "resourceclaimtemplates",
            Self::DeviceTaintRules => "devicetaintrules",
            Self::DeviceClasses => "deviceclasses",
            Self::Nodes => "nodes",
        }
    }

    /// Whether objects of this kind live in a namespace.
    pub(crate) fn is_namespaced(self) -> bool {
        match self {
            Self::Units | Self::ResourceClaims | Self::ResourceClaimTemplates => true,
            Self::ResourceSlices | Self::DeviceTaintRules | Self::DeviceClasses | Self::Nodes => false,
        }
    }

    /// The namespace to ask in: none for cluster kinds.
    pub(crate) fn namespace(self, wanted: &str) -> String {
        if self.is_namespaced() {
            wanted.to_owned()
        } else {
            String::new()
        }
    }
}

impl FromStr for Kind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = || {
            Self::value_variants()
                .iter()
                .map(|kind| kind.plural())
                .collect::<Vec<_>>()
                .join(", ")
        };
        Self::from_str_ignoring_case(text).map_err(|_| format!("{text:?} is not a kind; known: {}", known()))
    }
}

impl Kind {
    fn from_str_ignoring_case(text: &str) -> Result<Self, String> {
        <Self as ValueEnum>::from_str(text, true)
    }
}

/// `KIND` or `KIND/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
}

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind, Some(name.to_owned()).filter(|name| !name.is_empty())),
            None => (text, None),
        };
        Ok(Self {
            kind: kind.parse()?,
            name,
        })
    }
}

impl Target {
    /// The names asked for: the one after the slash, then the further words.
    pub(crate) fn names(&self, more: &[String]) -> Vec<String> {
        self.name.iter().chain(more).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_name_of_a_kind_is_known() {
        for (text, kind, name) in [
            ("claims", Kind::ResourceClaims, None),
            ("ResourceClaim/train", Kind::ResourceClaims, Some("train")),
            ("class/", Kind::DeviceClasses, None),
            ("unit/0192", Kind::Units, Some("0192")),
            ("DeviceTaintRule/drain", Kind::DeviceTaintRules, Some("drain")),
            ("templates", Kind::ResourceClaimTemplates, None),
        ] {
            assert_eq!(
                text.parse(),
                Ok(Target {
                    kind,
                    name: name.map(str::to_owned)
                }),
                "{text}"
            );
        }
        assert!("pods".parse::<Target>().unwrap_err().contains("known: units"));
    }
}
