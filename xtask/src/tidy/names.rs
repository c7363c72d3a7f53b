//! Files and types are named by a noun that says what they are, and a module is `x.rs` with `x/`, never `x/mod.rs`.

use super::Finding;
use crate::syntax::tokens_without_tests;
use crate::tree::{Tree, is_test_file};

const EMPTY_WORDS: [&str; 7] = ["manager", "helper", "helpers", "util", "utils", "common", "misc"];
const TYPE_KEYWORDS: [&str; 4] = ["struct", "enum", "trait", "type"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        // Cargo takes `tests/x.rs` for a test of its own, so what tests share stays in `tests/x/mod.rs`.
        if path.ends_with("/mod.rs") && !is_test_file(path) {
            findings.push(Finding::file(path, "move it beside its folder: `x.rs` and `x/`, not `x/mod.rs`"));
        }
        let parts = path.trim_end_matches(".rs").split(['/', '_', '-']);
        findings.extend(parts.filter(|part| EMPTY_WORDS.contains(part)).map(|part| {
            Finding::file(path, format!("`{part}` says nothing: name the file by what it holds"))
        }));
        for pair in tokens_without_tests(text).windows(2) {
            let [keyword, name] = pair else { continue };
            let is_type = TYPE_KEYWORDS.contains(&keyword.text.as_str());
            if let Some(word) =
                words(&name.text).into_iter().find(|word| is_type && EMPTY_WORDS.contains(&word.as_str()))
            {
                findings.push(Finding::line(
                    path,
                    name.line,
                    format!("`{word}` in `{}` says nothing", name.text),
                ));
            }
        }
    }
    findings
}

/// The words of a name in camel case, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for c in name.chars() {
        match words.last_mut() {
            Some(word) if !c.is_uppercase() => word.push(c),
            _ => words.push(c.to_lowercase().collect()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_found() {
        for (path, text, found) in [
            ("crates/a/src/util.rs", "", 1),
            ("crates/a/tests/common/mod.rs", "", 1),
            ("crates/a/src/lock_manager.rs", "", 1),
            ("crates/a/src/lock/mod.rs", "", 1),
            ("crates/a/tests/lock/mod.rs", "", 0),
            ("crates/a/src/lock.rs", "struct LockManager;", 1),
            ("crates/a/src/lock.rs", "pub(crate) enum UtilKind {}", 1),
            ("crates/a/src/commons.rs", "struct Utility; fn manager() { manager }", 0),
        ] {
            assert_eq!(check(&Tree::of(&[(path, text)])).len(), found, "{path} {text}");
        }
    }
}
