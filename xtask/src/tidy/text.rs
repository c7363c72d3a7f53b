//! Texts name no folder of one machine and have no blanks at the ends of lines.

use super::Finding;
use super::forbidden::RULES;
use crate::tree::Tree;

/// Folders of one developer's machine.
const PLACES: [&str; 3] = ["/work/", "/root/", "/home/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        for (number, line) in text.split('\n').enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                findings.push(Finding::line(path, number + 1, "blanks at the end of the line"));
            }
            let place = PLACES.iter().find(|place| line.contains(*place));
            if let Some(place) = place.filter(|_| !path.starts_with(RULES)) {
                findings.push(Finding::line(
                    path,
                    number + 1,
                    format!("`{place}` is a place of one machine"),
                ));
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            findings.push(Finding::file(path, "must end with a line end"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stray_blanks_and_places_are_found() {
        for (text, found) in [
            ("a \n", 1),
            ("a\r\n", 1),
            ("a", 1),
            ("see /home/me/x\n", 1),
            ("PATH=/root/bin\n", 1),
            ("a\n\nsee /workloads/x, network/x\n", 0),
        ] {
            assert_eq!(check(&Tree::of(&[("README.md", text)])).len(), found, "{text:?}");
        }
    }
}
