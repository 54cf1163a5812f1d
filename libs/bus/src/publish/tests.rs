//! What goes out when a batch is large, and what happens when the queue is full.

use super::*;
use crate::messages::EventRecord;

fn batch(body_bytes: usize) -> EventBatch {
    let event = EventRecord {
        sequence: 8,
        body: "x".repeat(body_bytes),
        ..EventRecord::default()
    };
    EventBatch {
        kind: "units".into(),
        first: 7,
        last: 9,
        prev: 3,
        events: vec![event],
        ..EventBatch::default()
    }
}

#[test]
fn a_large_batch_goes_out_as_its_range() {
    let small = EventBatch::decode(encode_events(&batch(100), 1_000)).unwrap();
    assert_eq!((small.range_only, small.events.len()), (false, 1));
    let large = EventBatch::decode(encode_events(&batch(1_000), 1_000)).unwrap();
    assert_eq!((large.range_only, large.events.len()), (true, 0));
    assert_eq!((large.first, large.last, large.prev, large.kind.as_str()), (7, 9, 3, "units"));
}

#[test]
fn the_queue_refuses_by_count_and_by_bytes_and_takes_again_after_reading() {
    let push = |queue: &EventQueue, size: usize| queue.push("s".into(), HeaderMap::new(), vec![0; size].into());
    let (queue, mut receiver) = EventQueue::new();
    assert!((0..QUEUE_MAX).all(|_| push(&queue, 1)));
    assert!(!push(&queue, 1));
    drop(receiver.try_recv().unwrap());
    assert!(push(&queue, 1));

    let (queue, mut receiver) = EventQueue::new();
    assert!(push(&queue, QUEUE_BYTES_MAX - 1));
    assert!(!push(&queue, 2));
    drop(receiver.try_recv().unwrap());
    assert!(push(&queue, 2));
}

#[test]
fn work_is_split_by_size_in_order() {
    let unit = |uid: usize| WorkUnit {
        unit_uid: uid.to_string(),
        unit_body: "x".repeat(100),
        ..WorkUnit::default()
    };
    let messages = Work::split((0..10).map(unit).collect(), 350);
    assert!(messages.len() > 1);
    assert!(messages.iter().all(|message| message.encoded_len() <= 350));
    let uids: Vec<String> = messages
        .into_iter()
        .flat_map(|work| work.units)
        .map(|unit| unit.unit_uid)
        .collect();
    assert_eq!(uids, (0..10).map(|uid| uid.to_string()).collect::<Vec<_>>());
    assert_eq!(Work::split(vec![unit(1)], 10).len(), 1);
}
