//! Signatures that say too little: tuples as parameters, and errors that are only a text.

use super::modules::{Crate, ItemKey, Module, ModulePath, Target};
use crate::syntax::is_for_tests;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{FnArg, ImplItem, Item, Signature, TraitItem, Type};

/// A place in a file, with the name of the function there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) name: String,
}

/// The signatures of a crate that say too little.
#[derive(Debug, Default)]
pub(crate) struct Vague {
    /// Functions with a parameter that is a tuple.
    pub(crate) tuples: Vec<Place>,
    /// Functions, and aliases of types, with a `Result<_, String>`, also where an alias stands for the String.
    pub(crate) string_errors: Vec<Place>,
}

pub(crate) fn vague(krate: &Crate) -> Vague {
    let mut vague = Vague::default();
    for (path, module) in &krate.modules {
        let scope = Scope { krate, path, module };
        for item in &module.items {
            vague.add_item(&scope, item);
        }
    }
    vague.tuples.sort();
    vague.string_errors.sort();
    vague
}

/// Where a signature stands: names in it are resolved from there.
struct Scope<'a> {
    krate: &'a Crate,
    path: &'a ModulePath,
    module: &'a Module,
}

impl Scope<'_> {
    /// Whether an error type is a String, or several, under whatever name.
    fn is_text(&self, error: &[&str]) -> bool {
        match error {
            ["String"] => true,
            ["(", inner @ .., ")"] => {
                !inner.is_empty() && inner.split(|word| *word == ",").all(|it| self.is_text(it))
            }
            [name] => self.alias(name).is_some_and(|(scope, words)| {
                scope.is_text(&words.iter().map(String::as_str).collect::<Vec<_>>())
            }),
            _ => false,
        }
    }

    /// What an alias of this crate stands for, and where it is defined.
    fn alias(&self, name: &str) -> Option<(Scope<'_>, Vec<String>)> {
        let Target::Item(ItemKey { module, name }) = self.krate.resolve(self.path, &[name])? else {
            return None;
        };
        let (path, module) = self.krate.modules.get_key_value(&module)?;
        let alias = module.items.iter().find_map(|item| match item {
            Item::Type(alias) if alias.ident == name => Some(alias),
            _ => None,
        })?;
        let mut words = Vec::new();
        flatten(alias.ty.to_token_stream(), &mut words);
        Some((Scope { krate: self.krate, path, module }, words))
    }

    /// Whether a `Result` with a text as its error stands anywhere in a type.
    fn has_string_error(&self, stream: TokenStream) -> bool {
        let mut words = Vec::new();
        flatten(stream, &mut words);
        let starts = words.windows(2).enumerate().filter(|(_, pair)| pair[0] == "Result" && pair[1] == "<");
        starts.map(|(at, _)| last_argument(&words[at + 2..])).any(|error| self.is_text(&error))
    }
}

impl Vague {
    fn add_item(&mut self, scope: &Scope<'_>, item: &Item) {
        match item {
            Item::Fn(function) => self.add(scope, &function.sig),
            Item::Impl(block) => block.items.iter().for_each(|member| {
                if let ImplItem::Fn(function) = member
                    && !is_for_tests(&function.attrs)
                {
                    self.add(scope, &function.sig);
                }
            }),
            Item::Trait(block) => block.items.iter().for_each(|member| {
                if let TraitItem::Fn(function) = member {
                    self.add(scope, &function.sig);
                }
            }),
            Item::Type(alias) if scope.has_string_error(alias.ty.to_token_stream()) => {
                self.string_errors.push(place(scope.module, &alias.ident));
            }
            _ => {}
        }
    }

    fn add(&mut self, scope: &Scope<'_>, signature: &Signature) {
        let is_packed = |input: &FnArg| matches!(input, FnArg::Typed(input) if is_tuple(&input.ty));
        if signature.inputs.iter().any(is_packed) {
            self.tuples.push(place(scope.module, &signature.ident));
        }
        if scope.has_string_error(signature.to_token_stream()) {
            self.string_errors.push(place(scope.module, &signature.ident));
        }
    }
}

fn place(module: &Module, ident: &proc_macro2::Ident) -> Place {
    Place { file: module.file.clone(), line: ident.span().start().line, name: ident.to_string() }
}

fn is_tuple(ty: &Type) -> bool {
    match ty {
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Paren(inner) => is_tuple(&inner.elem),
        _ => false,
    }
}

/// The words of the last of several arguments in angle brackets, without the path before its name.
fn last_argument(words: &[String]) -> Vec<&str> {
    let mut last: Vec<&str> = Vec::new();
    let (mut depth, mut arguments) = (0, 1);
    for word in words {
        match word.as_str() {
            ">" if depth == 0 => break,
            "," if depth == 0 => {
                last.clear();
                arguments += 1;
                continue;
            }
            "<" | "(" => depth += 1,
            ">" | ")" => depth -= 1,
            _ => {}
        }
        last.push(word);
    }
    // A comma may stand at the end.
    let begin = last.iter().rposition(|word| *word == ":").map_or(0, |at| at + 1);
    if arguments < 2 { Vec::new() } else { last.split_off(begin) }
}

/// The tokens as words; `->` is one, so that its end closes no angle bracket.
fn flatten(stream: TokenStream, into: &mut Vec<String>) {
    for token in stream {
        match token {
            TokenTree::Group(group) => {
                into.push("(".to_owned());
                flatten(group.stream(), into);
                into.push(")".to_owned());
            }
            TokenTree::Punct(sign)
                if sign.as_char() == '>' && into.last().is_some_and(|before| before == "-") =>
            {
                into.pop();
                into.push("->".to_owned());
            }
            token => into.push(token.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    fn names(places: &[Place]) -> Vec<&str> {
        places.iter().map(|place| place.name.as_str()).collect()
    }

    #[test]
    fn vague_signatures_are_found() {
        let text = "fn a((x, y): (u8, u8)) {}
            fn b(x: &(u8, u8), y: ()) {}
            fn c(x: Vec<(u8, u8)>, y: ()) {}
            fn d() -> Result<(), String> {}
            async fn e() -> Option<Result<Vec<Map<u8, String>>, std::string::String>> {}
            fn f(g: impl Fn() -> Result<String, Error>) -> io::Result<String> {}
            fn h(g: impl Fn(u8) -> Result<fn(u8) -> u8, String>) {}
            type I<T> = Result<T, String>;
            impl X { fn j(self) -> Result<(), String> {} #[cfg(test)] fn k(a: (u8, u8)) {} }
            trait Y { fn l(a: (u8, u8)); }
            #[cfg(test)] mod tests { fn m(a: (u8, u8)) {} }";
        let krate = Crate::read(&Tree::of(&[("crates/a/src/lib.rs", text)]), "crates/a").unwrap();
        let vague = vague(&krate);
        assert_eq!(names(&vague.tuples), ["a", "b", "l"]);
        assert_eq!(names(&vague.string_errors), ["d", "e", "h", "I", "j"]);
    }

    #[test]
    fn aliases_hide_no_text() {
        let files = [
            ("crates/a/src/lib.rs", "mod b; use b::Reason as Why; fn f() -> Result<(), Why> {} fn g() -> Result<(), b::Fault> {}"),
            (
                "crates/a/src/b.rs",
                "pub type Reason = String; pub type Pair = (Reason, String); pub enum Fault {}
                 fn h() -> Result<u8, Pair> {} fn i() -> Result<(Reason, u8), Fault> {} fn j() -> Result<u8, (u8, String)> {}",
            ),
        ];
        let krate = Crate::read(&Tree::of(&files), "crates/a").unwrap();
        assert_eq!(names(&vague(&krate).string_errors), ["h", "f"]);
    }
}
