//! Errors in a configuration: the place, the line with a caret below, and what to write instead.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::file_error::ConfigFileError;

/// Longest part of a line that is shown.
const LINE_CHARS_MAX: usize = 160;

/// One error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    /// Example: `onecopy.toml:3:17`, or the name of a variable or flag.
    place: String,
    what: String,
    help: String,
    /// Number and text of the line, and the characters of the mistake.
    line: Option<(usize, String, Range<usize>)>,
}

impl ConfigError {
    /// An error in a file, at these bytes of its text.
    pub(super) fn in_file(
        path: &Path,
        text: &str,
        span: Range<usize>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let start = (0..=span.start.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line: &str = text[line_start..].lines().next().unwrap_or_default();
        let number = text[..line_start].matches('\n').count() + 1;
        let from = text[line_start..start].chars().count();
        let end = (start..=span.end.clamp(start, line_start + line.len()))
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(start);
        let length = text[start..end].chars().count().max(1);
        Self {
            place: format!("{}:{number}:{}", path.display(), from + 1),
            what: hide_secret(&what.into()),
            help: help.into(),
            line: Some((
                number,
                hide_secret(line).chars().take(LINE_CHARS_MAX).collect(),
                from..from + length,
            )),
        }
    }

    /// An error in a variable or flag.
    pub(super) fn elsewhere(
        place: impl Into<String>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { place: place.into(), what: hide_secret(&what.into()), help: help.into(), line: None }
    }

    /// An error of the whole file.
    pub(super) fn whole_file(path: &Path, what: impl Into<String>) -> Self {
        Self::elsewhere(path.display().to_string(), what, "")
    }
}

/// Masks a password in a URL, or anything that may be one.
fn hide_secret(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let Some((account, place)) = rest.rsplit_once('@') else { return text.to_owned() };
    let Some((user, secret)) = account.split_once(':') else { return text.to_owned() };
    format!("{scheme}://{user}:{}@{place}", "*".repeat(secret.chars().count()))
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        let Some((number, line, span)) = &self.line else {
            return if self.help.is_empty() { Ok(()) } else { write!(f, "\n  {}", self.help) };
        };
        let margin = number.to_string().len();
        // A tab stays a tab, so the carets stand below the mistake.
        let before: String =
            line.chars().take(span.start).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let carets = "^".repeat(span.len().min(LINE_CHARS_MAX));
        write!(f, "\n  {number} | {line}\n  {:margin$} | {before}{carets} {}", "", self.help)
    }
}

#[derive(Debug)]
pub(crate) enum LoadError {
    /// It has errors. These are all.
    Invalid(Vec<ConfigError>),
    /// It names files that cannot be used.
    Files(Vec<ConfigFileError>),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(errors) => {
                f.write_str("the configuration cannot be used\n")?;
                for error in errors {
                    writeln!(f, "{error}")?;
                }
                match errors.len() {
                    1 => f.write_str("1 mistake"),
                    count => write!(f, "{count} mistakes"),
                }
            }
            Self::Files(errors) => {
                let lines: Vec<String> = errors.iter().map(ConfigFileError::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl From<ConfigFileError> for LoadError {
    fn from(error: ConfigFileError) -> Self {
        Self::Files(vec![error])
    }
}
