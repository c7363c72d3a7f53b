//! docs/reference/compatibility.md lists every statement that Onecopy refuses, in the words of the error.
//!
//! `sql` keeps one list of refusals, each with the refused statement and the alternative.

use super::Finding;
use crate::tree::Tree;
use proc_macro2::{TokenStream, TokenTree};
use syn::Item;

const LIST: &str = "crates/sql/src/refusal.rs";
const MACRO: &str = "refusals";
const DOCUMENT: &str = "docs/reference/compatibility.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(Ok(file)) = tree.text(LIST).map(syn::parse_file) else { return Vec::new() };
    let Some(document) = tree.text(DOCUMENT) else { return vec![Finding::file(DOCUMENT, "is missing")] };
    let lists = file.items.iter().filter_map(|item| match item {
        Item::Macro(list) if list.mac.path.is_ident(MACRO) => Some(list.mac.tokens.clone()),
        _ => None,
    });
    let texts: Vec<String> = lists.flat_map(texts).collect();
    if texts.is_empty() {
        return vec![Finding::file(LIST, format!("has no `{MACRO}!` with the list of refusals"))];
    }
    let missing = texts.into_iter().filter(|text| !document.contains(text));
    missing.map(|text| Finding::file(DOCUMENT, format!("does not say of a refusal: {text}"))).collect()
}

/// The string constants among the tokens, doc comments apart, as they are written.
fn texts(tokens: TokenStream) -> Vec<String> {
    let literal = |token| match token {
        TokenTree::Literal(literal) => syn::parse_str::<syn::LitStr>(&literal.to_string()).ok(),
        _ => None,
    };
    tokens.into_iter().filter_map(literal).map(|text| text.value()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_is_not_documented_is_found() {
        let list =
            (LIST, "refusals! {\n /// Why.\n LOAD = \"LOAD\", \"Use \\\\copy.\"; X = \"x\", \"zz\"; }");
        let findings = check(&Tree::of(&[list, (DOCUMENT, "| LOAD | Use \\copy. |\n| x |")]));
        assert_eq!(findings, [Finding::file(DOCUMENT, "does not say of a refusal: zz")]);
        assert_eq!(check(&Tree::of(&[list])).len(), 1);
        assert_eq!(check(&Tree::of(&[(LIST, "const A: u8 = 1;"), (DOCUMENT, "")])).len(), 1);
    }
}
