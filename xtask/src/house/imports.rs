//! Which file of a crate uses which, and the circles among them.
//!
//! An edge is a path in code, or in a `use` that is not re-exported, that leads to an item of another file. A `mod` line
//! and a re-export only show what lies in a folder, so they are no edges; who uses a re-exported name depends on the
//! file that defines it. A callback is an edge through the types that its signature names.

use super::modules::{Crate, Module, ModulePath, Target};
use crate::syntax::{Token, tokens_of_item};
use std::collections::{BTreeMap, BTreeSet};

/// Uses of items of other files.
pub(crate) struct Imports {
    uses: BTreeMap<String, BTreeMap<String, Use>>,
}

/// The first use of one file by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) line: usize,
    /// Every name of the other file that is used.
    pub(crate) names: BTreeSet<String>,
}

impl Imports {
    pub(crate) fn of(krate: &Crate) -> Self {
        let mut imports = Self { uses: BTreeMap::new() };
        for (path, module) in &krate.modules {
            imports.add_module(krate, path, module);
        }
        imports
    }

    /// All edges as (file, used file, use).
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&str, &str, &Use)> {
        self.uses.iter().flat_map(|(from, uses)| uses.iter().map(|(to, it)| (from.as_str(), to.as_str(), it)))
    }

    /// The files that use each other, directly or not: circles of more than one, the largest first.
    pub(crate) fn circles(&self) -> Vec<Vec<&str>> {
        let files: BTreeSet<&str> = self.edges().flat_map(|(from, to, _)| [from, to]).collect();
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            files.iter().map(|file| (*file, self.reached_from(file))).collect();
        let mut circles: Vec<Vec<&str>> = Vec::new();
        let mut seen = BTreeSet::new();
        for file in files {
            let circle: Vec<&str> =
                reached[file].iter().copied().filter(|other| reached[other].contains(file)).collect();
            if circle.len() > 1 && seen.insert(circle.clone()) {
                circles.push(circle);
            }
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    fn reached_from<'a>(&'a self, file: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![file];
        while let Some(file) = open.pop() {
            let next = self.uses.get(file).into_iter().flat_map(BTreeMap::keys);
            open.extend(next.map(String::as_str).filter(|file| reached.insert(*file)));
        }
        reached
    }

    fn add_module(&mut self, krate: &Crate, path: &ModulePath, module: &Module) {
        for import in module.imports.iter().filter(|import| !import.is_re_export && import.name != "*") {
            let words: Vec<&str> = import.path.iter().map(String::as_str).collect();
            self.add(krate, (path, module), &words, import.line);
        }
        for item in &module.items {
            let tokens = tokens_of_item(item);
            for (line, words) in free_paths(&tokens) {
                self.add(krate, (path, module), &words, line);
            }
        }
    }

    /// Notes what a path leads to. A macro's items are not known; then the deepest module on the way is it.
    fn add(&mut self, krate: &Crate, (path, module): (&ModulePath, &Module), words: &[&str], line: usize) {
        let is_inside = ["crate", "super", "self"].contains(&words[0]);
        let shortest = if is_inside { 2 } else { words.len() };
        let mut lengths = (shortest.min(words.len())..=words.len()).rev();
        let Some((target, length)) =
            lengths.find_map(|length| Some((krate.resolve(path, &words[..length])?, length)))
        else {
            return;
        };
        let name = match &target {
            // A module by itself is named on the way to its items, which are found where they are used.
            Target::Module(_) if length == words.len() => return,
            Target::Module(_) => words[length].to_owned(),
            Target::Item(item) => item.name.clone(),
        };
        let Some(file) = krate.file_of(&target).filter(|file| *file != module.file) else { return };
        let uses = self.uses.entry(module.file.clone()).or_default();
        let found = uses.entry(file.to_owned()).or_insert_with(|| Use { line, names: BTreeSet::new() });
        found.line = found.line.min(line);
        found.names.insert(name);
    }
}

/// The paths of a row of tokens that can name an item: fields and methods after a dot cannot, nor do lifetimes.
fn free_paths(tokens: &[Token]) -> Vec<(usize, Vec<&str>)> {
    let is_sign =
        |at: Option<usize>, sign: &str| at.and_then(|at| tokens.get(at)).is_some_and(|it| it.text == sign);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1);
        let is_member = is_sign(before, ".") && !is_sign(at.checked_sub(2), ".");
        let (path, next) = crate::syntax::path_at(tokens, at);
        if !path.is_empty() && !is_member && !is_sign(before, "'") {
            found.push((tokens[at].line, path));
        }
        at = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn imports(files: &[(&str, &str)]) -> Imports {
        let paths: Vec<String> = files.iter().map(|(path, _)| format!("crates/a/src/{path}")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().zip(files).map(|(path, (_, text))| (path.as_str(), *text)).collect();
        Imports::of(&Crate::read(&Tree::of(&files), "crates/a").unwrap())
    }

    fn edges(imports: &Imports) -> Vec<String> {
        imports.edges().map(|(from, to, it)| format!("{from}:{} -> {to}", it.line)).collect()
    }

    #[test]
    fn a_facade_is_no_edge_and_hides_none() {
        let it = imports(&[
            ("main.rs", "mod a;\nmod b;\nfn main() { a::run(); }"),
            ("a.rs", "mod deep;\npub(crate) use deep::run;"),
            ("a/deep.rs", "use crate::b::{self, Gauge};\npub(crate) fn run() { b::poll(x.run) }"),
            ("b.rs", "pub(crate) struct Gauge;\npub(crate) fn poll() { let run = 1; m!(crate::a::run()) }"),
        ]);
        assert_eq!(edges(&it), ["a/deep.rs:1 -> b.rs", "b.rs:2 -> a/deep.rs", "main.rs:3 -> a/deep.rs"]);
        assert_eq!(it.circles(), [["a/deep.rs", "b.rs"]]);
    }

    #[test]
    fn globs_callbacks_and_items_of_macros_are_edges() {
        let it = imports(&[
            ("main.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "pub struct Session;"),
            ("b.rs", "use crate::a::*;\nfn f(call: impl FnOnce(&mut Session)) {}"),
            ("c.rs", "made!(Thing);"),
            ("d.rs", "fn f() -> crate::c::Thing { 0..crate::a::Session }"),
        ]);
        assert_eq!(edges(&it), ["b.rs:2 -> a.rs", "d.rs:1 -> a.rs", "d.rs:1 -> c.rs"]);
        assert!(it.circles().is_empty());
    }

    #[test]
    fn tests_are_no_edges() {
        let it = imports(&[
            ("main.rs", "mod a; mod b;"),
            ("a.rs", "#[cfg(test)] mod tests { use crate::b::B; }\n#[cfg(test)] fn f() -> crate::b::B {}"),
            ("b.rs", "pub struct B; impl B { #[cfg(test)] fn f(a: crate::a::A) {} }"),
        ]);
        assert_eq!(edges(&it), Vec::<String>::new());
    }
}
