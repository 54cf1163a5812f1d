//! Random names through the subject grammar, and a random world of loss, repetition and disorder through the sequencer.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use bus::messages::{EventBatch, EventRecord};
use bus::order::{NeedRead, Sequencer};
use bus::subjects::{Subject, decode_token, encode_token};
use proptest::prelude::*;

proptest! {
    #[test]
    fn tokens_are_reversible_and_never_split(name in any::<String>()) {
        let token = encode_token(&name);
        prop_assert!(!token.is_empty());
        prop_assert!(!token.contains(|c: char| c == '.' || c == '*' || c == '>' || c.is_whitespace() || c.is_control()));
        prop_assert_eq!(decode_token(&token), Some(name));
    }

    #[test]
    fn a_token_has_one_spelling(token in "[A-Za-z0-9=_.-]{0,8}") {
        if let Some(name) = decode_token(&token) {
            prop_assert_eq!(encode_token(&name), token);
        }
    }

    #[test]
    fn subjects_are_reversible(name in any::<String>(), shard in any::<u16>()) {
        let subjects = [
            Subject::Event { kind: name.clone() },
            Subject::Agent { agent_id: name },
            Subject::Work { shard },
            Subject::ShardTry { shard },
            Subject::Summary { shard },
        ];
        for subject in subjects {
            prop_assert_eq!(Subject::parse(&subject.to_string()), Some(subject));
        }
    }

    #[test]
    fn any_text_parses_or_not_without_panic(text in "(dray\\.)?[a-z]{0,6}(\\.[0-9a-z=*>]{0,6}){0,4}") {
        if let Some(subject) = Subject::parse(&text) {
            prop_assert_eq!(subject.to_string(), text);
        }
    }
}

/// What can happen in the world around a sequencer.
#[derive(Clone, Debug)]
enum Happening {
    /// The batch in flight at this index (modulo) arrives.
    Arrive(usize),
    /// It arrives and stays in flight: it will come again.
    ArriveAndStay(usize),
    Lose(usize),
    /// It turns into its range.
    Shrink(usize),
    /// Time passes, due reads begin.
    Wait(u64),
    /// The oldest open read is answered, at most so many events of it.
    Answer(usize),
    Fail,
    PollHeads,
    Commit(Vec<bool>),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => any::<usize>().prop_map(Happening::Arrive),
        1 => any::<usize>().prop_map(Happening::ArriveAndStay),
        1 => any::<usize>().prop_map(Happening::Lose),
        1 => any::<usize>().prop_map(Happening::Shrink),
        2 => (0_u64..80).prop_map(Happening::Wait),
        2 => (1_usize..6).prop_map(Happening::Answer),
        1 => Just(Happening::Fail),
        1 => Just(Happening::PollHeads),
        4 => proptest::collection::vec(any::<bool>(), 1..5).prop_map(Happening::Commit),
    ]
}

const KINDS: [&str; 2] = ["units", "resourceclaims"];

/// The log, the messages in flight, and one consumer.
struct World {
    /// The kind of each sequence, from 1 on.
    log: Vec<&'static str>,
    in_flight: Vec<EventBatch>,
    reads: Vec<NeedRead>,
    now: Duration,
    sequencer: Sequencer,
    applied: BTreeMap<String, Vec<u64>>,
}

impl World {
    fn new() -> Self {
        let sequencer = Sequencer::new(KINDS.map(|kind| (kind, 0)), Duration::from_millis(50));
        let (log, in_flight, reads) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            log,
            in_flight,
            reads,
            now: Duration::ZERO,
            sequencer,
            applied: BTreeMap::new(),
        }
    }

    fn sequences_of(&self, kind: &str) -> Vec<u64> {
        (1..)
            .zip(&self.log)
            .filter(|(_, found)| **found == kind)
            .map(|(sequence, _)| sequence)
            .collect()
    }

    fn head(&self) -> u64 {
        self.log.len() as u64
    }

    fn commit(&mut self, kinds: &[bool]) {
        let prev: Vec<u64> = KINDS
            .iter()
            .map(|kind| self.sequences_of(kind).last().copied().unwrap_or(0))
            .collect();
        let first = self.head() + 1;
        self.log.extend(kinds.iter().map(|second| KINDS[usize::from(*second)]));
        for (kind, prev) in KINDS.iter().zip(prev) {
            let news = self.sequences_of(kind).into_iter().filter(|sequence| *sequence >= first);
            let events: Vec<EventRecord> = news.map(event).collect();
            if !events.is_empty() {
                let (kind, last) = ((*kind).to_owned(), self.head());
                self.in_flight.push(EventBatch {
                    kind,
                    first,
                    last,
                    prev,
                    events,
                    ..EventBatch::default()
                });
            }
        }
    }

    fn apply(&mut self, batches: Vec<EventBatch>) {
        for batch in batches {
            let applied = self.applied.entry(batch.kind).or_default();
            applied.extend(batch.events.iter().map(|event| event.sequence));
        }
    }

    fn arrive(&mut self, batch: EventBatch) {
        let fitting = self.sequencer.on_batch(batch, self.now);
        self.apply(fitting);
    }

    fn begin_reads(&mut self) {
        self.reads.extend(self.sequencer.due_reads(self.now));
    }

    fn answer(&mut self, limit: usize) {
        if self.reads.is_empty() {
            return;
        }
        let read = self.reads.remove(0);
        let mut sequences = self.sequences_of(&read.kind);
        sequences.retain(|sequence| *sequence > read.after);
        // A read that hits its limit is complete to its last event, else to the head.
        let complete_to = if sequences.len() > limit {
            sequences[limit - 1]
        } else {
            self.head()
        };
        sequences.truncate(limit);
        let events = sequences.into_iter().map(event).collect();
        let fitting = self.sequencer.on_read(&read.kind, complete_to, events, self.now);
        self.apply(fitting);
    }

    fn poll_heads(&mut self) {
        let heads = KINDS.map(|kind| (kind, self.sequences_of(kind).last().copied().unwrap_or(0)));
        let head = self.head();
        self.sequencer.on_heads(heads, head, self.now);
    }

    fn happen(&mut self, happening: Happening) {
        let in_flight = self.in_flight.len();
        let at = |index: usize| (in_flight > 0).then(|| index % in_flight.max(1));
        match happening {
            Happening::Commit(kinds) => self.commit(&kinds),
            Happening::Wait(millis) => {
                self.now += Duration::from_millis(millis);
                self.begin_reads();
            }
            Happening::PollHeads => self.poll_heads(),
            Happening::Answer(limit) => self.answer(limit),
            Happening::Fail => {
                if let Some(read) = self.reads.pop() {
                    self.sequencer.on_read_failed(&read.kind, self.now);
                }
            }
            Happening::Arrive(index) => {
                if let Some(at) = at(index) {
                    let batch = self.in_flight.remove(at);
                    self.arrive(batch);
                }
            }
            Happening::ArriveAndStay(index) => {
                if let Some(at) = at(index) {
                    self.arrive(self.in_flight[at].clone());
                }
            }
            Happening::Lose(index) => drop(at(index).map(|at| self.in_flight.remove(at))),
            Happening::Shrink(index) => {
                if let Some(at) = at(index) {
                    self.in_flight[at].events.clear();
                    self.in_flight[at].range_only = true;
                }
            }
        }
    }

    /// Nothing more is committed; polling and reading must bring everything.
    fn settle(&mut self) {
        for _ in 0..self.log.len() + 4 {
            self.poll_heads();
            self.now += Duration::from_millis(60);
            self.begin_reads();
            while !self.reads.is_empty() {
                self.answer(3);
            }
        }
    }

    /// What has been applied is a beginning of the log of each kind, and reaches exactly as far as the position says.
    fn check(&self) {
        for kind in KINDS {
            let applied = self.applied.get(kind).cloned().unwrap_or_default();
            let position = self.sequencer.position_of(kind).unwrap();
            let mut expected = self.sequences_of(kind);
            expected.retain(|sequence| *sequence <= position);
            assert_eq!(applied, expected, "{kind} at position {position}");
        }
    }
}

fn event(sequence: u64) -> EventRecord {
    EventRecord {
        sequence,
        ..EventRecord::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_event_is_applied_once_and_in_order(happenings in proptest::collection::vec(happening(), 0..120)) {
        let mut world = World::new();
        for happening in happenings {
            world.happen(happening);
            world.check();
        }
        world.settle();
        world.check();
        for kind in KINDS {
            let applied = world.applied.get(kind).cloned().unwrap_or_default();
            prop_assert_eq!(applied, world.sequences_of(kind));
        }
        prop_assert_eq!(world.sequencer.position(), world.head());
        prop_assert_eq!(world.sequencer.next_due(), None);
    }
}
