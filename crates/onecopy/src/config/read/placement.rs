//! Reads the table `placement`: a table of the database on the left, replicas on the right.
//!
//! A schema may stand before a dot in the quotes, as in `"public.audit"`, or outside of them, as in `public.audit`, which is TOML
//! for a table in a table.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::error::ConfigError;
use super::{File, Place, Raw, raws};

/// A rule as it was written.
#[derive(Clone, Debug)]
pub(in super::super) struct RawRule {
    pub(in super::super) pattern: Raw,
    pub(in super::super) holders: Vec<Raw>,
    /// The place for an error about the list as a whole.
    pub(in super::super) list: Raw,
}

/// The rules in the order of the file.
pub(super) fn read(
    file: &File,
    value: &Spanned<DeValue<'_>>,
    mistakes: &mut Vec<ConfigError>,
) -> Vec<RawRule> {
    let DeValue::Table(entries) = value.get_ref() else {
        let help = "write [placement] on a line of its own, and \"table\" = [\"replica\"] below";
        mistakes.push(ConfigError::in_file(
            &file.path,
            &file.text,
            value.span(),
            "placement is a table",
            help,
        ));
        return Vec::new();
    };
    let mut rules = Vec::new();
    read_entries(file, "", entries, &mut rules, mistakes);
    rules.sort_by_key(|rule| rule.pattern.start());
    rules
}

fn read_entries(
    file: &File,
    before: &str,
    entries: &DeTable<'_>,
    rules: &mut Vec<RawRule>,
    mistakes: &mut Vec<ConfigError>,
) {
    for (key, value) in entries {
        let text = format!("{before}{}", key.get_ref());
        if let DeValue::Table(inside) = value.get_ref()
            && before.is_empty()
        {
            read_entries(file, &format!("{text}."), inside, rules, mistakes);
            continue;
        }
        let known = mistakes.len();
        let raw = |text: String, span| Raw { text, place: Place::File(file.clone(), span) };
        let holders = raws(file, value, mistakes);
        if mistakes.len() == known {
            let list = raw(String::new(), value.span());
            rules.push(RawRule { pattern: raw(text, key.span()), holders, list });
        }
    }
}
