//! How a crate is built, in numbers: `cargo xtask house [--crate NAME]`.
//!
//! Prints circles of imports, large types, structs of many bools, vague signatures and long files: first a table, then
//! the places. Tests are not counted. `tidy` keeps most of these numbers from growing (see xtask/ratchet.toml).

pub(crate) mod imports;
pub(crate) mod modules;
pub(crate) mod signatures;
pub(crate) mod types;

use crate::syntax::lines_before_tests;
use crate::tree::Tree;
use imports::{Imports, Use};
use modules::{Crate, ItemKey};
use signatures::{Place, Vague};
use std::fmt::Write;
use std::path::Path;
use types::Size;

pub(crate) const FIELDS_MAX: usize = 15;
pub(crate) const METHODS_MAX: usize = 60;
/// The limit of clippy's `struct_excessive_bools`.
pub(crate) const BOOLS_MAX: usize = 3;
const FILE_LINES_MAX: usize = 450;

const DEFAULT_CRATE: &str = "onecopy";

/// Everything that is measured of a crate.
pub(crate) struct House {
    pub(crate) imports: Imports,
    pub(crate) types: Vec<(ItemKey, Size)>,
    pub(crate) vague: Vague,
    /// Files and their lines without tests.
    files: Vec<(String, usize)>,
}

/// Measures a crate of the repository and prints the result.
pub(crate) fn run(repository: &Path, arguments: &[&str]) -> Result<String, String> {
    let (name, prints_edges) = match arguments {
        [] => (DEFAULT_CRATE, false),
        ["--edges"] => (DEFAULT_CRATE, true),
        ["--crate", name] => (*name, false),
        ["--crate", name, "--edges"] => (*name, true),
        _ => return Err("usage: cargo xtask house [--crate NAME] [--edges]".to_owned()),
    };
    let tree = Tree::read(repository)?;
    let folder = format!("crates/{name}");
    let house = House::of(&tree, &folder)?;
    let mut text = house.report(&folder);
    if prints_edges {
        text.push('\n');
        let edge = |(from, to, it): (&str, &str, &Use)| {
            let names: Vec<&str> = it.names.iter().map(String::as_str).collect();
            format!("{from}:{} -> {to}: {}", it.line, names.join(" "))
        };
        section(&mut text, "edges", house.imports.edges().map(edge));
    }
    Ok(text)
}

impl House {
    pub(crate) fn of(tree: &Tree, folder: &str) -> Result<Self, String> {
        let krate = Crate::read(tree, folder)?;
        let lines = |file: &str| {
            let text = tree.text(&format!("{}{file}", krate.source)).unwrap_or_default();
            (file.to_owned(), lines_before_tests(text))
        };
        let files = krate.files().into_iter().map(lines).collect();
        Ok(Self {
            imports: Imports::of(&krate),
            types: types::sizes(&krate).into_iter().collect(),
            vague: signatures::vague(&krate),
            files,
        })
    }

    fn report(&self, folder: &str) -> String {
        let circles = self.imports.circles();
        let large = self.types_over(|size| {
            size.fields.saturating_sub(FIELDS_MAX) + size.methods.saturating_sub(METHODS_MAX)
        });
        let bools = self.types_over(|size| size.bools.saturating_sub(BOOLS_MAX));
        let mut files: Vec<&(String, usize)> =
            self.files.iter().filter(|(_, lines)| *lines > FILE_LINES_MAX).collect();
        files.sort_by_key(|(_, lines)| std::cmp::Reverse(*lines));

        let in_circles: usize = circles.iter().map(Vec::len).sum();
        let largest = |it: Option<&(&ItemKey, &Size)>, number: fn(&Size) -> usize| {
            it.map_or_else(String::new, |(key, size)| format!("{}: {}", key.name, number(size)))
        };
        let by_fields = self.types_over(|size| size.fields.saturating_sub(FIELDS_MAX));
        let by_methods = self.types_over(|size| size.methods.saturating_sub(METHODS_MAX));
        let rows = [
            ("circles of imports, of 2 files or more", circles.len(), format!("{in_circles} files in them")),
            ("files in the largest circle", circles.first().map_or(0, Vec::len), String::new()),
            ("types of more than 15 fields", by_fields.len(), largest(by_fields.first(), |size| size.fields)),
            (
                "types of more than 60 methods",
                by_methods.len(),
                largest(by_methods.first(), |size| size.methods),
            ),
            ("structs of more than 3 bools", bools.len(), largest(bools.first(), |size| size.bools)),
            ("functions with a tuple as parameter", self.vague.tuples.len(), String::new()),
            ("signatures with Result<_, String>", self.vague.string_errors.len(), String::new()),
            (
                "files of more than 450 lines",
                files.len(),
                files.first().map_or_else(String::new, |(file, lines)| format!("{file}: {lines}")),
            ),
        ];
        let mut text = format!("{folder}: {} files without tests\n\n", self.files.len());
        for (name, number, remark) in rows {
            writeln!(text, "{}", format!("{name:<40} {number:>5}   {remark}").trim_end()).expect(INFALLIBLE);
        }
        let circle =
            |(n, files): (usize, &Vec<&str>)| format!("{}. {}: {}", n + 1, files.len(), files.join(" "));
        section(&mut text, "circles of imports", circles.iter().enumerate().map(circle));
        let sized = |(key, size): &(&ItemKey, &Size)| {
            let Size { fields, methods, files, .. } = size;
            format!("{}: {fields} fields, {methods} methods in {} files", place_of(key, size), files.len())
        };
        section(&mut text, "types of more than 15 fields or 60 methods", large.iter().map(sized));
        let bools_of = |(key, size): &(&ItemKey, &Size)| {
            format!("{}: {} bools of {} fields", place_of(key, size), size.bools, size.fields)
        };
        section(&mut text, "structs of more than 3 bools", bools.iter().map(bools_of));
        section(&mut text, "functions with a tuple as parameter", self.vague.tuples.iter().map(place));
        section(&mut text, "signatures with Result<_, String>", self.vague.string_errors.iter().map(place));
        let long = files.iter().map(|(file, lines)| format!("{file}: {lines}"));
        section(&mut text, "files of more than 450 lines", long);
        text.trim_end().to_owned()
    }

    /// The types of which a number is not 0, the largest first.
    fn types_over(&self, number: impl Fn(&Size) -> usize) -> Vec<(&ItemKey, &Size)> {
        let mut found: Vec<_> =
            self.types.iter().map(|(key, size)| (key, size)).filter(|(_, size)| number(size) > 0).collect();
        found.sort_by_key(|(_, size)| std::cmp::Reverse(number(size)));
        found
    }
}

const INFALLIBLE: &str = "writing to a string cannot fail";

fn section(text: &mut String, name: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.map(|line| format!("  {line}\n")).collect();
    if !lines.is_empty() {
        write!(text, "\n{name}\n{}", lines.concat()).expect(INFALLIBLE);
    }
}

fn place(place: &Place) -> String {
    format!("{}:{} {}", place.file, place.line, place.name)
}

fn place_of(key: &ItemKey, size: &Size) -> String {
    format!("{}:{} {}", size.file, size.line, key.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_numbers_first_and_places_after() {
        let fields: Vec<String> = (0..16).map(|n| format!("f{n}: bool")).collect();
        let fields = fields.join(", ");
        let tree = Tree::of(&[
            ("crates/a/src/main.rs", "mod b; mod c;"),
            ("crates/a/src/b.rs", &format!("pub struct Large {{ {fields} }}\nfn f(c: super::c::C) {{}}")),
            ("crates/a/src/c.rs", "pub struct C(crate::b::Large);"),
        ]);
        let report = House::of(&tree, "crates/a").unwrap().report("crates/a");
        let (table, lists) = report.split_once("\ncircles of imports\n").unwrap();
        assert!(table.contains("types of more than 15 fields                 1   Large: 16"), "{table}");
        assert!(table.contains("files in the largest circle                  2"), "{table}");
        assert!(lists.starts_with("  1. 2: b.rs c.rs\n"), "{lists}");
        assert!(lists.contains("b.rs:1 Large: 16 bools of 16 fields"), "{lists}");
        assert!(House::of(&tree, "crates/z").is_err());
    }
}
