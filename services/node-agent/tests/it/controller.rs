//! Who answers reports: records them and releases what was let go, over real NATS.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bus::messages::{ClaimReport, ClaimState, ReportAnswer, ReportKey};
use bus::{Bus, BusConfig, subjects};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::server::Server;

#[derive(Clone)]
pub(crate) struct Controller {
    /// The last report on each claim.
    reports: Arc<Mutex<BTreeMap<String, ClaimReport>>>,
    /// Every report, also repeated ones.
    all: Arc<Mutex<Vec<ClaimReport>>>,
    pub(crate) answering: watch::Sender<bool>,
    _task: Arc<AbortOnDrop>,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Controller {
    pub(crate) async fn start(nats_url: &str, server: Server) -> Self {
        let bus = Bus::connect(BusConfig::new(nats_url), "test").await.unwrap();
        let mut questions = bus.requests(&subjects::all_agents(), Some("test")).await.unwrap();
        let (reports, all) = (Arc::<Mutex<BTreeMap<_, _>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let answering = watch::Sender::new(true);
        let (keep, keep_all, answers) = (Arc::clone(&reports), Arc::clone(&all), answering.subscribe());
        let task = tokio::spawn(async move {
            while let Some(question) = questions.next().await {
                let mut accepted = Vec::new();
                for report in &question.message.reports {
                    keep_all.lock().unwrap().push(report.clone());
                    accepted.push(ReportKey {
                        claim_uid: report.claim_uid.clone(),
                        allocation_sequence: report.allocation_sequence,
                    });
                    if *answers.borrow() {
                        keep.lock().unwrap().insert(report.claim_uid.clone(), report.clone());
                        if report.state == ClaimState::Unprepared as i32 {
                            server.release(&report.claim_uid, report.allocation_sequence);
                        }
                    }
                }
                if *answers.borrow() {
                    question.answer(&ReportAnswer { accepted }).await.unwrap();
                }
            }
        });
        Self {
            reports,
            all,
            answering,
            _task: Arc::new(AbortOnDrop(task)),
        }
    }

    pub(crate) fn report(&self, uid: &str) -> Option<ClaimReport> {
        self.reports.lock().unwrap().get(uid).cloned()
    }

    pub(crate) fn state(&self, uid: &str) -> Option<ClaimState> {
        self.report(uid).map(|report| ClaimState::try_from(report.state).unwrap())
    }

    /// How often anything was said about a claim.
    pub(crate) fn said(&self, uid: &str) -> usize {
        self.all
            .lock()
            .unwrap()
            .iter()
            .filter(|report| report.claim_uid == uid)
            .count()
    }

    /// Every failure that was reported about a claim.
    pub(crate) fn failures(&self, uid: &str) -> Vec<String> {
        let all = self.all.lock().unwrap();
        let failed = all
            .iter()
            .filter(|report| report.claim_uid == uid && report.state == ClaimState::Failed as i32);
        failed.map(|report| report.message.clone()).collect()
    }
}
