//! Constraints between the devices of a claim: `matchAttribute` and `distinctAttribute`, over single and list values.
//!
//! A constraint only ever gets stricter as devices are added, which is what lets the search prune on the first refusal.
//! What it has seen is a stack, so that giving a device back restores the wider set (KEP-5491).

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::request::ChoiceId;

/// The kind of an attribute's value; kinds never compare equal to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ValueKind {
    Int,
    Bool,
    String,
    Version,
    /// No field set that this version knows.
    Unknown,
}

/// An attribute's value as a set: a single value is a set of one. Members are interned numbers, ascending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ValueSet {
    pub(crate) kind: ValueKind,
    pub(crate) is_list: bool,
    pub(crate) members: SmallVec<[u32; 2]>,
}

impl ValueSet {
    fn overlap(&self, other: &Self) -> SmallVec<[u32; 2]> {
        self.members
            .iter()
            .copied()
            .filter(|member| other.members.contains(member))
            .collect()
    }

    fn is_plain(&self) -> bool {
        !self.is_list && self.kind != ValueKind::Unknown
    }
}

/// How a constraint judges the next device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// All devices share a value.
    Match,
    /// No two devices share a value.
    Distinct,
}

impl Rule {
    /// What to push on the stack `seen` if `value` is acceptable after it.
    ///
    /// For [`Rule::Match`] the top of the stack is what all devices so far have in common; for [`Rule::Distinct`] the stack
    /// is the values of all devices so far. `lists`: `DRAListTypeAttributes`.
    pub(crate) fn accept(self, seen: &[ValueSet], value: &ValueSet, lists: bool) -> Option<ValueSet> {
        if lists && value.kind == ValueKind::Unknown {
            return None;
        }
        match self {
            Self::Match => match seen.last() {
                None => Some(value.clone()),
                Some(common) => Self::narrow(common, value, lists),
            },
            Self::Distinct => {
                let refused = match lists {
                    true => seen
                        .iter()
                        .any(|other| other.kind == value.kind && !other.overlap(value).is_empty()),
                    false if !value.is_plain() => !seen.is_empty(),
                    false => seen.iter().any(|other| other == value),
                };
                (!refused).then(|| value.clone())
            }
        }
    }

    fn narrow(common: &ValueSet, value: &ValueSet, lists: bool) -> Option<ValueSet> {
        if !lists {
            return (value.is_plain() && common == value).then(|| value.clone());
        }
        if common.kind != value.kind {
            return None;
        }
        let members = common.overlap(value);
        (!members.is_empty()).then(|| ValueSet {
            members,
            ..common.clone()
        })
    }
}

/// One entry of `spec.devices.constraints`.
#[derive(Clone, Debug)]
pub(crate) struct Constraint {
    pub(crate) rule: Rule,
    /// Fully qualified, `domain/name`.
    pub(crate) attribute: Arc<str>,
    /// The choices whose devices it looks at, ascending.
    pub(crate) choices: Vec<ChoiceId>,
}

impl Constraint {
    pub(crate) fn covers(&self, choice: ChoiceId) -> bool {
        self.choices.binary_search(&choice).is_ok()
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.rule {
            Rule::Match => "matchAttribute",
            Rule::Distinct => "distinctAttribute",
        };
        write!(f, "{rule} {}", self.attribute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: &[u32]) -> ValueSet {
        ValueSet {
            kind: ValueKind::Int,
            is_list: members.len() != 1,
            members: members.iter().copied().collect(),
        }
    }

    #[test]
    fn pairwise_overlap_is_not_a_match() {
        let first = Rule::Match.accept(&[], &set(&[1, 2]), true).unwrap();
        let second = Rule::Match.accept(std::slice::from_ref(&first), &set(&[2, 3]), true).unwrap();
        assert_eq!(second.members.as_slice(), [2]);
        assert_eq!(Rule::Match.accept(&[first, second], &set(&[1, 3]), true), None);
    }

    #[test]
    fn without_list_support_a_list_matches_not_even_itself() {
        let list = set(&[1, 2]);
        assert!(Rule::Match.accept(&[], &list, false).is_some());
        assert_eq!(Rule::Match.accept(std::slice::from_ref(&list), &list, false), None);
        assert!(Rule::Distinct.accept(&[], &list, false).is_some());
        assert_eq!(Rule::Distinct.accept(&[set(&[9])], &list, false), None);
    }

    #[test]
    fn kinds_are_distinct_from_each_other() {
        let text = ValueSet {
            kind: ValueKind::String,
            ..set(&[1])
        };
        assert!(Rule::Distinct.accept(&[set(&[1])], &text, false).is_some());
        assert_eq!(Rule::Match.accept(&[set(&[1])], &text, false), None);
    }
}
