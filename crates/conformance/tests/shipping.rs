//! The schedulers that ship statements, on real servers: what clients saw could be one PostgreSQL's, for each of the five,
//! while a server is killed and comes back and the node is killed and starts again; and without its locks none of it
//! could. One cluster serves them all, one after the other.

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder that is removed.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What the judge says of clients of one protocol, over the servers of a folder.
fn judge(onecopy: &Path, data: &Path, protocol: &str, rule_off: &str, words: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_onecopy-conformance"))
        .args(["check-live", "--protocol", protocol, "--onecopy"])
        .arg(onecopy)
        .arg("--data")
        .arg(data)
        .args(words)
        .env("ONECOPY_TEST_RULE_OFF", rule_off)
        .output()
        .expect("the program is built for the test");
    let said = [&output.stdout[..], &output.stderr].concat();
    (output, String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_history_could_be_that_of_one_server() {
    let onecopy = program::onecopy();
    let folder = Folder(std::env::temp_dir().join(format!("onecopy-shipping-{}", std::process::id())));
    for (seed, protocol) in ["eager", "fr-l", "fr-c", "vr-l", "conflict-aware"].into_iter().enumerate() {
        let seed = seed.to_string();
        // A slow machine needs longer until both have struck.
        let has_struck = ["5", "20", "80"].into_iter().any(|seconds| {
            let words = ["--seconds", seconds, "--strikes", "kill,node", "--calm-ms", "700", "--seed", &seed];
            let (output, said) = judge(&onecopy, &folder.0, protocol, "", &words);
            assert!(output.status.success(), "{said}");
            said.contains("server killed") && said.contains("node killed")
        });
        assert!(has_struck, "{protocol}");
    }
    let is_noticed = ["2", "10", "50"].into_iter().any(|seconds| {
        let words = ["--seconds", seconds];
        let (output, said) = judge(&onecopy, &folder.0, "conflict-aware", "locks_wait", &words);
        !output.status.success() && said.contains("WRONG")
    });
    assert!(is_noticed, "locks that do not wait are not noticed");
}
