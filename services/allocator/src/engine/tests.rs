use super::*;

#[test]
fn the_default_gates_are_the_cores_defaults() {
    assert_eq!(features_of(FeatureGates::default()), Features::default());
    assert_eq!(features_of(FeatureGates::all()), Features::all());
}
