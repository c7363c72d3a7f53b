//! Kinds of types: as little of an expression's type as the rules about order need.

use pg_query::NodeEnum;
use pg_query::protobuf::{AExpr, AExprKind, FuncCall, Node, TypeCast, a_const};

use super::walk::{Walk, is_plain_constant};
use crate::ast_scan::names_in;
use crate::catalogue::Column;
use crate::name::Name;

/// Classes of types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// int2, int4, int8.
    Integer,
    /// numeric: sums are exact, but equal values may have different scales.
    Numeric,
    /// numeric with a declared scale.
    Scaled,
    /// Text whose equal values have equal bytes.
    Text,
    /// varchar, of which the same holds, but whose comparison with `char(n)` is the latter's.
    Varchar,
    /// `char(n)`, padded to a declared length.
    Padded,
    /// Any other type of which equal values look the same, and which is no text.
    Exact,
    /// A type that is known not to be text, and no more: interval, float, jsonb, money, ...
    Other,
    /// Not known, or a text whose equal values may look different.
    Unknown,
}

impl Kind {
    /// Equal values look the same.
    pub(super) fn is_exact(self) -> bool {
        matches!(self, Self::Scaled | Self::Padded) || self.stays_exact()
    }

    /// The same among values of several columns, whose scales and lengths may differ.
    pub(super) fn stays_exact(self) -> bool {
        matches!(self, Self::Integer | Self::Text | Self::Varchar | Self::Exact)
    }

    /// Sums do not depend on the order of the summands.
    pub(super) fn sums_exactly(self) -> bool {
        matches!(self, Self::Integer | Self::Numeric | Self::Scaled)
    }

    /// It cannot hold a text, so that a cast to a date cannot meet the word `now`.
    pub(super) fn is_no_text(self) -> bool {
        !matches!(self, Self::Text | Self::Varchar | Self::Padded | Self::Unknown)
    }

    pub(super) fn of_column(column: &Column) -> Self {
        match column.type_oid {
            20 | 21 | 23 => Self::Integer,
            1700 if column.type_mod >= 0 => Self::Scaled,
            1700 => Self::Numeric,
            19 | 25 if column.collation_deterministic => Self::Text,
            1043 if column.collation_deterministic => Self::Varchar,
            1042 if column.collation_deterministic && column.type_mod >= 0 => Self::Padded,
            // bool, bytea, oid, macaddr, uuid, date, timestamp, timestamptz, any enum
            16 | 17 | 26 | 829 | 2950 | 1082 | 1114 | 1184 | 3500 => Self::Exact,
            // float4, float8, money, time, timetz, interval, inet, cidr, bit, varbit, json, jsonb
            700 | 701 | 790 | 1083 | 1266 | 1186 | 869 | 650 | 1560 | 1562 | 114 | 3802 => Self::Other,
            _ => Self::Unknown,
        }
    }

    /// The kind of a built-in type by the name that a cast gives it.
    fn of_type(name: &str) -> Self {
        match name {
            "int2" | "int4" | "int8" => Self::Integer,
            "numeric" => Self::Numeric,
            "text" => Self::Text,
            "varchar" => Self::Varchar,
            "bool" | "bytea" | "uuid" | "date" | "timestamp" | "timestamptz" => Self::Exact,
            "float4" | "float8" | "money" | "time" | "timetz" | "interval" | "json" | "jsonb" => Self::Other,
            _ => Self::Unknown,
        }
    }

    /// The kind that both have.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b && a.stays_exact() => a,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (a, b) if a.sums_exactly() && b.sums_exactly() => Self::Numeric,
            (a, b) if a.is_no_text() && b.is_no_text() => Self::Other,
            _ => Self::Unknown,
        }
    }

    /// The result of an arithmetic operator.
    fn arithmetic(self, other: Self) -> Self {
        if self == Self::Integer && other == Self::Integer {
            return Self::Integer;
        }
        if self.sums_exactly() && other.sums_exactly() {
            return Self::Numeric;
        }
        if self.is_no_text() && other.is_no_text() { Self::Other } else { Self::Unknown }
    }
}

impl Walk<'_> {
    /// The kind of an expression's type. Users' operators and functions are another rule's affair.
    pub(super) fn kind(&self, node: &Node) -> Kind {
        let Some(node) = &node.node else { return Kind::Unknown };
        match node {
            NodeEnum::ColumnRef(column) => {
                self.column(&names_in(&column.fields)).map_or(Kind::Unknown, |found| found.kind())
            }
            NodeEnum::AConst(constant) => match &constant.val {
                Some(a_const::Val::Ival(_)) => Kind::Integer,
                Some(a_const::Val::Fval(_)) => Kind::Numeric,
                Some(a_const::Val::Boolval(_)) => Kind::Exact,
                _ => Kind::Unknown,
            },
            NodeEnum::TypeCast(cast) => self.kind_of_cast(cast),
            NodeEnum::SqlvalueFunction(value) => {
                if super::function::clock_cast(value.op, value.typmod).is_some() {
                    Kind::Other
                } else {
                    Kind::Unknown
                }
            }
            NodeEnum::AExpr(expression) => self.kind_of_operator(expression),
            NodeEnum::CoalesceExpr(coalesce) => self.kind_of_all(&coalesce.args),
            NodeEnum::MinMaxExpr(extreme) => self.kind_of_all(&extreme.args),
            NodeEnum::BoolExpr(_) | NodeEnum::NullTest(_) | NodeEnum::BooleanTest(_) => Kind::Exact,
            NodeEnum::CaseExpr(case) => {
                let results = case.args.iter().filter_map(|when| match &when.node {
                    Some(NodeEnum::CaseWhen(when)) => when.result.as_deref(),
                    _ => None,
                });
                let all = results.chain(case.defresult.as_deref()).map(|result| self.kind(result));
                all.reduce(Kind::join).unwrap_or(Kind::Unknown)
            }
            NodeEnum::FuncCall(call) => self.kind_of_call(call),
            _ => Kind::Unknown,
        }
    }

    fn kind_of_cast(&self, cast: &TypeCast) -> Kind {
        let Some(of) = &cast.type_name else { return Kind::Unknown };
        let kind = match Name::from_parts(names_in(&of.names)) {
            Some(name) if of.array_bounds.is_empty() => Kind::of_type(&name.name),
            _ => Kind::Unknown,
        };
        // A text keeps the collation of what was cast.
        let argument = cast.arg.as_deref();
        let collated = matches!(kind, Kind::Text | Kind::Varchar)
            && argument.is_some_and(|node| !is_plain_constant(node) && self.kind(node) == Kind::Unknown);
        if collated { Kind::Unknown } else { kind }
    }

    fn kind_of_all(&self, nodes: &[Node]) -> Kind {
        nodes.iter().map(|node| self.kind(node)).reduce(Kind::join).unwrap_or(Kind::Unknown)
    }

    fn kind_of_operator(&self, expression: &AExpr) -> Kind {
        let name = names_in(&expression.name);
        let right = || expression.rexpr.as_deref().map_or(Kind::Unknown, |node| self.kind(node));
        let left = || expression.lexpr.as_deref().map_or_else(right, |node| self.kind(node));
        match AExprKind::try_from(expression.kind) {
            Ok(AExprKind::AexprOp) => match name.last().map_or("", String::as_str) {
                "+" | "-" | "*" | "/" | "%" => left().arithmetic(right()),
                "=" | "<>" | "<" | "<=" | ">" | ">=" => Kind::Exact,
                _ => Kind::Unknown,
            },
            Ok(AExprKind::AexprNullif) => left(),
            _ => Kind::Unknown,
        }
    }

    fn kind_of_call(&self, call: &FuncCall) -> Kind {
        let argument = || call.args.first().map_or(Kind::Unknown, |node| self.kind(node));
        let names = names_in(&call.funcname);
        match names.last().map_or("", String::as_str) {
            "count" | "length" | "char_length" | "row_number" | "rank" | "dense_rank" => Kind::Integer,
            "min" | "max" => argument(),
            "date_trunc" => call.args.get(1).map_or(Kind::Unknown, |node| self.kind(node)),
            "sum" if argument() == Kind::Integer => Kind::Numeric,
            "sum" | "abs" | "round" | "trunc" | "floor" | "ceil" | "mod" => {
                argument().arithmetic(Kind::Numeric)
            }
            "now" | "transaction_timestamp" | "statement_timestamp" | "clock_timestamp" | "make_date" => {
                Kind::Exact
            }
            "lower" | "upper" | "btrim" | "ltrim" | "rtrim" | "substring" | "left" | "right" => {
                match argument() {
                    Kind::Text | Kind::Varchar => Kind::Text,
                    _ => Kind::Unknown,
                }
            }
            _ => Kind::Unknown,
        }
    }
}
