//! An outline in words, its values as the statement gives them: `$1`, `'a'`, `any of $2`.

use super::bind::{Operand, Slot};
use super::outline::{AccessOutline, ClaimOutline, Outline, RowsId, RowsOutline};
use super::{Columns, Strength, Why};
use crate::catalogue::{Catalogue, Table, TableId};
use crate::lexer::Span;

/// More alternatives than this are counted and not told.
const MAX_TOLD: usize = 8;

/// How finely a statement's accesses are known, and so what a conflict with it is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Grade {
    Nothing,
    Rows,
    Groups,
    Columns,
    Tables,
    Anything,
}

/// The names that an outline is described with.
pub(crate) struct Teller<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) constants: &'a [Span],
    pub(crate) catalogue: &'a Catalogue,
}

impl Teller<'_> {
    /// One line for each access, as a word for its kind and what it is of.
    pub(crate) fn lines(&self, outline: &Outline) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        for access in &outline.reads {
            lines.push(("reads", self.access(outline, access)));
        }
        for access in &outline.writes {
            lines.push(("writes", self.access(outline, access)));
        }
        for claim in &outline.claims {
            let Some(table) = self.catalogue.table(claim.table) else { continue };
            let key = table.keys.get(claim.key).map_or(&[][..], |key| key.columns.as_slice());
            let columns = names(table, key.iter().copied());
            let what = format!("{} ({columns}){}", table.name, self.rows(outline, claim.rows, table));
            lines.push((if claim.exclusive { "takes" } else { "relies on" }, what));
        }
        for lock in &outline.locks {
            let Some(table) = self.catalogue.table(lock.table) else { continue };
            let strength = match lock.strength {
                Strength::Share => "against writes",
                Strength::Update => "against writes and locks",
                Strength::Exclusive => "against everything",
            };
            lines.push((
                "locks",
                format!("{}{}, {strength}", table.name, self.rows(outline, lock.rows, table)),
            ));
        }
        lines
    }

    fn access(&self, outline: &Outline, access: &AccessOutline) -> String {
        let Some(table) = self.catalogue.table(access.table) else { return "an unknown table".to_owned() };
        let columns = match access.columns {
            Columns::All => "whole rows".to_owned(),
            Columns::Some(set) if set.is_empty() => "which rows there are".to_owned(),
            Columns::Some(set) => names(table, set.positions()),
        };
        let new = if access.new { ", new" } else { "" };
        format!("{} ({columns}{new}){}", table.name, self.rows(outline, access.rows, table))
    }

    fn rows(&self, outline: &Outline, rows: RowsId, table: &Table) -> String {
        let Some(RowsOutline::AnyOf(branches)) = outline.rows.get(rows.0).map(RowsOutline::unguarded) else {
            return ": all rows".to_owned();
        };
        let branch = |branch: &Vec<(usize, usize)>| {
            let equalities = branch.iter().map(|&(column, slot)| {
                let name = table.columns.get(column).map_or("?", |column| &column.name);
                let value = outline.slots.get(slot).map_or_else(|| "?".to_owned(), |slot| self.slot(slot));
                format!("{name} = {value}")
            });
            equalities.collect::<Vec<_>>().join(" and ")
        };
        match branches.len() {
            0 => ": no rows".to_owned(),
            told @ 1..=MAX_TOLD => {
                let all: Vec<String> = branches.iter().take(told).map(branch).collect();
                format!(": {}", all.join(", or "))
            }
            more => format!(": {more} alternatives, such as {}", branch(&branches[0])),
        }
    }

    fn slot(&self, slot: &Slot) -> String {
        self.operand(&slot.operand)
    }

    fn operand(&self, operand: &Operand) -> String {
        match operand {
            Operand::Constant { index, negative } => {
                let span = usize::try_from(*index).ok().and_then(|index| self.constants.get(index));
                let bytes = span.and_then(|span| self.text.get(span.start..span.end));
                let text = bytes.map_or_else(|| "a constant".into(), String::from_utf8_lossy);
                format!("{}{text}", if *negative { "-" } else { "" })
            }
            Operand::Parameter(number) => format!("${number}"),
            Operand::Null => "NULL".to_owned(),
            Operand::Bool(truth) => truth.to_string(),
            Operand::Number(digits) => digits.clone(),
            Operand::Text(text) => format!("'{}'", text.replace('\'', "''")),
            Operand::Cast(inner, _) | Operand::CastArray(inner, _) | Operand::When(_, inner) => {
                self.operand(inner)
            }
            Operand::List(operands) => {
                let all: Vec<String> = operands.iter().map(|operand| self.operand(operand)).collect();
                format!("any of ({})", all.join(", "))
            }
            Operand::Array(inner) => format!("any of {}", self.operand(inner)),
            Operand::Element { array, .. } => format!("each of {}", self.operand(array)),
            Operand::Variable(name) => name.clone(),
            Operand::Unknown => "?".to_owned(),
            Operand::Fresh => "a new number".to_owned(),
        }
    }
}

impl Grade {
    pub(crate) fn of(outline: &Outline, catalogue: &Catalogue) -> Self {
        if outline.unbounded.is_some() {
            return Self::Anything;
        }
        let unguarded = |rows: RowsId| outline.rows.get(rows.0).map(RowsOutline::unguarded);
        let rows = |table, rows: RowsId| match (unguarded(rows), catalogue.table(table)) {
            (Some(RowsOutline::AnyOf(branches)), Some(table)) => Self::of_rows(branches, table),
            _ => Self::Tables,
        };
        let access = |access: &AccessOutline| match (rows(access.table, access.rows), access.columns) {
            (Self::Tables, Columns::Some(_)) => Self::Columns,
            (grade, _) => grade,
        };
        // No other statement asks for values that are only freed before the rows are gone.
        let takes = outline.writes.iter().any(|write| write.new || write.columns != Columns::All);
        let claim = |claim: &ClaimOutline| rows(claim.table, claim.rows);
        let is_freed = |one: &&ClaimOutline| {
            let of = |claim: &ClaimOutline| (claim.table, claim.key, claim.exclusive);
            let is_known = |other: &ClaimOutline| of(other) == of(one) && claim(other) != Self::Tables;
            claim(one) == Self::Tables && (!takes || outline.claims.iter().any(is_known))
        };
        let accesses = outline.reads.iter().chain(&outline.writes).map(access);
        let claims = outline.claims.iter().filter(|claim| !is_freed(claim)).map(claim);
        let locks = outline.locks.iter().map(|lock| rows(lock.table, lock.rows));
        accesses.chain(claims).chain(locks).max().unwrap_or(Self::Nothing)
    }

    /// Rows are known by what all alternatives tell: a unique key, or else what an index begins with or a foreign key.
    fn of_rows(branches: &[Vec<(usize, usize)>], table: &Table) -> Self {
        let tells = |columns: &[usize]| {
            let has =
                |branch: &Vec<(usize, usize)>, at: &usize| branch.iter().any(|(column, _)| column == at);
            branches.iter().all(|branch| columns.iter().all(|at| has(branch, at)))
        };
        if branches.is_empty() {
            Self::Nothing
        } else if table.keys.iter().any(|key| key.is_plain() && tells(&key.columns)) {
            Self::Rows
        } else if table.groupings.iter().any(|columns| tells(columns)) {
            Self::Groups
        } else {
            Self::Tables
        }
    }
}

impl Why {
    /// The reason why the statement is unknown, in words.
    pub(crate) fn told(&self, catalogue: &Catalogue) -> String {
        let table =
            |id: &TableId| catalogue.table(*id).map_or("a table", |table| table.name.as_str()).to_owned();
        match self {
            Self::Opaque(what) => format!("it was not understood ({what:?})"),
            Self::Kind(kind) => format!("{kind} runs what is written elsewhere, or changes the schema"),
            Self::Relation(name) => {
                format!("{name} is not a table that the catalogue has, nor bounded by one")
            }
            Self::Catalogue => "it reads system catalogues or columns, which no table holds".to_owned(),
            Self::Function(name) => format!("function {name} may do anything"),
            Self::Operator(name) => format!("operator {name} is a user's own"),
            Self::Type(name) => format!("type {name} is a user's own"),
            Self::Column(name) => format!("{name} may be a function and no column"),
            Self::Casts => "users' casts between built-in types may run unseen".to_owned(),
            Self::RowSecurity(id) => format!("policies of {} may read other tables", table(id)),
            Self::CodedTypes(id) => format!("{} has columns of types that may run users' code", table(id)),
            Self::Triggers(id) => format!("triggers, rules or defaults of {} are not bounded", table(id)),
            Self::References(id) => format!("foreign keys of {} are not known, or lead too far", table(id)),
        }
    }
}

fn names(table: &Table, columns: impl Iterator<Item = usize>) -> String {
    let names: Vec<&str> =
        columns.map(|column| table.columns.get(column).map_or("..", |column| column.name.as_str())).collect();
    names.join(", ")
}
