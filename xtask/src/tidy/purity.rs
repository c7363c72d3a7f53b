//! The pure crates take inputs and time, and return effects.
//!
//! Their code, tests apart, names no clock, socket, thread, file, process, environment, random source or hash-ordered
//! container. Clippy checks types and methods as the compiler resolves them, from a `clippy.toml` in the crate; this
//! rule also forbids whole modules of the standard library, and checks that the `clippy.toml` is complete.

use super::Finding;
use crate::syntax::{paths, tokens_without_tests};
use crate::tree::{Tree, is_test_file};
use toml::{Table, Value};

/// The crates without side effects.
pub(super) const PURE: [&str; 5] = ["wire", "sql", "cluster", "sim", "planner"];

/// Beginnings of paths with side effects.
const FORBIDDEN_PATHS: [&[&str]; 14] = [
    &["std", "env"],
    &["std", "fs"],
    &["std", "net"],
    &["std", "os"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "time", "SystemTime"],
    &["std", "io", "stdin"],
    &["std", "io", "stdout"],
    &["std", "io", "stderr"],
    &["rand"],
    &["getrandom"],
    &["tokio"],
    &["rustix"],
];

/// Words that are forbidden anywhere in a pure crate.
const FORBIDDEN_WORDS: [&str; 6] =
    ["HashMap", "HashSet", "SystemTime", "RandomState", "thread_local", "now_utc"];

const DISALLOWED_METHODS: [&str; 4] =
    ["std::time::Instant::now", "std::time::SystemTime::now", "std::thread::spawn", "std::thread::sleep"];
const DISALLOWED_TYPES: [&str; 4] =
    ["std::collections::HashMap", "std::collections::HashSet", "std::fs::File", "std::net::TcpStream"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in PURE {
        let folder = format!("crates/{name}/");
        if tree.text(&format!("{folder}Cargo.toml")).is_some() {
            check_clippy(tree, &format!("{folder}clippy.toml"), &mut findings);
        }
        for (path, text) in
            tree.rust_files().filter(|(path, _)| path.starts_with(&folder) && !is_test_file(path))
        {
            check_file(path, text, &mut findings);
        }
    }
    findings
}

fn check_file(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let tokens = tokens_without_tests(text);
    for (line, used) in paths(&tokens) {
        let forbidden = FORBIDDEN_PATHS
            .iter()
            .any(|start| used.starts_with(start) && (start.len() > 1 || used.len() > 1));
        let word = used.iter().any(|word| FORBIDDEN_WORDS.contains(word));
        let clock = used.windows(2).any(|pair| pair == ["Instant", "now"]);
        if forbidden || word || clock {
            findings.push(Finding::line(path, line, format!("`{}` in a pure crate", used.join("::"))));
        }
    }
}

fn check_clippy(tree: &Tree, path: &str, findings: &mut Vec<Finding>) {
    let Some(Ok(settings)) = tree.text(path).map(str::parse::<Table>) else {
        findings.push(Finding::file(path, "a pure crate has a clippy.toml of its own"));
        return;
    };
    for (list, wanted) in [("disallowed-methods", DISALLOWED_METHODS), ("disallowed-types", DISALLOWED_TYPES)]
    {
        let entries = settings.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let listed =
            |name: &str| entries.iter().any(|entry| entry.get("path").and_then(Value::as_str) == Some(name));
        for name in wanted.into_iter().filter(|name| !listed(name)) {
            findings.push(Finding::file(path, format!("`{list}` must name `{name}`")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn what_reaches_outside_is_found() {
        for text in [
            "use std::{fs::File};",
            "fn a() { std::net::TcpStream::connect(b); }",
            "use std::time::Instant; fn a() { Instant::now(); }",
            "use std::time::SystemTime;",
            "use std::collections::{BTreeMap, HashMap};",
            "fn a() { p!(\"{}\", std::env::args().len()); }",
            "fn a() { rand::random() }",
            "use tokio::sync::Mutex;",
            "impl A { fn b(&self) { std::thread::yield_now() } }",
        ] {
            assert_eq!(findings("crates/cluster/src/a.rs", text), 1, "{text}");
        }
    }

    #[test]
    fn time_as_an_argument_tests_and_other_crates_pass() {
        assert_eq!(
            findings(
                "crates/cluster/src/a.rs",
                "use std::time::{Duration, Instant}; fn a(rand: u8) { rand; }"
            ),
            0
        );
        assert_eq!(findings("crates/sql/src/a.rs", "#[cfg(test)] mod tests { use std::fs; }"), 0);
        assert_eq!(findings("crates/sql/tests/golden.rs", "use std::fs;"), 0);
        assert_eq!(findings("crates/onecopy/src/a.rs", "use std::fs;"), 0);
    }

    #[test]
    fn a_clippy_file_that_forgets_is_found() {
        let manifest = ("crates/sql/Cargo.toml", "");
        assert_eq!(check(&Tree::of(&[manifest])).len(), 1);
        let thin = "disallowed-types = [{ path = \"std::collections::HashMap\" }]";
        assert_eq!(check(&Tree::of(&[manifest, ("crates/sql/clippy.toml", thin)])).len(), 7);
    }
}
