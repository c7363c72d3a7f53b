//! Files and functions stay small, and what is too large already may only shrink.
//!
//! A file counts up to its `#[cfg(test)] mod`; a function counts the lines between its braces that are neither blank nor
//! a comment. What is over the limit must stand in `xtask/ratchet.toml` with its present size: a larger one fails, and
//! so does a smaller one until the number is lowered (`cargo xtask tidy --update`), so the number always tells the truth.

use super::Finding;
use crate::syntax;
use crate::tree::{Tree, is_test_file};
use std::collections::BTreeMap;
use std::fmt::Write;
use syn::spanned::Spanned;
use syn::{Block, ImplItem, Item, Signature, TraitItem};
use toml::{Table, Value};

/// Where the sizes of what is too large are written down.
pub(super) const RATCHET: &str = "xtask/ratchet.toml";

const FILE_LINES_MAX: usize = 500;
const TEST_FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

const RATCHET_HEAD: &str =
    "# Files and functions over the limit, with their present size. The numbers may only fall:
# `cargo xtask tidy --update` lowers them.
";

/// Sizes over the limit, by path or by `path::function`.
type Sizes = BTreeMap<String, usize>;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let (files, functions) = match ratchet(tree) {
        Ok(ratchet) => ratchet,
        Err(error) => return vec![Finding::file(RATCHET, error)],
    };
    let mut findings = compare(&large_files(tree), &files);
    findings.extend(compare(&large_functions(tree), &functions));
    findings
}

/// The ratchet with every number that can be lowered lowered; nothing if there is none.
pub(super) fn lowered(tree: &Tree) -> Result<Option<String>, String> {
    let (files, functions) = ratchet(tree)?;
    let lower = |listed: Sizes, present: &Sizes| -> Sizes {
        listed
            .into_iter()
            .filter_map(|(key, size)| Some((size.min(*present.get(&key)?), key)))
            .map(|(s, k)| (k, s))
            .collect()
    };
    let files = lower(files, &large_files(tree));
    let functions = lower(functions, &large_functions(tree));
    let mut text = RATCHET_HEAD.to_owned();
    for (section, sizes) in [("files", files), ("functions", functions)] {
        write!(text, "\n[{section}]\n").expect("writing to a string cannot fail");
        for (key, size) in sizes {
            writeln!(text, "\"{key}\" = {size}").expect("writing to a string cannot fail");
        }
    }
    Ok((tree.text(RATCHET) != Some(&text)).then_some(text))
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

fn ratchet(tree: &Tree) -> Result<(Sizes, Sizes), String> {
    let Some(text) = tree.text(RATCHET) else { return Ok((Sizes::new(), Sizes::new())) };
    let table: Table = text.parse().map_err(|e: toml::de::Error| e.message().to_owned())?;
    let section = |name: &str| -> Result<Sizes, String> {
        let Some(entries) = table.get(name).and_then(Value::as_table) else { return Ok(Sizes::new()) };
        let size = |(key, value): (&String, &Value)| {
            let size = value.as_integer().and_then(|size| usize::try_from(size).ok());
            size.map(|size| (key.clone(), size)).ok_or_else(|| format!("{key} has no size"))
        };
        entries.iter().map(size).collect()
    };
    Ok((section("files")?, section("functions")?))
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
            findings(&[("a.rs", &function(size)), (RATCHET, &ratchet)])
        };
        assert!(with(80, 80).is_empty());
        assert!(with(81, 80)[0].contains("grew from 80 to 81"));
        assert!(with(79, 80)[0].contains("shrank to 79"));
        assert!(with(70, 80)[0].contains("within the limit"));
    }

    #[test]
    fn an_update_lowers_and_never_raises() {
        let ratchet = "[files]\n\"gone.rs\" = 600\n[functions]\n\"a.rs::long\" = 80\n\"b.rs::long\" = 80\n";
        let tree = Tree::of(&[("a.rs", &function(75)), ("b.rs", &function(90)), (RATCHET, ratchet)]);
        let text = lowered(&tree).unwrap().unwrap();
        assert!(
            text.contains("\"a.rs::long\" = 75")
                && text.contains("\"b.rs::long\" = 80")
                && !text.contains("gone")
        );
        let tree =
            Tree::of(&[("a.rs", &function(75)), (RATCHET, &text.replace("\"b.rs::long\" = 80\n", ""))]);
        assert!(lowered(&tree).unwrap().is_none());
    }
}
