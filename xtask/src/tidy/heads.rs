//! Every Rust file begins with a `//!` head that says its purpose.

use super::Finding;
use crate::tree::Tree;

/// Shorter than this, a head says nothing.
const HEAD_CHARACTERS_MIN: usize = 12;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let headless = |(path, text): (&str, &str)| {
        let head = text.lines().next().and_then(|line| line.strip_prefix("//! ")).unwrap_or_default();
        (head.len() < HEAD_CHARACTERS_MIN).then(|| Finding::line(path, 1, "must begin with a `//!` head"))
    };
    tree.rust_files().filter_map(headless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_head_is_found() {
        for (text, found) in [
            ("use a;", 1),
            ("", 1),
            ("//! Stub.", 1),
            ("// An essay, but no head.", 1),
            ("//! A head that speaks.", 0),
        ] {
            assert_eq!(check(&Tree::of(&[("a.rs", text)])).len(), found, "{text}");
        }
    }
}
