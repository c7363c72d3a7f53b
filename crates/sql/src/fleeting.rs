//! Whether the answer of a query stays true while the rows that it read stay the same.
//!
//! An answer may be kept and given again only if it is a function of those rows, of the text and its parameters, of the role,
//! and of the session's settings. A query that reads the clock or chance is none, nor is one that asks the server for its own
//! state. Order is no obstacle: where PostgreSQL may choose which rows come first, the order that it chose once is as right as
//! any other.
//!
//! The proof is by names, as in [`crate::access`], and follows views and policies. It knows which of the server's functions
//! depend on nothing else; every other one makes the answer fleeting. What is left to the caller are constants and
//! parameters of the text itself, which its template does not have: a text that [`crate::may_read_clock`] may become a date.
//!
//! Non-goals: code of users' functions is not looked into. Neither is a change of a server's configuration noticed.

use std::fmt;

use crate::builtin;
use crate::catalogue::{Catalogue, Table, Volatility};
use crate::name::Name;

/// Stable functions of the server's own that depend on their arguments and on the session's settings and role alone; sorted.
///
/// Those of `date` and its kin are absent: they also read texts. So is `timezone`, which needs the present date for a
/// `timetz`.
const REPEATABLE: [&str; 54] = [
    "array_to_json",
    "array_to_string",
    "concat",
    "concat_ws",
    "convert",
    "convert_from",
    "convert_to",
    "current_database",
    "current_user",
    "date_add",
    "date_part",
    "date_subtract",
    "date_trunc",
    "enum_first",
    "enum_last",
    "enum_range",
    "extract",
    "format",
    "generate_series",
    "in_range",
    "json_agg",
    "json_agg_strict",
    "json_arrayagg",
    "json_build_array",
    "json_build_object",
    "json_object_agg",
    "json_object_agg_strict",
    "json_object_agg_unique",
    "json_object_agg_unique_strict",
    "json_to_tsvector",
    "jsonb_agg",
    "jsonb_agg_strict",
    "jsonb_build_array",
    "jsonb_build_object",
    "jsonb_object_agg",
    "jsonb_object_agg_strict",
    "jsonb_object_agg_unique",
    "jsonb_object_agg_unique_strict",
    "jsonb_to_tsvector",
    "length",
    "make_timestamptz",
    "overlaps",
    "phraseto_tsquery",
    "plainto_tsquery",
    "quote_literal",
    "quote_nullable",
    "row_to_json",
    "to_char",
    "to_date",
    "to_json",
    "to_jsonb",
    "to_number",
    "to_timestamp",
    "websearch_to_tsquery",
];

/// OIDs of `timetz` and its array. Comparing a `time` with one, or moving one to another zone, needs the present date.
const TIMETZ_OIDS: [u32; 2] = [1266, 1270];

/// Gives a setting by its name.
const SETTING: &str = "current_setting";

/// Why the answer of a query is not to be kept. Its text completes "the answer is not kept: ..".
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fleeting {
    /// It tells the time.
    Clock,
    /// It makes dates or times of texts that are computed or stored: one may be `now`.
    TextToClock,
    /// TABLESAMPLE chooses rows by chance.
    Sample,
    /// It asks for a setting that may be the server's own.
    Setting,
    /// It calls this function.
    Function(String),
    /// It calls this function, which is a user's.
    Code(String),
}

impl fmt::Display for Fleeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clock => f.write_str("the query tells the time"),
            Self::TextToClock => f.write_str("the query makes dates of texts that are not constants"),
            Self::Sample => f.write_str("TABLESAMPLE chooses rows by chance"),
            Self::Setting => f.write_str("the query asks for a setting of the server"),
            Self::Function(name) => write!(f, "the result of {name}() may change while the rows stay"),
            Self::Code(name) => write!(f, "the query calls {name}(), a user's function"),
        }
    }
}

/// What the text of a statement has that makes its answer fleeting, as far as it is known without a catalogue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Hints {
    /// CURRENT_TIMESTAMP and the like.
    pub(crate) tells_time: bool,
    /// A string constant that may become a date by the clock.
    pub(crate) clock_words: bool,
    /// TABLESAMPLE.
    pub(crate) samples: bool,
    /// A call of `current_setting` is for something else than a constant with a dot in it. The names of the server's own
    /// settings have no dot.
    pub(crate) asks_server_setting: bool,
    /// The types to which values are cast that are no constants, and other places where texts become values.
    pub(crate) casts: Vec<String>,
}

impl Hints {
    /// Why they make an answer fleeting. Of a client's own statement its template has the constants of another text, so they
    /// are not `constant`.
    pub(crate) fn verdict(&self, constant: bool) -> Option<Fleeting> {
        if self.tells_time || (constant && self.clock_words) {
            Some(Fleeting::Clock)
        } else if self.samples {
            Some(Fleeting::Sample)
        } else if constant && self.asks_server_setting {
            Some(Fleeting::Setting)
        } else {
            self.casts.iter().any(|name| may_read_clock_of_value(name)).then_some(Fleeting::TextToClock)
        }
    }
}

fn may_read_clock_of_value(type_name: &str) -> bool {
    let element = type_name.strip_prefix('_').unwrap_or(type_name);
    builtin::reads_clock(element) || builtin::type_name(element) != builtin::Builtin::Harmless
}

/// Whether the result of a call may change while the rows stay. The argument of `current_setting` is judged by [`Hints`], if
/// it is `constant`.
pub(crate) fn call(catalogue: &Catalogue, name: &Name, constant: bool) -> Option<Fleeting> {
    let bare = name.name.as_str();
    if catalogue.is_user_function(bare) {
        return Some(Fleeting::Code(bare.to_owned()));
    }
    match catalogue.builtin_volatility(bare) {
        _ if builtin::reads_clock(bare) => Some(Fleeting::TextToClock),
        Some(Volatility::Immutable) => None,
        Some(Volatility::Stable) if bare == SETTING => (!constant).then_some(Fleeting::Setting),
        Some(Volatility::Stable) if REPEATABLE.binary_search(&bare).is_ok() => None,
        _ => Some(Fleeting::Function(bare.to_owned())),
    }
}

/// Whether a column's name could be such a call in functional notation.
pub(crate) fn column(catalogue: &Catalogue, name: &str) -> Option<Fleeting> {
    let is_function = catalogue.is_user_function(name) || catalogue.builtin_volatility(name).is_some();
    is_function.then(|| call(catalogue, &Name::bare(name), false)).flatten()
}

/// Whether some of the table's values mean another moment on another day.
pub(crate) fn table(table: &Table) -> Option<Fleeting> {
    table.columns.iter().any(|column| TIMETZ_OIDS.contains(&column.type_oid)).then_some(Fleeting::Clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_can_be_searched() {
        assert!(REPEATABLE.is_sorted());
    }
}
