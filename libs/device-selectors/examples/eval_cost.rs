//! Measures compiling and evaluating the usual kinds of selectors, on one device with 10 attributes and 2
//! capacities. Run with `cargo run --release -p device-selectors --example eval_cost`.
//!
//! Prints nanoseconds per call: the least and the median of nine rounds.

use std::hint::black_box;
use std::time::Instant;

use device_selectors::{DeviceView, Mode, Options, Selector};
use resource_api::device::{Device, DeviceAttribute, DeviceCapacity};

const DRIVER: &str = "gpu.example.com";
const ROUNDS: usize = 9;
const EVALUATIONS: u32 = 100_000;
const COMPILATIONS: u32 = 2_000;

const EXPRESSIONS: [(&str, &str); 9] = [
    ("device.driver == ...", r#"device.driver == "gpu.example.com""#),
    (
        "string attribute equality",
        r#"device.attributes["gpu.example.com"].model == "A100""#,
    ),
    (
        "in list of 3",
        r#"device.attributes["gpu.example.com"].model in ["V100", "A100", "H100"]"#,
    ),
    ("integer comparison", r#"device.attributes["gpu.example.com"].index >= 3"#),
    (
        "semver compareTo",
        r#"device.attributes["gpu.example.com"].driverVersion.compareTo(semver("550.0.0")) >= 0"#,
    ),
    (
        "quantity compareTo",
        r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#,
    ),
    (
        "semver and quantity",
        r#"device.attributes["gpu.example.com"].driverVersion.compareTo(semver("550.0.0")) >= 0 &&
           device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#,
    ),
    (
        "bound domain",
        r#"cel.bind(gpu, device.attributes["gpu.example.com"], gpu.model == "A100" && gpu.index >= 3)"#,
    ),
    (
        "several conditions and a guard",
        r#"device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "A100" &&
           device.attributes["gpu.example.com"].healthy && "numa" in device.attributes["gpu.example.com"] &&
           device.attributes["gpu.example.com"].?numa.orValue(0) < 2 &&
           device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#,
    ),
];

fn device() -> Device {
    let mut device = Device::default();
    let text = |s: &str| DeviceAttribute {
        string: Some(s.to_owned()),
        ..Default::default()
    };
    let int = |n| DeviceAttribute {
        int: Some(n),
        ..Default::default()
    };
    let version = |s: &str| DeviceAttribute {
        version: Some(s.to_owned()),
        ..Default::default()
    };
    let attributes = [
        ("model", text("A100")),
        ("uuid", text("GPU-18db0e85-99e9-c746-8531-ffeb86328b39")),
        ("architecture", text("Ampere")),
        ("pcie.example.org/root", text("pci0000:01")),
        ("index", int(3)),
        ("numa", int(1)),
        ("minor", int(3)),
        (
            "healthy",
            DeviceAttribute {
                bool: Some(true),
                ..Default::default()
            },
        ),
        ("driverVersion", version("550.54.15")),
        ("cudaVersion", version("12.4.0")),
    ];
    for (name, attribute) in attributes {
        device.attributes.insert(name.to_owned(), attribute);
    }
    for (name, amount) in [("memory", "80Gi"), ("multiprocessors", "108")] {
        let value = amount.parse().expect("a quantity");
        device.capacity.insert(
            name.to_owned(),
            DeviceCapacity {
                value,
                ..Default::default()
            },
        );
    }
    device
}

/// Nanoseconds per call: (least, median) of the rounds.
fn measure(calls: u32, mut call: impl FnMut()) -> (f64, f64) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| call());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    (rounds[0], rounds[ROUNDS / 2])
}

fn main() {
    let device = device();
    let (least, median) = measure(EVALUATIONS, || {
        black_box(DeviceView::new(DRIVER, black_box(&device)));
    });
    println!("{:<32} {:>8} {:>8}", "ns per call", "min", "median");
    println!("{:<32} {least:>8.0} {median:>8.0}", "making the view of a device");
    let view = DeviceView::new(DRIVER, &device);
    for (name, expression) in EXPRESSIONS {
        let selector = Selector::compile(expression, Mode::Stored, Options::default()).expect("the expression compiles");
        assert_eq!(selector.matches(&view), Ok(true), "{expression}");
        let (least, median) = measure(EVALUATIONS, || {
            black_box(selector.matches(black_box(&view)).is_ok());
        });
        println!("{name:<32} {least:>8.0} {median:>8.0}");
        let (least, median) = measure(COMPILATIONS, || {
            black_box(Selector::compile(black_box(expression), Mode::Stored, Options::default()).is_ok());
        });
        println!("{:<32} {least:>8.0} {median:>8.0}", format!("  compile {name}"));
    }
}
