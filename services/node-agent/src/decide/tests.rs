//! One step at a time: the rules, each by an example.

use resource_api::Sequence;
use uuid::Uuid;

use super::*;
use crate::allocation::{Allocation, GivenDevice, PreparedDevice};

fn key(sequence: u64) -> AllocationKey {
    AllocationKey {
        claim: Uid(Uuid::from_u128(7)),
        sequence: Sequence(sequence),
    }
}

fn allocation(drivers: &[&str]) -> Allocation {
    let device = |driver: &&str| GivenDevice {
        request: "r".into(),
        driver: (*driver).into(),
        pool: "n".into(),
        device: "d".into(),
    };
    Allocation {
        devices: drivers.iter().map(device).collect(),
        ..Allocation::default()
    }
}

fn desired(wishes: &[(u64, bool)], drivers: &[&str]) -> Desired {
    let wish = |(sequence, wanted): &(u64, bool)| {
        (
            key(*sequence),
            Wish {
                wanted: *wanted,
                allocation: allocation(drivers),
                traceparent: String::new(),
            },
        )
    };
    Desired {
        position: Sequence(100),
        wishes: wishes.iter().map(wish).collect(),
    }
}

fn here(drivers: &[&str]) -> Drivers {
    Drivers {
        registered: drivers.iter().map(|driver| (*driver).into()).collect(),
        ..Drivers::default()
    }
}

fn state() -> State {
    State::first("e".to_owned())
}

fn call(sequence: u64, driver: &str, operation: Operation) -> Step {
    Step::Call {
        key: key(sequence),
        driver: driver.into(),
        operation,
    }
}

#[track_caller]
fn check(desired: Option<&Desired>, state: &State, drivers: &Drivers, expected: &[Step]) {
    assert_eq!(decide(desired, state, drivers), expected);
}

#[test]
fn what_is_wanted_is_prepared_by_one_driver_after_the_other() {
    let (wanted, both) = (desired(&[(5, true)], &["a", "b"]), here(&["a", "b"]));
    let mut state = state();
    check(Some(&wanted), &state, &both, &[call(5, "a", Operation::Prepare)]);
    state.on_asking(key(5), &allocation(&["a", "b"]), &"a".into());
    check(Some(&wanted), &state, &both, &[call(5, "a", Operation::Prepare)]);
    state.on_prepared(key(5), &"a".into(), vec![PreparedDevice::default()]);
    check(Some(&wanted), &state, &both, &[call(5, "b", Operation::Prepare)]);
    state.on_prepared(key(5), &"b".into(), vec![PreparedDevice::default()]);
    check(Some(&wanted), &state, &both, &[]);
    assert_eq!(state.entries[&key(5)].prepared().unwrap().len(), 2);
}

#[test]
fn a_claim_whose_driver_is_missing_is_not_begun_and_has_nothing_to_undo() {
    let (one, state) = (here(&["a"]), state());
    let waiting = Step::Wait {
        key: key(5),
        driver: "b".into(),
    };
    check(Some(&desired(&[(5, true)], &["a", "b"])), &state, &one, &[waiting]);
    check(
        Some(&desired(&[(5, false)], &["a", "b"])),
        &state,
        &one,
        &[Step::Conclude { key: key(5) }],
    );
}

#[test]
fn what_may_be_prepared_waits_for_its_driver() {
    let unwanted = desired(&[(5, false)], &["a"]);
    let mut state = state();
    state.on_asking(key(5), &allocation(&["a"]), &"a".into());
    check(Some(&unwanted), &state, &here(&[]), &[Step::End { key: key(5) }]);
    state.move_on(key(5), &allocation(&["a"]), Phase::Ending);
    check(
        Some(&unwanted),
        &state,
        &here(&[]),
        &[Step::Wait {
            key: key(5),
            driver: "a".into(),
        }],
    );
    check(Some(&unwanted), &state, &here(&["a"]), &[call(5, "a", Operation::Unprepare)]);
    state.on_unprepared(key(5), &"a".into());
    check(Some(&unwanted), &state, &here(&["a"]), &[Step::Conclude { key: key(5) }]);
}

#[test]
fn an_open_call_holds_back_everything_for_its_claim() {
    let mut state = state();
    state.on_asking(key(5), &allocation(&["a"]), &"a".into());
    let busy = Drivers {
        open: BTreeSet::from([key(5).claim]),
        ..here(&["a"])
    };
    check(Some(&desired(&[(5, false)], &["a"])), &state, &busy, &[]);
}

#[test]
fn a_resting_prepare_does_not_hold_back_unprepare() {
    let mut state = state();
    state.on_asking(key(5), &allocation(&["a"]), &"a".into());
    let resting = Drivers {
        resting: BTreeSet::from([(key(5), "a".into(), Operation::Prepare)]),
        ..here(&["a"])
    };
    check(Some(&desired(&[(5, true)], &["a"])), &state, &resting, &[]);
    state.move_on(key(5), &allocation(&["a"]), Phase::Ending);
    check(
        Some(&desired(&[(5, false)], &["a"])),
        &state,
        &resting,
        &[call(5, "a", Operation::Unprepare)],
    );
}

#[test]
fn what_is_over_is_never_prepared_again() {
    let mut state = state();
    state.move_on(key(5), &allocation(&["a"]), Phase::Ended);
    check(Some(&desired(&[(5, true)], &["a"])), &state, &here(&["a"]), &[]);
}

#[test]
fn an_older_allocation_of_the_claim_ends_first() {
    let mut state = state();
    state.on_asking(key(5), &allocation(&["a"]), &"a".into());
    let newer = desired(&[(9, true)], &["a"]);
    check(Some(&newer), &state, &here(&["a"]), &[Step::End { key: key(5) }]);
    state.move_on(key(5), &allocation(&["a"]), Phase::Ending);
    check(Some(&newer), &state, &here(&["a"]), &[call(5, "a", Operation::Unprepare)]);
    state.on_unprepared(key(5), &"a".into());
    state.move_on(key(5), &allocation(&["a"]), Phase::Ended);
    check(Some(&newer), &state, &here(&["a"]), &[call(9, "a", Operation::Prepare)]);
}

#[test]
fn before_the_list_has_come_only_what_began_to_end_goes_on() {
    let mut state = state();
    state.on_asking(key(5), &allocation(&["a"]), &"a".into());
    check(None, &state, &here(&["a"]), &[]);
    state.move_on(key(5), &allocation(&["a"]), Phase::Ending);
    check(None, &state, &here(&["a"]), &[call(5, "a", Operation::Unprepare)]);
}

#[test]
fn a_blind_agent_asks_the_drivers_of_everything_that_was_allocated_before() {
    let mut state = State::blind("e".to_owned());
    let unwanted = desired(&[(5, false)], &["a"]);
    state.on_list(Sequence(100));
    check(Some(&unwanted), &state, &here(&["a"]), &[Step::Adopt { key: key(5) }]);
    state.adopt(key(5), &allocation(&["a"]));
    check(Some(&unwanted), &state, &here(&["a"]), &[Step::End { key: key(5) }]);
    let later = desired(&[(101, false)], &["a"]);
    check(
        Some(&later),
        &State {
            entries: Default::default(),
            ..state
        },
        &here(&["a"]),
        &[Step::Conclude { key: key(101) }],
    );
}

#[test]
fn what_the_server_does_not_know_any_more_is_unprepared() {
    let mut state = state();
    state.on_asking(key(5), &allocation(&["a"]), &"a".into());
    check(Some(&desired(&[], &[])), &state, &here(&["a"]), &[Step::End { key: key(5) }]);
}
