//! Tables: columns, keys, references.
//!
//! Columns are named by their place in [`Table::columns`], which is the order of the rows that capture reports.

use super::{Policy, Rule, TableId, Trigger};
use crate::name::Name;

/// A live column of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Column {
    /// The column's name.
    pub name: String,
    /// The type's OID at the server the catalogue was read from.
    pub type_oid: u32,
    /// The type's modifier as the server keeps it (length of `char(n)`, precision and scale of `numeric`, ...), -1
    /// without one.
    pub type_mod: i32,
    /// Declared NOT NULL.
    pub not_null: bool,
    /// A generated column: its value cannot be written.
    pub generated: bool,
    /// GENERATED ALWAYS AS IDENTITY: writing it needs OVERRIDING SYSTEM VALUE.
    pub identity_always: bool,
    /// Values are equal under the column's collation only if their bytes are; true of types without collations.
    pub collation_deterministic: bool,
    /// What is stored when a statement gives no value.
    pub default: ColumnDefault,
}

/// What a column holds when a statement gives no value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ColumnDefault {
    /// NULL.
    #[default]
    None,
    /// A constant, in its text form as input for the column's type; a modifier of the type still applies to it.
    Constant(String),
    /// The next value of a sequence: an identity column, or a default of `nextval`.
    Sequence(Name),
    /// An expression of this text, a domain's default, or a generated column's value.
    Expression(String),
}

impl ColumnDefault {
    /// What an expression means, as the server shows it (`pg_get_expr`), for a column of a type of this name
    /// (`format_type` without a modifier).
    pub fn of(expression: &str, type_name: &str) -> Self {
        let other = || Self::Expression(expression.to_owned());
        // The server shows a cast to `character` without a length by the type's internal name.
        let is_own_type = |name: &str| name == type_name || (name == "bpchar" && type_name == "character");
        if let Some(name) = expression.strip_prefix("NULL::") {
            return if is_own_type(name) { Self::None } else { other() };
        }
        let is_number =
            !expression.is_empty() && expression.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if is_number || matches!(expression, "true" | "false") {
            return Self::Constant(expression.to_owned());
        }
        match literal(expression) {
            Some((value, rest)) if rest.strip_prefix("::").is_some_and(is_own_type) => Self::Constant(value),
            _ => other(),
        }
    }
}

/// The value of the plain string literal that a text begins with, and what follows it.
fn literal(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('\'')?;
    let mut value = String::new();
    loop {
        let (before, after) = rest.split_once('\'')?;
        value.push_str(before);
        match after.strip_prefix('\'') {
            Some(after) => {
                value.push('\'');
                rest = after;
            }
            None => return Some((value, after)),
        }
    }
}

/// A unique index, or an exclusion constraint's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a property of its own that the server stores as one"
)]
pub struct Key {
    /// The key's columns in its order; if it is partial or has expressions: every column that it mentions.
    pub columns: Vec<usize>,
    /// The primary key.
    pub primary: bool,
    /// Equal keys cannot exist twice. Only an exclusion constraint may be without this.
    pub unique: bool,
    /// It has a predicate: rows outside may have any values.
    pub partial: bool,
    /// Some part is an expression, or compares in another way than the column's type does by default (another
    /// collation, another operator class): equal values of the columns give equal keys, but so may others.
    pub expression: bool,
    /// An exclusion constraint, WITHOUT OVERLAPS included: rows exclude each other by other operators than equality.
    pub exclusion: bool,
    /// It may be checked as late as at the end of the transaction.
    pub deferrable: bool,
    /// NULLs are equal to each other.
    pub nulls_not_distinct: bool,
}

impl Key {
    /// Two rows are in each other's way exactly if their values in all of [`Key::columns`] are equal (and, unless
    /// [`Key::nulls_not_distinct`], none of them is NULL).
    pub fn is_plain(&self) -> bool {
        self.unique && !self.partial && !self.expression && !self.exclusion
    }
}

/// What happens to referencing rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// NO ACTION: refused at the end of the statement, or later.
    NoAction,
    /// RESTRICT: refused at once.
    Restrict,
    /// CASCADE.
    Cascade,
    /// SET NULL, of all of the columns or of some.
    SetNull,
    /// SET DEFAULT, of all of the columns or of some.
    SetDefault,
}

/// A foreign key of one table that holds rows to another. One that involves partitioned tables is a reference between
/// each two of their leaves, of which not every row has its parent in that leaf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    /// The referencing columns.
    pub columns: Vec<usize>,
    /// The table that is pointed to.
    pub parent: TableId,
    /// Its columns, in the order of `columns`.
    pub parent_columns: Vec<usize>,
    /// ON DELETE.
    pub on_delete: Action,
    /// ON UPDATE.
    pub on_update: Action,
    /// It may be checked as late as at the end of the transaction.
    pub deferrable: bool,
    /// MATCH FULL.
    pub matches_full: bool,
    /// The last column is a PERIOD: it is contained in the union of several parent rows instead of being equal to one.
    pub period: bool,
}

/// An ordinary table that holds rows (a partition too).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about a table")]
pub struct Table {
    /// Our number.
    pub id: TableId,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Live columns in the order of their attribute numbers.
    pub columns: Vec<Column>,
    /// Indexes into `columns`, in key order; empty without a primary key.
    pub primary_key: Vec<usize>,
    /// All unique and exclusion indexes, the primary key first.
    pub keys: Vec<Key>,
    /// The columns of the other indexes, in their order, but for those over expressions.
    pub indexes: Vec<Vec<usize>>,
    /// Sets of columns by whose values statements may know groups of rows, in order of the columns: see
    /// [`crate::accesses::groups`]. [`super::Catalogue::new`] finds them.
    pub groupings: Vec<Vec<usize>>,
    /// Foreign keys of this table. Meaningless if [`Table::user_triggers`] says that not all could be resolved.
    pub references: Vec<Reference>,
    /// A unique or exclusion index beside the primary key's.
    pub other_unique: bool,
    /// It has a foreign key, or is the target of one.
    pub foreign_keys: bool,
    /// Users' triggers, those of everything it inherits from included.
    pub triggers: Vec<Trigger>,
    /// Users' rules, those of everything it inherits from included.
    pub rules: Vec<Rule>,
    /// Policies of row-level security, those of everything it inherits from included. They count only if it is enabled.
    pub policies: Vec<Policy>,
    /// A default, check or index expression calls a function outside `pg_catalog`, or a foreign key could not be
    /// resolved: part of [`Table::user_triggers`].
    pub own_code: bool,
    /// Users' triggers or rules, or a default, check or index expression that calls a function outside `pg_catalog`;
    /// or a foreign key from or to a table that is not known here.
    pub user_triggers: bool,
    /// Row-level security is enabled.
    pub row_security: bool,
    /// Some column's type is not built in (OID 16384 or above).
    pub user_types: bool,
    /// Some column's type may run code that did not come with the server: see [`super::Contents::plain_types`].
    pub coded_types: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_constants_only_if_they_are_plain() {
        let constant = |text: &str| ColumnDefault::Constant(text.to_owned());
        let cases = [
            ("7", "integer", constant("7")),
            ("1.50", "numeric", constant("1.50")),
            ("true", "boolean", constant("true")),
            ("'-7'::integer", "integer", constant("-7")),
            ("'it''s'::text", "text", constant("it's")),
            ("''::bpchar", "character", constant("")),
            ("NULL::character varying", "character varying", ColumnDefault::None),
        ];
        for (expression, type_name, wanted) in cases {
            assert_eq!(ColumnDefault::of(expression, type_name), wanted, "{expression}");
        }
        let others = [
            ("now()", "timestamp with time zone"),
            ("'abc'::character varying(1)", "character varying"),
            ("'a'::text || 'b'::text", "text"),
            ("E'a\\\\b'::text", "text"),
            ("'7'::text", "integer"),
            ("(7)::numeric", "numeric"),
            ("'open", "text"),
            ("1 + 1", "integer"),
            ("", "integer"),
        ];
        for (expression, type_name) in others {
            let wanted = ColumnDefault::Expression(expression.to_owned());
            assert_eq!(ColumnDefault::of(expression, type_name), wanted, "{expression}");
        }
    }
}
