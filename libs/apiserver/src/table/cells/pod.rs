//! The cells of a pod: its phase, or what its containers say about it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{NONE, list, number, or};
use crate::object::{at, deletion_timestamp, name, text_at};
use crate::table::age::duration;

/// Restarts of containers, and when the last one was.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(number(container, &["restartCount"]));
        let finished = text_at(container, &["lastState", "terminated", "finishedAt"]).parse().ok();
        self.last = self.last.max(finished);
    }
}

/// What is known so far, container by container.
struct Summary<'a> {
    pod: &'a Value,
    reason: String,
    ready: usize,
    restarts: Restarts,
}

/// The cells of a pod.
pub(super) fn cells(pod: &Value, created: Value, now: Timestamp) -> Vec<Value> {
    let phase = text_at(pod, &["status", "phase"]);
    let mut reason = or(text_at(pod, &["status", "reason"]), phase);
    let is_gated = |condition: &&Value| {
        text_at(condition, &["type"]) == "PodScheduled" && text_at(condition, &["reason"]) == "SchedulingGated"
    };
    if conditions(pod).iter().any(|condition| is_gated(&condition)) {
        reason = "SchedulingGated";
    }
    let mut summary = Summary {
        pod,
        reason: reason.to_owned(),
        ready: 0,
        restarts: Restarts::default(),
    };
    let sidecar_restarts = summary.add_init_containers();
    if let Some(restarts) = sidecar_restarts {
        summary.restarts = restarts;
        summary.add_containers();
    }
    summary.add_deletion(phase);
    let mut cells = vec![
        json!(name(pod)),
        json!(format!("{}/{}", summary.ready, containers(pod))),
        json!(summary.reason),
        json!(restarts_text(summary.restarts, now)),
        created,
    ];
    cells.extend(wide_cells(pod));
    cells
}

fn conditions(pod: &Value) -> &[Value] {
    list(pod, &["status", "conditions"])
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    let mut conditions = conditions(pod).iter();
    let found = conditions.find(|condition| text_at(condition, &["type"]) == kind);
    found.is_some_and(|condition| text_at(condition, &["status"]) == "True")
}

/// An init container that keeps running beside the others.
fn is_sidecar(pod: &Value, container: &str) -> bool {
    let mut containers = list(pod, &["spec", "initContainers"]).iter();
    let found = containers.find(|known| text_at(known, &["name"]) == container);
    found.is_some_and(|known| text_at(known, &["restartPolicy"]) == "Always")
}

/// Containers that can be ready: the main ones and sidecars.
fn containers(pod: &Value) -> usize {
    let sidecars = list(pod, &["spec", "initContainers"]).iter();
    let sidecars = sidecars
        .filter(|container| text_at(container, &["restartPolicy"]) == "Always")
        .count();
    list(pod, &["spec", "containers"]).len() + sidecars
}

impl Summary<'_> {
    /// Looks at init containers up to the first that is not done. Returns the restarts of sidecars if the main containers count.
    fn add_init_containers(&mut self) -> Option<Restarts> {
        let total = list(self.pod, &["spec", "initContainers"]).len();
        let mut sidecars = Restarts::default();
        let mut blocker = None;
        for (position, container) in list(self.pod, &["status", "initContainerStatuses"]).iter().enumerate() {
            let is_sidecar = is_sidecar(self.pod, text_at(container, &["name"]));
            self.restarts.add(container);
            if is_sidecar {
                sidecars.add(container);
            }
            let terminated = at(container, &["state", "terminated"]).filter(|state| state.is_object());
            let waiting = text_at(container, &["state", "waiting", "reason"]);
            let flag = |field: &str| container.get(field).and_then(Value::as_bool) == Some(true);
            match terminated {
                Some(terminated) if number(terminated, &["exitCode"]) == 0 => continue,
                _ if is_sidecar && flag("started") => {
                    self.ready += usize::from(flag("ready"));
                    continue;
                }
                Some(terminated) => blocker = Some(format!("Init:{}", end_of(terminated))),
                None if !waiting.is_empty() && waiting != "PodInitializing" => blocker = Some(format!("Init:{waiting}")),
                None => blocker = Some(format!("Init:{position}/{total}")),
            }
            break;
        }
        let is_initializing = blocker.is_some();
        if let Some(blocker) = blocker {
            self.reason = blocker;
        }
        (!is_initializing || has_condition(self.pod, "Initialized")).then_some(sidecars)
    }

    /// Looks at the main containers, the last one first, so that the first one has the last word.
    fn add_containers(&mut self) {
        let mut is_running = false;
        let mut failure = None;
        for container in list(self.pod, &["status", "containerStatuses"]).iter().rev() {
            self.restarts.add(container);
            let waiting = text_at(container, &["state", "waiting", "reason"]);
            let has = |state: &str| at(container, &["state", state]).is_some_and(Value::is_object);
            let is_ready = container.get("ready").and_then(Value::as_bool) == Some(true);
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(terminated) = at(container, &["state", "terminated"]).filter(|state| state.is_object()) {
                self.reason = end_of(terminated);
                if number(terminated, &["exitCode"]) != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if is_ready && has("running") {
                is_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            match failure {
                _ if is_running && has_condition(self.pod, "Ready") => self.reason = "Running".to_owned(),
                Some(failure) => self.reason = failure,
                None if is_running => self.reason = "NotReady".to_owned(),
                None => {}
            }
        }
    }

    fn add_deletion(&mut self, phase: &str) {
        if deletion_timestamp(self.pod).is_none() {
            return;
        }
        if text_at(self.pod, &["status", "reason"]) == "NodeLost" {
            self.reason = "Unknown".to_owned();
        } else if !matches!(phase, "Failed" | "Succeeded") {
            self.reason = "Terminating".to_owned();
        }
    }
}

/// Why a container ended.
fn end_of(terminated: &Value) -> String {
    let signal = number(terminated, &["signal"]);
    match text_at(terminated, &["reason"]) {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", number(terminated, &["exitCode"])),
        reason => reason.to_owned(),
    }
}

fn restarts_text(restarts: Restarts, now: Timestamp) -> String {
    match restarts.last {
        Some(last) if restarts.count != 0 => format!("{} ({} ago)", restarts.count, duration(last, now)),
        _ => restarts.count.to_string(),
    }
}

fn wide_cells(pod: &Value) -> [Value; 4] {
    let address = list(pod, &["status", "podIPs"])
        .first()
        .map_or("", |address| text_at(address, &["ip"]));
    let gates = list(pod, &["spec", "readinessGates"]);
    let open = gates
        .iter()
        .filter(|gate| has_condition(pod, text_at(gate, &["conditionType"])))
        .count();
    let gates = if gates.is_empty() {
        NONE.to_owned()
    } else {
        format!("{open}/{}", gates.len())
    };
    [
        json!(or(address, NONE)),
        json!(or(text_at(pod, &["spec", "nodeName"]), NONE)),
        json!(or(text_at(pod, &["status", "nominatedNodeName"]), NONE)),
        json!(gates),
    ]
}
