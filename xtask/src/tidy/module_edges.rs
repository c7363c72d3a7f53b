//! The modules that each top-level module of `cluster` and `onecopy` may use.
//!
//! In `cluster`, a table lists for each module the modules that it may use. An edge is any path outside tests that begins
//! with `crate::`, or with enough `super::` to leave a top-level module. Code of the crate names the module of an item, not
//! a re-export of `lib.rs`, which would hide the edge.
//!
//! In `onecopy` the top-level modules are folders in an order, and each may use the folders before it. The ratchet counts
//! the present uses against the order, by pair of folders.

use super::Finding;
use super::ratchet::{self, Section};
use crate::house::imports::Imports;
use crate::house::modules::Crate;
use crate::syntax::{paths, tokens_without_tests};
use crate::tree::{Tree, is_test_file};
use std::collections::{BTreeMap, BTreeSet};

const SOURCE: &str = "crates/cluster/src/";

/// A top-level module of `cluster`, and those that it may use. Every row names only rows above it.
const EDGES: [(&str, &[&str]); 11] = [
    ("time", &[]),
    ("ids", &[]),
    ("placement", &["time", "ids"]),
    ("claims", &["ids"]),
    ("record", &["time", "ids", "placement", "claims"]),
    ("event", &["time", "ids", "claims", "placement", "record"]),
    ("nodes", &["time", "ids", "event"]),
    ("parts", &["time", "ids", "placement", "record", "claims", "event"]),
    ("protocols", &["time", "ids", "placement", "record", "claims", "event", "parts"]),
    ("service", &["time", "ids", "placement", "record", "claims", "event", "parts", "protocols"]),
    ("refresh", &["ids", "placement", "record", "event"]),
];

const ORDERED: &str = "crates/onecopy";

/// The top-level modules of `onecopy`, the lowest first: each may use those before it, and `main.rs` all.
const ORDER: &[&str] = &[
    "calendar",
    "logging",
    "terminal",
    "security",
    "backend",
    "error",
    "config",
    "capture",
    "result_cache",
    "local",
    "database",
    "coordinator",
    "replica",
    "membership",
    "elastic",
    "client",
    "classify",
    "pool",
    "writeset",
    "relay",
    "link",
    "perform",
    "transaction",
    "connect",
    "drive",
    "propagate",
    "commit",
    "place",
    "execute",
    "session",
    "rows",
    "shipping",
    "c_jdbc",
    "accept",
    "cli",
    "node",
];

/// How many uses of files go against the order, by pair of folders: `from -> to`.
pub(super) const SECTION: Section = Section {
    name: "onecopy_upward",
    remark: "# How many uses go against the order of folders in xtask/src/tidy/module_edges.rs: a file of the first uses one of the
# second. A commit that only splits or moves files may carry a number to another pair; their sum may not grow.\n",
    present: |tree| upward(tree).into_iter().map(|(pair, uses)| (pair, uses.len())).collect(),
};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = check_order(tree);
    for (path, text) in tree.rust_files() {
        let Some(inside) = path.strip_prefix(SOURCE) else { continue };
        if inside != "lib.rs" && !is_test_file(inside) {
            check_file(path, inside, text, &mut findings);
        }
    }
    findings
}

/// Folders of `onecopy` without a place in the order, and more uses against the order than the ratchet allows.
fn check_order(tree: &Tree) -> Vec<Finding> {
    let listed = match ratchet::listed(tree, SECTION.name) {
        Ok(listed) => listed,
        Err(error) => return vec![Finding::file(ratchet::FILE, error)],
    };
    let tops: BTreeSet<&str> = tree
        .rust_files()
        .filter_map(|(path, _)| path.strip_prefix(ORDERED)?.strip_prefix("/src/"))
        .filter(|inside| *inside != "main.rs")
        .map(top)
        .collect();
    let unknown = tops.into_iter().filter(|top| !ORDER.contains(top));
    let mut findings: Vec<Finding> = unknown
        .map(|top| {
            Finding::file(&format!("{ORDERED}/src/{top}"), "is new: add it to xtask's order of folders")
        })
        .collect();
    for (pair, uses) in upward(tree) {
        let limit = listed.get(&pair).copied().unwrap_or_default();
        if uses.len() > limit {
            let text = format!(
                "{pair} is against the order of folders; {} uses, {limit} in the ratchet:",
                uses.len()
            );
            findings.push(Finding::file(ORDERED, [vec![text], uses].concat().join("\n    ")));
        }
    }
    findings
}

/// The uses of files of `onecopy` that go against the order, by pair of folders.
fn upward(tree: &Tree) -> BTreeMap<String, Vec<String>> {
    // A file that does not parse is another rule's finding.
    let Ok(krate) = Crate::read(tree, ORDERED) else { return BTreeMap::new() };
    let height = |file: &str| ORDER.iter().position(|known| *known == top(file)).unwrap_or(ORDER.len());
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (from, to, it) in Imports::of(&krate).edges() {
        if height(from) < height(to) {
            let names: Vec<&str> = it.names.iter().map(String::as_str).collect();
            let text = format!("{from}:{} uses {to}: {}", it.line, names.join(" "));
            found.entry(format!("{} -> {}", top(from), top(to))).or_default().push(text);
        }
    }
    found
}

/// The folder, or the file without its ending, at the top.
fn top(inside: &str) -> &str {
    inside.split_once('/').map_or_else(|| inside.trim_end_matches(".rs"), |(top, _)| top)
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

    /// A small `onecopy`, and what the rule says of it with a ratchet.
    fn findings_in_order(place: &str, ratchet: &str) -> Vec<String> {
        let tree = Tree::of(&[
            (
                "crates/onecopy/src/main.rs",
                "mod config; mod place; mod session; fn main() { session::run() }",
            ),
            ("crates/onecopy/src/config.rs", "pub(crate) struct Settings;"),
            ("crates/onecopy/src/place.rs", "mod home;"),
            ("crates/onecopy/src/place/home.rs", place),
            ("crates/onecopy/src/session.rs", "mod simple;\npub(crate) use simple::run;"),
            ("crates/onecopy/src/session/simple.rs", "pub(crate) fn run() { crate::place::home::choose() }"),
            (ratchet::FILE, ratchet),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn uses_against_the_order_are_found_through_re_exports() {
        assert!(findings_in_order("use crate::config::Settings;", "").is_empty());
        let found = findings_in_order("use crate::config::Settings;\nfn f() { crate::session::run() }", "");
        assert_eq!(
            found,
            [
                "crates/onecopy: place -> session is against the order of folders; 1 uses, 0 in the ratchet:\n    \
              place/home.rs:2 uses session/simple.rs: run"
            ]
        );
    }

    #[test]
    fn the_ratchet_knows_uses_that_may_stay() {
        let upward = "use crate::session::run;";
        let ratchet = "[onecopy_upward]\n\"place -> session\" = 1\n";
        assert!(findings_in_order(upward, ratchet).is_empty());
        let lowered = ratchet::lowered(
            &Tree::of(&[("crates/onecopy/src/main.rs", "fn main() {}"), (ratchet::FILE, ratchet)]),
            &[SECTION],
        );
        assert!(!lowered.unwrap().unwrap().contains("place"));
    }

    #[test]
    fn a_new_folder_of_onecopy_needs_a_place_in_the_order() {
        let tree = Tree::of(&[("crates/onecopy/src/attic/box.rs", "")]);
        assert!(check(&tree)[0].text.contains("add it"));
    }
}
