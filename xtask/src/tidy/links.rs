//! Every relative link leads to a file that exists, and to a heading in it.
//!
//! The rule checks links of Markdown files, `[text](path#heading)`, and pages that any text names by their path from the
//! top, such as `docs/explanation/design.md`. It does not follow addresses on the network.

use super::{Finding, forbidden::RULES};
use crate::tree::{Tree, has_ending};

/// The folders whose pages are named in comments and messages.
const PAGES: [&str; 2] = ["docs/", "benchmarks/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| !path.starts_with(RULES)) {
        let markdown = has_ending(path, "md");
        for (number, line) in lines_outside_code(text, markdown) {
            let links = if markdown { links(line) } else { Vec::new() };
            for link in links.into_iter().filter(|link| !link.contains("://")) {
                if let Err(why) = follow(tree, path, link) {
                    findings.push(Finding::line(
                        path,
                        number,
                        format!("the link `{link}` leads nowhere: {why}"),
                    ));
                }
            }
            for page in pages(line).into_iter().filter(|page| !tree.has_file(page)) {
                findings.push(Finding::line(path, number, format!("there is no page `{page}`")));
            }
        }
    }
    findings
}

/// The lines with their numbers from 1; in Markdown without fenced code.
fn lines_outside_code(text: &str, markdown: bool) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let fence = markdown && line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fenced && !fence {
            lines.push((index + 1, line));
        }
    }
    lines
}

/// What stands in the parentheses of each link of a line.
fn links(line: &str) -> Vec<&str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link).collect()
}

/// The pages that a line names by their path from the top.
fn pages(line: &str) -> Vec<&str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let words = line.split(|c| !is_path(c)).map(|word| word.trim_end_matches('.'));
    words.filter(|word| has_ending(word, "md") && PAGES.iter().any(|top| word.starts_with(top))).collect()
}

fn follow(tree: &Tree, from: &str, link: &str) -> Result<(), String> {
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let target = if path.is_empty() { from.to_owned() } else { resolve(from, path)? };
    if !tree.has_file(&target) {
        return Err(format!("there is no file `{target}`"));
    }
    let text = tree.text(&target).unwrap_or_default();
    match heading {
        Some(heading) if !headings(text).iter().any(|found| found == heading) => {
            Err(format!("`{target}` has no heading for `#{heading}`"))
        }
        _ => Ok(()),
    }
}

/// The path from the top of what a file calls `path`.
fn resolve(from: &str, path: &str) -> Result<String, String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop().ok_or("it leaves the repository")?),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

/// The anchors of the headings of a page, as GitHub makes them.
fn headings(text: &str) -> Vec<String> {
    let titles = lines_outside_code(text, true).into_iter().filter(|(_, line)| line.starts_with('#'));
    let anchor = |title: &str| {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    titles.map(|(_, line)| anchor(line.trim_start_matches('#').trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(page: &str) -> usize {
        let other = ("docs/how-to/b.md", "# B\n\n## What a loss costs, `now`\n");
        check(&Tree::of(&[("docs/a.md", page), other, ("README.md", "# Top\n")])).len()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        for page in [
            "[b](how-to/b.md), [b](./how-to/b.md#b) and [top](../README.md#top)\n",
            "[b](how-to/b.md#what-a-loss-costs-now)\n",
            "# Here\n[here](#here) [away](https://example.org/x.md)\n",
            "see docs/how-to/b.md. And docs/a.md\n",
            "```\n[b](nowhere.md)\n```\n",
        ] {
            assert_eq!(findings(page), 0, "{page}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        for page in [
            "[b](b.md)\n",
            "[b](how-to/b.md#c)\n",
            "[here](#here)\n",
            "see docs/b.md.\n",
            "```\n```\n[b](../../README.md)\n",
        ] {
            assert_eq!(findings(page), 1, "{page}");
        }
    }

    #[test]
    fn pages_named_in_code_are_found() {
        let found = |text| check(&Tree::of(&[("a.rs", text)]));
        assert_eq!(found("//! See docs/a.md.\n"), [Finding::line("a.rs", 1, "there is no page `docs/a.md`")]);
        assert_eq!(found("//! See [a](a.md) and other/docs/a.md.\n"), []);
    }
}
