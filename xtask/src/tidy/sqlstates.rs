//! Every SQLSTATE that Onecopy gives is documented.
//!
//! `wire` keeps them in one list; docs/reference/errors.md says of each what it means and what to do.

use super::Finding;
use crate::tree::Tree;

const LIST: &str = "crates/wire/src/sqlstate.rs";
const DOCUMENT: &str = "docs/reference/errors.md";
/// The code of success, which is no error.
const SUCCESS: &str = "00000";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(list) = tree.text(LIST) else { return Vec::new() };
    let Some(document) = tree.text(DOCUMENT) else { return vec![Finding::file(DOCUMENT, "is missing")] };
    let codes = list.lines().filter_map(|line| line.split_once(": &str = \"")?.1.strip_suffix("\";"));
    let missing = codes.filter(|code| *code != SUCCESS && !document.contains(&format!("`{code}`")));
    missing.map(|code| Finding::file(DOCUMENT, format!("does not explain the SQLSTATE {code}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_is_not_explained_is_found() {
        let list = (
            LIST,
            "pub const A: &str = \"00000\";\npub const B: &str = \"40001\";\npub const C: &str = \"0A000\";\n",
        );
        let findings = check(&Tree::of(&[list, (DOCUMENT, "| `40001` | run it again |\n")]));
        assert_eq!(findings, [Finding::file(DOCUMENT, "does not explain the SQLSTATE 0A000")]);
        assert_eq!(check(&Tree::of(&[list])).len(), 1);
    }
}
