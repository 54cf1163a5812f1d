//! What a program can look at, found without running it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::depth::guarded;
use crate::program::{Facts, Field, Node};

/// The facts about a device that an expression can read. Devices that agree on them (and are usable at all, see
/// [`crate::DeviceView::is_usable`]) give the same answer, so one evaluation serves all of them.
///
/// Never too small; an expression that iterates over domains or computes their names reads [`Reads::Everything`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reads {
    Everything,
    Only(ReadSet),
}

/// Facts by name, as (domain, id). A bare published name belongs to the domain of the device's driver, so look
/// facts up with [`crate::DeviceView::attribute`] and [`crate::DeviceView::capacity`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSet {
    /// `device.driver`.
    pub driver: bool,
    /// `device.allowMultipleAllocations`.
    pub multiple_allocations: bool,
    pub attributes: BTreeSet<(Arc<str>, Arc<str>)>,
    pub capacity: BTreeSet<(Arc<str>, Arc<str>)>,
    /// Domains of which every attribute, present or not, can be read.
    pub attribute_domains: BTreeSet<Arc<str>>,
    /// Domains of which every capacity can be read.
    pub capacity_domains: BTreeSet<Arc<str>>,
}

/// Collects what `root` can read.
pub(crate) fn of(root: &Node) -> Reads {
    let mut set = ReadSet::default();
    if visit(root, &mut set) {
        Reads::Only(set)
    } else {
        Reads::Everything
    }
}

/// False if the node reads what has no name.
fn visit(node: &Node, set: &mut ReadSet) -> bool {
    guarded(|| visit_node(node, set))
}

fn visit_node(node: &Node, set: &mut ReadSet) -> bool {
    match node {
        Node::Const(_) | Node::Costed { .. } | Node::Slot(_) => true,
        Node::Device | Node::DeviceField(Field::All(_)) => false,
        Node::DeviceField(Field::Driver) => {
            set.driver = true;
            true
        }
        Node::DeviceField(Field::MultipleAllocations) => {
            set.multiple_allocations = true;
            true
        }
        Node::Domain { of, domain } => {
            let domains = match of {
                Facts::Attributes => &mut set.attribute_domains,
                Facts::Capacity => &mut set.capacity_domains,
            };
            domains.insert(Arc::clone(domain));
            true
        }
        Node::Fact(fact) | Node::OptFact(fact) | Node::HasFact { fact, .. } => {
            let facts = match fact.of {
                Facts::Attributes => &mut set.attributes,
                Facts::Capacity => &mut set.capacity,
            };
            facts.insert((Arc::clone(&fact.domain), Arc::clone(&fact.id)));
            true
        }
        Node::Select { operand, .. } | Node::Has { operand, .. } | Node::Unobserved(operand) => visit(operand, set),
        Node::OptSelect { operand, key, .. } | Node::Index { operand, key, .. } => visit(operand, set) && visit(key, set),
        Node::And(nodes) | Node::Or(nodes) | Node::Call { args: nodes, .. } => nodes.iter().all(|n| visit(n, set)),
        Node::Conditional(parts) => parts.iter().all(|n| visit(n, set)),
        Node::List(elements) => elements.iter().all(|(n, _)| visit(n, set)),
        Node::Map(entries) => entries.iter().all(|(key, value, _)| visit(key, set) && visit(value, set)),
        Node::InSet { value, .. } => visit(value, set),
        Node::Search { text, limit, .. } => visit(text, set) && limit.as_ref().is_none_or(|n| visit(n, set)),
        Node::Alternative { optional, other, .. } => visit(optional, set) && visit(other, set),
        Node::Bind { init, body, .. } => visit(init, set) && visit(body, set),
        Node::Fold(fold) => visit(&fold.range, set) && visit(&fold.step, set) && fold.test.as_ref().is_none_or(|n| visit(n, set)),
    }
}
