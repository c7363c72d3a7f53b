//! Why a statement may do something else on each replica.

use std::fmt;

use crate::name::Name;

/// One reason. Its text completes "this statement may have another effect on each replica: ...".
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// It is not a statement whose effect is a change of rows.
    Kind,
    /// The text or its tree is too large to be looked into.
    TooLarge,
    /// Something in the tree was not understood, or not visited.
    NotUnderstood(&'static str),
    /// A function that is volatile, or that depends on more than its arguments and the shipped settings.
    Function(Name),
    /// A function that did not come with the server: what it declares of itself is not trusted.
    UserFunction(Name),
    /// An operator that did not come with the server, or might not.
    UserOperator(Name),
    /// Casts between built-in types that did not come with the server.
    UserCasts,
    /// A type that is not built in, or whose values are names of objects.
    Type(Name),
    /// A relation that is not one known table: a view, a partitioned target, a name that stands for several.
    Relation(Name),
    /// System catalogues differ between servers.
    Catalogue(Name),
    /// A column whose value is the server's own affair (ctid, xmin, ...).
    SystemColumn(String),
    /// A constant that a date or time type would read off the clock, such as `now` or `today`.
    ClockWord,
    /// Text from somewhere else that becomes a date or time: it could say `now`.
    ClockCast(Name),
    /// A setting that is not shipped.
    Setting(String),
    /// LIMIT or OFFSET without an order in which no two rows are equal.
    Limit,
    /// DISTINCT ON without such an order.
    DistinctOn,
    /// One of several values stays that are equal and may look different: DISTINCT, GROUP BY, UNION, min, max.
    Representative,
    /// An aggregate whose result depends on the order of its input.
    AggregateOrder(Name),
    /// A sum of floating-point numbers, or of values of a type that is not known.
    FloatSum(Name),
    /// A window function without an order in which no two rows are equal.
    WindowOrder(Name),
    /// ARRAY(SELECT ..) without such an order.
    ArrayOrder,
    /// A row that is changed may match several rows of FROM or USING, of which any one wins.
    SeveralMatches,
    /// Several rows get new values of a unique key: the order of rows decides whether one is in another's way.
    KeyOrder(String),
    /// ON CONFLICT with rows from a query: their order decides which of them is kept.
    ConflictOrder,
    /// Two parts of the statement change the same table, in an order of the server's choice.
    SameTable(String),
    /// FOR UPDATE or SHARE that skips or gives up on what others have locked.
    SkipsLocked,
    /// A random sample of a table.
    Sample,
    /// WHERE CURRENT OF: a cursor stands on one server.
    Cursor,
    /// A sequence gives out a value, or starts anew.
    Sequence(Name),
    /// The value of a column that the statement leaves out, for the reason given.
    Default(String, Box<Self>),
    /// Triggers, rules or functions in checks and indexes of the table.
    Triggers(String),
    /// Row security of the table.
    Policies(String),
    /// A column of a type that is not built in: its input and comparison are code that is not known.
    UserTypes(String),
    /// Each replica would compute its own value.
    OwnValue,
    /// A call that has to be replaced gives a column its name.
    ColumnName,
    /// A call that has to be replaced stands in FROM.
    CallInFrom,
    /// A foreign key's action reaches a table for which the reason given holds.
    Action(String, Box<Self>),
    /// More places would have to be rewritten than a rewrite may have.
    TooManyPlaces,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind => f.write_str("it is not a statement about rows"),
            Self::TooLarge => f.write_str("it is too large to be looked into"),
            Self::NotUnderstood(what) => write!(f, "{what} is not understood"),
            Self::Function(name) => write!(f, "function {name} may give another result each time"),
            Self::UserFunction(name) => write!(f, "function {name} did not come with the server"),
            Self::UserOperator(name) => write!(f, "operator {name} may not be the server's own"),
            Self::UserCasts => f.write_str("casts between built-in types may not be the server's own"),
            Self::Type(name) => write!(f, "type {name} is not a plain built-in one"),
            Self::Relation(name) => write!(f, "{name} is not one known table"),
            Self::Catalogue(name) => write!(f, "system catalogue {name} differs between servers"),
            Self::SystemColumn(name) => write!(f, "system column {name} differs between servers"),
            Self::ClockWord => f.write_str("a constant such as 'now' is read off the clock"),
            Self::ClockCast(name) => write!(f, "text becomes {name}, and could say 'now'"),
            Self::Setting(name) => write!(f, "setting {name} does not travel with statements"),
            Self::Limit => f.write_str("LIMIT or OFFSET without a total order of rows"),
            Self::DistinctOn => f.write_str("DISTINCT ON without a total order of rows"),
            Self::Representative => {
                f.write_str("one of several equal values stays, and they may look different")
            }
            Self::AggregateOrder(name) => write!(f, "the result of {name} depends on the order of rows"),
            Self::FloatSum(name) => {
                write!(
                    f,
                    "{name} of floating-point numbers, or of an unknown type, depends on the order of rows"
                )
            }
            Self::WindowOrder(name) => write!(f, "window function {name} without a total order of rows"),
            Self::ArrayOrder => f.write_str("ARRAY(SELECT ..) without a total order of rows"),
            Self::SeveralMatches => f.write_str("a row may match several others, of which any one wins"),
            Self::KeyOrder(table) => {
                write!(
                    f,
                    "several rows of {table} get new unique keys, and their order decides about conflicts"
                )
            }
            Self::ConflictOrder => {
                f.write_str("ON CONFLICT with rows of a query, whose order decides which is kept")
            }
            Self::SameTable(table) => write!(f, "two parts of the statement change {table}"),
            Self::SkipsLocked => f.write_str("SKIP LOCKED or NOWAIT depends on what else runs"),
            Self::Sample => f.write_str("TABLESAMPLE depends on where rows lie"),
            Self::Cursor => f.write_str("CURRENT OF depends on a cursor of one server"),
            Self::Sequence(name) => write!(f, "sequence {name} gives out values or starts anew"),
            Self::Default(column, why) => write!(f, "the default of column {column}: {why}"),
            Self::Triggers(table) => write!(f, "triggers, rules or functions in checks of {table}"),
            Self::Policies(table) => write!(f, "row security of {table}"),
            Self::UserTypes(table) => write!(f, "{table} has columns of types that are not built in"),
            Self::OwnValue => f.write_str("each replica would compute its own value"),
            Self::ColumnName => {
                f.write_str("a call that would have to be replaced gives a column its name; name it with AS")
            }
            Self::CallInFrom => f.write_str("a call that would have to be replaced stands in FROM"),
            Self::Action(table, why) => write!(f, "a foreign key's action on {table}: {why}"),
            Self::TooManyPlaces => f.write_str("too many calls would have to be replaced"),
        }
    }
}
