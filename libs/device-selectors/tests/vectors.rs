//! Every conformance vector agrees: outcome, error kind, estimated cost and, where the vector has one, actual cost.

use device_selectors::vectors;

#[test]
fn every_vector_agrees() {
    let results = vectors::run(include_str!("../testdata/cel.json")).expect("the vectors are readable");
    assert!(results.len() >= 1071, "only {} vectors", results.len());
    let differing: Vec<_> = results.iter().filter(|r| !r.agrees()).collect();
    for result in &differing {
        eprintln!("{}: {}", result.id, result.differences.join("; "));
    }
    assert!(
        differing.is_empty(),
        "{} of {} vectors differ",
        differing.len(),
        results.len()
    );
}
