//! Waiting until nothing more happens to the submitted units: each is allocated, or waits and has said why.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::bail;
use rpc::dray::v1::{ListUnitsRequest, Unit, UnitEvent, UnitPhase, WatchUnitsRequest};
use tonic::{Code, Request, Streaming};

use crate::client::connect::Client;
use crate::client::progress;

/// Every unit has its answer and none changed for this long: nothing more will come.
const QUIET: Duration = Duration::from_millis(1_500);
/// Some units have no answer, but none changed for this long: they are counted as undecided.
const STUCK: Duration = Duration::from_secs(20);
/// Watches opened one after another without an event before giving up.
const BROKEN_WATCHES_MAX: u32 = 10;
const PAGE_SIZE: u32 = 2_000;

/// The units of a namespace as they were last seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) units: BTreeMap<String, Unit>,
    /// Everything up to here was seen.
    sequence: u64,
}

impl Seen {
    /// The units that exist now.
    pub(crate) async fn list(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let mut seen = Self::default();
        let mut page_token = String::new();
        loop {
            let request = ListUnitsRequest {
                namespace: namespace.to_owned(),
                page_size: PAGE_SIZE,
                page_token,
            };
            let page = client.units().list(client.request(request)).await?.into_inner();
            // The first page's position: what changes while paging is seen again by the watch.
            seen.sequence = if seen.sequence == 0 { page.sequence } else { seen.sequence };
            seen.units.extend(page.units.into_iter().map(|unit| (unit.uid.clone(), unit)));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(seen);
            }
        }
    }

    /// Applies a change. An event older than what was seen changes nothing.
    fn on_event(&mut self, event: UnitEvent) {
        self.sequence = self.sequence.max(event.sequence);
        let Some(unit) = event.unit else {
            return;
        };
        if self.units.get(&unit.uid).is_some_and(|known| known.sequence > event.sequence) {
            return;
        }
        if event.operation == "DELETED" {
            self.units.remove(&unit.uid);
        } else {
            self.units.insert(unit.uid.clone(), unit);
        }
    }

    fn is_settled(&self, uid: &str) -> bool {
        let is_answered = |unit: &Unit| match unit.phase() {
            UnitPhase::Allocated => true,
            UnitPhase::Pending => !unit.reason.is_empty(),
            UnitPhase::Releasing | UnitPhase::Unspecified => false,
        };
        self.units.get(uid).is_some_and(is_answered)
    }
}

/// The units that are waited for.
struct Awaited<'a> {
    seen: &'a mut Seen,
    uids: &'a BTreeSet<String>,
    /// How many of `uids` are settled; kept up to date event by event, as there are thousands of both.
    settled: usize,
    last_change: Instant,
    deadline: Instant,
}

/// Follows the namespace's units until those in `uids` settle or `deadline` passes. Returns when the last of them changed.
pub(crate) async fn settle(
    client: &Client,
    namespace: &str,
    seen: &mut Seen,
    uids: &BTreeSet<String>,
    deadline: Instant,
) -> anyhow::Result<Instant> {
    let bar = progress::bar("allocating", uids.len());
    let mut awaited = Awaited {
        seen,
        uids,
        settled: 0,
        last_change: Instant::now(),
        deadline,
    };
    let mut fruitless = 0;
    awaited.count();
    while Instant::now() < awaited.end() {
        if fruitless > BROKEN_WATCHES_MAX {
            bail!("the server ends every watch of units");
        }
        let is_fruitful = match awaited.watch(client, namespace).await {
            Ok(changes) => awaited.follow(changes, |settled| bar.set_position(settled as u64)).await,
            Err(status) => {
                tracing::debug!(%status, "watch of units refused");
                tokio::time::sleep(Duration::from_millis(200)).await;
                false
            }
        };
        fruitless = if is_fruitful { 0 } else { fruitless + 1 };
    }
    bar.finish_and_clear();
    Ok(awaited.last_change)
}

impl Awaited<'_> {
    fn count(&mut self) {
        self.settled = self.uids.iter().filter(|uid| self.seen.is_settled(uid)).count();
    }

    /// When to stop waiting if nothing happens.
    fn end(&self) -> Instant {
        let patience = if self.settled == self.uids.len() { QUIET } else { STUCK };
        (self.last_change + patience).min(self.deadline)
    }

    /// Opens a watch; lists anew where the log no longer reaches back to what was seen.
    async fn watch(&mut self, client: &Client, namespace: &str) -> anyhow::Result<Streaming<UnitEvent>> {
        let request = WatchUnitsRequest {
            namespace: namespace.to_owned(),
            after_sequence: self.seen.sequence,
        };
        let opened = client.units().watch(Request::new(request)).await;
        if opened.as_ref().is_err_and(|status| status.code() == Code::OutOfRange) {
            *self.seen = Seen::list(client, namespace).await?;
            self.count();
        }
        Ok(opened?.into_inner())
    }

    /// Applies changes until all is quiet, the deadline passes or the stream ends. True if something was seen.
    async fn follow(&mut self, mut changes: Streaming<UnitEvent>, show: impl Fn(usize)) -> bool {
        let mut any = false;
        while let Ok(Ok(Some(event))) = tokio::time::timeout_at(self.end().into(), changes.message()).await {
            any = true;
            self.on_event(event);
            show(self.settled);
        }
        any
    }

    fn on_event(&mut self, event: UnitEvent) {
        let uid = event
            .unit
            .as_ref()
            .map(|unit| unit.uid.clone())
            .filter(|uid| self.uids.contains(uid));
        let was_settled = uid.as_ref().is_some_and(|uid| self.seen.is_settled(uid));
        self.seen.on_event(event);
        if let Some(uid) = uid {
            self.last_change = Instant::now();
            self.settled -= usize::from(was_settled);
            self.settled += usize::from(self.seen.is_settled(&uid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(sequence: u64, uid: &str, phase: UnitPhase, reason: &str) -> UnitEvent {
        let unit = Unit {
            uid: uid.to_owned(),
            phase: phase.into(),
            reason: reason.to_owned(),
            sequence,
            ..Unit::default()
        };
        UnitEvent {
            sequence,
            operation: "MODIFIED".to_owned(),
            unit: Some(unit),
        }
    }

    #[test]
    fn a_unit_settles_with_devices_or_a_reason_and_may_change_again() {
        let mut seen = Seen::default();
        let uids = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let now = Instant::now();
        let mut awaited = Awaited {
            seen: &mut seen,
            uids: &uids,
            settled: 0,
            last_change: now,
            deadline: now + STUCK * 2,
        };
        let mut settled = Vec::new();
        for event in [
            event(1, "a", UnitPhase::Pending, ""),
            event(2, "other", UnitPhase::Allocated, ""),
            event(3, "a", UnitPhase::Pending, "0 of 4 devices fit"),
            event(4, "b", UnitPhase::Allocated, ""),
            event(5, "a", UnitPhase::Allocated, ""),
            event(3, "a", UnitPhase::Pending, "seen twice"),
        ] {
            awaited.on_event(event);
            settled.push(awaited.settled);
        }
        assert_eq!(settled, [0, 0, 1, 2, 2, 2]);
        assert!(awaited.end() <= awaited.last_change + QUIET);
        assert_eq!(seen.sequence, 5);
        assert_eq!(seen.units["a"].phase(), UnitPhase::Allocated);
    }
}
