//! The schedulers that ship statements, on real servers: what clients saw could be one PostgreSQL's, for each of the five;
//! and without its locks none of it could.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn onecopy() -> PathBuf {
    let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--package", "onecopy"]).status();
    assert!(built.expect("cargo runs").success(), "onecopy is built");
    Path::new(env!("CARGO_BIN_EXE_onecopy-bench")).parent().expect("it is in a folder").join("onecopy")
}

fn judge(onecopy: &Path, protocol: &str, rule_off: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onecopy-bench"))
        .args(["check-live", "--seconds", "2", "--protocol", protocol, "--onecopy"])
        .arg(onecopy)
        .env("ONECOPY_TEST_RULE_OFF", rule_off)
        .output()
        .expect("the program is built for the test")
}

#[test]
fn a_history_could_be_that_of_one_server() {
    let onecopy = onecopy();
    for protocol in ["eager", "fr-l", "fr-c", "vr-l", "conflict-aware"] {
        let output = judge(&onecopy, protocol, "");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
    let output = judge(&onecopy, "conflict-aware", "locks_wait");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        !output.status.success() && said.contains("WRONG"),
        "locks that do not wait are not noticed: {said}"
    );
}
