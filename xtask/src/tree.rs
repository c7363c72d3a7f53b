//! The texts of the repository, read once.
//!
//! Paths are relative to the repository and use `/`. `target` and hidden folders are skipped, except `.ci` and `.cargo`.
//! Only files of the kinds in `KINDS` are read; of others the path is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The endings of the files that rules look at, and the names of those without an ending.
const KINDS: [&str; 10] =
    [".rs", ".toml", ".md", ".sql", ".sh", ".py", "Makefile", "LICENSE", "run", "setup"];
const HIDDEN_FOLDERS_READ: [&str; 2] = [".ci", ".cargo"];
/// `spec` is a workspace of its own, to which the rules do not apply.
const FOLDERS_SKIPPED: [&str; 2] = ["target", "spec"];

/// A read-only picture of the repository.
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    /// The files of other kinds, by path.
    others: BTreeSet<String>,
}

impl Tree {
    /// Reads every file that a rule could look at.
    pub(crate) fn read(repository: &Path) -> Result<Self, String> {
        let (mut texts, mut others) = (BTreeMap::new(), BTreeSet::new());
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let entries =
                std::fs::read_dir(repository.join(&folder)).map_err(|e| format!("{folder}: {e}"))?;
            for entry in entries {
                let entry = entry.map_err(|e| format!("{folder}: {e}"))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                let kind = entry.file_type().map_err(|e| format!("{path}: {e}"))?;
                if kind.is_dir() && is_read(&name) {
                    folders.push(path);
                } else if kind.is_file() && KINDS.iter().any(|ending| name.ends_with(ending)) {
                    // A file that went away between the listing and the reading is no finding.
                    if let Ok(text) = std::fs::read_to_string(entry.path()) {
                        texts.insert(path, text);
                    }
                } else if kind.is_file() {
                    others.insert(path);
                }
            }
        }
        Ok(Self { texts, others })
    }

    /// A tree from given texts, for tests.
    #[cfg(test)]
    pub(crate) fn of(texts: &[(&str, &str)]) -> Self {
        let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Self { texts, others: BTreeSet::new() }
    }

    /// All files as (path, text), in order of path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The Rust files among them.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| has_ending(path, "rs"))
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Whether there is a file of this path, of any kind.
    pub(crate) fn has_file(&self, path: &str) -> bool {
        self.texts.contains_key(path) || self.others.contains(path)
    }

    /// Puts a text in the place of another.
    pub(crate) fn replace(&mut self, path: &str, text: String) {
        self.texts.insert(path.to_owned(), text);
    }

    /// The names of the folders at the top that hold a file.
    pub(crate) fn top_folders(&self) -> BTreeSet<&str> {
        self.texts.keys().filter_map(|path| path.split_once('/')).map(|(top, _)| top).collect()
    }

    /// Every member of the workspace: its folder and its parsed manifest, or why it does not parse.
    pub(crate) fn members(&self) -> Vec<(&str, Result<toml::Table, String>)> {
        self.files()
            .filter_map(|(path, text)| Some((path.strip_suffix("/Cargo.toml")?, text)))
            .map(|(folder, text)| (folder, text.parse().map_err(|e: toml::de::Error| e.message().to_owned())))
            .collect()
    }
}

/// Whether a path ends in `.ending`.
pub(crate) fn has_ending(path: &str, ending: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == ending)
}

/// Whether a Rust file holds nothing but tests: an integration test, or a `tests` module in a file of its own.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs" || part == "benches")
}

fn is_read(folder: &str) -> bool {
    let hidden = folder.starts_with('.') && !HIDDEN_FOLDERS_READ.contains(&folder);
    !hidden && !FOLDERS_SKIPPED.contains(&folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_on_disk_is_read_without_what_is_ignored() {
        let root = std::env::temp_dir().join(format!("tidy-tree-{}", std::process::id()));
        for (folder, file) in
            [("crates/a/src", "lib.rs"), ("target/debug", "x.rs"), (".git", "y.rs"), (".ci", "run")]
        {
            std::fs::create_dir_all(root.join(folder)).unwrap();
            std::fs::write(root.join(folder).join(file), "x").unwrap();
        }
        let tree = Tree::read(&root).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            tree.files().map(|(path, _)| path).collect::<Vec<_>>(),
            [".ci/run", "crates/a/src/lib.rs"]
        );
        assert_eq!(tree.top_folders(), BTreeSet::from([".ci", "crates"]));
    }
}
