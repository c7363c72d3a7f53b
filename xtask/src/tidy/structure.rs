//! The numbers of `cargo xtask house` for the binary may only fall.
//!
//! The ratchet holds each number as a sum over the whole crate, so renaming or moving a type changes none of them.

use super::Finding;
use super::ratchet::{self, Section, Sizes};
use crate::house::types::Size;
use crate::house::{BOOLS_MAX, FIELDS_MAX, House, METHODS_MAX};
use crate::tree::Tree;

const CRATE: &str = "crates/onecopy";
/// Files that use each other are fine in twos and threes: a concept and its parts.
const CIRCLE_FILES_MAX: usize = 3;

pub(super) const SECTION: Section = Section {
    name: "onecopy",
    remark: "# What `cargo xtask house` lists: `x_over_n` is the sum of what each type has above n.\n",
    present,
};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let listed = match ratchet::listed(tree, SECTION.name) {
        Ok(listed) => listed,
        Err(error) => return vec![Finding::file(ratchet::FILE, error)],
    };
    let grew = |(key, size): (String, usize)| {
        let limit = listed.get(&key).copied().unwrap_or_default();
        let text = format!("{key} grew from {limit} to {size}: see `cargo xtask house`");
        (size > limit).then(|| Finding::file(CRATE, text))
    };
    present(tree).into_iter().filter_map(grew).collect()
}

fn present(tree: &Tree) -> Sizes {
    // A file that does not parse is another rule's finding.
    let Ok(house) = House::of(tree, CRATE) else { return Sizes::new() };
    let excess = |number: fn(&Size) -> usize, max: usize| -> usize {
        house.types.iter().map(|(_, size)| number(size).saturating_sub(max)).sum()
    };
    let circles: Vec<usize> = house.imports.circles().iter().map(Vec::len).collect();
    let numbers = [
        ("files_in_circles_over_3", circles.iter().filter(|files| **files > CIRCLE_FILES_MAX).sum()),
        ("files_in_largest_circle", circles.first().copied().unwrap_or_default()),
        ("fields_over_15", excess(|size| size.fields, FIELDS_MAX)),
        ("methods_over_60", excess(|size| size.methods, METHODS_MAX)),
        ("bools_over_3", excess(|size| size.bools, BOOLS_MAX)),
        ("tuple_parameters", house.vague.tuples.len()),
        ("string_errors", house.vague.string_errors.len()),
    ];
    numbers.into_iter().map(|(name, number)| (name.to_owned(), number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_ratchet_allows_is_found_and_less_is_not() {
        let file = ("crates/onecopy/src/main.rs", "struct A { a: bool, b: bool, c: bool, d: bool, e: bool }");
        let found = |ratchet: &str| -> Vec<String> {
            let tree = Tree::of(&[file, (ratchet::FILE, ratchet)]);
            check(&tree).into_iter().map(|finding| finding.text).collect()
        };
        assert_eq!(found("").len(), 1);
        assert!(found("[onecopy]\nbools_over_3 = 1\n")[0].starts_with("bools_over_3 grew from 1 to 2"));
        assert!(found("[onecopy]\nbools_over_3 = 2\n").is_empty());
        assert!(found("[onecopy]\nbools_over_3 = 3\n").is_empty());
    }
}
