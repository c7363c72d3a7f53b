//! Columns and their defaults.

use pg_query::NodeEnum;
use pg_query::protobuf::{ColumnDef, ConstrType, Constraint, Node, a_const};

use super::Reader;
use super::relation::Building;
use super::types::{FIRST_USER_OID, type_of};
use crate::ast_scan::{AstScan, names_in, strings_in};
use crate::catalogue::{Column, ColumnDefault};
use crate::name::Name;
use crate::parser;

impl Reader {
    /// A column with what belongs to itself; keys and references come later.
    pub(super) fn column(&mut self, building: &mut Building, definition: &ColumnDef) {
        let Some(kind) = &definition.type_name else { return };
        let of = type_of(kind);
        building.table.user_types |= of.oid >= FIRST_USER_OID;
        let collation = definition.coll_clause.as_ref().map(|clause| names_in(&clause.collname));
        let known = collation.as_ref().map(|name| {
            let own = name.last().and_then(|name| self.collations.get(name).copied());
            own.or_else(|| is_plain_collation(name).then_some(true))
        });
        if known == Some(None) {
            self.leave_out(format!("whether the collation of {} is deterministic", definition.colname));
        }
        let fresh = Column {
            name: definition.colname.clone(),
            type_oid: of.oid,
            type_mod: of.modifier,
            not_null: of.serial || definition.is_not_null,
            collation_deterministic: known.is_none_or(|known| known == Some(true)),
            ..Column::default()
        };
        let place = super::relation::position(&building.table.columns, &fresh.name);
        let place = place.unwrap_or(building.table.columns.len());
        if place == building.table.columns.len() {
            building.table.columns.push(fresh);
        } else {
            building.table.columns[place] = fresh;
        }
        if of.serial {
            self.own_sequence(building, place);
        }
        for constraint in &definition.constraints {
            if let Some(NodeEnum::Constraint(constraint)) = &constraint.node {
                self.column_constraint(building, place, constraint);
            }
        }
    }

    fn column_constraint(&mut self, building: &mut Building, place: usize, constraint: &Constraint) {
        let column = &mut building.table.columns[place];
        match ConstrType::try_from(constraint.contype) {
            Ok(ConstrType::ConstrNotnull) => column.not_null = true,
            Ok(ConstrType::ConstrDefault) => {
                if let Some(expression) = constraint.raw_expr.as_deref() {
                    set_default(building, place, expression);
                }
            }
            Ok(ConstrType::ConstrIdentity) => self.identity(building, place, constraint),
            Ok(ConstrType::ConstrGenerated) => {
                column.generated = true;
                if let Some(expression) = constraint.raw_expr.as_deref() {
                    building.calls.extend(AstScan::of(expression).functions);
                    building.table.columns[place].default = ColumnDefault::Expression(text_of(expression));
                }
            }
            // Keys, references and checks are read when all columns are there.
            _ => {}
        }
    }

    /// GENERATED AS IDENTITY.
    pub(super) fn identity(&mut self, building: &mut Building, place: usize, constraint: &Constraint) {
        const ALWAYS: &str = "a";
        self.own_sequence(building, place);
        let column = &mut building.table.columns[place];
        column.not_null = true;
        column.identity_always = constraint.generated_when == ALWAYS;
    }

    /// A sequence that the column's type or identity makes.
    fn own_sequence(&mut self, building: &mut Building, place: usize) {
        let name = format!("{}_{}_seq", building.table.name, building.table.columns[place].name);
        let name = Name::qualified(&building.table.schema, name);
        self.other_relation(&name);
        building.table.columns[place].default = ColumnDefault::Sequence(name);
    }
}

/// DEFAULT.
pub(super) fn set_default(building: &mut Building, place: usize, expression: &Node) {
    let column = &mut building.table.columns[place];
    column.default = default_of(expression, column.type_oid);
    if matches!(column.default, ColumnDefault::Expression(_)) {
        building.calls.extend(AstScan::of(expression).functions);
    }
}

/// Collations that came with the server: all of them are deterministic.
fn is_plain_collation(name: &[String]) -> bool {
    let own = name.len() == 1 || name.first().is_some_and(|schema| schema == "pg_catalog");
    let plain = ["C", "POSIX", "default", "ucs_basic", "unicode"];
    own && name.last().is_some_and(|name| plain.contains(&name.as_str()) || name.ends_with("-x-icu"))
}

fn default_of(expression: &Node, type_oid: u32) -> ColumnDefault {
    let other = || ColumnDefault::Expression(text_of(expression));
    match &expression.node {
        Some(NodeEnum::AConst(constant)) => match &constant.val {
            _ if constant.isnull => ColumnDefault::None,
            Some(a_const::Val::Ival(number)) => ColumnDefault::Constant(number.ival.to_string()),
            Some(a_const::Val::Fval(number)) => ColumnDefault::Constant(number.fval.clone()),
            Some(a_const::Val::Boolval(truth)) => ColumnDefault::Constant(truth.boolval.to_string()),
            // The server would read such a word off the clock once, when the table is made.
            Some(a_const::Val::Sval(text)) if !crate::determinism::may_read_clock(&text.sval) => {
                ColumnDefault::Constant(text.sval.clone())
            }
            _ => other(),
        },
        Some(NodeEnum::TypeCast(cast)) => {
            let of = cast.type_name.as_ref().map(type_of);
            let own =
                of.is_some_and(|of| of.oid == type_oid && type_oid < FIRST_USER_OID && of.modifier == -1);
            match cast.arg.as_deref() {
                Some(inner) if own && matches!(inner.node, Some(NodeEnum::AConst(_))) => {
                    default_of(inner, type_oid)
                }
                _ => other(),
            }
        }
        Some(NodeEnum::FuncCall(call)) if is_next_value(&names_in(&call.funcname)) => {
            let sequence = call.args.first().map(strings_in).and_then(|texts| texts.into_iter().next());
            sequence.and_then(|text| sequence_named(&text)).map_or_else(other, ColumnDefault::Sequence)
        }
        _ => other(),
    }
}

fn is_next_value(name: &[String]) -> bool {
    name.last().is_some_and(|last| last == "nextval") && (name.len() == 1 || name[0] == "pg_catalog")
}

/// The sequence that a text names; `None` if it is quoted in a way that is not simple.
fn sequence_named(text: &str) -> Option<Name> {
    let parts: Vec<String> = text.split('.').map(|part| part.trim_matches('"').to_owned()).collect();
    let simple = parts.iter().all(|part| !part.contains('"'));
    Name::from_parts(parts).filter(|_| simple)
}

/// An expression as text.
pub(super) fn text_of(expression: &Node) -> String {
    parser::expression_text(expression).unwrap_or_default()
}
