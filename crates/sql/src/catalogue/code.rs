//! What runs without being written in the statement: functions, triggers, rules, policies and the queries of views; and
//! sequences, which columns draw from.
//!
//! All of it is kept as the server tells it. What it may touch is found out when a statement first needs it.

use super::{TableId, Volatility};
use crate::name::Name;

/// A function, procedure or aggregate that did not come with the server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Function {
    /// Its schema.
    pub schema: String,
    /// Its name; others may have the same.
    pub name: String,
    /// What it promises. It is no proof: a function that promises to be stable can call one that writes.
    pub volatility: Volatility,
    /// What it is written in.
    pub body: Body,
    /// Arguments and result columns.
    pub arguments: Vec<Argument>,
    /// What it returns.
    pub returns: Returns,
    /// It returns a set.
    pub returns_set: bool,
    /// Default values of arguments as SQL, separated by commas; empty without any.
    pub defaults: String,
    /// Names of the settings that hold while it runs.
    pub settings: Vec<String>,
    /// Types of its arguments and of its result.
    pub types: HeadTypes,
}

/// The code of a function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Body {
    /// Code in a language that this crate does not read, or too long to be looked at.
    #[default]
    Unknown,
    /// SQL as a text, which is read anew when it runs.
    Sql(String),
    /// SQL that was read when the function was made: `BEGIN ATOMIC .. END`, or `RETURN ..`.
    SqlStandard(String),
    /// PL/pgSQL.
    PlPgSql(String),
}

/// An argument of a function, or a column of its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    /// Empty without a name.
    pub name: String,
    /// Its use.
    pub mode: ArgumentMode,
    /// The OID of its type; 0 if that is not known.
    pub type_oid: u32,
}

/// What an argument is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentMode {
    /// IN.
    In,
    /// VARIADIC: the arguments of a call become the elements of an array.
    Variadic,
    /// OUT.
    Out,
    /// INOUT.
    InOut,
    /// A column of RETURNS TABLE.
    Table,
}

/// What a function returns, as far as its code depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Returns {
    /// A value.
    #[default]
    Value,
    /// Nothing.
    Void,
    /// It is a trigger function.
    Trigger,
    /// It is a procedure.
    Procedure,
}

/// The worst among the types in a function's head; later is worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum HeadTypes {
    /// All came with the server.
    #[default]
    BuiltIn,
    /// Users' types that run no code.
    Plain,
    /// Values that name objects by numbers, which differ between replicas.
    Objects,
    /// Users' types that may run code.
    Coded,
}

/// A user's trigger on a table or view. A table has those of all that it inherits from, too.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each event is a property of its own")]
pub struct Trigger {
    /// Its name.
    pub name: String,
    /// When it fires.
    pub timing: Timing,
    /// On INSERT.
    pub on_insert: bool,
    /// On UPDATE.
    pub on_update: bool,
    /// On DELETE.
    pub on_delete: bool,
    /// On TRUNCATE.
    pub on_truncate: bool,
    /// For each row.
    pub each_row: bool,
    /// What it runs.
    pub function: Name,
    /// It is not disabled.
    pub enabled: bool,
    /// It may fire as late as at the end of the transaction.
    pub deferrable: bool,
    /// Its condition calls functions or operators that did not come with the server.
    pub condition_runs_code: bool,
}

/// When a trigger fires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Before the change: it may alter the row, or drop the change.
    Before,
    /// After the change.
    After,
    /// In place of the change.
    InsteadOf,
}

/// A user's rule; what it does is not looked into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// The definition as the server shows it.
    pub definition: String,
}

/// A policy of row-level security.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Its expressions, USING and WITH CHECK, as SQL.
    pub expressions: Vec<String>,
}

/// A view.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ViewDefinition {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Its query, with all names in their schemas.
    pub definition: String,
    /// It keeps the rows that its query had at the last REFRESH, which alone changes them.
    pub materialized: bool,
    /// INSTEAD OF triggers, and those for statements.
    pub triggers: Vec<Trigger>,
    /// Rules beside the query itself.
    pub rules: Vec<Rule>,
}

/// A sequence.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sequence {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The type of its values: `smallint`, `integer` or `bigint`.
    pub type_name: String,
    /// The first value.
    pub start: i64,
    /// The step.
    pub increment: i64,
    /// The least value.
    pub min: i64,
    /// The greatest value.
    pub max: i64,
    /// It starts anew at its end.
    pub cycle: bool,
    /// How many values a session takes at once.
    pub cache: i64,
    /// The column that it belongs to: a table and the column's place there.
    pub owner: Option<(TableId, usize)>,
    /// It is that of an identity column.
    pub identity: bool,
}
