//! A few hundred inputs to our allocator and to the reference, as `cargo xtask differential` would put thousands.

use std::path::Path;
use std::process::Command;

#[test]
fn random_inputs_get_the_reference_answer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["differential", "--cases", "300", "--seed", "11"])
        .current_dir(root)
        .output()
        .expect("the bench was built for this test");
    let told = String::from_utf8_lossy(&output.stdout);
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{problem}");
    let last = told.lines().last().expect("a summary");
    // The reference may run out of time on a busy machine; then it has no answer to compare with.
    assert!(last.contains(" 0 different, "), "{last}");
    let compared: u32 = last.split(' ').next().expect("a number").parse().expect("a number");
    assert!(compared >= 550, "{last}");
}
