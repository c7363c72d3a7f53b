//! The module tree of one crate, and what a path in it leads to.
//!
//! A path is resolved as the compiler does it, as far as text allows: child modules, items, imports with their new
//! names, globs and re-exports are followed to the file that defines the item. Not followed: names that macros make,
//! and paths into other crates. Tests are left out.

use crate::syntax::{attributes, is_for_tests};
use crate::tree::{Tree, is_test_file};
use std::collections::{BTreeMap, BTreeSet};
use syn::{Item, UseTree, Visibility};

/// Re-exports of re-exports are followed this far, so that a circle of them ends.
const RE_EXPORTS_MAX: usize = 16;

/// The names from the root of the crate to a module; empty for the root.
pub(crate) type ModulePath = Vec<String>;

/// A crate's files and modules, without tests.
pub(crate) struct Crate {
    pub(crate) modules: BTreeMap<ModulePath, Module>,
    /// The folder of its files, with a `/` at the end.
    pub(crate) source: String,
}

/// One module: a file, or an inline module of one.
#[derive(Default)]
pub(crate) struct Module {
    /// Its file, relative to the folder of the crate's files.
    pub(crate) file: String,
    pub(crate) items: Vec<Item>,
    pub(crate) imports: Vec<Import>,
    defined: BTreeSet<String>,
}

/// One name of a `use` declaration.
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    /// The name that it has here; `*` for a glob.
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Whether other modules see it, too.
    pub(crate) is_re_export: bool,
}

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Module(ModulePath),
    Item(ItemKey),
}

/// An item by the module that defines it and its name there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ItemKey {
    pub(crate) module: ModulePath,
    pub(crate) name: String,
}

impl Crate {
    /// Reads the files below `folder`, for example `crates/onecopy`.
    pub(crate) fn read(tree: &Tree, folder: &str) -> Result<Self, String> {
        let source = format!("{folder}/src/");
        let mut found = Self { modules: BTreeMap::new(), source: source.clone() };
        let mut for_tests = Vec::new();
        let root = if tree.text(&format!("{source}lib.rs")).is_some() { "lib.rs" } else { "main.rs" };
        for (path, text) in tree.rust_files() {
            let Some(inside) = path.strip_prefix(&source) else { continue };
            if is_test_file(inside) {
                continue;
            }
            let file = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
            let module = if inside == root { ModulePath::new() } else { module_path(inside) };
            found.add(module, inside, file.items, &mut for_tests);
        }
        if found.modules.is_empty() {
            return Err(format!("{source} has no Rust files"));
        }
        found.modules.retain(|path, _| !for_tests.iter().any(|test| path.starts_with(test)));
        Ok(found)
    }

    /// Its files, each once, in order.
    pub(crate) fn files(&self) -> BTreeSet<&str> {
        self.modules.values().map(|module| module.file.as_str()).collect()
    }

    /// What a path leads to that stands in the module `from`; nothing for paths into other crates.
    pub(crate) fn resolve<W: AsRef<str>>(&self, from: &[String], path: &[W]) -> Option<Target> {
        let words: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
        self.resolve_words(from, &words, RE_EXPORTS_MAX)
    }

    /// The file of the item or module that a target is.
    pub(crate) fn file_of(&self, target: &Target) -> Option<&str> {
        let (Target::Module(module) | Target::Item(ItemKey { module, .. })) = target;
        self.modules.get(module).map(|module| module.file.as_str())
    }

    fn add(&mut self, path: ModulePath, file: &str, items: Vec<Item>, for_tests: &mut Vec<ModulePath>) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items {
            let is_for_tests = is_for_tests(attributes(&item));
            match item {
                Item::Mod(inner) => {
                    let inner_path = [path.as_slice(), &[inner.ident.to_string()]].concat();
                    match inner.content {
                        _ if is_for_tests => for_tests.push(inner_path),
                        Some((_, items)) => self.add(inner_path, file, items, for_tests),
                        None => {}
                    }
                }
                _ if is_for_tests => {}
                Item::Use(item) => {
                    let is_re_export = !matches!(item.vis, Visibility::Inherited);
                    add_imports(&item.tree, &mut Vec::new(), is_re_export, &mut module.imports);
                }
                item => {
                    module.defined.extend(defined_name(&item));
                    module.items.push(item);
                }
            }
        }
        self.modules.insert(path, module);
    }

    fn resolve_words(&self, from: &[String], path: &[&str], depth: usize) -> Option<Target> {
        let ups = path.iter().take_while(|word| **word == "super").count();
        match path {
            ["crate", rest @ ..] => self.walk(&[], rest, depth),
            ["self", rest @ ..] if !rest.is_empty() => self.walk(from, rest, depth),
            _ if ups > from.len() => None,
            _ => self.walk(&from[..from.len() - ups], &path[ups..], depth),
        }
    }

    /// Follows a path downwards from a module.
    fn walk(&self, base: &[String], path: &[&str], depth: usize) -> Option<Target> {
        let Some((name, rest)) = path.split_first() else { return Some(Target::Module(base.to_vec())) };
        let module = self.modules.get(base)?;
        let item = || Target::Item(ItemKey { module: base.to_vec(), name: (*name).to_owned() });
        let is_defined = module.defined.contains(*name);
        if is_defined && rest.is_empty() {
            return Some(item());
        }
        let child = [base, &[(*name).to_owned()]].concat();
        if self.modules.contains_key(&child) {
            return self.walk(&child, rest, depth);
        }
        if is_defined {
            return Some(item());
        }
        let depth = depth.checked_sub(1)?;
        let import = module.imports.iter().find(|import| import.name == *name);
        if let Some(found) = import.and_then(|import| self.resolve_import(base, import, depth)) {
            return match found {
                Target::Module(module) => self.walk(&module, rest, depth),
                item @ Target::Item(_) => Some(item),
            };
        }
        let globs = module.imports.iter().filter(|import| import.name == "*");
        let mut globs = globs.filter_map(|glob| self.resolve_import(base, glob, depth));
        globs.find_map(|target| match target {
            Target::Module(module) if module != base => self.walk(&module, path, depth),
            _ => None,
        })
    }

    fn resolve_import(&self, from: &[String], import: &Import, depth: usize) -> Option<Target> {
        let words: Vec<&str> = import.path.iter().map(String::as_str).collect();
        self.resolve_words(from, &words, depth)
    }
}

/// `protocols/onecopy.rs` and `protocols/onecopy/mod.rs` are the module `protocols::onecopy`.
fn module_path(inside: &str) -> ModulePath {
    let mut module: ModulePath = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.len() > 1 && module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}

fn defined_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn add_imports(tree: &UseTree, before: &mut Vec<String>, is_re_export: bool, into: &mut Vec<Import>) {
    let mut add = |before: &[String], last: Option<&proc_macro2::Ident>, name: String, line: usize| {
        let last = last.map(ToString::to_string).filter(|last| last != "self");
        let path = before.iter().cloned().chain(last).collect();
        into.push(Import { path, name, line, is_re_export });
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            add_imports(&path.tree, before, is_re_export, into);
            before.pop();
        }
        UseTree::Name(name) => {
            let ident = &name.ident;
            // `use a::{self}` brings the name `a`.
            let brought = if ident == "self" { before.last().cloned() } else { None };
            let brought = brought.unwrap_or_else(|| ident.to_string());
            add(before, Some(ident), brought, ident.span().start().line);
        }
        UseTree::Rename(rename) => {
            let line = rename.ident.span().start().line;
            add(before, Some(&rename.ident), rename.rename.to_string(), line);
        }
        UseTree::Glob(glob) => add(before, None, "*".to_owned(), glob.star_token.spans[0].start().line),
        UseTree::Group(group) => {
            for tree in &group.items {
                add_imports(tree, before, is_re_export, into);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn krate(files: &[(&str, &str)]) -> Crate {
        let paths: Vec<String> = files.iter().map(|(path, _)| format!("crates/a/src/{path}")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().zip(files).map(|(path, (_, text))| (path.as_str(), *text)).collect();
        Crate::read(&Tree::of(&files), "crates/a").unwrap()
    }

    /// The file that `path` leads to from the module `from`.
    fn file(krate: &Crate, from: &str, path: &str) -> Option<String> {
        let from: Vec<String> = from.split("::").filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let path: Vec<&str> = path.split("::").collect();
        let target = krate.resolve(&from, &path)?;
        krate.file_of(&target).map(str::to_owned)
    }

    #[test]
    fn paths_lead_through_re_exports_to_the_defining_file() {
        let it = krate(&[
            ("main.rs", "mod a; mod b;"),
            ("a.rs", "mod deep; pub(crate) use deep::{Shown, inner::{self, Hidden as Named}};"),
            ("a/deep.rs", "pub struct Shown; pub mod inner { pub struct Hidden; }"),
            ("b/mod.rs", "mod c; pub use c::*; use crate::a; fn f() {}"),
            ("b/c.rs", "pub enum Kind { One }"),
        ]);
        assert_eq!(file(&it, "b", "crate::a::Shown").unwrap(), "a/deep.rs");
        assert_eq!(file(&it, "b", "a::Named::new").unwrap(), "a/deep.rs");
        assert_eq!(file(&it, "b", "a::inner::Hidden").unwrap(), "a/deep.rs");
        assert_eq!(file(&it, "a::deep::inner", "super::Shown").unwrap(), "a/deep.rs");
        assert_eq!(file(&it, "a", "super::b::Kind::One").unwrap(), "b/c.rs");
        assert_eq!(file(&it, "b::c", "super::f").unwrap(), "b/mod.rs");
        assert_eq!(file(&it, "", "a").unwrap(), "a.rs");
        assert_eq!(file(&it, "b", "std::mem::take"), None);
        assert_eq!(file(&it, "b", "super::super::x"), None);
    }

    #[test]
    fn tests_are_no_modules_and_circles_of_re_exports_end() {
        let it = krate(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod bench;"),
            ("a.rs", "pub use crate::b::*; #[cfg(test)] mod tests { struct T; }"),
            ("b.rs", "pub use crate::a::*;"),
            ("bench.rs", "struct B;"),
            ("a/tests.rs", "struct T;"),
        ]);
        assert_eq!(it.files().into_iter().collect::<Vec<_>>(), ["a.rs", "b.rs", "lib.rs"]);
        assert_eq!(file(&it, "", "a::Nothing"), None);
    }
}
