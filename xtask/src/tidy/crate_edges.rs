//! The crates of the workspace that each crate may depend on.
//!
//! The table is the architecture: `wire, sql <- cluster <- sim | onecopy`. A crate without a row is a finding, so a new
//! crate gets its place in the order when it is made. Sockets and clocks come with tokio, so a pure crate must not depend
//! on it.

use super::Finding;
use crate::tree::Tree;
use toml::{Table, Value};

/// A crate, and the crates of this workspace that it may depend on.
const EDGES: [(&str, &[&str]); 17] = [
    ("chart", &[]),
    ("wire", &[]),
    ("sql", &[]),
    ("cluster", &["wire", "sql"]),
    ("owner_only", &[]),
    ("etcdserver", &[]),
    ("commitlog", &["cluster", "etcdserver", "owner_only"]),
    ("peers", &["cluster"]),
    ("pgserver", &["cluster", "owner_only"]),
    ("sim", &["cluster", "sql", "wire"]),
    ("study", &["chart", "cluster", "sim"]),
    ("planner", &["sql"]),
    (
        "onecopy",
        &["cluster", "commitlog", "etcdserver", "owner_only", "peers", "pgserver", "planner", "sql", "wire"],
    ),
    ("testbed", &["etcdserver", "pgserver"]),
    ("conformance", &["cluster", "sim", "sql", "testbed"]),
    ("bench", &["chart", "sim", "sql", "testbed", "wire"]),
    ("xtask", &[]),
];

/// The crates that may depend on tokio and what is built on it.
const ASYNCHRONOUS: [&str; 7] =
    ["commitlog", "peers", "pgserver", "onecopy", "testbed", "conformance", "bench"];

/// Crates that a pure crate must not depend on, except in its tests.
const IMPURE: [&str; 7] = ["getrandom", "libc", "mio", "nix", "rand", "rustix", "socket2"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, manifest) in tree.members() {
        let path = format!("{folder}/Cargo.toml");
        match manifest {
            Ok(manifest) => check_member(folder, &path, &manifest, &mut findings),
            Err(error) => findings.push(Finding::file(&path, error)),
        }
    }
    findings
}

/// The names of the crates a manifest depends on, with the section that says so.
pub(super) fn dependencies(manifest: &Table) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut tables = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(Value::as_table) {
        tables.extend(targets.values().filter_map(Value::as_table));
    }
    for table in tables {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            if let Some(names) = table.get(section).and_then(Value::as_table) {
                found.extend(names.keys().map(|name| (section, name.as_str())));
            }
        }
    }
    found
}

fn check_member(folder: &str, path: &str, manifest: &Table, findings: &mut Vec<Finding>) {
    let name =
        manifest.get("package").and_then(|p| p.get("name")).and_then(Value::as_str).unwrap_or_default();
    if folder.rsplit('/').next() != Some(name) {
        findings.push(Finding::file(path, format!("the crate `{name}` must lie in a folder of its name")));
    }
    let Some((_, allowed)) = EDGES.iter().find(|(known, _)| *known == name) else {
        findings.push(Finding::file(
            path,
            format!("unknown crate `{name}`: add a row to xtask's table of crate edges"),
        ));
        return;
    };
    for (section, dependency) in dependencies(manifest) {
        let ours = EDGES.iter().any(|(known, _)| *known == dependency);
        if ours && !allowed.contains(&dependency) {
            findings.push(Finding::file(path, format!("`{name}` must not depend on `{dependency}`")));
        }
        if dependency.starts_with("tokio") && !ASYNCHRONOUS.contains(&name) {
            findings.push(Finding::file(
                path,
                format!("`{name}` must not depend on `{dependency}`: no async here"),
            ));
        }
        let pure = super::purity::PURE.contains(&name);
        if pure && section != "dev-dependencies" && IMPURE.contains(&dependency) {
            findings
                .push(Finding::file(path, format!("`{name}` is pure and must not depend on `{dependency}`")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(folder: &str, dependencies: &str) -> Vec<String> {
        let name = folder.rsplit('/').next().unwrap();
        let manifest = format!("[package]\nname = \"{name}\"\n{dependencies}");
        let tree = Tree::of(&[(&format!("{folder}/Cargo.toml"), &manifest)]);
        check(&tree).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn the_edges_of_the_table_pass() {
        assert!(
            findings("crates/cluster", "[dependencies]\nwire.workspace = true\nsql.workspace = true")
                .is_empty()
        );
        assert!(findings("crates/onecopy", "[dependencies]\ntokio = \"1\"").is_empty());
        assert!(findings("crates/sql", "[dev-dependencies]\nrand = \"1\"").is_empty());
    }

    #[test]
    fn an_edge_against_the_stream_is_found() {
        assert_eq!(
            findings("crates/wire", "[dependencies]\nsql.workspace = true"),
            ["`wire` must not depend on `sql`"]
        );
        assert_eq!(findings("crates/sql", "[dev-dependencies]\ncluster = \"1\"").len(), 1);
        assert_eq!(findings("crates/sql", "[target.'cfg(unix)'.dependencies]\nwire = \"1\"").len(), 1);
    }

    #[test]
    fn async_outside_the_binary_and_system_crates_in_pure_ones_are_found() {
        assert_eq!(findings("crates/cluster", "[dev-dependencies]\ntokio = \"1\"").len(), 1);
        assert_eq!(findings("xtask", "[dependencies]\ntokio-postgres = \"1\"").len(), 1);
        assert_eq!(findings("crates/cluster", "[dependencies]\nrustix = \"1\"").len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_or_in_another_folder_is_found() {
        assert!(findings("crates/attic", "")[0].contains("add a row"));
        let tree = Tree::of(&[("crates/pipes/Cargo.toml", "[package]\nname = \"wire\"")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn the_table_has_no_cycle() {
        // Every row names only rows above it.
        for (row, (name, allowed)) in EDGES.iter().enumerate() {
            for other in *allowed {
                let other_row = EDGES.iter().position(|(known, _)| known == other);
                assert!(other_row.is_some_and(|other_row| other_row < row), "{name} -> {other}");
            }
        }
    }
}
