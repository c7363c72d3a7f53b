//! One row of the table of settings.
//!
//! Example: the setting `result_cache` has the flag `--result-cache` and the variable `ONECOPY_RESULT_CACHE`.

use crate::config::kinds::{Kind, Value};

#[derive(Debug)]
pub(crate) struct Setting {
    /// Its key in the file. The variable's name is derived from it.
    pub(crate) name: &'static str,
    /// Its flag, without the leading dashes.
    pub(crate) flag: &'static str,
    pub(crate) kind: Kind,
    /// The default, as text.
    pub(crate) default: &'static str,
    /// Whether it can change while the node runs.
    pub(crate) can_reload: bool,
    /// Help text, for `--help` and the reference page.
    pub(crate) about: &'static str,
}

impl Setting {
    pub(crate) fn variable(&self) -> String {
        // `ONECOPY_LOG` filters log lines.
        let name = if self.name == "log" { "log_engine" } else { self.name };
        format!("ONECOPY_{}", name.replace('.', "_").to_ascii_uppercase())
    }

    /// The default as a value.
    pub(in crate::config) fn parse_default(&self) -> Value {
        self.kind.parse(self.default).expect("the defaults of the table are checked by a test")
    }
}
