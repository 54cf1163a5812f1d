//! A stream becomes one list and then changes, and never goes back.

use uuid::Uuid;

use super::*;

fn key(n: u128) -> AllocationKey {
    AllocationKey {
        claim: Uid(Uuid::from_u128(n)),
        sequence: Sequence(3),
    }
}

fn part(position: u64, wishes: &[(u128, bool)]) -> Desired {
    let wish = |(n, wanted): &(u128, bool)| {
        let wish = Wish {
            wanted: *wanted,
            allocation: Allocation::default(),
            traceparent: String::new(),
        };
        (key(*n), wish)
    };
    Desired {
        position: Sequence(position),
        wishes: wishes.iter().map(wish).collect(),
    }
}

#[test]
fn a_list_is_whole_only_once_it_is_synced() {
    let mut reading = Reading::new(Sequence(10));
    assert_eq!(reading.take(false, part(12, &[(1, true)])).unwrap(), None);
    assert_eq!(reading.take(false, part(12, &[(2, false)])).unwrap(), None);
    let whole = Update::List(part(12, &[(1, true), (2, false)]));
    assert_eq!(reading.take(true, part(12, &[])).unwrap(), Some(whole));
    assert_eq!(reading.position, Sequence(12));
}

#[test]
fn changes_from_before_the_list_are_left_out_and_later_ones_are_not() {
    let mut reading = Reading::new(Sequence::ZERO);
    reading.take(true, part(12, &[(1, false)])).unwrap();
    // Whatever the server says of the time before, it does not end the stream, or each new stream would end alike.
    assert_eq!(reading.take(false, part(11, &[(1, true)])).unwrap(), None);
    let now = part(12, &[(2, true)]);
    assert_eq!(reading.take(false, now.clone()).unwrap(), Some(Update::Changes(now)));
    let later = part(14, &[(2, false)]);
    assert_eq!(reading.take(false, later.clone()).unwrap(), Some(Update::Changes(later)));
    assert_eq!(reading.take(false, part(13, &[(2, true)])).unwrap(), None);
    assert_eq!(reading.position, Sequence(14));
}

#[test]
fn an_older_list_is_refused() {
    let mut reading = Reading::new(Sequence(10));
    assert_eq!(reading.take(false, part(9, &[(1, true)])).unwrap(), None);
    let refused = reading.take(true, part(9, &[])).unwrap_err();
    let stale = (Sequence(9), Sequence(10));
    assert!(matches!(refused, FollowError::Stale { found, acted_on } if (found, acted_on) == stale));
}

#[test]
fn changes_go_over_what_is_known_and_a_list_replaces_it() {
    let mut known = None;
    apply(&mut known, Update::Changes(part(1, &[(9, true)])));
    assert_eq!(known, None, "nothing is known before the list");
    apply(&mut known, Update::List(part(2, &[(1, true), (2, true)])));
    apply(&mut known, Update::Changes(part(3, &[(2, false), (3, true)])));
    assert_eq!(known, Some(part(3, &[(1, true), (2, false), (3, true)])));
    apply(&mut known, Update::List(part(4, &[(3, true)])));
    assert_eq!(known, Some(part(4, &[(3, true)])));
}
