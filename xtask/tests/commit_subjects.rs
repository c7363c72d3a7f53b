//! The hook that checks commit subjects, run on good and bad ones.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The exit status of the hook for a message, and its complaint.
fn run(message: &str) -> (bool, String) {
    let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/hooks/commit-msg");
    let mut child = Command::new(hook)
        .arg("/dev/stdin")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the hook is executable");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(message.as_bytes()).expect("the hook reads its input");
    drop(stdin);
    let output = child.wait_with_output().expect("the hook ends");
    (output.status.success(), String::from_utf8(output.stderr).expect("it writes text"))
}

#[test]
fn imperative_subjects_pass() {
    let long = format!("pool: {}", "x".repeat(66));
    let umlauts = format!("docs: {}", "ü".repeat(66));
    for message in [
        "pool: return a connection before its session ends\n",
        "pool, session: split the wait queue\n\nThe reason.\n",
        "xtask: process addresses",
        "deadlock: pass reports on",
        "docs: focus the first page",
        "replica: bring the agent down",
        "sim: seed every run",
        "sim: speed up the search",
        "commit: embed the version",
        "\n# Please enter a message.\nnode: stop servers in order\n# On branch main\n",
        "cli: name it\n# ------------------------ >8 ------------------------\ndiff --git a b\n",
        "Merge branch 'main' into pool",
        "Revert \"pool: return a connection\"",
        "fixup! whatever was there",
        "squash! pool: return a connection",
        &long,
        &umlauts,
    ] {
        let (passes, complaint) = run(message);
        assert!(passes, "{message:?}: {complaint}");
    }
}

#[test]
fn other_subjects_are_refused_with_the_reason() {
    let long = format!("pool: {}", "x".repeat(67));
    for (message, reason) in [
        ("return a connection", "area: imperative sentence"),
        ("Pool: return a connection", "area in small letters"),
        ("pool:return a connection", "area: imperative sentence"),
        ("pool: returned a connection", "'returned' is no imperative"),
        ("pool: returning a connection", "'returning' is no imperative"),
        ("pool: returns a connection", "'returns' is no imperative"),
        ("session: clients keep their connection", "'clients' is no imperative"),
        ("pool: return a connection.", "full stop"),
        ("pool: return a connection\nbefore its session ends", "second line"),
        (&long, "73 characters"),
    ] {
        let (passes, complaint) = run(message);
        assert!(!passes && complaint.contains(reason), "{message:?}: {complaint}");
    }
}
