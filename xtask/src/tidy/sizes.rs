//! Files and functions stay below a limit of lines.
//!
//! A file counts up to its `#[cfg(test)] mod`; a function counts the lines between its braces that are neither blank nor
//! a comment. A file or function over the limit must be in the ratchet with its exact size. When it has shrunk, lower the
//! number with `cargo xtask tidy --update`.

use super::Finding;
use super::ratchet::{self, Section, Sizes};
use crate::syntax;
use crate::tree::{Tree, is_test_file};
use syn::spanned::Spanned;
use syn::{Block, ImplItem, Item, Signature, TraitItem};

/// Files by path, and functions by `path::function`.
pub(super) const SECTIONS: [Section; 2] = [
    Section { name: "files", remark: "", present: large_files },
    Section { name: "functions", remark: "", present: large_functions },
];

const FILE_LINES_MAX: usize = 500;
const TEST_FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for section in SECTIONS {
        match ratchet::listed(tree, section.name) {
            Ok(listed) => findings.extend(compare(&(section.present)(tree), &listed)),
            Err(error) => findings.push(Finding::file(ratchet::FILE, error)),
        }
    }
    findings
}

fn compare(present: &Sizes, listed: &Sizes) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (key, size) in present {
        match listed.get(key) {
            None => findings.push(Finding::file(key, format!("{size} lines are too many: split it"))),
            Some(limit) if size > limit => {
                findings.push(Finding::file(key, format!("grew from {limit} to {size} lines: split it")));
            }
            Some(limit) if size < limit => {
                findings
                    .push(Finding::file(key, format!("shrank to {size} lines: cargo xtask tidy --update")));
            }
            Some(_) => {}
        }
    }
    let gone = listed.keys().filter(|key| !present.contains_key(*key));
    findings.extend(gone.map(|key| Finding::file(key, "is within the limit now: cargo xtask tidy --update")));
    findings
}

fn large_files(tree: &Tree) -> Sizes {
    let large = |(path, text): (&str, &str)| {
        let limit = if is_test_file(path) { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
        let size = syntax::lines_before_tests(text);
        (size > limit).then(|| (path.to_owned(), size))
    };
    tree.rust_files().filter_map(large).collect()
}

fn large_functions(tree: &Tree) -> Sizes {
    let mut sizes = Sizes::new();
    for (path, text) in tree.rust_files() {
        let Ok(file) = syn::parse_file(text) else { continue };
        let lines: Vec<&str> = text.lines().collect();
        for_each_function(&file.items, &mut |signature, block| {
            let (first, last) = (block.span().start().line, block.span().end().line);
            let body = &lines[first.min(last - 1)..last - 1];
            let code = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
            let size = body.iter().filter(code).count();
            if size > FUNCTION_LINES_MAX {
                let largest = sizes.entry(format!("{path}::{}", signature.ident)).or_default();
                *largest = size.max(*largest);
            }
        });
    }
    sizes
}

fn for_each_function(items: &[Item], visit: &mut impl FnMut(&Signature, &Block)) {
    for item in items {
        match item {
            Item::Fn(function) => visit(&function.sig, &function.block),
            Item::Mod(module) => {
                if let Some((_, items)) = &module.content {
                    for_each_function(items, visit);
                }
            }
            Item::Impl(block) => block.items.iter().for_each(|member| {
                if let ImplItem::Fn(function) = member {
                    visit(&function.sig, &function.block);
                }
            }),
            Item::Trait(block) => block.items.iter().for_each(|member| {
                if let TraitItem::Fn(function) = member
                    && let Some(body) = &function.default
                {
                    visit(&function.sig, body);
                }
            }),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}\n    // said why\n}}\n", "    a();\n".repeat(lines))
    }

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn within_the_limits_passes() {
        let file =
            format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "//! a\n".repeat(500), "//! b\n".repeat(400));
        assert!(findings(&[("a.rs", &function(70)), ("b.rs", &file)]).is_empty());
    }

    #[test]
    fn too_large_is_found() {
        let in_impl = format!("impl A {{ {} }}", function(71));
        let found =
            findings(&[("a.rs", &function(71)), ("b.rs", &"//! a\n".repeat(501)), ("c.rs", &in_impl)]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().any(|f| f.starts_with("b.rs: 501 lines")));
        assert!(found.iter().any(|f| f.starts_with("a.rs::long: 71 lines")));
    }

    #[test]
    fn the_ratchet_holds_both_ways() {
        let with = |size: usize, listed: usize| {
            let ratchet = format!("[functions]\n\"a.rs::long\" = {listed}\n");
            findings(&[("a.rs", &function(size)), (ratchet::FILE, &ratchet)])
        };
        assert!(with(80, 80).is_empty());
        assert!(with(81, 80)[0].contains("grew from 80 to 81"));
        assert!(with(79, 80)[0].contains("shrank to 79"));
        assert!(with(70, 80)[0].contains("within the limit"));
    }
}
