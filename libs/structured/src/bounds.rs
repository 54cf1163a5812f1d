//! A counting argument about shared counters: when what is left of one cannot serve even the least greedy devices that a
//! choice still needs, the search need not try which of them to take.

use smallvec::SmallVec;

use crate::amount::Amount;
use crate::bits::members_of;
use crate::node_view::Position;
use crate::request::Need;
use crate::search::Search;

/// What every device that a choice may take draws from one counter, at the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterBound {
    pub(crate) pool: usize,
    pub(crate) counter: u32,
    pub(crate) least: Amount,
}

pub(crate) type CounterBounds = SmallVec<[CounterBound; 4]>;

impl Search<'_> {
    /// The bounds of each choice; empty where none holds, or where leaving out a branch could leave out a fault that has to be
    /// reported. O(devices × choices).
    pub(crate) fn counter_bounds(&self) -> Vec<CounterBounds> {
        let choices = self.unit.choices.iter();
        choices.map(|choice| self.bounds_of(choice).unwrap_or_default()).collect()
    }

    fn bounds_of(&self, choice: &crate::request::Choice) -> Option<CounterBounds> {
        let may_fault = !choice.derived.is_empty() || !choice.capacity.is_empty();
        if choice.need == Need::All || choice.admin_access || may_fault {
            return None;
        }
        let mut bounds: Option<CounterBounds> = None;
        for word in 0..self.node.n_words() {
            let (matching, failing) = self.node.selectable(choice, word, self.features);
            if failing != 0 {
                return None;
            }
            for bit in members_of(matching & !self.node.held_word(word)) {
                let position = Position::try_from(word * 64 + bit).unwrap_or(Position::MAX);
                let (pool_at, pool, local) = self.node.locate(position);
                if !pool.is_usable() {
                    continue;
                }
                let draws = pool.board.as_ref().and_then(|board| board.draws(local));
                let has_capacity =
                    self.features.consumable_capacity && pool.capacity_of(local).is_some_and(|facts| facts.may_fault());
                let draws = draws.filter(|_| !pool.is_shareable(local) && !has_capacity)?;
                match &mut bounds {
                    None => {
                        let all = draws.amounts.iter().map(|(counter, amount)| CounterBound {
                            pool: pool_at,
                            counter: *counter,
                            least: *amount,
                        });
                        bounds = Some(all.collect());
                    }
                    Some(bounds) => bounds.retain(|bound| {
                        let own = draws.amounts.iter().find(|(counter, _)| *counter == bound.counter);
                        bound.least = own.map_or(bound.least, |(_, amount)| bound.least.min(*amount));
                        bound.pool == pool_at && own.is_some()
                    }),
                }
                if bounds.as_ref().is_some_and(SmallVec::is_empty) {
                    return None;
                }
            }
        }
        bounds
    }

    /// Whether `missing` more devices of the choice would overdraw a counter, whichever they are.
    pub(crate) fn overdraws(&self, bounds: &CounterBounds, missing: u64) -> bool {
        bounds.iter().any(|bound| {
            let board = self.node.pools()[bound.pool].board.as_ref();
            let left = board.map(|board| board.left(bound.counter, self.reserved[bound.pool].as_ref()));
            left.is_some_and(|left| bound.least.times(missing) > left)
        })
    }
}
