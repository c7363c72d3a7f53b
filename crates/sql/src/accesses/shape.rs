//! A statement's queries, with what matters for accesses: relations, conditions, columns, values.
//!
//! Made from the syntax tree on a cache miss, kept with the template, and independent of any catalogue: names are as
//! written. Expressions are reduced to the columns they use and the queries in them; conditions to equalities of columns
//! with columns, constants and parameters under AND and OR. Whatever else a condition says is left out, which makes it
//! true of more rows. A tree with anything unforeseen has no shape at all; of its statement only the names are used.

mod body;
mod expression;
mod modify;
mod query;

use std::collections::BTreeSet;
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{CopyStmt, Node};

use super::Strength;
use super::bind::{MAX_LIST, Operand};
use super::value::Form;
use crate::classify::relation_name;
use crate::lexer::Span;
use crate::name::Name;
use crate::statement::Statement;
use expression::Builder;

/// The accesses of a template, by names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) root: Root,
    /// The number of every parameter, once for each time it occurs; `None` if not all were seen.
    pub(crate) parameters: Option<Vec<u32>>,
    /// Names without a schema that FROM clauses name once.
    pub(crate) named_once: BTreeSet<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Root {
    Query(Query),
    Truncate {
        tables: Vec<Name>,
        cascade: bool,
    },
    Lock {
        tables: Vec<Name>,
        strength: Strength,
    },
    /// COPY .. FROM with its WHERE clause, which sees new rows only.
    CopyFrom {
        table: Name,
        uses: Uses,
    },
    CopyTo {
        table: Name,
        columns: Vec<String>,
    },
    Call(Call),
}

/// CALL of a procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) name: Name,
    pub(crate) arguments: Vec<CallArgument>,
    /// The word VARIADIC stands in it.
    pub(crate) variadic: bool,
}

/// An argument of a call, as far as it is known: as one value, and as an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CallArgument {
    /// With `name =>`.
    pub(crate) name: Option<String>,
    pub(crate) value: Option<Operand>,
    pub(crate) array: Option<Operand>,
}

/// A query with its WITH queries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Query {
    pub(crate) recursive: bool,
    pub(crate) with: Vec<WithQuery>,
    pub(crate) body: Body,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WithQuery {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) query: Query,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    Select(Box<Select>),
    /// UNION, INTERSECT, EXCEPT; the uses are those of ORDER BY and LIMIT.
    Combined {
        left: Box<Query>,
        right: Box<Query>,
        uses: Uses,
    },
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    Merge(Box<Merge>),
}

/// A SELECT without set operations, or VALUES.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Select {
    pub(crate) from: Vec<Source>,
    pub(crate) condition: Condition,
    /// Of everything but the FROM clause.
    pub(crate) uses: Uses,
    pub(crate) outputs: Vec<Output>,
    /// A row of the result depends on no rows that differ from it in a column that both have unchanged.
    pub(crate) transparent: bool,
    /// With GROUP BY: the plain columns in it.
    pub(crate) grouped: Option<Vec<ColumnRef>>,
    pub(crate) locking: Vec<Locking>,
}

/// One item of a SELECT list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Output {
    /// `*` or `x.*`.
    Star(ColumnRef),
    Column {
        name: String,
        column: Option<ColumnRef>,
        /// The value that it has in every row.
        given: Option<Given>,
    },
}

/// A value that a query gives, or several of which each of its rows has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Given {
    pub(crate) operand: Operand,
    pub(crate) kind: GivenKind,
    /// It is what is stored if a row is, and not only what a column that equals it equals.
    pub(crate) exact: bool,
}

/// The evidence for the common type of values of several rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivenKind {
    Null,
    /// A string constant.
    Text,
    /// A constant that is an integer or `numeric`.
    Number,
    Parameter,
    Typed(Form),
    Other,
}

impl Given {
    /// One of both. Values that become another type together may become other values: `'007'` beside 5 is 7.
    pub(crate) fn or(self, other: Self) -> Option<Self> {
        use GivenKind::{Null, Number, Parameter, Text, Typed};
        let kind = match (self.kind, other.kind) {
            (Text, Text) => Text,
            (Number, Number) => Number,
            (Typed(one), Typed(other)) if one == other => Typed(one),
            (Null, kind)
            | (kind, Null)
            | (Parameter, kind @ (Text | Number | Parameter | Typed(_)))
            | (kind @ (Text | Number | Typed(_)), Parameter) => kind,
            _ => return None,
        };
        let is_given = |one: &Self| one.exact && one.kind != Parameter;
        let exact = is_given(&self) && is_given(&other);
        let mut operands = match self.operand {
            Operand::List(operands) => operands,
            one => vec![one],
        };
        match other.operand {
            Operand::List(more) => operands.extend(more),
            one => operands.push(one),
        }
        (operands.len() <= MAX_LIST).then_some(Self { operand: Operand::List(operands), kind, exact })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Locking {
    pub(crate) strength: Strength,
    /// Aliases; none means all.
    pub(crate) of: Vec<String>,
}

/// An item of a FROM clause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Relation {
        name: Name,
        alias: Option<String>,
    },
    Query {
        query: Box<Query>,
        alias: Option<String>,
        columns: Vec<String>,
        lateral: bool,
    },
    /// A function, XMLTABLE, ...; it may use what stands before it.
    Other {
        uses: Uses,
        alias: Option<String>,
    },
    /// `unnest` of arrays, with the names of its columns; the first ones are elements of the arrays.
    Unnest {
        arrays: Vec<Operand>,
        alias: String,
        columns: Vec<String>,
        uses: Uses,
    },
    Join {
        kind: Join,
        sides: Box<[Self; 2]>,
        condition: Condition,
        using: Vec<String>,
        uses: Uses,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Join {
    Inner,
    Left,
    Right,
    Full,
    /// NATURAL, of whatever kind: any of the columns may be compared.
    Natural,
}

/// A column as it was written: `a`, `t.a`, `s.t.a`, or with a star instead of the last part.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ColumnRef {
    /// The parts of a name before the last.
    pub(crate) qualifier: Vec<String>,
    /// The last part; `None` for a star.
    pub(crate) name: Option<String>,
}

/// The names that expressions use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Uses {
    pub(crate) columns: Vec<ColumnRef>,
    pub(crate) queries: Vec<Query>,
    /// Any column in reach may be used.
    pub(crate) everything: bool,
}

/// Facts about the rows that a condition accepts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Condition {
    /// Nothing is known.
    #[default]
    True,
    /// It accepts none.
    Never,
    And(Vec<Self>),
    Or(Vec<Self>),
    Equal(ColumnRef, ColumnRef),
    /// The column equals the value, or one of a list. Unless strict, NULL equals NULL.
    Is {
        column: ColumnRef,
        operand: Operand,
        strict: bool,
    },
}

/// A value that is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Term {
    Operand(Operand),
    Default,
    Column(ColumnRef),
    /// A function is called without arguments.
    Called(Name),
    Other,
}

/// The target of a modification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) name: Name,
    pub(crate) alias: Option<String>,
}

/// `column = value`; the value is [`Term::Other`] when only a part of the column is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Assignment {
    pub(crate) column: String,
    pub(crate) value: Term,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Insert {
    pub(crate) target: Target,
    pub(crate) new: NewRows,
    pub(crate) conflict: Option<OnConflict>,
    /// Of the values and of RETURNING.
    pub(crate) uses: Uses,
}

/// The rows that an INSERT makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NewRows {
    /// The columns that values are given for; none means all, in their order.
    pub(crate) columns: Vec<String>,
    pub(crate) values: Values,
    /// OVERRIDING USER VALUE: what is given for identity columns is ignored.
    pub(crate) ignores_identity: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Values {
    Rows(Vec<Vec<Term>>),
    /// More rows than can be told apart.
    Many,
    Query(Box<Query>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OnConflict {
    /// The columns of the arbiter, if they are plain.
    pub(crate) columns: Option<Vec<String>>,
    /// DO UPDATE.
    pub(crate) update: Option<Vec<Assignment>>,
    /// Of the whole clause.
    pub(crate) uses: Uses,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Update {
    pub(crate) target: Target,
    pub(crate) from: Vec<Source>,
    pub(crate) condition: Condition,
    pub(crate) set: Vec<Assignment>,
    pub(crate) uses: Uses,
    /// Of RETURNING, which sees the rows as they have become: what the condition says is no longer true of them.
    pub(crate) returning: Uses,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Delete {
    pub(crate) target: Target,
    pub(crate) from: Vec<Source>,
    pub(crate) condition: Condition,
    pub(crate) uses: Uses,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Merge {
    pub(crate) target: Target,
    pub(crate) source: Source,
    pub(crate) condition: Condition,
    /// WHEN NOT MATCHED BY SOURCE stands in it.
    pub(crate) beyond_source: bool,
    /// WHEN NOT MATCHED [BY TARGET] stands in it.
    pub(crate) beyond_target: bool,
    pub(crate) actions: Vec<MergeAction>,
    pub(crate) uses: Uses,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MergeAction {
    Insert(NewRows),
    Update(Vec<Assignment>),
    Delete,
}

/// Something in a tree that is not foreseen.
#[derive(Debug)]
pub(crate) struct Unforeseen;

pub(crate) use body::{Expression, attach_in_body, declared_form};

/// Gives a statement, and the one inside it, their shapes.
pub(crate) fn attach(statement: &mut Statement, node: &Node, text: &str, constants: Option<&[Span]>) {
    let inner = match &node.node {
        Some(NodeEnum::ExplainStmt(explain)) => explain.query.as_deref(),
        Some(NodeEnum::DeclareCursorStmt(declare)) => declare.query.as_deref(),
        Some(NodeEnum::PrepareStmt(prepare)) => prepare.query.as_deref(),
        _ => None,
    };
    if let (Some(node), Some(statement)) = (inner, &mut statement.inner) {
        attach(Arc::make_mut(statement), node, text, constants);
    } else {
        statement.shape = shape(node, text, constants).map(Arc::new);
    }
}

/// The shape of a statement that reads or writes rows. `constants` are the places that the template leaves open; without
/// them the constants are part of the shape.
fn shape(node: &Node, text: &str, constants: Option<&[Span]>) -> Option<Shape> {
    let mut builder = Builder::new(text, constants);
    let root = builder.root(node.node.as_ref()?).ok()?;
    let named_once = builder.named_once();
    Some(Shape { root, parameters: builder.parameters(), named_once })
}

impl Builder<'_> {
    fn root(&mut self, node: &NodeEnum) -> Result<Root, Unforeseen> {
        match node {
            NodeEnum::SelectStmt(_)
            | NodeEnum::InsertStmt(_)
            | NodeEnum::UpdateStmt(_)
            | NodeEnum::DeleteStmt(_)
            | NodeEnum::MergeStmt(_) => Ok(Root::Query(self.query(node)?)),
            NodeEnum::TruncateStmt(statement) => Ok(Root::Truncate {
                tables: relations(&statement.relations)?,
                cascade: statement.behavior() == pg_query::protobuf::DropBehavior::DropCascade,
            }),
            NodeEnum::LockStmt(statement) => Ok(Root::Lock {
                tables: relations(&statement.relations)?,
                strength: table_lock(statement.mode),
            }),
            NodeEnum::CopyStmt(statement) => self.copy(statement),
            NodeEnum::CallStmt(statement) => {
                Ok(Root::Call(self.call_of(statement.funccall.as_deref().ok_or(Unforeseen)?)?))
            }
            _ => Err(Unforeseen),
        }
    }

    fn copy(&mut self, statement: &CopyStmt) -> Result<Root, Unforeseen> {
        if let Some(query) = &statement.query {
            return Ok(Root::Query(self.query(query.node.as_ref().ok_or(Unforeseen)?)?));
        }
        let table = relation_name(statement.relation.as_ref().ok_or(Unforeseen)?);
        if !statement.is_from {
            return Ok(Root::CopyTo { table, columns: query::strings(&statement.attlist)? });
        }
        let mut uses = Uses::default();
        self.optional(statement.where_clause.as_deref(), &mut uses)?;
        Ok(Root::CopyFrom { table, uses })
    }
}

fn relations(nodes: &[Node]) -> Result<Vec<Name>, Unforeseen> {
    let name = |node: &Node| match &node.node {
        Some(NodeEnum::RangeVar(relation)) => Ok(relation_name(relation)),
        _ => Err(Unforeseen),
    };
    nodes.iter().map(name).collect()
}

/// LOCK TABLE: ACCESS SHARE and ROW SHARE (1, 2) let everything but the strongest modes in; ACCESS EXCLUSIVE (8)
/// nothing. Those between are against writes, or announce them.
fn table_lock(mode: i32) -> Strength {
    match mode {
        1 | 2 => Strength::Share,
        3..=7 => Strength::Update,
        _ => Strength::Exclusive,
    }
}
