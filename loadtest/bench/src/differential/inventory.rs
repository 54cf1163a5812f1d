//! What is published: pools of slices for this node, for another, for all; devices with attributes, capacity, counters, taints.

use serde_json::{Value, json};

use super::generate::{DRIVERS, NODE, OTHER_NODE, Theme};
use crate::dice::Dice;

/// Names whose order by bytes is not their order by number, and one that looks like two parts of an id.
const POOLS: [&str; 5] = ["rack-1", "rack-10", "rack-9", "rack-2", "hall/rack"];

/// A pool under way.
struct Pool {
    driver: &'static str,
    name: &'static str,
    generation: u64,
    has_counters: bool,
    per_device: bool,
    slices: Vec<Value>,
    n_devices: u64,
}

/// The slices of all pools, in no particular order.
pub(super) fn slices(dice: &mut Dice, theme: Theme) -> Vec<Value> {
    let mut slices = Vec::new();
    let mut names: Vec<(&str, &str)> = Vec::new();
    for _ in 0..dice.pick(&[1, 1, 2, 2, 3, 4]) {
        let n_drivers = 2 + usize::from(dice.one_in(3));
        let name = (dice.pick(&DRIVERS[..n_drivers]), dice.pick(&POOLS));
        if !names.contains(&name) {
            names.push(name);
            slices.extend(pool(dice, theme, name));
        }
    }
    // The order in the file must not matter.
    for at in (1..slices.len()).rev() {
        let other = usize::try_from(dice.below(at as u64 + 1)).unwrap_or_default();
        slices.swap(at, other);
    }
    slices
}

fn pool(dice: &mut Dice, theme: Theme, (driver, name): (&'static str, &'static str)) -> Vec<Value> {
    let mut pool = Pool {
        driver,
        name,
        generation: 1 + dice.below(3),
        has_counters: theme.counters && !dice.one_in(3),
        per_device: theme.per_device && dice.one_in(2),
        slices: Vec::new(),
        n_devices: 0,
    };
    let place = place(dice, theme);
    for _ in 0..dice.pick(&[1, 1, 1, 2, 2, 3]) {
        // The slices of a pool are mostly for the same nodes.
        let place = if dice.one_in(6) {
            self::place(dice, theme)
        } else {
            place.clone()
        };
        pool.add_devices(dice, theme, place);
    }
    if pool.has_counters {
        pool.add_counters(dice, theme, &place);
    }
    let mut declared = pool.slices.len() as u64;
    if theme.troubled_pools && dice.one_in(4) {
        declared = if dice.one_in(3) {
            declared.saturating_sub(1).max(1)
        } else {
            declared + 1
        };
    }
    for slice in &mut pool.slices {
        slice["spec"]["pool"]["resourceSliceCount"] = json!(declared);
    }
    if theme.troubled_pools && dice.one_in(3) {
        pool.add_other_generation(dice, theme);
    }
    pool.slices
}

/// Which nodes see a slice.
fn place(dice: &mut Dice, theme: Theme) -> Value {
    match dice.below(20) {
        0..11 => json!({"nodeName": NODE}),
        11 => json!({"nodeName": OTHER_NODE}),
        12..15 => json!({"allNodes": true}),
        15 if theme.faults && dice.one_in(10) => json!({"nodeSelector": bad_node_selector()}),
        // No way of naming nodes that this version knows.
        16 if theme.faults && dice.one_in(4) => json!({}),
        _ => json!({"nodeSelector": node_selector(dice)}),
    }
}

fn node_selector(dice: &mut Dice) -> Value {
    let requirement = |key: &str, operator: &str, values: &[&str]| match values {
        [] => json!({"key": key, "operator": operator}),
        values => json!({"key": key, "operator": operator, "values": values}),
    };
    let of_labels = [
        requirement("zone", "In", &["zone-1", "zone-2"]),
        requirement("zone", "In", &["zone-2", "zone-1"]),
        requirement("zone", "NotIn", &["zone-2"]),
        requirement("rack", "NotIn", &["a"]),
        requirement("site", "Exists", &[]),
        requirement("rack", "DoesNotExist", &[]),
        requirement("tier", "Gt", &["1"]),
        requirement("tier", "Lt", &["9"]),
        // These do not match the node.
        requirement("tier", "Gt", &["3"]),
        requirement("rack", "Exists", &[]),
    ];
    let mut term = json!({});
    if !dice.one_in(6) {
        let n = dice.pick(&[1, 1, 2]);
        let candidates = if dice.one_in(4) { &of_labels[..] } else { &of_labels[..8] };
        let chosen: Vec<Value> = (0..n).map(|_| dice.pick(candidates)).collect();
        term["matchExpressions"] = json!(chosen);
    }
    if term["matchExpressions"].is_null() || dice.one_in(8) {
        let name = if dice.one_in(4) { OTHER_NODE } else { NODE };
        term["matchFields"] = json!([requirement("metadata.name", "In", &[name])]);
    }
    json!({"nodeSelectorTerms": [term]})
}

fn bad_node_selector() -> Value {
    json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "tier", "operator": "Gt", "values": ["word"]}]}]})
}

impl Pool {
    fn add_slice(&mut self, dice: &mut Dice, mut spec: Value) {
        // The random number decides the order in the pool.
        let name = format!("slice-{}-{}-{}", self.slices.len(), self.driver, self.name.replace('/', "."));
        let name = format!("{}-{name}", dice.below(30));
        spec["driver"] = json!(self.driver);
        spec["pool"] = json!({"name": self.name, "generation": self.generation, "resourceSliceCount": 1});
        self.slices
            .push(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}));
    }

    fn add_devices(&mut self, dice: &mut Dice, theme: Theme, place: Value) {
        let mut spec = if self.per_device {
            json!({"perDeviceNodeSelection": true})
        } else {
            place
        };
        if theme.node_operations && dice.one_in(3) {
            spec["skipNodeOperations"] = dice.pick(&[
                json!(["NodePrepareResources"]),
                json!(["NodePrepareResources", "NodeUnprepareResources"]),
                json!(["*"]),
            ]);
        }
        let n = dice.pick(&[1, 2, 3, 3, 4, 5, 6]);
        let devices: Vec<Value> = (0..n).map(|_| self.device(dice, theme)).collect();
        spec["devices"] = json!(devices);
        self.add_slice(dice, spec);
    }

    fn add_counters(&mut self, dice: &mut Dice, theme: Theme, place: &Value) {
        let sets = |names: &[&str], dice: &mut Dice| -> Vec<Value> {
            let set = |name: &&str| {
                let lanes = dice.pick(&["3", "4", "6", "2500m"]);
                json!({"name": name, "counters": {"lanes": {"value": lanes}, "memory": {"value": dice.pick(&["3Gi", "5Gi"])}}})
            };
            names.iter().map(set).collect()
        };
        // Counters reach the whole pool, also from slices of other nodes.
        let mut spec = if dice.one_in(8) {
            json!({"nodeName": OTHER_NODE})
        } else {
            place.clone()
        };
        if theme.troubled_pools && dice.one_in(10) {
            spec["sharedCounters"] = json!(sets(&["set-0"], dice));
            self.add_slice(dice, spec.clone());
        }
        let names: &[&str] = match dice.below(12) {
            0 if theme.troubled_pools => &["set-0"],
            _ => &["set-0", "set-1"],
        };
        spec["sharedCounters"] = json!(sets(names, dice));
        self.add_slice(dice, spec);
    }

    /// A slice of an older generation, or of a newer one that this node may not see.
    fn add_other_generation(&mut self, dice: &mut Dice, theme: Theme) {
        let generation = self.generation;
        let place = match dice.below(3) {
            0 => json!({"nodeName": NODE}),
            1 => json!({"nodeName": OTHER_NODE}),
            _ => json!({"allNodes": true}),
        };
        self.generation = if dice.one_in(3) { generation + 1 } else { generation - 1 };
        self.add_devices(dice, theme, place);
        self.generation = generation;
    }

    fn device(&mut self, dice: &mut Dice, theme: Theme) -> Value {
        let is_twin = theme.troubled_pools && dice.one_in(25);
        self.n_devices += u64::from(!is_twin || self.n_devices == 0);
        let mut device = json!({"name": format!("dev-{}", (self.n_devices * 7) % 32)});
        if self.per_device {
            match dice.below(8) {
                0..4 => device["nodeName"] = json!(NODE),
                4 => device["nodeName"] = json!(OTHER_NODE),
                5 => device["allNodes"] = json!(true),
                6 => device["nodeSelector"] = node_selector(dice),
                _ => {}
            }
        }
        let attributes = attributes(dice, theme, self.driver);
        if attributes.as_object().is_some_and(|attributes| !attributes.is_empty()) {
            device["attributes"] = attributes;
        }
        if theme.shares && !dice.one_in(3) {
            device["allowMultipleAllocations"] = json!(!dice.one_in(12));
        }
        capacity(dice, theme, &mut device);
        if self.has_counters && !dice.one_in(5) {
            device["consumesCounters"] = consumed_counters(dice, theme);
        }
        if theme.taints && dice.one_in(3) {
            device["taints"] = taints(dice);
        }
        if theme.binding && dice.one_in(3) {
            device["bindingConditions"] = json!(["attached"]);
            device["bindingFailureConditions"] = json!(["attach-failed"]);
        }
        if theme.binding && dice.one_in(4) {
            device["bindsToNode"] = json!(true);
        }
        device
    }
}

fn attributes(dice: &mut Dice, theme: Theme, driver: &str) -> Value {
    let mut attributes = json!({});
    if !dice.one_in(10) {
        attributes["model"] = json!({"string": dice.pick(&["a", "a", "b", "c"])});
    }
    attributes["numa"] = match dice.below(6) {
        0 => Value::Null,
        1 | 2 if theme.lists => json!({"ints": dice.pick(&[vec![0, 1], vec![1, 2], vec![2, 2, 0], vec![3]])}),
        3 if theme.lists => json!({"strings": dice.pick(&[vec!["0"], vec!["1", "0"]])}),
        _ => json!({"int": dice.pick(&[0, 0, 1, 1, 2])}),
    };
    if dice.one_in(3) {
        attributes["ready"] = json!({"bool": !dice.one_in(3)});
    }
    if dice.one_in(3) {
        let versions = ["1.0.0", "1.0.0+b1", "1.1.0", "2.0.0"];
        attributes["firmware"] = match theme.lists && dice.one_in(4) {
            true => json!({"versions": [dice.pick(&versions), dice.pick(&versions)]}),
            false => json!({"version": dice.pick(&versions)}),
        };
    }
    if dice.one_in(2) {
        attributes["resource.kubernetes.io/pcieRoot"] = match theme.lists && dice.one_in(3) {
            true => json!({"strings": ["pci0000:00", dice.pick(&["pci0000:80", "pci0000:40"])]}),
            false => json!({"string": dice.pick(&["pci0000:00", "pci0000:80"])}),
        };
    }
    // Another driver may publish below this domain. The driver itself may not have the name twice: then the reference takes either, at
    // random.
    if driver != DRIVERS[0] && dice.one_in(3) {
        attributes["gpu.dray.test/numa"] = json!({"int": dice.below(2)});
    }
    if theme.faults && dice.one_in(40) {
        attributes["strange"] = json!({});
    }
    let fields = attributes.as_object_mut().into_iter().flatten();
    let kept = fields.filter(|(_, value)| !value.is_null());
    Value::Object(kept.map(|(name, value)| (name.clone(), value.take())).collect())
}

fn capacity(dice: &mut Dice, theme: Theme, device: &mut Value) {
    let is_shareable = device["allowMultipleAllocations"] == true;
    let mut add = |name: &str, value: &str, policy: Option<Value>| {
        device["capacity"][name] = json!({"value": value});
        if let Some(policy) = policy {
            device["capacity"][name]["requestPolicy"] = policy;
        }
    };
    if dice.one_in(2) {
        let policy = is_shareable.then(|| units_policy(dice, theme)).flatten();
        add("units", "8", policy);
    }
    if dice.one_in(3) {
        let range = json!({"default": "1Gi", "validRange": {"min": "1Gi", "max": "2Gi"}});
        let steps = json!({"default": "1Gi", "validRange": {"min": "1Gi", "step": "512Mi"}});
        let policy = (is_shareable && !dice.one_in(4)).then(|| dice.pick(&[json!({"default": "1Gi"}), range, steps]));
        add("memory", dice.pick(&["2Gi", "4Gi"]), policy);
    }
}

fn units_policy(dice: &mut Dice, theme: Theme) -> Option<Value> {
    let whole = [
        json!({"default": "1"}),
        json!({"default": "2", "validRange": {"min": "2", "max": "8", "step": "2"}}),
        json!({"default": "1", "validRange": {"min": "1", "step": "3"}}),
        json!({"default": "1", "validRange": {"min": "1", "max": "4"}}),
        json!({"default": "2", "validValues": ["1", "2", "4"]}),
    ];
    let fractions = [
        json!({"default": "200m", "validRange": {"min": "200m", "max": "2", "step": "100m"}}),
        json!({"default": "500m", "validRange": {"min": "500m", "max": "8", "step": "250m"}}),
        json!({"default": "1", "validRange": {"min": "500m", "max": "8", "step": "500m"}}),
        json!({"default": "1", "validRange": {"min": "1", "max": "8", "step": "1500m"}}),
        // Finer than what the arithmetic in thousandths can hold.
        json!({"default": "500u", "validRange": {"min": "500u", "max": "8", "step": "500u"}}),
        json!({"default": "500m", "validValues": ["500m", "1500m", "2"]}),
    ];
    match dice.below(5) {
        0 => None,
        1 | 2 if theme.fractions => Some(dice.pick(&fractions)),
        _ => Some(dice.pick(&whole)),
    }
}

fn consumed_counters(dice: &mut Dice, theme: Theme) -> Value {
    let sets: &[&str] = dice.pick(&[&["set-0"] as &[&str], &["set-0"], &["set-1"], &["set-0", "set-1"]]);
    let consumption = |set: &&str| {
        let mut consumption = json!({"counterSet": set, "counters": {"lanes": {"value": dice.pick(&["1", "2", "0", "500m"])}}});
        if dice.one_in(2) {
            consumption["counters"]["memory"] = json!({"value": dice.pick(&["1Gi", "1536Mi"])});
        }
        if theme.troubled_pools && dice.one_in(40) {
            consumption["counters"]["unknown"] = json!({"value": "1"});
        }
        if theme.groups && dice.one_in(2) {
            consumption["compatibilityGroups"] = json!(dice.pick(&[vec!["x"], vec!["y"], vec!["x", "y"], vec!["y", "z"]]));
        }
        consumption
    };
    sets.iter().map(consumption).collect()
}

fn taints(dice: &mut Dice) -> Value {
    let n = dice.pick(&[1, 1, 2]);
    let taint = |at: u64, dice: &mut Dice| {
        let mut taint = json!({"key": if at == 0 { "dray.test/broken" } else { "dray.test/old" },
            "effect": dice.pick(&["NoSchedule", "NoExecute", "None"])});
        if dice.one_in(2) {
            taint["value"] = json!(dice.pick(&["yes", "xid"]));
        }
        taint
    };
    (0..n).map(|at| taint(at, dice)).collect()
}
