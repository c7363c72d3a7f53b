//! Which module of `cluster` may know which.
//!
//! The heart of the product stays understandable only as long as its parts have a direction. Edges are read from every
//! path that begins with `crate::`, or with enough `super::` to leave a top-level module, outside of tests. Names that
//! `lib.rs` re-exports would hide an edge, so inside the crate the module is named.

use super::Finding;
use crate::syntax::{paths, tokens_without_tests};
use crate::tree::{Tree, is_test_file};

const SOURCE: &str = "crates/cluster/src/";

/// A top-level module of `cluster`, and those that it may use. Every row names only rows above it.
const EDGES: [(&str, &[&str]); 10] = [
    ("time", &[]),
    ("ids", &[]),
    ("placement", &["time", "ids"]),
    ("record", &["time", "ids"]),
    ("claims", &["ids"]),
    ("event", &["time", "ids", "claims", "placement", "record"]),
    ("parts", &["time", "ids", "placement", "record", "claims", "event"]),
    ("protocols", &["time", "ids", "placement", "record", "claims", "event", "parts"]),
    ("service", &["time", "ids", "placement", "record", "claims", "event", "parts", "protocols"]),
    ("refresh", &["ids", "record"]),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        let Some(inside) = path.strip_prefix(SOURCE) else { continue };
        if inside != "lib.rs" && !is_test_file(inside) {
            check_file(path, inside, text, &mut findings);
        }
    }
    findings
}

fn check_file(path: &str, inside: &str, text: &str, findings: &mut Vec<Finding>) {
    let module = module_path(inside);
    let Some((_, allowed)) = EDGES.iter().find(|(known, _)| *known == module[0]) else {
        let text = format!("unknown module `{}`: add a row to xtask's table of module edges", module[0]);
        findings.push(Finding::file(path, text));
        return;
    };
    let tokens = tokens_without_tests(text);
    for (line, used) in paths(&tokens) {
        let Some(target) = top_module_used(&module, &used) else { continue };
        if target == module[0] || allowed.contains(&target) {
            continue;
        }
        let text = if EDGES.iter().any(|(known, _)| *known == target) {
            format!("module `{}` must not use `{target}`", module[0])
        } else {
            format!("`crate::{target}` is no module of the table: name the module that it comes from")
        };
        findings.push(Finding::line(path, line, text));
    }
}

/// `protocols/onecopy.rs` is the module `protocols::onecopy`.
fn module_path(inside: &str) -> Vec<&str> {
    let mut module: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
    if module.len() > 1 && module.last() == Some(&"mod") {
        module.pop();
    }
    module
}

/// The top-level module that a path leads to, if it is one of this crate.
fn top_module_used<'a>(module: &[&str], used: &[&'a str]) -> Option<&'a str> {
    let ups = used.iter().take_while(|word| **word == "super").count();
    match used {
        ["crate", target, ..] => Some(target),
        _ if ups > 0 && ups == module.len() => used.get(ups).copied(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(file: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(&format!("{SOURCE}{file}"), text)]);
        check(&tree).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn edges_of_the_table_and_inner_ones_pass() {
        assert!(
            findings("protocols/onecopy.rs", "use crate::{ids::Version, parts::x::Y}; use super::Z;")
                .is_empty()
        );
        assert!(
            findings("ids.rs", "#[cfg(test)] mod tests { use crate::core::Core; use super::*; }").is_empty()
        );
        assert!(findings("ids/tests.rs", "use crate::core::Core;").is_empty());
        assert!(
            findings("record/encode.rs", "use super::Header; use super::super::ids::Version;").is_empty()
        );
    }

    #[test]
    fn edges_against_the_stream_are_found() {
        assert_eq!(findings("parts/index.rs", "use crate::{core::Core, ids::V};").len(), 1);
        assert_eq!(findings("ids.rs", "fn f() -> crate::event::Event { x() }").len(), 1);
        assert_eq!(
            findings("record/encode.rs", "use super::super::parts::X;"),
            ["module `record` must not use `parts`"]
        );
        assert_eq!(findings("parts.rs", "use super::core::Core;").len(), 1);
    }

    #[test]
    fn unknown_modules_and_hidden_edges_are_found() {
        assert!(findings("attic.rs", "")[0].contains("add a row"));
        assert!(findings("parts.rs", "use crate::Version;")[0].contains("name the module"));
    }

    #[test]
    fn the_table_has_no_cycle() {
        for (row, (name, allowed)) in EDGES.iter().enumerate() {
            for other in *allowed {
                let other_row = EDGES.iter().position(|(known, _)| known == other);
                assert!(other_row.is_some_and(|other_row| other_row < row), "{name} -> {other}");
            }
        }
    }
}
