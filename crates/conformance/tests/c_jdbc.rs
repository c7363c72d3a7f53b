//! C-JDBC on real servers: what clients saw keeps the guarantees of its level and early response, while servers are killed and
//! come back; and without its locks it does not.

mod program;

use std::path::Path;
use std::process::{Command, Output};

/// Tables have two holders each, which change.
const RAIDB_2: [&str; 12] = [
    "--level",
    "optimistic",
    "--respond",
    "majority",
    "--placement",
    "few",
    "--replicas",
    "4",
    "--strikes",
    "kill,place",
    "--calm-ms",
    "500",
];

/// What the judge says of clients at a level.
fn judge(onecopy: &Path, rule_off: &str, words: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_onecopy-conformance"))
        .args(["check-live", "--protocol", "c-jdbc", "--onecopy"])
        .arg(onecopy)
        .args(words)
        .env("ONECOPY_TEST_RULE_OFF", rule_off)
        .output()
        .expect("the program is built for the test");
    let said = [&output.stdout[..], &output.stderr].concat();
    (output, String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_history_keeps_the_guarantees_of_its_row() {
    let onecopy = program::onecopy();
    for words in [
        &["--level", "pessimistic", "--respond", "first", "--strikes", "kill,node", "--calm-ms", "700"][..],
        &RAIDB_2[..],
        &["--level", "pass-through", "--respond", "first", "--query-cache", "database", "--kill"],
    ] {
        let (output, said) = judge(&onecopy, "", &[words, &["--seconds", "12"]].concat());
        assert!(output.status.success(), "{words:?}: {said}");
        assert!(said.contains("killed"), "{words:?}: no server was killed: {said}");
    }
    let is_noticed = ["3", "10", "50"].into_iter().any(|seconds| {
        let words = ["--level", "pessimistic", "--seconds", seconds];
        let (output, said) = judge(&onecopy, "locks_wait", &words);
        !output.status.success() && said.contains("WRONG")
    });
    assert!(is_noticed, "locks that do not wait are not noticed");
}
