//! Random small clusters against a brute-force oracle: every assignment in the order of first fit, judged by the
//! independent checker. What the search finds must be the first valid one, and must be found whenever there is one.

mod generated;

use std::collections::BTreeMap;
use std::sync::Arc;

use generated::{Dice, NODE, Oracle, claim, describe, device, generate, load, names_of_plan, object, put_classes};
use proptest::prelude::*;
use resource_api::claim::{DeviceRequestAllocationResult, ResourceClaim};
use resource_api::ids::Uid;
use resource_api::slice::ResourceSlice;
use serde_json::json;
use structured::{
    Cluster, Features, Limits, NodeFacts, Plan, Policy, UnallocatableKind, allocate_on, check, compile_unit, place,
};
use uuid::Uuid;

fn check_case(seed: u64) -> Result<(), TestCaseError> {
    let case = generate(seed);
    let cluster = load(&case, false);
    let Ok(unit) = compile_unit(&cluster, &case.claims) else {
        return Ok(());
    };
    let answer = allocate_on(&cluster, &unit, NODE, &Limits::default());
    let reversed = load(&case, true);
    let Ok(unit_reversed) = compile_unit(&reversed, &case.claims) else {
        return Err(TestCaseError::fail("compiles or not by the order of slices"));
    };
    prop_assert_eq!(
        &answer,
        &allocate_on(&reversed, &unit_reversed, NODE, &Limits::default()),
        "order of slices matters"
    );
    if answer
        .as_ref()
        .is_err_and(|refusal| refusal.kind == UnallocatableKind::ClaimFault)
    {
        return Ok(());
    }
    if let Ok(plan) = &answer {
        let violations = check(&cluster, &unit, plan);
        prop_assert!(violations.is_empty(), "{violations:?}\n{}", describe(&case));
    }
    let oracle = Oracle::of(&case, &cluster, &unit);
    if let Some(expected) = oracle.first_fit() {
        let got = answer.as_ref().ok().map(names_of_plan);
        prop_assert_eq!(
            got,
            expected,
            "seed {}: {:?}\n{}",
            seed,
            answer.as_ref().err(),
            describe(&case)
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn the_first_valid_assignment_is_found_whenever_there_is_one(seed in any::<u64>()) {
        check_case(seed)?;
    }

    #[test]
    fn a_larger_budget_never_loses_an_answer(seed in any::<u64>()) {
        let case = generate(seed);
        let cluster = load(&case, false);
        let Ok(unit) = compile_unit(&cluster, &case.claims) else { return Ok(()) };
        let full = allocate_on(&cluster, &unit, NODE, &Limits::default());
        for steps in [1, 3, 10, 30] {
            let limits = Limits { steps_per_node_max: steps, ..Limits::default() };
            match allocate_on(&cluster, &unit, NODE, &limits) {
                Err(refusal) if refusal.kind == UnallocatableKind::Undecided => {}
                answer => prop_assert_eq!(&answer, &full, "budget {}", steps),
            }
        }
    }

    #[test]
    fn giving_back_what_was_taken_restores_every_answer(seed in any::<u64>()) {
        let case = generate(seed);
        let mut cluster = load(&case, false);
        let Ok(unit) = compile_unit(&cluster, &case.claims) else { return Ok(()) };
        let before = place(&cluster, &unit, Policy::FirstFit, &Limits::default());
        if let Ok(plan) = &before {
            for (uid, allocation) in &plan.claims {
                cluster.take(*uid, &allocation.devices.results);
            }
            // Asked in between, so that a failure remembered then would show.
            let in_between = place(&cluster, &unit, Policy::FirstFit, &Limits::default());
            prop_assert!(in_between.is_ok() || before.is_ok());
            for (uid, _) in &plan.claims {
                cluster.release(*uid);
            }
        }
        prop_assert_eq!(before, place(&cluster, &unit, Policy::FirstFit, &Limits::default()));
    }

    #[test]
    fn a_cluster_changed_step_by_step_answers_like_a_fresh_one(seed in any::<u64>()) {
        check_history(seed)?;
    }
}

/// What a history has put and not removed, from which a fresh cluster is built.
#[derive(Default)]
struct Facts {
    slices: BTreeMap<String, Arc<ResourceSlice>>,
    nodes: BTreeMap<String, NodeFacts>,
    held: BTreeMap<u64, Vec<DeviceRequestAllocationResult>>,
}

impl Facts {
    fn cluster(&self) -> Cluster {
        let mut cluster = Cluster::new(Features::default());
        put_classes(&mut cluster);
        self.slices.values().for_each(|slice| cluster.put_slice(Arc::clone(slice)));
        self.nodes.values().for_each(|node| cluster.put_node(node.clone()));
        for (number, results) in &self.held {
            cluster.take(Uid(Uuid::from_u128(u128::from(*number))), results);
        }
        cluster
    }
}

fn slice_of(dice: &mut Dice, pool: u64) -> ResourceSlice {
    let rack = dice.pick(&["r0", "r1"]);
    let place = match dice.below(5) {
        0 => json!({"allNodes": true}),
        1 => json!({"nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}]}}),
        _ => json!({"nodeName": format!("node-{}", dice.below(4))}),
    };
    let devices: Vec<_> = (0..1 + dice.below(3)).map(|at| device(dice, at, &place, false)).collect();
    let count = if dice.one_in(8) { 2 } else { 1 };
    let mut spec = place;
    spec["driver"] = json!("gpu.dray.test");
    spec["pool"] = json!({"name": format!("pool-{pool}"), "generation": 1 + dice.below(2), "resourceSliceCount": count});
    spec["devices"] = json!(devices);
    // Two slices may belong to one pool.
    let name = format!("slice-{pool}-{}", dice.below(2));
    object(&json!({"metadata": {"name": name}, "spec": spec}))
}

fn check_history(seed: u64) -> Result<(), TestCaseError> {
    let mut dice = Dice(seed);
    let mut facts = Facts::default();
    let mut cluster = facts.cluster();
    let wishes: Vec<_> = (0..3)
        .map(|at| Arc::new(object::<ResourceClaim>(&claim(&mut dice, at, Features::default()))))
        .collect();
    for step in 0..40 {
        match dice.below(8) {
            0 | 1 => {
                let pool = dice.below(4);
                let slice = Arc::new(slice_of(&mut dice, pool));
                facts.slices.insert(slice.metadata.name.clone(), Arc::clone(&slice));
                cluster.put_slice(slice);
            }
            2 => {
                let name = format!("slice-{}-{}", dice.below(4), dice.below(2));
                facts.slices.remove(&name);
                cluster.remove_slice(&name);
            }
            3 => {
                let name = format!("node-{}", dice.below(4));
                let labels = [("rack".to_owned(), dice.pick(&["r0", "r1"]).to_owned())].into();
                let node = NodeFacts {
                    name: name.clone(),
                    labels,
                    unschedulable: dice.one_in(4),
                    ..NodeFacts::default()
                };
                facts.nodes.insert(name, node.clone());
                cluster.put_node(node);
            }
            4 => {
                let name = format!("node-{}", dice.below(4));
                facts.nodes.remove(&name);
                cluster.remove_node(&name);
            }
            5 => {
                let number = 100 + dice.below(6);
                facts.held.remove(&number);
                cluster.release(Uid(Uuid::from_u128(u128::from(number))));
            }
            _ => {}
        }
        let wish = &wishes[usize::try_from(dice.below(3)).unwrap_or(0)];
        let answer = ask(&cluster, wish);
        prop_assert_eq!(&answer, &ask(&facts.cluster(), wish), "seed {} step {}", seed, step);
        if let Ok(plan) = answer {
            let number = 100 + dice.below(6);
            let results = plan.claims[0].1.devices.results.clone();
            cluster.take(Uid(Uuid::from_u128(u128::from(number))), &results);
            facts.held.insert(number, results);
        }
    }
    Ok(())
}

fn ask(cluster: &Cluster, claim: &Arc<ResourceClaim>) -> Result<Plan, UnallocatableKind> {
    let unit = compile_unit(cluster, std::slice::from_ref(claim)).map_err(|refusal| refusal.kind)?;
    place(cluster, &unit, Policy::FirstFit, &Limits::default()).map_err(|refusal| refusal.kind)
}
