//! What the server has not yet confirmed to know: the latest word on each allocation, repeated until it is answered.
//!
//! The outbox is a level, not a queue: a newer word on an allocation replaces the older, so it is as large as the number
//! of allocations and no larger.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::messages::{ClaimReport, ClaimState, NodeReports, PreparedDevice, ReportAnswer, ReportKey};
use bus::{Bus, BusError, subjects};
use resource_api::{DriverName, Sequence};

use crate::allocation::{self, AllocationKey};
use crate::state::{Entry, Phase};

/// Reports in one message: some 250 bytes each, a message of NATS holds 1 MiB.
pub(crate) const BATCH_MAX: usize = 1_000;
/// Bytes of reports in one message, at most (unless one alone is larger).
const BATCH_BYTES_MAX: usize = 512 << 10;
/// The controller commits before it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// A failure's text is for people; drivers may write novels.
const MESSAGE_BYTES_MAX: usize = 1_024;

/// The latest word on each allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    words: BTreeMap<AllocationKey, Word>,
}

#[derive(Clone, Debug)]
struct Word {
    report: ClaimReport,
    answered: bool,
}

impl Outbox {
    /// Says `report`, unless it is what was said last.
    pub(crate) fn say(&mut self, key: AllocationKey, report: ClaimReport) {
        if self.words.get(&key).is_none_or(|word| word.report != report) {
            self.words.insert(key, Word { report, answered: false });
        }
    }

    /// Forgets the allocations that `keep` refuses.
    pub(crate) fn retain(&mut self, keep: impl Fn(&AllocationKey) -> bool) {
        self.words.retain(|key, _| keep(key));
    }

    /// How many reports wait for an answer.
    pub(crate) fn waiting(&self) -> usize {
        self.words.values().filter(|word| !word.answered).count()
    }

    /// Reports to send now, oldest claims first.
    pub(crate) fn batch(&self) -> Vec<ClaimReport> {
        let mut bytes = 0;
        let waiting = self.words.values().filter(|word| !word.answered).take(BATCH_MAX);
        let fits = waiting.take_while(|word| {
            let first = bytes == 0;
            bytes += prost_len(&word.report);
            first || bytes <= BATCH_BYTES_MAX
        });
        fits.map(|word| word.report.clone()).collect()
    }

    /// Takes the answer to `sent`: confirms what was accepted, if nothing newer was said since. Returns the allocations
    /// whose end is recorded: nobody has to remember them any more.
    pub(crate) fn on_answer(&mut self, sent: &[ClaimReport], answer: &ReportAnswer) -> Vec<AllocationKey> {
        let mut ended = Vec::new();
        for ReportKey {
            claim_uid,
            allocation_sequence,
        } in &answer.accepted
        {
            let Ok(claim) = claim_uid.parse() else { continue };
            let key = AllocationKey {
                claim,
                sequence: Sequence(*allocation_sequence),
            };
            if let Some(word) = self.words.get_mut(&key)
                && sent.contains(&word.report)
            {
                word.answered = true;
                if word.report.state == ClaimState::Unprepared as i32 {
                    ended.push(key);
                }
            }
        }
        ended
    }
}

/// A close upper bound of a report's size on the wire.
fn prost_len(report: &ClaimReport) -> usize {
    let device = |device: &PreparedDevice| {
        let texts =
            device
                .cdi_device_ids
                .iter()
                .chain(&device.request_names)
                .chain([&device.driver, &device.pool, &device.device]);
        texts.map(|text| text.len() + 4).sum::<usize>() + 4
    };
    64 + report.node.len() + report.claim_uid.len() + report.message.len() + report.devices.iter().map(device).sum::<usize>()
}

/// Sends reports and waits for the answer. An error means: not known to have arrived, send again.
pub(crate) async fn send(
    bus: Bus,
    agent_id: String,
    reports: Vec<ClaimReport>,
) -> (Vec<ClaimReport>, Result<ReportAnswer, BusError>) {
    let message = NodeReports {
        agent_id: agent_id.clone(),
        reports,
    };
    let answer = bus.ask(&subjects::agent(&agent_id), &message, ANSWER_TIMEOUT, None).await;
    (message.reports, answer)
}

/// What to say about an entry: that it is prepared, or that it is over. On the way there is nothing to say.
pub(crate) fn of_entry(key: AllocationKey, entry: &Entry) -> Option<ClaimReport> {
    if entry.phase == Phase::Ended {
        return Some(report(key, &entry.allocation.node, ClaimState::Unprepared));
    }
    let devices = entry.prepared().filter(|_| !entry.drivers.is_empty())?;
    let devices = devices
        .into_iter()
        .map(|(driver, device)| device_of(driver, device))
        .collect();
    Some(ClaimReport {
        devices,
        ..report(key, &entry.allocation.node, ClaimState::Prepared)
    })
}

/// What to say when a driver refused or is not there; the agent goes on trying.
pub(crate) fn of_failure(key: AllocationKey, node: &str, why: &str) -> ClaimReport {
    let end = why.floor_char_boundary(MESSAGE_BYTES_MAX);
    ClaimReport {
        message: why.get(..end).unwrap_or_default().to_owned(),
        ..report(key, node, ClaimState::Failed)
    }
}

/// What fleets say: everything is there at once.
pub(crate) fn plain(key: AllocationKey, node: &str, state: ClaimState, devices: Vec<PreparedDevice>) -> ClaimReport {
    ClaimReport {
        devices,
        ..report(key, node, state)
    }
}

fn report(key: AllocationKey, node: &str, state: ClaimState) -> ClaimReport {
    ClaimReport {
        node: node.to_owned(),
        claim_uid: key.claim.to_string(),
        allocation_sequence: key.sequence.0,
        state: state as i32,
        message: String::new(),
        devices: Vec::new(),
    }
}

fn device_of(driver: &DriverName, device: &allocation::PreparedDevice) -> PreparedDevice {
    PreparedDevice {
        driver: driver.to_string(),
        pool: device.pool.to_string(),
        device: device.device.to_string(),
        cdi_device_ids: device.cdi_device_ids.clone(),
        request_names: device.request_names.clone(),
    }
}

#[cfg(test)]
mod tests;
