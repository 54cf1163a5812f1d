//! Feature gates of the installation.

use resource_api::gates::{FeatureGates, Gate, GateError};
use rpc::dray::v1 as pb;
use rpc::dray::v1::gates_server::Gates;
use store::{GateSetting, GateSwitch, Outcome};
use tonic::{Request, Response, Status};

use super::{Context, TRIES_MAX, trace_of};
use crate::error;
use crate::violation::Violation;

/// `dray.v1.Gates`.
pub(crate) struct GatesService(pub(crate) Context);

/// Every setting that is wrong by itself; what is left is wrong together.
fn violations(settings: &[(String, bool)], error: &GateError) -> Vec<Violation> {
    let alone = settings.iter().filter_map(|(name, on)| {
        // By itself a gate may lack one that it needs: that is judged together.
        match FeatureGates::parse(&format!("{name}={on}")) {
            Ok(_) | Err(GateError::Needs { .. }) => None,
            Err(error) => Some(Violation::invalid(format!("gates[{name}]"), error.to_string())),
        }
    });
    let alone: Vec<Violation> = alone.collect();
    if alone.is_empty() {
        vec![Violation::invalid("gates", error.to_string())]
    } else {
        alone
    }
}

fn message(setting: &GateSetting) -> pb::FeatureGate {
    let gate = setting.gate;
    pb::FeatureGate {
        name: gate.name().to_owned(),
        on: setting.is_on,
        on_by_default: gate.is_on_by_default(),
        locked: gate.is_locked(),
        since: setting.since,
        needs: gate.needs().iter().map(|needed: &Gate| needed.name().to_owned()).collect(),
    }
}

#[tonic::async_trait]
impl Gates for GatesService {
    async fn list(&self, _: Request<pb::ListGatesRequest>) -> Result<Response<pb::ListGatesResponse>, Status> {
        let settings = self.0.store.gate_settings().await.map_err(error::from_store)?;
        Ok(Response::new(pb::ListGatesResponse {
            gates: settings.iter().map(message).collect(),
            position: settings.iter().map(|setting| setting.since).max().unwrap_or(0),
        }))
    }

    async fn switch(&self, request: Request<pb::SwitchGatesRequest>) -> Result<Response<pb::SwitchGatesResponse>, Status> {
        let trace = trace_of(request.metadata());
        let mut settings: Vec<(String, bool)> = request.into_inner().gates.into_iter().collect();
        settings.sort();
        if settings.is_empty() {
            return Err(error::invalid(&[Violation::required("gates")]));
        }
        let changes: Vec<String> = settings.iter().map(|(name, on)| format!("{name}={on}")).collect();
        let changes = changes.join(",");
        for _ in 0..TRIES_MAX {
            let switch = self
                .0
                .store
                .switch_gates(&changes, trace.clone())
                .await
                .map_err(error::from_store)?;
            let mutation = match switch {
                Ok(GateSwitch::Commit(mutation)) => *mutation,
                Ok(GateSwitch::Unchanged) => {
                    let position = self.0.store.gates().await.map_err(error::from_store)?.position;
                    return Ok(Response::new(pb::SwitchGatesResponse {
                        position,
                        unchanged: true,
                    }));
                }
                Err(error) => return Err(error::invalid(&violations(&settings, &error))),
            };
            if let Outcome::Won { sequences } = self.0.writer.try_commit(mutation).await.map_err(error::from_store)? {
                self.0.gatekeeper.refresh(&self.0.store).await.map_err(error::from_store)?;
                return Ok(Response::new(pb::SwitchGatesResponse {
                    position: sequences.first().copied().unwrap_or(0),
                    unchanged: false,
                }));
            }
        }
        Err(error::aborted("the feature gates keep changing; try again"))
    }
}
