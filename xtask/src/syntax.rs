//! Rust files as the rules read them: parsed, without tests, as a flat row of words.
//!
//! Files are parsed by `syn`, so comments, strings and layout cannot mislead a rule. Macro bodies are kept as tokens and
//! are searched like other code.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Attribute, Item, UseTree};

/// A word or sign of the source, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// The tokens of a file without its tests, with `use` declarations spelled out: one full path for each name.
/// Doc comments are left out. Empty for a file that does not parse, which is another rule's finding.
pub(crate) fn tokens_without_tests(text: &str) -> Vec<Token> {
    let Ok(file) = syn::parse_file(text) else { return Vec::new() };
    let mut tokens = Vec::new();
    push_items(&file.items, &mut tokens);
    tokens
}

/// The tokens of one item, without its tests.
pub(crate) fn tokens_of_item(item: &Item) -> Vec<Token> {
    let mut tokens = Vec::new();
    push_item(item, &mut tokens);
    tokens
}

/// All paths `a::b::c` in a row of tokens, with the line of their first word. `->`, generics and the like end a path.
pub(crate) fn paths(tokens: &[Token]) -> Vec<(usize, Vec<&str>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let (path, next) = path_at(tokens, at);
        if !path.is_empty() {
            found.push((tokens[at].line, path));
        }
        at = next;
    }
    found
}

/// The path that begins at a token, empty if none does, and the place of the token after it.
pub(crate) fn path_at(tokens: &[Token], mut at: usize) -> (Vec<&str>, usize) {
    if !is_word(&tokens[at].text) {
        return (Vec::new(), at + 1);
    }
    let mut path = vec![tokens[at].text.as_str()];
    at += 1;
    while let [a, b, word, ..] = &tokens[at..]
        && a.text == ":"
        && b.text == ":"
        && is_word(&word.text)
    {
        path.push(word.text.as_str());
        at += 3;
    }
    (path, at)
}

/// Whether an item or field is compiled for tests only.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.meta.to_token_stream().to_string();
        text == "test" || text == "cfg (test)"
    })
}

/// The attributes of an item, whatever its kind.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The length of a file up to its tests, or all of it when there are none.
pub(crate) fn lines_before_tests(text: &str) -> usize {
    let all = text.lines().count();
    let Ok(file) = syn::parse_file(text) else { return all };
    let tests = file.items.iter().find(|item| matches!(item, Item::Mod(_)) && is_for_tests(attributes(item)));
    tests.map_or(all, |item| item.span().start().line - 1)
}

fn push_items(items: &[Item], into: &mut Vec<Token>) {
    for item in items {
        push_item(item, into);
    }
}

fn push_item(item: &Item, into: &mut Vec<Token>) {
    match item {
        item if is_for_tests(attributes(item)) => {}
        Item::Use(item) => push_use(&item.tree, &mut Vec::new(), into),
        Item::Mod(item) if item.content.is_some() => {
            let (_, items) = item.content.as_ref().expect("the guard has just seen it");
            push_items(items, into);
        }
        Item::Impl(item) => {
            push_stream(item.self_ty.to_token_stream(), into);
            if let Some((path, _)) = &item.trait_ {
                push_stream(path.to_token_stream(), into);
            }
            push_stream(item.generics.to_token_stream(), into);
            let members = item.items.iter().filter(|member| match member {
                syn::ImplItem::Fn(function) => !is_for_tests(&function.attrs),
                _ => true,
            });
            members.for_each(|member| push_stream(member.to_token_stream(), into));
        }
        other => push_stream(other.to_token_stream(), into),
    }
}

fn push_use(tree: &UseTree, before: &mut Vec<Token>, into: &mut Vec<Token>) {
    let word =
        |ident: &proc_macro2::Ident| Token { text: ident.to_string(), line: ident.span().start().line };
    let mut emit = |before: &[Token], last: Token| {
        let end = Token { text: ";".to_owned(), line: last.line };
        for (n, token) in before.iter().chain([&last]).enumerate() {
            if n > 0 {
                let colon = Token { text: ":".to_owned(), line: token.line };
                into.extend([colon.clone(), colon]);
            }
            into.push(token.clone());
        }
        into.push(end);
    };
    match tree {
        UseTree::Path(path) => {
            before.push(word(&path.ident));
            push_use(&path.tree, before, into);
            before.pop();
        }
        UseTree::Name(name) => emit(before, word(&name.ident)),
        UseTree::Rename(rename) => emit(before, word(&rename.ident)),
        UseTree::Glob(glob) => {
            let line = glob.star_token.spans[0].start().line;
            emit(before, Token { text: "*".to_owned(), line });
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| push_use(tree, before, into)),
    }
}

fn push_stream(stream: TokenStream, into: &mut Vec<Token>) {
    stream.into_iter().for_each(|token| push_token(token, into));
}

fn push_token(token: TokenTree, into: &mut Vec<Token>) {
    let line = token.span().start().line;
    match token {
        TokenTree::Group(group) => {
            let bracket = |text: &str| Token { text: text.to_owned(), line };
            into.push(bracket("("));
            push_stream(group.stream(), into);
            into.push(bracket(")"));
        }
        TokenTree::Ident(ident) => into.push(Token { text: ident.to_string(), line }),
        TokenTree::Punct(sign) => into.push(Token { text: sign.to_string(), line }),
        TokenTree::Literal(_) => into.push(Token { text: "literal\"".to_owned(), line }),
    }
}

fn is_word(text: &str) -> bool {
    text == "*" || text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths_of(text: &str) -> Vec<String> {
        let tokens = tokens_without_tests(text);
        paths(&tokens).into_iter().map(|(_, path)| path.join("::")).collect()
    }

    #[test]
    fn use_groups_are_spelled_out() {
        assert_eq!(
            paths_of("use std::{fs::File, net::*, io as i};"),
            ["std::fs::File", "std::net::*", "std::io"]
        );
    }

    #[test]
    fn paths_inside_macros_and_bodies_are_seen_and_tests_are_not() {
        let text = "fn a() { p!(std::env::var(\"X\")); } #[cfg(test)] mod tests { use std::fs; }
                    impl A { #[cfg(test)] fn t() { std::net::x() } fn u() { std::thread::spawn(f) } }";
        let found = paths_of(text);
        assert!(found.contains(&"std::env::var".to_owned()));
        assert!(found.contains(&"std::thread::spawn".to_owned()));
        assert!(!found.iter().any(|path| path.contains("fs") || path.contains("net")));
    }

    #[test]
    fn strings_and_comments_are_not_paths() {
        let found = paths_of("//! std::fs\n/// std::fs\nfn a() { b(\"std::fs\") } // std::fs");
        assert!(!found.iter().any(|path| path.starts_with("std")), "{found:?}");
    }
}
