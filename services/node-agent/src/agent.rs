//! The agent's loop: take in what happened, decide, write it down, then act.
//!
//! One task owns everything that changes; calls to drivers and reports run beside it and come back as events. A round's
//! changes are on disk before any of its calls is made, or its reports are said: what a killed agent may have done is
//! always in the checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bus::messages::{ClaimReport, ReportAnswer};
use bus::{Bus, BusError};
use chassis::Backoff;
use resource_api::{DriverName, Uid};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::allocation::{Allocation, AllocationKey, PreparedDevice};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::decide::{Drivers, Operation, Step, decide};
use crate::desired::{self, Desired, Update};
use crate::metrics::Metrics;
use crate::plugin::CallError;
use crate::plugins::Plugins;
use crate::report::{self, Outbox};
use crate::state::{Phase, State};

/// Calls to drivers at once. Drivers mostly serialise anyway; more would only grow their queues.
const CALLS_MAX: usize = 16;
/// Repeats of failed calls: 100 ms doubling, at most 10 s.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(10);
/// A round that could not be written is tried again after this.
const SAVE_RETRY: Duration = Duration::from_secs(1);
/// A stopping agent reports for so long what its last calls did; the next start says it again.
const LAST_REPORTS: Duration = Duration::from_secs(2);

/// What the loop works with.
pub(crate) struct Agent {
    pub(crate) id: String,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) plugins: Plugins,
    pub(crate) bus: Bus,
    pub(crate) metrics: Metrics,
    /// True once it is known what is wanted.
    pub(crate) ready: watch::Sender<bool>,
}

/// Everything that changes.
struct Live {
    state: State,
    /// The state that is on disk.
    saved: State,
    desired: Option<Desired>,
    rests: BTreeMap<(AllocationKey, DriverName), Rest>,
    open: BTreeSet<Uid>,
    waiting: BTreeMap<AllocationKey, DriverName>,
    outbox: Outbox,
    reporting: bool,
    report_backoff: Backoff,
    report_not_before: Instant,
    save_not_before: Option<Instant>,
    /// When it was last decided what is due.
    decided_at: Instant,
}

/// A call that failed, until it may be repeated.
struct Rest {
    operation: Operation,
    backoff: Backoff,
    until: Instant,
    why: String,
}

struct Call {
    key: AllocationKey,
    driver: DriverName,
    operation: Operation,
    allocation: Allocation,
    traceparent: String,
}

enum Done {
    Prepared {
        key: AllocationKey,
        driver: DriverName,
        outcome: Result<Vec<PreparedDevice>, CallError>,
    },
    Unprepared {
        key: AllocationKey,
        driver: DriverName,
        outcome: Result<(), CallError>,
    },
    Reported {
        sent: Vec<ClaimReport>,
        answer: Result<ReportAnswer, BusError>,
    },
}

impl Agent {
    /// Runs from `state` until `stop`; then begins nothing new and finishes the calls that are on their way.
    pub(crate) async fn run(self, state: State, mut updates: mpsc::Receiver<Update>, stop: CancellationToken) {
        let mut live = Live::new(state);
        let mut registered = self.plugins.changes();
        let mut tasks: JoinSet<Done> = JoinSet::new();
        while !stop.is_cancelled() {
            self.round(&mut live, &mut tasks).await;
            let next = live.next_due();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(Ok(done)) = tasks.join_next() => live.on_done(done),
                Some(update) = updates.recv() => live.on_update(update),
                Ok(()) = registered.changed() => {}
                () = at(next) => {}
            }
            while let Some(Ok(done)) = tasks.try_join_next() {
                live.on_done(done);
            }
            while let Ok(update) = updates.try_recv() {
                live.on_update(update);
            }
        }
        self.finish(live, tasks).await;
    }

    /// Decides, writes, acts.
    async fn round(&self, live: &mut Live, tasks: &mut JoinSet<Done>) {
        if live.save_not_before.is_some_and(|due| due > Instant::now()) {
            return;
        }
        let calls = live.decide(self.plugins.drivers());
        match self.save(live).await {
            Ok(()) => live.save_not_before = None,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the local state cannot be written; nothing is done until it can"
                );
                live.give_up(&calls);
                live.save_not_before = Some(Instant::now() + SAVE_RETRY);
                return;
            }
        }
        self.ready
            .send_if_modified(|ready| !std::mem::replace(ready, live.desired.is_some()) && *ready);
        for call in calls {
            tasks.spawn(make(call, self.plugins.clone(), self.metrics.clone()));
        }
        live.speak();
        self.send_reports(live, tasks);
        self.measure(live);
    }

    /// Off the runtime's threads. A new position alone is not worth a write: it matters once an entry is forgotten.
    async fn save(&self, live: &mut Live) -> Result<(), CheckpointError> {
        if live.state.entries == live.saved.entries && live.state.blind_until == live.saved.blind_until {
            return Ok(());
        }
        let (checkpoint, state) = (Arc::clone(&self.checkpoint), live.state.clone());
        let saved = tokio::task::spawn_blocking(move || checkpoint.save(&state).map(|()| state)).await;
        live.saved = saved.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        Ok(())
    }

    fn send_reports(&self, live: &mut Live, tasks: &mut JoinSet<Done>) {
        let reports = live.outbox.batch();
        if live.reporting || reports.is_empty() || live.report_not_before > Instant::now() {
            return;
        }
        live.reporting = true;
        let sending = report::send(self.bus.clone(), self.id.clone(), reports);
        tasks.spawn(async {
            let (sent, answer) = sending.await;
            Done::Reported { sent, answer }
        });
    }

    fn measure(&self, live: &Live) {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.reports_waiting.set(count(live.outbox.waiting()));
        self.metrics.waiting_for_driver.set(count(live.waiting.len()));
        let mut in_use: BTreeMap<&str, i64> = BTreeMap::new();
        for entry in live.state.entries.values() {
            for driver in entry.drivers.keys().filter(|driver| entry.has_prepared(driver)) {
                *in_use.entry(driver).or_default() += 1;
            }
        }
        self.metrics.in_use.reset();
        for (driver, claims) in in_use {
            self.metrics.in_use.with_label_values(&[driver]).set(claims);
        }
    }

    /// Waits for the calls that are on their way (each has its time limit), writes what came of them, and says it once.
    async fn finish(&self, mut live: Live, mut tasks: JoinSet<Done>) {
        while !live.open.is_empty() {
            let Some(Ok(done)) = tasks.join_next().await else { break };
            live.on_done(done);
        }
        tasks.shutdown().await;
        if let Err(error) = self.save(&mut live).await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the last calls are not in the local state; they will be repeated"
            );
            return;
        }
        live.speak();
        let reports = live.outbox.batch();
        if !reports.is_empty() {
            let sending = report::send(self.bus.clone(), self.id.clone(), reports);
            let said = tokio::time::timeout(LAST_REPORTS, sending).await;
            tracing::debug!(
                answered = said.is_ok_and(|(_, answer)| answer.is_ok()),
                "said what the last calls did"
            );
        }
    }
}

impl Live {
    fn new(state: State) -> Self {
        Self {
            saved: state.clone(),
            state,
            desired: None,
            rests: BTreeMap::new(),
            open: BTreeSet::new(),
            waiting: BTreeMap::new(),
            outbox: Outbox::default(),
            reporting: false,
            report_backoff: Backoff::new(RETRY_FIRST, RETRY_CAP),
            report_not_before: Instant::now(),
            save_not_before: None,
            decided_at: Instant::now(),
        }
    }

    fn on_update(&mut self, update: Update) {
        if let Update::List(list) = &update {
            self.state.on_list(list.position);
        }
        desired::apply(&mut self.desired, update);
        if let Some(desired) = &self.desired {
            self.state.position = self.state.position.max(desired.position);
        }
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Prepared { key, driver, outcome } => {
                self.open.remove(&key.claim);
                match outcome {
                    Ok(devices) => {
                        self.rests.remove(&(key, driver.clone()));
                        self.state.on_prepared(key, &driver, devices);
                    }
                    Err(error) => self.rest(key, driver, Operation::Prepare, &error),
                }
            }
            Done::Unprepared { key, driver, outcome } => {
                self.open.remove(&key.claim);
                match outcome {
                    Ok(()) => {
                        self.rests.remove(&(key, driver.clone()));
                        self.state.on_unprepared(key, &driver);
                    }
                    Err(error) => self.rest(key, driver, Operation::Unprepare, &error),
                }
            }
            Done::Reported { sent, answer } => self.on_answer(&sent, answer),
        }
    }

    fn rest(&mut self, key: AllocationKey, driver: DriverName, operation: Operation, error: &CallError) {
        tracing::warn!(claim.uid = %key.claim, driver = %driver, operation = ?operation, %error, "a driver did not do it; trying again");
        let before = self
            .rests
            .remove(&(key, driver.clone()))
            .filter(|rest| rest.operation == operation);
        let mut backoff = before.map_or_else(|| Backoff::new(RETRY_FIRST, RETRY_CAP), |rest| rest.backoff);
        let until = Instant::now() + backoff.next_wait(&mut rand::rng());
        self.rests.insert(
            (key, driver),
            Rest {
                operation,
                backoff,
                until,
                why: error.to_string(),
            },
        );
    }

    fn on_answer(&mut self, sent: &[ClaimReport], answer: Result<ReportAnswer, BusError>) {
        self.reporting = false;
        match answer {
            Ok(answer) => {
                for key in self.outbox.on_answer(sent, &answer) {
                    self.forget(key);
                }
                self.report_backoff.reset();
                // What it did not accept is sent again, not at once.
                if self.outbox.batch().iter().any(|report| sent.contains(report)) {
                    self.report_not_before = Instant::now() + self.report_backoff.next_wait(&mut rand::rng());
                }
            }
            Err(error) => {
                tracing::debug!(%error, reports = sent.len(), "reports were not answered; sending them again");
                self.report_not_before = Instant::now() + self.report_backoff.next_wait(&mut rand::rng());
            }
        }
    }

    /// The server has recorded the end. A wish for it could only come from an older list, which is refused.
    fn forget(&mut self, key: AllocationKey) {
        let wished = |desired: &Desired| desired.wishes.get(&key).is_some_and(|wish| wish.wanted);
        if self.desired.as_ref().is_some_and(wished) {
            return;
        }
        self.state.entries.remove(&key);
        if let Some(desired) = &mut self.desired {
            desired.wishes.remove(&key);
        }
    }

    /// Takes all steps that need no call, and begins as many calls as may run at once.
    fn decide(&mut self, registered: BTreeSet<DriverName>) -> Vec<Call> {
        let mut calls = Vec::new();
        self.waiting.clear();
        self.decided_at = Instant::now();
        loop {
            let steps = decide(self.desired.as_ref(), &self.state, &self.drivers(registered.clone()));
            let mut moved = false;
            for step in steps {
                match step {
                    Step::Call { key, driver, operation } => {
                        if self.open.len() < CALLS_MAX
                            && let Some(call) = self.begin(key, driver, operation)
                        {
                            calls.push(call);
                        }
                    }
                    Step::Wait { key, driver } => {
                        self.waiting.insert(key, driver);
                    }
                    Step::Adopt { key } => moved |= self.with_allocation(key, |state, allocation| state.adopt(key, allocation)),
                    Step::End { key } => {
                        moved |= self.with_allocation(key, |state, allocation| state.move_on(key, allocation, Phase::Ending));
                    }
                    Step::Conclude { key } => {
                        moved |= self.with_allocation(key, |state, allocation| state.move_on(key, allocation, Phase::Ended));
                    }
                }
            }
            if !moved {
                return calls;
            }
        }
    }

    fn begin(&mut self, key: AllocationKey, driver: DriverName, operation: Operation) -> Option<Call> {
        let allocation = self.allocation(key)?.clone();
        if operation == Operation::Prepare {
            self.state.on_asking(key, &allocation, &driver);
        }
        self.open.insert(key.claim);
        let wish = self.desired.as_ref().and_then(|desired| desired.wishes.get(&key));
        let traceparent = wish.map(|wish| wish.traceparent.clone()).unwrap_or_default();
        Some(Call {
            key,
            driver,
            operation,
            allocation,
            traceparent,
        })
    }

    /// Calls that were begun but could not be written down are not made.
    fn give_up(&mut self, calls: &[Call]) {
        for call in calls {
            self.open.remove(&call.key.claim);
        }
    }

    fn with_allocation(&mut self, key: AllocationKey, change: impl FnOnce(&mut State, &Allocation)) -> bool {
        let Some(allocation) = self.allocation(key).cloned() else {
            return false;
        };
        change(&mut self.state, &allocation);
        true
    }

    /// As it was when it was begun, or as the server has it.
    fn allocation(&self, key: AllocationKey) -> Option<&Allocation> {
        let begun = self.state.entries.get(&key).map(|entry| &entry.allocation);
        begun.or_else(|| self.desired.as_ref()?.wishes.get(&key).map(|wish| &wish.allocation))
    }

    fn drivers(&self, registered: BTreeSet<DriverName>) -> Drivers {
        let now = Instant::now();
        let resting = self.rests.iter().filter(|(_, rest)| rest.until > now);
        let resting = resting
            .map(|((key, driver), rest)| (*key, driver.clone(), rest.operation))
            .collect();
        Drivers {
            registered,
            open: self.open.clone(),
            resting,
        }
    }

    /// Says what is new about each allocation. What was decided is on disk by now.
    fn speak(&mut self) {
        let (state, desired) = (&self.state, &self.desired);
        let wished = |key: &AllocationKey| desired.as_ref().is_some_and(|desired| desired.wishes.contains_key(key));
        let known = |key: &AllocationKey| state.entries.contains_key(key) || wished(key);
        self.rests.retain(|(key, _), _| known(key));
        self.outbox.retain(known);
        for (key, rest) in self.rests.iter().map(|((key, _), rest)| (*key, rest)) {
            if let Some(allocation) = self.allocation(key) {
                let failure = report::of_failure(key, &allocation.node, &rest.why);
                self.outbox.say(key, failure);
            }
        }
        for (key, driver) in &self.waiting {
            if let Some(allocation) = self.allocation(*key) {
                let why = CallError::NotRegistered(driver.clone()).to_string();
                let failure = report::of_failure(*key, &allocation.node, &why);
                self.outbox.say(*key, failure);
            }
        }
        for (key, entry) in &self.state.entries {
            if let Some(report) = report::of_entry(*key, entry) {
                self.outbox.say(*key, report);
            }
        }
    }

    /// When something is due without any event.
    fn next_due(&self) -> Option<Instant> {
        // One that has become due since the last decision has not been looked at: it must not be taken for one that waits for other things.
        let rests = self
            .rests
            .values()
            .map(|rest| rest.until)
            .filter(|until| *until > self.decided_at);
        let report = (!self.reporting && self.outbox.waiting() > 0).then_some(self.report_not_before);
        rests.chain(report).chain(self.save_not_before).min()
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Makes one call to a driver, within the trace of the submission.
async fn make(call: Call, plugins: Plugins, metrics: Metrics) -> Done {
    let Call {
        key,
        driver,
        operation,
        allocation,
        traceparent,
    } = call;
    let span = match operation {
        Operation::Prepare => tracing::info_span!("node_agent.claim.prepare", claim.uid = %key.claim, driver = %driver),
        Operation::Unprepare => tracing::info_span!("node_agent.claim.unprepare", claim.uid = %key.claim, driver = %driver),
    };
    chassis::telemetry::set_parent_from(&span, &traceparent);
    let begun = Instant::now();
    async {
        match operation {
            Operation::Prepare => {
                let outcome = plugins.prepare(&driver, key, &allocation).await;
                metrics.on_call(&driver, operation, outcome.as_ref().err(), begun.elapsed());
                Done::Prepared { key, driver, outcome }
            }
            Operation::Unprepare => {
                let outcome = plugins.unprepare(&driver, key, &allocation).await;
                metrics.on_call(&driver, operation, outcome.as_ref().err(), begun.elapsed());
                Done::Unprepared { key, driver, outcome }
            }
        }
    }
    .instrument(span)
    .await
}

#[cfg(test)]
mod tests;
