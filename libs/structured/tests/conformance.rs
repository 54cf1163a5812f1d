//! Reference answers: every difference is a bug here or a documented choice.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use structured::conformance::{Verdict, run_cases, run_scenario, run_workload};

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

fn unpack(path: &Path) -> String {
    let mut text = String::new();
    let file = fs::File::open(path).expect("readable");
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .expect("gzip of text");
    text
}

#[test]
fn workloads_have_the_expected_outcome_claim_by_claim() {
    let mut verdicts = Vec::new();
    for path in entries(&testdata("bench/workloads")) {
        let name = path
            .file_name()
            .expect("files have names")
            .to_string_lossy()
            .replace(".json.gz", "");
        let expected = unpack(&testdata("bench/expected").join(format!("{name}.jsonl.gz")));
        let run = run_workload(&unpack(&path), &expected);
        verdicts.push(run.unwrap_or_else(|error| panic!("{name}: {error:?}")));
    }
    assert_all_pass(&verdicts, 14);
}
