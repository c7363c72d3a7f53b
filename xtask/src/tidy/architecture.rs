//! ARCHITECTURE.md names every crate, every folder at the top, and every dependency, in backquotes.
//!
//! A dependency needs a line in a table, which gives the reason for it. The file stays short enough to be read.

use super::Finding;
use super::crate_edges::dependencies;
use crate::tree::Tree;
use std::collections::BTreeSet;
use toml::{Table, Value};

const FILE: &str = "ARCHITECTURE.md";
const LINES_MAX: usize = 250;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(FILE) else { return vec![Finding::file(FILE, "is missing")] };
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        findings.push(Finding::file(FILE, format!("{lines} lines are too many: at most {LINES_MAX}")));
    }
    let folders = tree.members().into_iter().map(|(folder, _)| folder).chain(tree.top_folders());
    for folder in folders.collect::<BTreeSet<_>>() {
        if !text.contains(&format!("`{folder}`")) && !text.contains(&format!("`{folder}/`")) {
            findings.push(Finding::file(FILE, format!("does not name the folder `{folder}`")));
        }
    }
    for dependency in foreign_dependencies(tree) {
        let row = |line: &str| line.starts_with('|') && line.contains(&format!("`{dependency}`"));
        if !text.lines().any(row) {
            findings
                .push(Finding::file(FILE, format!("has no line that says why we depend on `{dependency}`")));
        }
    }
    findings
}

/// The crates of other projects that a member or the workspace depends on.
fn foreign_dependencies(tree: &Tree) -> BTreeSet<String> {
    let members = tree.members();
    let ours: BTreeSet<&str> = members.iter().filter_map(|(folder, _)| folder.rsplit('/').next()).collect();
    let manifests = members.iter().filter_map(|(_, manifest)| manifest.as_ref().ok());
    let mut names: BTreeSet<String> =
        manifests.flat_map(|manifest| dependencies(manifest)).map(|(_, name)| name.to_owned()).collect();
    let root: Table = tree.text("Cargo.toml").and_then(|text| text.parse().ok()).unwrap_or_default();
    let shared = root.get("workspace").and_then(|w| w.get("dependencies")).and_then(Value::as_table);
    names.extend(shared.into_iter().flat_map(|table| table.keys().cloned()));
    names.retain(|name| !ours.contains(name.as_str()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"wire\"\n[dependencies]\nbytes = \"1\"\nsql = \"1\"";

    fn findings(architecture: &str) -> Vec<String> {
        let tree = Tree::of(&[
            (FILE, architecture),
            ("Cargo.toml", "[workspace.dependencies]\ntokio = \"1\""),
            ("crates/wire/Cargo.toml", MANIFEST),
            ("crates/sql/Cargo.toml", ""),
            ("docs/a.md", ""),
        ]);
        check(&tree).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_full_picture_passes() {
        let text = "`crates`, `crates/wire`, `crates/sql`, `docs/`\n| `bytes` | why |\n| `tokio` | why |\n";
        assert_eq!(findings(text), Vec::<String>::new());
    }

    #[test]
    fn what_it_forgets_is_found() {
        assert_eq!(
            findings("`crates` `crates/wire` `crates/sql` `docs`, `bytes` and\n| `tokio` |\n").len(),
            1
        );
        assert_eq!(findings("| `bytes` | `tokio` |\n").len(), 4);
        assert!(check(&Tree::of(&[]))[0].text.contains("missing"));
    }

    #[test]
    fn a_picture_too_long_is_found() {
        let long = "`crates`, `crates/wire`, `crates/sql`, `docs/`\n| `bytes` | `tokio` |\n".to_owned()
            + &"\n".repeat(250);
        assert_eq!(findings(&long).len(), 1);
    }
}
