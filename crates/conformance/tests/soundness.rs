//! A few thousand pairs of statements on a real PostgreSQL, and that the check finds what it is for.

use std::process::{Command, Output};

fn soundness(arguments: &[&str]) -> Output {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_onecopy-conformance"));
    bench.arg("soundness").args(arguments).output().expect("the program is built for the test")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn what_is_concluded_holds() {
    let output = soundness(&["--pairs", "3000", "--seed", "1"]);
    assert!(output.status.success(), "{}", said(&output));
}

/// Each rule that is forgotten is missed within so many pairs: ten times as many as it took.
#[test]
fn what_is_forgotten_is_found() {
    for rule in ["claims", "after", "reads", "columns", "values"] {
        let output = soundness(&["--pairs", "6000", "--seed", "1", "--forget", rule]);
        assert!(!output.status.success(), "{rule}: {}", said(&output));
        let said = said(&output);
        assert!(
            said.contains("depends on the order") || said.contains("outside its writes"),
            "{rule}: {said}"
        );
    }
}
