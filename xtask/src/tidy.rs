//! The project's rules that the compiler does not check.
//!
//! Each rule is one file with one function from a `Tree` (the texts of the repository, read once) to findings. Rules never
//! touch the disk, so a test gives them a bad tree and expects the finding. Code that does not meet a limit yet is listed
//! in a ratchet with its present size, which may only fall.
//!
//! `cargo test -p xtask` runs all rules, too.

mod architecture;
mod crate_edges;
mod forbidden;
mod heads;
mod links;
mod module_edges;
mod names;
mod own_statements;
mod parse;
mod purity;
mod ratchet;
mod refusals;
mod sizes;
mod sqlstates;
mod structure;
mod text;

use crate::tree::Tree;
use std::fmt::{self, Display, Formatter};
use std::path::Path;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: Option<usize>,
    text: String,
}

impl Finding {
    fn file(path: &str, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, text: text.into() }
    }

    fn line(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: Some(line), text: text.into() }
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.text),
            None => write!(f, "{}: {}", self.path, self.text),
        }
    }
}

/// Checks the repository; the error lists every finding.
pub(crate) fn run(repository: &Path) -> Result<String, String> {
    let tree = Tree::read(repository)?;
    report(&tree, &check(&tree))
}

/// As `run`, but first lowers the ratchet to the sizes of today.
pub(crate) fn update(repository: &Path) -> Result<String, String> {
    let mut tree = Tree::read(repository)?;
    if let Some(lowered) = lowered(&tree)? {
        let file = repository.join(ratchet::FILE);
        std::fs::write(file, &lowered).map_err(|e| format!("{}: {e}", ratchet::FILE))?;
        tree.replace(ratchet::FILE, lowered);
    }
    report(&tree, &check(&tree))
}

fn lowered(tree: &Tree) -> Result<Option<String>, String> {
    let sections = sizes::SECTIONS.iter().chain([&structure::SECTION, &module_edges::SECTION]);
    ratchet::lowered(tree, sections)
}

fn check(tree: &Tree) -> Vec<Finding> {
    const RULES: [fn(&Tree) -> Vec<Finding>; 15] = [
        parse::check,
        crate_edges::check,
        module_edges::check,
        purity::check,
        sizes::check,
        structure::check,
        heads::check,
        forbidden::check,
        names::check,
        own_statements::check,
        text::check,
        refusals::check,
        sqlstates::check,
        architecture::check,
        links::check,
    ];
    RULES.iter().flat_map(|rule| rule(tree)).collect()
}

fn report(tree: &Tree, findings: &[Finding]) -> Result<String, String> {
    if findings.is_empty() {
        let hint = match lowered(tree)? {
            Some(_) => "; numbers have fallen: cargo xtask tidy --update",
            None => "",
        };
        return Ok(format!("tidy: {} files, nothing to object to{hint}", tree.files().count()));
    }
    let mut lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.push(format!("tidy: {} to mend", findings.len()));
    Err(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_is_tidy() {
        if let Err(findings) = super::run(crate::repository()) {
            panic!("{findings}");
        }
    }
}
