//! Single steps by example; `tests/properties.rs` has the random ones.

use super::*;

const PATIENCE: Duration = Duration::from_millis(50);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn sequencer() -> Sequencer {
    Sequencer::new([("units", 10)], PATIENCE)
}

/// A commit `first..=last` all of whose events are units.
fn batch(prev: u64, first: u64, last: u64) -> EventBatch {
    let events = (first..=last)
        .map(|sequence| EventRecord {
            sequence,
            ..EventRecord::default()
        })
        .collect();
    EventBatch {
        kind: "units".into(),
        first,
        last,
        prev,
        events,
        ..EventBatch::default()
    }
}

#[track_caller]
fn check(batches: Vec<EventBatch>, sequences: impl IntoIterator<Item = u64>) {
    let got: Vec<u64> = batches
        .iter()
        .flat_map(|batch| &batch.events)
        .map(|event| event.sequence)
        .collect();
    assert_eq!(got, sequences.into_iter().collect::<Vec<_>>());
}

#[test]
fn batches_in_order_pass_through_and_nothing_is_due() {
    let mut sequencer = sequencer();
    check(sequencer.on_batch(batch(10, 11, 12), ms(0)), 11..=12);
    check(sequencer.on_batch(batch(12, 15, 15), ms(0)), [15]);
    assert_eq!(sequencer.position(), 15);
    assert_eq!(sequencer.next_due(), None);
}

#[test]
fn swapped_batches_wait_for_each_other_and_duplicates_vanish() {
    let mut sequencer = sequencer();
    check(sequencer.on_batch(batch(12, 13, 14), ms(0)), []);
    assert_eq!(sequencer.next_due(), Some(PATIENCE));
    check(sequencer.on_batch(batch(10, 11, 12), ms(1)), 11..=14);
    check(sequencer.on_batch(batch(10, 11, 12), ms(2)), []);
    assert!(sequencer.due_reads(ms(1_000)).is_empty());
}

#[test]
fn a_lost_batch_is_read_once_after_the_patience() {
    let mut sequencer = sequencer();
    sequencer.on_batch(batch(12, 13, 14), ms(5));
    assert!(sequencer.due_reads(ms(54)).is_empty());
    let due = sequencer.due_reads(ms(55));
    assert_eq!(
        due,
        [NeedRead {
            kind: "units".into(),
            after: 10,
            up_to: 12
        }]
    );
    assert!(sequencer.due_reads(ms(99)).is_empty());
    check(sequencer.on_read("units", 12, batch(0, 11, 12).events, ms(100)), 11..=14);
    assert_eq!(sequencer.next_due(), None);
}

#[test]
fn a_failed_read_is_due_again_and_a_late_batch_makes_it_needless() {
    let mut sequencer = sequencer();
    sequencer.on_batch(batch(12, 13, 14), ms(0));
    assert_eq!(sequencer.due_reads(ms(50)).len(), 1);
    sequencer.on_read_failed("units", ms(60));
    assert!(sequencer.due_reads(ms(100)).is_empty());
    assert_eq!(sequencer.due_reads(ms(110)).len(), 1);
    check(sequencer.on_batch(batch(10, 11, 12), ms(111)), 11..=14);
    check(sequencer.on_read("units", 14, batch(0, 11, 14).events, ms(112)), []);
}

#[test]
fn a_range_is_read_at_once() {
    let mut sequencer = sequencer();
    let range = EventBatch {
        events: Vec::new(),
        range_only: true,
        ..batch(10, 11, 13)
    };
    check(sequencer.on_batch(range, ms(7)), []);
    assert_eq!(
        sequencer.due_reads(ms(7)),
        [NeedRead {
            kind: "units".into(),
            after: 10,
            up_to: 13
        }]
    );
}

#[test]
fn a_head_without_news_moves_the_position_and_one_with_news_finds_a_lost_tail() {
    let mut sequencer = sequencer();
    sequencer.on_heads([("units", 9)], 20, ms(0));
    assert_eq!(sequencer.position(), 20);
    sequencer.on_heads([("units", 22)], 25, ms(1));
    assert_eq!(
        sequencer.due_reads(ms(51)),
        [NeedRead {
            kind: "units".into(),
            after: 20,
            up_to: 22
        }]
    );
    check(sequencer.on_read("units", 25, batch(0, 22, 22).events, ms(52)), [22]);
    assert_eq!(sequencer.position(), 25);
}

#[test]
fn a_read_that_ends_inside_a_commit_does_not_repeat_its_events() {
    let mut sequencer = sequencer();
    sequencer.on_batch(batch(13, 14, 16), ms(0));
    sequencer.due_reads(ms(50));
    check(sequencer.on_read("units", 15, batch(0, 11, 15).events, ms(51)), 11..=16);
}

#[test]
fn a_full_buffer_stays_bounded_and_the_rest_is_read() {
    let mut sequencer = sequencer();
    for commit in 0..100 {
        let first = 20 + commit;
        sequencer.on_batch(batch(first - 1, first, first), ms(0));
    }
    assert_eq!(sequencer.kinds["units"].early.len(), EARLY_BATCHES_MAX);
    sequencer.due_reads(ms(50));
    check(sequencer.on_read("units", 19, batch(0, 11, 19).events, ms(51)), 11..=83);
    assert_eq!(
        sequencer.due_reads(ms(51)),
        [NeedRead {
            kind: "units".into(),
            after: 83,
            up_to: 119
        }]
    );
}

#[test]
fn kinds_may_start_at_different_positions() {
    let mut sequencer = Sequencer::new([("units", 10), ("nodes", 14)], PATIENCE);
    check(sequencer.on_batch(batch(10, 11, 12), ms(0)), 11..=12);
    check(
        sequencer.on_batch(
            EventBatch {
                kind: "nodes".into(),
                ..batch(9, 13, 14)
            },
            ms(0),
        ),
        [],
    );
    assert_eq!((sequencer.position(), sequencer.position_of("nodes")), (12, Some(14)));
}

#[test]
fn kinds_that_are_not_followed_are_ignored() {
    let other = EventBatch {
        kind: "nodes".into(),
        ..batch(10, 11, 12)
    };
    check(sequencer().on_batch(other, ms(0)), []);
    assert_eq!(sequencer().position_of("nodes"), None);
}
