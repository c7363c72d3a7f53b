//! How large the types of a crate are: fields, bool fields and methods.
//!
//! A method of `T` is every function in an `impl` of `T`, in whichever file, and every other function that takes
//! `&mut T`: moving methods out as free functions or into traits makes no smaller type.

use super::modules::{Crate, ItemKey, Module, ModulePath, Target};
use crate::syntax::is_for_tests;
use std::collections::{BTreeMap, BTreeSet};
use syn::{Field, FnArg, ImplItem, Item, Signature, TraitItem, Type};

/// What is counted of one type.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Size {
    /// Where it is defined, if the crate defines it.
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) fields: usize,
    pub(crate) bools: usize,
    pub(crate) methods: usize,
    /// The files with its methods.
    pub(crate) files: BTreeSet<String>,
}

/// The types that a crate defines, with their sizes.
pub(crate) fn sizes(krate: &Crate) -> BTreeMap<ItemKey, Size> {
    let mut sizes = BTreeMap::new();
    for (path, module) in &krate.modules {
        for item in &module.items {
            if let Some((name, size)) = defined_type(item, module) {
                sizes.insert(ItemKey { module: path.clone(), name }, size);
            }
        }
    }
    for (path, module) in &krate.modules {
        for item in &module.items {
            count_methods(krate, (path, module), item, &mut sizes);
        }
    }
    sizes
}

fn defined_type(item: &Item, module: &Module) -> Option<(String, Size)> {
    let (ident, fields): (_, Vec<&Field>) = match item {
        Item::Struct(item) => (&item.ident, item.fields.iter().collect()),
        Item::Enum(item) => (&item.ident, Vec::new()),
        Item::Trait(item) => (&item.ident, Vec::new()),
        _ => return None,
    };
    let fields: Vec<&Field> = fields.into_iter().filter(|field| !is_for_tests(&field.attrs)).collect();
    let bools = fields.iter().filter(|field| is_named(&field.ty, "bool")).count();
    let line = ident.span().start().line;
    let size = Size { file: module.file.clone(), line, fields: fields.len(), bools, ..Size::default() };
    Some((ident.to_string(), size))
}

fn count_methods(
    krate: &Crate,
    (path, module): (&ModulePath, &Module),
    item: &Item,
    sizes: &mut BTreeMap<ItemKey, Size>,
) {
    let resolve = |ty: &Type| match krate.resolve(path, &type_path(ty)?)? {
        Target::Item(key) => Some(key),
        Target::Module(_) => None,
    };
    let mut count = |owner: Option<&ItemKey>, signature: &Signature| {
        let taken = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(input) => resolve(referenced_mutably(&input.ty)?),
            FnArg::Receiver(_) => None,
        });
        let owners: BTreeSet<ItemKey> = owner.cloned().into_iter().chain(taken).collect();
        for owner in owners {
            if let Some(size) = sizes.get_mut(&owner) {
                size.methods += 1;
                size.files.insert(module.file.clone());
            }
        }
    };
    match item {
        Item::Fn(function) => count(None, &function.sig),
        Item::Impl(block) => {
            let owner = resolve(&block.self_ty);
            for member in &block.items {
                if let ImplItem::Fn(function) = member
                    && !is_for_tests(&function.attrs)
                {
                    count(owner.as_ref(), &function.sig);
                }
            }
        }
        Item::Trait(block) => {
            for member in &block.items {
                if let TraitItem::Fn(function) = member {
                    count(None, &function.sig);
                }
            }
        }
        _ => {}
    }
}

/// `T` of `&mut T`.
fn referenced_mutably(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Reference(reference) if reference.mutability.is_some() => Some(&reference.elem),
        Type::Paren(inner) => referenced_mutably(&inner.elem),
        _ => None,
    }
}

/// The path of a type by itself or behind references.
fn type_path(ty: &Type) -> Option<Vec<String>> {
    match ty {
        Type::Path(path) if path.qself.is_none() => {
            Some(path.path.segments.iter().map(|segment| segment.ident.to_string()).collect())
        }
        Type::Reference(reference) => type_path(&reference.elem),
        Type::Paren(inner) => type_path(&inner.elem),
        Type::Group(inner) => type_path(&inner.elem),
        _ => None,
    }
}

fn is_named(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn methods_count_wherever_they_stand() {
        let tree = Tree::of(&[
            ("crates/a/src/main.rs", "mod session; mod b; mod c;"),
            (
                "crates/a/src/session.rs",
                "pub struct Session<S> { a: u8, b: bool, c: bool, #[cfg(test)] d: bool, e: S }
                 impl<S> Session<S> { fn one(&mut self) {} #[cfg(test)] fn t() {} }",
            ),
            (
                "crates/a/src/b.rs",
                "use crate::session::Session as It;
                 impl<S> It<S> { fn two(&self) {} fn three(self, other: &mut It<S>) {} }
                 impl Drop for It<u8> { fn drop(&mut self) {} }
                 fn four(it: &mut It<u8>) {} fn reads(it: &It<u8>) {}",
            ),
            (
                "crates/a/src/c.rs",
                "use super::session; struct Session;
                 trait Extend { fn five(&self, session: &mut session::Session<u8>); }
                 impl Session { fn another(&self, it: &mut crate::session::Session<u8>) {} }",
            ),
        ]);
        let sizes = sizes(&Crate::read(&tree, "crates/a").unwrap());
        let by_file = |file: &str| sizes.iter().find(|(_, it)| it.file == file).unwrap().1.clone();
        let session = by_file("session.rs");
        assert_eq!((session.fields, session.bools, session.methods), (4, 2, 7));
        assert_eq!(session.files.len(), 3);
        assert_eq!(by_file("c.rs").methods, 0, "a trait has none of its own");
        let other = ItemKey { module: vec!["c".to_owned()], name: "Session".to_owned() };
        assert_eq!(sizes[&other].methods, 1);
    }
}
