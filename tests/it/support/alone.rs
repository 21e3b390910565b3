//! A test that needs a process of its own, because it measures the process or changes what all its threads use.

use std::{
    env,
    process::{Command, Output},
};

/// Set in the process that is started for one test.
const ALONE: &str = "AGENT_FORGE_TEST_ALONE";

/// Whether this process runs for this one test.
pub fn is_alone() -> bool {
    env::var_os(ALONE).is_some()
}

/// Runs the test with this name in a new process of the same binary and returns its output. `more` is added to its
/// environment.
///
/// # Panics
/// The test fails there, or no test has that name.
pub fn run_alone(test: &str, more: &[(&str, String)]) -> String {
    let own = env::current_exe().expect("the kernel tells");
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(own)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ALONE, "true")
        .envs(more.iter().map(|(key, value)| (key, value)))
        .output()
        .expect("it starts");
    let (said, failed) = (
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr),
    );
    assert!(
        status.success() && said.contains("1 passed"),
        "{said}{failed}"
    );
    said.into_owned()
}
