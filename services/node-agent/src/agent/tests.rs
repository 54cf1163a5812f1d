//! The loop's state against a model of server and drivers: random orders of everything that can happen, also crashes,
//! lost checkpoints, calls whose outcome is not known, and answers that are lost.

use std::collections::{BTreeMap, BTreeSet};

use bus::messages::{ClaimState, ReportKey};
use proptest::prelude::*;
use resource_api::Sequence;
use uuid::Uuid;

use super::*;
use crate::allocation::GivenDevice;
use crate::desired::Wish;

const CLAIMS: u8 = 4;

#[derive(Clone, Debug)]
enum Op {
    Allocate(u8),
    Delete(u8),
    /// The server's state reaches the agent.
    Tell,
    /// Decide, write, begin calls.
    Round,
    /// A call ends; it did its work or not, whatever the answer says.
    Finish {
        call: u8,
        done: bool,
        said_so: bool,
    },
    /// Reports are recorded; the answer may be lost.
    Report {
        answer_arrives: bool,
    },
    /// The process is killed; each open call did its work or not. The checkpoint may be lost as well.
    Crash {
        done: bool,
        checkpoint_lost: bool,
    },
    Drivers {
        a: bool,
        b: bool,
    },
    TimePasses,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let claim = 0..CLAIMS;
    let op = prop_oneof![
        3 => claim.clone().prop_map(Op::Allocate),
        3 => claim.prop_map(Op::Delete),
        4 => Just(Op::Tell),
        6 => Just(Op::Round),
        6 => (any::<u8>(), any::<bool>(), any::<bool>()).prop_map(|(call, done, said_so)| Op::Finish { call, done, said_so }),
        3 => any::<bool>().prop_map(|answer_arrives| Op::Report { answer_arrives }),
        1 => (any::<bool>(), prop::bool::weighted(0.3)).prop_map(|(done, checkpoint_lost)| Op::Crash { done, checkpoint_lost }),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(a, b)| Op::Drivers { a, b }),
        3 => Just(Op::TimePasses),
    ];
    prop::collection::vec(op, 0..120)
}

fn uid(claim: u8) -> Uid {
    Uid(Uuid::from_u128(u128::from(claim) + 1))
}

fn allocation(claim: u8) -> Allocation {
    let device = |driver: &str| GivenDevice {
        request: "r".to_owned(),
        driver: driver.into(),
        pool: "n".into(),
        device: "gpu-0".into(),
    };
    let devices = if claim.is_multiple_of(2) {
        vec![device("a")]
    } else {
        vec![device("a"), device("b")]
    };
    Allocation {
        node: "n".to_owned(),
        namespace: "team".to_owned(),
        name: format!("c-{claim}"),
        devices,
    }
}

struct World {
    head: u64,
    /// What the server wants, by allocation; gone once the agent let go.
    wishes: BTreeMap<AllocationKey, Wish>,
    released: BTreeSet<AllocationKey>,
    /// What drivers hold: they know claims by uid alone.
    held: BTreeMap<(DriverName, Uid), AllocationKey>,
    registered: BTreeSet<DriverName>,
    live: Live,
    disk: State,
    calls: Vec<Call>,
    unprepared: BTreeSet<(DriverName, AllocationKey)>,
}

impl World {
    fn new() -> Self {
        let state = State::first("e".to_owned());
        Self {
            head: 0,
            wishes: BTreeMap::new(),
            released: BTreeSet::new(),
            held: BTreeMap::new(),
            registered: BTreeSet::from(["a".into(), "b".into()]),
            live: Live::new(state.clone()),
            disk: state,
            calls: Vec::new(),
            unprepared: BTreeSet::new(),
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Allocate(claim) => self.allocate(claim),
            Op::Delete(claim) => {
                self.head += 1;
                self.wishes
                    .iter_mut()
                    .filter(|(key, _)| key.claim == uid(claim))
                    .for_each(|(_, wish)| wish.wanted = false);
            }
            Op::Tell => self.tell(),
            Op::Round => self.round(),
            Op::Finish { call, done, said_so } => {
                if !self.calls.is_empty() {
                    let call = self.calls.remove(usize::from(call) % self.calls.len());
                    self.finish(call, done, said_so);
                }
            }
            Op::Report { answer_arrives } => self.report(answer_arrives),
            Op::Crash { done, checkpoint_lost } => self.crash(done, checkpoint_lost),
            Op::Drivers { a, b } => {
                let named = [("a", a), ("b", b)].into_iter().filter(|(_, here)| *here);
                self.registered = named.map(|(name, _)| name.into()).collect();
            }
            Op::TimePasses => self.live.rests.values_mut().for_each(|rest| rest.until = Instant::now()),
        }
    }

    /// A claim's devices are given away again only after the agent let go of the allocation before.
    fn allocate(&mut self, claim: u8) {
        if self.wishes.keys().any(|key| key.claim == uid(claim)) {
            return;
        }
        self.head += 1;
        let key = AllocationKey {
            claim: uid(claim),
            sequence: Sequence(self.head),
        };
        self.wishes.insert(
            key,
            Wish {
                wanted: true,
                allocation: allocation(claim),
                traceparent: String::new(),
            },
        );
    }

    fn tell(&mut self) {
        let desired = Desired {
            position: Sequence(self.head),
            wishes: self.wishes.clone(),
        };
        let update = if self.live.desired.is_none() {
            Update::List(desired)
        } else {
            Update::Changes(desired)
        };
        self.live.on_update(update);
    }

    fn round(&mut self) {
        let calls = self.live.decide(self.registered.clone());
        self.disk = self.live.state.clone();
        self.live.speak();
        for call in calls {
            let same_claim = |other: &Call| other.key.claim == call.key.claim;
            assert!(!self.calls.iter().any(same_claim), "two calls for one uid");
            if call.operation == Operation::Prepare {
                assert!(!self.released.contains(&call.key), "prepared after it was let go");
                assert!(
                    !self.unprepared.contains(&(call.driver.clone(), call.key)),
                    "prepared after it was unprepared"
                );
            }
            self.calls.push(call);
        }
    }

    fn work(&mut self, call: &Call) {
        let at = (call.driver.clone(), call.key.claim);
        match call.operation {
            Operation::Prepare => {
                let holds = self.held.insert(at, call.key);
                assert!(holds.is_none_or(|key| key == call.key), "prepared over another allocation");
            }
            Operation::Unprepare => {
                let held = self.held.remove(&at);
                assert!(held.is_none_or(|key| key == call.key), "unprepared another allocation");
            }
        }
    }

    fn finish(&mut self, call: Call, done: bool, said_so: bool) {
        if done {
            self.work(&call);
        }
        let Call {
            key, driver, operation, ..
        } = call;
        let lost = || CallError::Timeout {
            method: "m",
            after: Duration::ZERO,
        };
        let success = done && said_so;
        self.live.on_done(match operation {
            Operation::Prepare => Done::Prepared {
                key,
                driver,
                outcome: if success { Ok(Vec::new()) } else { Err(lost()) },
            },
            Operation::Unprepare => {
                if success {
                    self.unprepared.insert((driver.clone(), key));
                }
                Done::Unprepared {
                    key,
                    driver,
                    outcome: if success { Ok(()) } else { Err(lost()) },
                }
            }
        });
    }

    fn report(&mut self, answer_arrives: bool) {
        let sent = self.live.outbox.batch();
        for report in sent.iter().filter(|report| report.state == ClaimState::Unprepared as i32) {
            let claim: Uid = report.claim_uid.parse().unwrap();
            let key = AllocationKey {
                claim,
                sequence: Sequence(report.allocation_sequence),
            };
            assert!(
                !self.held.values().any(|held| *held == key),
                "reported as unprepared, but a driver holds it"
            );
            assert!(
                !self.calls.iter().any(|call| call.key == key),
                "reported as unprepared with a call on its way"
            );
            assert!(
                !self.wishes.get(&key).is_some_and(|wish| wish.wanted),
                "let go of a claim that is wanted"
            );
            self.wishes.remove(&key);
            self.released.insert(key);
        }
        let key = |report: &ClaimReport| ReportKey {
            claim_uid: report.claim_uid.clone(),
            allocation_sequence: report.allocation_sequence,
        };
        let answer = ReportAnswer {
            accepted: sent.iter().map(key).collect(),
        };
        let lost = BusError::NobodyThere { subject: String::new() };
        self.live
            .on_answer(&sent, if answer_arrives { Ok(answer) } else { Err(lost) });
        self.live.report_not_before = Instant::now();
    }

    fn crash(&mut self, done: bool, checkpoint_lost: bool) {
        for call in std::mem::take(&mut self.calls) {
            if done {
                self.work(&call);
            }
        }
        if checkpoint_lost {
            self.disk = State::blind("e2".to_owned());
        }
        self.live = Live::new(self.disk.clone());
    }

    /// Everything works from here on: the agent must come to rest with exactly what is wanted.
    fn settle(&mut self) {
        self.registered = BTreeSet::from(["a".into(), "b".into()]);
        for _ in 0..50 {
            self.tell();
            self.step(Op::TimePasses);
            self.round();
            for call in std::mem::take(&mut self.calls) {
                self.finish(call, true, true);
            }
            self.round();
            self.report(true);
        }
        assert!(self.calls.is_empty());
        let wanted = |key: &AllocationKey| self.wishes.get(key).is_some_and(|wish| wish.wanted);
        let expected: BTreeMap<_, _> = self
            .wishes
            .iter()
            .filter(|(_, wish)| wish.wanted)
            .flat_map(|(key, wish)| {
                wish.allocation
                    .drivers()
                    .into_iter()
                    .map(|driver| ((driver.clone(), key.claim), *key))
            })
            .collect();
        assert_eq!(self.held, expected, "drivers hold what is wanted");
        assert!(self.wishes.values().all(|wish| wish.wanted), "everything deleted was let go");
        assert!(
            self.live.state.entries.keys().all(wanted),
            "nothing is remembered that is over"
        );
        assert!(self.live.state.entries.values().all(|entry| entry.prepared().is_some()));
        assert_eq!(self.live.outbox.waiting(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nothing_is_prepared_late_and_everything_settles(ops in ops()) {
        let mut world = World::new();
        for op in ops {
            world.step(op);
        }
        world.settle();
    }
}

#[test]
fn what_becomes_due_after_a_decision_wakes_the_next_one() {
    let mut live = Live::new(State::first("e".to_owned()));
    let key = AllocationKey {
        claim: resource_api::Uid(Uuid::from_u128(1)),
        sequence: Sequence(1),
    };
    live.decide(BTreeSet::new());
    // It is over by the time the loop asks when to wake.
    let until = live.decided_at + std::time::Duration::from_nanos(1);
    let rest = Rest {
        operation: Operation::Prepare,
        backoff: Backoff::new(RETRY_FIRST, RETRY_CAP),
        until,
        why: String::new(),
    };
    live.rests.insert((key, "a".into()), rest);
    while Instant::now() <= until {
        std::hint::spin_loop();
    }
    assert_eq!(live.next_due(), Some(until));
    live.decide(BTreeSet::new());
    assert_eq!(
        live.next_due(),
        None,
        "it was looked at: what it waits for now is no matter of time"
    );
}
