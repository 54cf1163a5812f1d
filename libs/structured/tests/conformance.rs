//! Reference answers: every difference is a bug here or a documented choice.

use std::fs;
use std::path::{Path, PathBuf};

use structured::conformance::{Verdict, run_cases, run_scenario};

fn testdata(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(part)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("testdata exists")
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    paths
}

#[track_caller]
fn assert_all_pass(verdicts: &[Verdict], at_least: usize) {
    assert!(verdicts.len() >= at_least, "only {} cases were found", verdicts.len());
    let failed: Vec<_> = verdicts
        .iter()
        .filter_map(|verdict| Some(format!("{}: {}", verdict.id, verdict.difference.as_ref()?)))
        .collect();
    assert!(
        failed.is_empty(),
        "{} passed, {} failed:\n{}",
        verdicts.len() - failed.len(),
        failed.len(),
        failed.join("\n")
    );
}

#[test]
fn allocator_cases_get_the_reference_answer() {
    let mut verdicts = Vec::new();
    for path in entries(&testdata("allocator")) {
        if path.extension().is_some_and(|extension| extension == "json") {
            let content = fs::read_to_string(&path).expect("readable");
            verdicts.extend(run_cases(&content).unwrap_or_else(|error| panic!("{}: {error:?}", path.display())));
        }
    }
    assert_all_pass(&verdicts, 671);
}

#[test]
fn scenarios_get_the_expected_answer() {
    let mut verdicts = Vec::new();
    for folder in entries(&testdata("scenarios")) {
        if !folder.is_dir() {
            continue;
        }
        let read = |file: &str| fs::read_to_string(folder.join(file)).expect("readable");
        let name = folder.file_name().expect("folders have names").to_string_lossy();
        let run = run_scenario(&name, &read("input.yaml"), &read("expect.json"));
        verdicts.extend(run.unwrap_or_else(|error| panic!("{name}: {error:?}")));
    }
    assert_all_pass(&verdicts, 60);
}
