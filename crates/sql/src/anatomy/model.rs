//! The parts of an anatomy, and the reasons why a statement has none.

use std::collections::BTreeSet;
use std::fmt;

use super::expression::Expression;
use crate::catalogue::TableId;

/// A statement's relations, columns, conditions and writes.
#[derive(Clone, PartialEq, Debug)]
pub struct Anatomy {
    /// Whether it reads or how it writes.
    pub kind: StatementKind,
    /// Every mention of a table, those in sub-queries too; a table that is written comes first.
    pub relations: Vec<Mention>,
    /// Columns that are shown, or that order a complete answer.
    pub output: BTreeSet<ColumnPlace>,
    /// Columns that say which rows are shown or written, or that several rows are reckoned together by: conditions,
    /// joins, GROUP BY, aggregates, ORDER BY before a LIMIT, values that are stored, and all of sub-queries.
    pub deciding: BTreeSet<ColumnPlace>,
    /// Columns that get values.
    pub written: Vec<Written>,
    /// The table that gets or loses whole rows.
    pub grows: Option<TableId>,
    /// What is true of every row that is shown or written.
    pub equalities: Vec<Equality>,
    /// LIMIT of the outermost query.
    pub limit: Option<Limit>,
    /// The parts of a query over inner joins of tables; `None` for anything else.
    pub plain: Option<PlainSelect>,
}

/// What a statement does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatementKind {
    /// SELECT.
    Read,
    /// INSERT.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
}

/// A table where a statement names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mention {
    /// The table.
    pub table: TableId,
    /// The name by which the statement's columns call it.
    pub alias: String,
}

/// A column of one mention of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ColumnPlace {
    /// Index into [`Anatomy::relations`].
    pub relation: usize,
    /// Index into the table's columns.
    pub column: usize,
}

/// A column that a statement gives a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The table.
    pub table: TableId,
    /// Index into the table's columns.
    pub column: usize,
    /// How the value is made.
    pub how: Change,
}

/// How a column's new value is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// `SET c = value`, or the value of a new row.
    Value,
    /// `SET c = c + value`.
    Plus,
    /// `SET c = c - value`.
    Minus,
}

/// A column equals something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Equality {
    /// The column.
    pub column: ColumnPlace,
    /// What it equals.
    pub to: Equal,
}

/// What a column equals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Equal {
    /// Another column.
    Column(ColumnPlace),
    /// A parameter.
    Parameter(u32),
    /// A constant.
    Constant,
}

/// How many rows a query shows at most.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Limit {
    /// A constant.
    Rows(u64),
    /// Any expression, such as a parameter.
    Computed,
}

/// A query without sub-queries in FROM, outer joins, DISTINCT, HAVING and FOR UPDATE.
#[derive(Clone, PartialEq, Debug)]
pub struct PlainSelect {
    /// The mentions in FROM; those of sub-queries in conditions are not among them.
    pub relations: BTreeSet<usize>,
    /// The conditions of WHERE and of all joins, joined by AND.
    pub conjuncts: Vec<Conjunct>,
    /// The SELECT list; a star stands as its columns.
    pub targets: Vec<Target>,
    /// GROUP BY.
    pub grouping: Vec<Expression>,
    /// ORDER BY.
    pub order: Vec<SortKey>,
    /// LIMIT.
    pub limit: Option<Expression>,
    /// OFFSET.
    pub offset: Option<Expression>,
}

/// One condition.
#[derive(Clone, PartialEq, Debug)]
pub struct Conjunct {
    /// Its text.
    pub expression: Expression,
    /// What it says, if that is an equality.
    pub says: Says,
}

/// What a condition says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Says {
    /// A column equals something.
    Equal(Equality),
    /// `column IN (column, ..)`.
    OneOf(ColumnPlace, Vec<ColumnPlace>),
    /// Something else.
    Other,
}

/// An item of a SELECT list.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// The name of the column of the answer.
    pub name: String,
    /// Its value.
    pub expression: Expression,
    /// It stands for a column of a star.
    pub from_star: bool,
}

/// An item of ORDER BY.
#[derive(Clone, PartialEq, Debug)]
pub struct SortKey {
    /// What is sorted by.
    pub by: SortBy,
    /// ` DESC`, ` NULLS LAST` and the like, or nothing.
    pub suffix: String,
}

/// What is sorted by.
#[derive(Clone, PartialEq, Debug)]
pub enum SortBy {
    /// An item of the SELECT list, by its index.
    Target(usize),
    /// An expression over columns.
    Expression(Box<Expression>),
}

/// A statement has no anatomy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoAnatomy {
    /// PostgreSQL's parser does not accept the text.
    Syntax(String),
    /// The text is not exactly one statement.
    NotOne,
    /// The statement uses something whose columns would be missed.
    Construct(String),
    /// The name stands for no table, or for more than one relation.
    Relation(String),
    /// No table in reach has the column, or more than one has.
    Column(String),
}

impl fmt::Display for NoAnatomy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(message) => f.write_str(message),
            Self::NotOne => f.write_str("the text must hold exactly one statement"),
            Self::Construct(what) => write!(f, "{what} is not understood: rewrite the statement without it"),
            Self::Relation(name) => write!(f, "`{name}` is not the name of exactly one table of the schema"),
            Self::Column(name) => {
                write!(f, "the column `{name}` does not belong to exactly one table in reach")
            }
        }
    }
}

impl std::error::Error for NoAnatomy {}
