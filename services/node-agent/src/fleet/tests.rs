//! The fleet's nodes without servers: what is wanted is prepared after its time, what is not is let go at once.

use resource_api::Uid;

use super::*;
use crate::allocation::{Allocation, GivenDevice};
use crate::desired::Wish;

fn key(n: u128) -> AllocationKey {
    AllocationKey {
        claim: Uid(Uuid::from_u128(n)),
        sequence: Sequence(1),
    }
}

fn wishes(wanted: &[(u128, bool)]) -> Desired {
    let device = GivenDevice {
        request: "g/fast".into(),
        driver: "d".into(),
        pool: "p".into(),
        device: "gpu-3".into(),
    };
    let allocation = Allocation {
        node: "n".into(),
        devices: vec![device],
        ..Allocation::default()
    };
    let wish = |(n, wanted): &(u128, bool)| {
        (
            key(*n),
            Wish {
                wanted: *wanted,
                allocation: allocation.clone(),
                traceparent: String::new(),
            },
        )
    };
    Desired {
        position: Sequence(9),
        wishes: wanted.iter().map(wish).collect(),
    }
}

fn states(nodes: &Nodes) -> Vec<ClaimState> {
    nodes
        .outbox
        .batch()
        .iter()
        .map(|report| ClaimState::try_from(report.state).unwrap())
        .collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn prepares_take_their_time_and_name_the_devices() {
    let mut nodes = Nodes::new();
    nodes.on_update(Update::List(wishes(&[(1, true)])), SECOND);
    nodes.on_time(Instant::now());
    assert!(states(&nodes).is_empty());
    nodes.on_time(Instant::now() + SECOND);
    let reports = nodes.outbox.batch();
    assert_eq!(reports[0].devices[0].cdi_device_ids, ["d/gpu=p-gpu-3"]);
    assert_eq!(reports[0].devices[0].request_names, ["g"]);
}

#[test]
fn what_is_let_go_while_it_is_prepared_stays_let_go() {
    let mut nodes = Nodes::new();
    nodes.on_update(Update::List(wishes(&[(1, true)])), SECOND);
    nodes.on_update(Update::Changes(wishes(&[(1, false)])), SECOND);
    nodes.on_time(Instant::now() + SECOND);
    assert_eq!(states(&nodes), [ClaimState::Unprepared]);
    nodes.on_update(Update::Changes(wishes(&[(1, true)])), SECOND);
    nodes.on_time(Instant::now() + 2 * SECOND);
    assert_eq!(
        states(&nodes),
        [ClaimState::Unprepared],
        "an older word does not bring it back"
    );
}

#[test]
fn what_is_missing_from_a_new_list_is_forgotten() {
    let mut nodes = Nodes::new();
    nodes.on_update(Update::List(wishes(&[(1, true), (2, true)])), Duration::ZERO);
    nodes.on_time(Instant::now());
    nodes.on_update(Update::List(wishes(&[(2, true)])), Duration::ZERO);
    assert_eq!(nodes.stages.keys().copied().collect::<Vec<_>>(), [key(2)]);
}

#[test]
fn nodes_have_models_in_turn() {
    let mut config = Config::new("fleet", "http://localhost", "nats://localhost", 3);
    config.models = vec!["A10".to_owned(), "T4".to_owned()];
    let model = |index: u32| config.pool(index).devices[0].attributes["model"].string.clone().unwrap();
    assert_eq!(
        (model(0), model(1), model(2)),
        ("A10".to_owned(), "T4".to_owned(), "A10".to_owned())
    );
    assert_eq!(config.pool(2).pool, "fleet-00002");
}
