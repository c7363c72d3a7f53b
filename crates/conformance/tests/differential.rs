//! Random transactions through onecopy and on one PostgreSQL: the same answers, and the same rows at every replica.

use std::path::Path;
use std::process::Command;

#[test]
fn every_replica_has_what_one_server_has() {
    let bench = Path::new(env!("CARGO_BIN_EXE_onecopy-conformance"));
    let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--package", "onecopy"]).status();
    assert!(built.expect("cargo runs").success(), "onecopy is built");
    let onecopy = bench.parent().expect("the program is in a folder").join("onecopy");
    let output = Command::new(bench)
        .args(["differential", "--schemas", "12", "--seed", "1", "--onecopy"])
        .arg(onecopy)
        .output()
        .expect("the program is built for the test");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
