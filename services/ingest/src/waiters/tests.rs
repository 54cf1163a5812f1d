use store::Operation;

use super::*;

fn waiters(max: usize) -> Waiters {
    Waiters::new(max, IntGauge::new("waiting", "waiting").expect("a valid name"))
}

fn settled(unit: Uuid) -> EventRow {
    EventRow {
        sequence: 7,
        kind: "units".into(),
        namespace: "team".into(),
        name: unit.to_string().into(),
        uid: unit,
        operation: Operation::Modified,
        at_ms: 0,
        body: "{}".into(),
        cause: None,
        trace: None,
        writer: None,
    }
}

#[tokio::test]
async fn everybody_who_waits_for_a_unit_hears_of_it() {
    let waiters = waiters(10);
    let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let (mut first, mut second) = (waiters.register(a).expect("room"), waiters.register(a).expect("room"));
    let _other = waiters.register(b).expect("room");
    waiters.resolve([settled(a)].iter());
    assert_eq!(first.settled().await.map(|event| event.sequence), Some(7));
    assert_eq!(second.settled().await.map(|event| event.uid), Some(a));
    assert_eq!(waiters.shared.n_waiting.get(), 1);
}

#[test]
fn callers_are_counted_and_forgotten_when_they_leave() {
    let waiters = waiters(2);
    let unit = Uuid::from_u128(1);
    let first = waiters.register(unit);
    let second = waiters.register(unit);
    assert!(first.is_some() && second.is_some());
    assert!(waiters.register(unit).is_none(), "the third of two");
    drop(first);
    let third = waiters.register(unit);
    assert!(third.is_some());
    drop((second, third));
    assert_eq!(waiters.shared.n_waiting.get(), 0);
    assert!(waiters.lock().by_unit.is_empty());
    assert_eq!(waiters.lock().n_waiting, 0);
}
