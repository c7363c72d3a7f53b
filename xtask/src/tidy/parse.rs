//! Every Rust file must parse: the other rules skip a file that does not.

use super::Finding;
use crate::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let broken = |(path, text): (&str, &str)| {
        let error = syn::parse_file(text).err()?;
        Some(Finding::line(path, error.span().start().line, format!("does not parse: {error}")))
    };
    tree.rust_files().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_parse_is_found() {
        let tree = Tree::of(&[("a.rs", "fn a() {}\nfn {")]);
        assert_eq!(check(&tree)[0].line, Some(2));
    }
}
