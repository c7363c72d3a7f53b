//! The ratchet `xtask/ratchet.toml`: present sizes of code that exceeds a limit. They may only fall.
//!
//! `cargo xtask tidy --update` lowers them. Each rule that uses the file has a section. The rule of sizes wants exact
//! numbers. The other rules accept less than the number until the next `--update`, so that branches do not collide.

use crate::tree::Tree;
use std::collections::BTreeMap;
use std::fmt::Write;
use toml::{Table, Value};

/// The file.
pub(super) const FILE: &str = "xtask/ratchet.toml";

/// Sizes by name, for example by `path::function`.
pub(super) type Sizes = BTreeMap<String, usize>;

const HEAD: &str =
    "# What is over a limit of `cargo xtask tidy`, with its present size. The numbers may only fall:
# `cargo xtask tidy --update` lowers them.
";

/// A part of the file, and how its present sizes are measured.
pub(super) struct Section {
    pub(super) name: &'static str,
    /// Comment lines above it.
    pub(super) remark: &'static str,
    pub(super) present: fn(&Tree) -> Sizes,
}

/// One section as it is written down; empty if it is not there.
pub(super) fn listed(tree: &Tree, section: &str) -> Result<Sizes, String> {
    let Some(text) = tree.text(FILE) else { return Ok(Sizes::new()) };
    let table: Table = text.parse().map_err(|e: toml::de::Error| e.message().to_owned())?;
    let Some(entries) = table.get(section).and_then(Value::as_table) else { return Ok(Sizes::new()) };
    let size = |(key, value): (&String, &Value)| {
        let size = value.as_integer().and_then(|size| usize::try_from(size).ok());
        size.map(|size| (key.clone(), size)).ok_or_else(|| format!("{key} has no size"))
    };
    entries.iter().map(size).collect()
}

/// The text of the file with all numbers lowered to the present sizes; nothing if that changes nothing.
pub(super) fn lowered<'a>(
    tree: &Tree,
    sections: impl IntoIterator<Item = &'a Section>,
) -> Result<Option<String>, String> {
    let mut text = HEAD.to_owned();
    for Section { name, remark, present } in sections {
        let listed = listed(tree, name)?;
        let present = if listed.is_empty() { Sizes::new() } else { present(tree) };
        write!(text, "\n{remark}[{name}]\n").expect(INFALLIBLE);
        for (key, size) in listed {
            if let Some(now) = present.get(&key) {
                writeln!(text, "{} = {}", quoted(&key), size.min(*now)).expect(INFALLIBLE);
            }
        }
    }
    Ok((tree.text(FILE) != Some(&text)).then_some(text))
}

const INFALLIBLE: &str = "writing to a string cannot fail";

/// A key as TOML wants it.
fn quoted(key: &str) -> String {
    let is_bare = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_bare { key.to_owned() } else { format!("\"{key}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(tree: &Tree) -> Sizes {
        tree.rust_files().map(|(path, text)| (path.to_owned(), text.len())).collect()
    }

    const SECTION: Section = Section { name: "length", remark: "# Said why.\n", present };

    #[test]
    fn an_update_lowers_and_never_raises() {
        let files = [("a.rs", "12345"), ("b.rs", "1234567890"), ("new.rs", "1")];
        let ratchet = "[length]\n\"a.rs\" = 8\n\"b.rs\" = 8\n\"gone.rs\" = 8\n";
        let tree = Tree::of(&[files.as_slice(), &[(FILE, ratchet)]].concat());
        let text = lowered(&tree, &[SECTION]).unwrap().unwrap();
        assert!(text.ends_with("\n# Said why.\n[length]\n\"a.rs\" = 5\n\"b.rs\" = 8\n"), "{text}");
        let tree = Tree::of(&[files.as_slice(), &[(FILE, &text)]].concat());
        assert!(lowered(&tree, &[SECTION]).unwrap().is_none());
    }

    #[test]
    fn a_broken_file_is_an_error() {
        let listed = |ratchet: &str| listed(&Tree::of(&[(FILE, ratchet)]), "files");
        assert!(listed("[files]\na = \"x\"\n").unwrap_err().contains("no size"));
        assert!(listed("[files").is_err());
        assert_eq!(listed("[others]\na = 1\n").unwrap(), Sizes::new());
    }
}
