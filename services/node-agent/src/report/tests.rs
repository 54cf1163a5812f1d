//! A report is repeated until exactly it was answered.

use bus::messages::ReportKey;
use resource_api::Uid;
use uuid::Uuid;

use super::*;

fn key(n: u128) -> AllocationKey {
    AllocationKey {
        claim: Uid(Uuid::from_u128(n)),
        sequence: Sequence(3),
    }
}

fn word(n: u128, state: ClaimState) -> ClaimReport {
    plain(key(n), "node", state, Vec::new())
}

fn accept(reports: &[ClaimReport]) -> ReportAnswer {
    let key = |report: &ClaimReport| ReportKey {
        claim_uid: report.claim_uid.clone(),
        allocation_sequence: report.allocation_sequence,
    };
    ReportAnswer {
        accepted: reports.iter().map(key).collect(),
    }
}

#[test]
fn an_answer_to_an_older_word_does_not_confirm_the_newer() {
    let mut outbox = Outbox::default();
    outbox.say(key(1), word(1, ClaimState::Prepared));
    let sent = outbox.batch();
    outbox.say(key(1), word(1, ClaimState::Unprepared));
    assert!(outbox.on_answer(&sent, &accept(&sent)).is_empty());
    let again = outbox.batch();
    assert_eq!(again, [word(1, ClaimState::Unprepared)]);
    assert_eq!(outbox.on_answer(&again, &accept(&again)), [key(1)]);
    assert_eq!(outbox.waiting(), 0);
}

#[test]
fn what_was_not_accepted_is_sent_again_and_what_was_is_not() {
    let mut outbox = Outbox::default();
    outbox.say(key(1), word(1, ClaimState::Prepared));
    outbox.say(key(2), word(2, ClaimState::Prepared));
    let sent = outbox.batch();
    outbox.on_answer(&sent, &accept(&sent[..1]));
    outbox.say(key(1), word(1, ClaimState::Prepared));
    assert_eq!(outbox.batch(), [word(2, ClaimState::Prepared)]);
}

#[test]
fn batches_are_bounded_by_count_and_by_bytes() {
    let mut outbox = Outbox::default();
    for n in 0..2_000 {
        outbox.say(key(n), word(n, ClaimState::Prepared));
    }
    assert_eq!(outbox.batch().len(), BATCH_MAX);
    let mut large = Outbox::default();
    for n in 0..1_000 {
        large.say(
            key(n),
            ClaimReport {
                message: "x".repeat(2_000),
                ..word(n, ClaimState::Failed)
            },
        );
    }
    assert!((1..=300).contains(&large.batch().len()));
}

#[test]
fn a_long_failure_is_cut_at_a_letter() {
    let report = of_failure(key(1), "node", &"ä".repeat(1_000));
    assert_eq!(report.message.len(), 1_024);
    assert_eq!(
        of_failure(key(1), "node", &format!("a{}", "ä".repeat(1_000))).message.len(),
        1_023
    );
}
