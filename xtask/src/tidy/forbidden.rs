//! Words for unfinished work, such as the macro `todo`, are forbidden.

use super::Finding;
use crate::tree::Tree;

const UNFINISHED: [&str; 6] = ["todo!", "unimplemented!", "dbg!", "FIXME", "TODO", "XXX"];

/// The rules themselves name the words that they forbid.
pub(super) const RULES: &str = "xtask/src/tidy/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files().filter(|(path, _)| !path.starts_with(RULES)) {
        for (line, text) in text.lines().enumerate() {
            let words = UNFINISHED.iter().filter(|word| has_word(text, word));
            findings.extend(words.map(|word| Finding::line(path, line + 1, format!("`{word}`: finish it"))));
        }
    }
    findings
}

/// Whether the word stands in the text and is not the end of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let begins = |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let ends = |at: usize| !text[at..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| begins(at) && ends(at + word.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_work_is_found() {
        for (text, found) in [
            ("fn a() { todo!() }", 1),
            ("fn a() { unimplemented!(\"x\") }", 1),
            ("// FIXME later", 1),
            ("let a = dbg!(b);", 1),
            ("fn a() { my_todo!() }", 0),
            ("const XXXL: u8 = 1;", 0),
        ] {
            assert_eq!(check(&Tree::of(&[("crates/a/src/a.rs", text)])).len(), found, "{text}");
        }
    }
}
