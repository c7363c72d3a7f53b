//! Random transactions through onecopy and on one PostgreSQL: the same answers, and the same rows at every replica.

mod program;

use std::process::Command;

#[test]
fn every_replica_has_what_one_server_has() {
    let output = Command::new(env!("CARGO_BIN_EXE_onecopy-conformance"))
        .args(["differential", "--schemas", "12", "--seed", "1", "--onecopy"])
        .arg(program::onecopy())
        .output()
        .expect("the program is built for the test");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
