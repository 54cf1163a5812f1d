//! What a unit asks for, reduced to what decides the answer: names, labels and configuration left out.
//!
//! The service and the index of nodes remember failures by it, so that a thousand equal claims fail once.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHasher;

use crate::constraint::{Constraint, Rule};
use crate::request::{Choice, ClaimRequest, Need};

/// Identity of a unit's wish. Cheap to clone, compare and hash; meaningful within one `Cluster` only.
#[derive(Clone, Debug)]
pub struct Signature {
    hash: u64,
    content: Arc<[u8]>,
}

impl PartialEq for Signature {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.content == other.content
    }
}
impl Eq for Signature {}

impl Hash for Signature {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Signature {
    pub(crate) fn of(claims: &[ClaimRequest], choices: &[Choice], constraints: &[Constraint]) -> Self {
        let mut writer = Writer::default();
        for claim in claims {
            writer.number(claim.requests.len() as u64);
            for request in &claim.requests {
                writer.number(u64::from(request.has_alternatives));
                writer.number(request.choices.len() as u64);
                choices[request.choices.clone()]
                    .iter()
                    .for_each(|choice| writer.choice(choice));
            }
            writer.number(claim.constraints.len() as u64);
            constraints[claim.constraints.clone()]
                .iter()
                .for_each(|constraint| writer.constraint(constraint));
        }
        let mut hasher = FxHasher::default();
        writer.bytes.hash(&mut hasher);
        Self {
            hash: hasher.finish(),
            content: writer.bytes.into(),
        }
    }
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn choice(&mut self, choice: &Choice) {
        self.number(choice.filter.id());
        self.number(match choice.need {
            Need::All => u64::MAX,
            Need::Exactly(count) => count,
        });
        self.number(u64::from(choice.admin_access));
        self.number(choice.tolerations.len() as u64);
        for toleration in &choice.tolerations {
            self.text(&toleration.key);
            self.text(toleration.operator.as_str());
            self.text(&toleration.value);
            self.text(toleration.effect.as_str());
        }
        self.number(choice.capacity.len() as u64);
        for request in &choice.capacity {
            self.text(&request.name);
            self.text(&request.amount.to_string());
        }
        self.number(choice.derived.len() as u64);
        for derived in &choice.derived {
            self.text(&derived.name);
            self.text(&derived.expression);
        }
    }

    fn constraint(&mut self, constraint: &Constraint) {
        self.number(match constraint.rule {
            Rule::Match => 0,
            Rule::Distinct => 1,
        });
        self.text(&constraint.attribute);
        self.number(constraint.choices.len() as u64);
        constraint.choices.iter().for_each(|choice| self.number(*choice as u64));
    }
}
