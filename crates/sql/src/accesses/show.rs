//! Accesses as people read them: `read orders [total] {id = $1}`.
//!
//! One line for each access. A star means all columns; rows are alternatives in braces, and none of those means all rows.
//! Of an outline, parameters are shown as `$1` and constants as `?1`, both counted from one.

use std::fmt::Write as _;

use super::bind::{Operand, Slot, Use};
use super::outline::{Outline, RowsId, RowsOutline};
use super::{Access, Accesses, ColumnSet, Columns, Rows, Strength, Why};
use crate::catalogue::{Catalogue, Table, TableId};

impl Accesses {
    /// One line for each access, in the order in which they are kept.
    pub fn describe(&self, catalogue: &Catalogue) -> Vec<String> {
        let show = Show { catalogue };
        let access = |word: &str, access: &Access| {
            let columns = show.columns(access.table, access.columns);
            let word = if access.new { "insert" } else { word };
            format!("{word} {}{columns}{}", show.table(access.table), show.rows(access.table, &access.rows))
        };
        let mut lines: Vec<String> = self.unbounded.iter().map(|why| show.why(why)).collect();
        lines.extend(self.reads.iter().map(|read| access("read", read)));
        lines.extend(self.writes.iter().map(|write| access("write", write)));
        for claim in &self.claims {
            let rows = show.rows(claim.table, &claim.rows);
            lines.push(format!("{}{rows}", show.claim(claim.table, claim.key, claim.exclusive)));
        }
        for lock in &self.locks {
            let rows = show.rows(lock.table, &lock.rows);
            lines.push(format!("{} {}{rows}", strength(lock.strength), show.table(lock.table)));
        }
        lines
    }
}

impl Outline {
    /// One line for each access, values as they stand in the template.
    pub fn describe(&self, catalogue: &Catalogue) -> Vec<String> {
        let show = Show { catalogue };
        let mut lines: Vec<String> = self.unbounded.iter().map(|why| show.why(why)).collect();
        for (word, accesses) in [("read", &self.reads), ("write", &self.writes)] {
            for access in accesses {
                let word = if access.new { "insert" } else { word };
                let columns = show.columns(access.table, access.columns);
                let rows = self.show_rows(&show, access.table, access.rows);
                lines.push(format!("{word} {}{columns}{rows}", show.table(access.table)));
            }
        }
        for claim in &self.claims {
            let rows = self.show_rows(&show, claim.table, claim.rows);
            lines.push(format!("{}{rows}", show.claim(claim.table, claim.key, claim.exclusive)));
        }
        for lock in &self.locks {
            let rows = self.show_rows(&show, lock.table, lock.rows);
            lines.push(format!("{} {}{rows}", strength(lock.strength), show.table(lock.table)));
        }
        lines
    }

    fn show_rows(&self, show: &Show<'_>, table: TableId, rows: RowsId) -> String {
        let RowsOutline::AnyOf(branches) = self.rows[rows.0].unguarded() else { return String::new() };
        let branch = |branch: &Vec<(usize, usize)>| {
            let equalities = branch.iter().map(|&(column, slot)| {
                format!("{} {}", show.column(table, column), self.slots[slot].show(&self.untrusted))
            });
            equalities.collect::<Vec<_>>().join(", ")
        };
        alternatives(branches.iter().map(branch))
    }
}

impl Slot {
    fn show(&self, untrusted: &[u32]) -> String {
        let doubt = if self.operand.is_untrusted(untrusted) { " if its type is given" } else { "" };
        match (&self.operand, self.usage) {
            (operand, _) if operand.is_list() => format!("in {}{doubt}", self.operand.show()),
            (operand, Use::Same) => format!("is {}{doubt}", operand.show()),
            (operand, _) => format!("= {}{doubt}", operand.show()),
        }
    }
}

impl Operand {
    fn show(&self) -> String {
        match self {
            Self::Constant { index, negative } => {
                format!("{}?{}", if *negative { "-" } else { "" }, index + 1)
            }
            Self::Parameter(number) => format!("${number}"),
            Self::Null => "NULL".to_owned(),
            Self::Bool(truth) => truth.to_string(),
            Self::Number(digits) => digits.clone(),
            Self::Text(text) => format!("'{}'", text.replace('\'', "''")),
            Self::Cast(operand, form) => format!("{}::{form:?}", operand.show()),
            Self::CastArray(operand, form) => format!("{}::{form:?}[]", operand.show()),
            Self::List(operands) => {
                format!("({})", operands.iter().map(Self::show).collect::<Vec<_>>().join(", "))
            }
            Self::Array(operand) => operand.show(),
            Self::Element { array, .. } => format!("each of {}", array.show()),
            Self::When(_, operand) => format!("{} perhaps", operand.show()),
            Self::Variable(name) => name.clone(),
            Self::Unknown => "?".to_owned(),
            Self::Fresh => "fresh".to_owned(),
        }
    }

    fn is_untrusted(&self, untrusted: &[u32]) -> bool {
        match self {
            Self::Parameter(number) => untrusted.contains(number),
            Self::Cast(operand, _) | Self::CastArray(operand, _) | Self::Array(operand) => {
                operand.is_untrusted(untrusted)
            }
            Self::List(operands) => operands.iter().any(|operand| operand.is_untrusted(untrusted)),
            Self::Element { array: operand, .. } | Self::When(_, operand) => operand.is_untrusted(untrusted),
            _ => false,
        }
    }
}

struct Show<'a> {
    catalogue: &'a Catalogue,
}

impl Show<'_> {
    fn known(&self, id: TableId) -> Option<&Table> {
        self.catalogue.table(id)
    }

    fn table(&self, id: TableId) -> String {
        match self.known(id) {
            Some(table) if table.schema == "public" => table.name.clone(),
            Some(table) => format!("{}.{}", table.schema, table.name),
            None => format!("table {}", id.number),
        }
    }

    fn column(&self, id: TableId, position: usize) -> String {
        let column = self.known(id).and_then(|table| table.columns.get(position));
        column.map_or_else(|| position.to_string(), |column| column.name.clone())
    }

    fn columns(&self, id: TableId, columns: Columns) -> String {
        match columns {
            Columns::All => " *".to_owned(),
            Columns::Some(set) => format!(" [{}]", self.names(id, set)),
        }
    }

    fn names(&self, id: TableId, set: ColumnSet) -> String {
        set.positions().map(|at| self.column(id, at)).collect::<Vec<_>>().join(", ")
    }

    fn rows(&self, id: TableId, rows: &Rows) -> String {
        let Rows::AnyOf(matches) = rows else { return String::new() };
        let one = |one: &super::Match| {
            let equalities = one.equalities().iter();
            let show = equalities
                .map(|equality| format!("{} = {}", self.column(id, equality.column), equality.value));
            show.collect::<Vec<_>>().join(", ")
        };
        alternatives(matches.iter().map(one))
    }

    fn claim(&self, id: TableId, key: usize, exclusive: bool) -> String {
        let columns =
            self.known(id).and_then(|table| table.keys.get(key)).map_or(&[][..], |key| &key.columns);
        let names: Vec<_> = columns.iter().map(|&at| self.column(id, at)).collect();
        let word = if exclusive { "claim" } else { "rely on" };
        format!("{word} {}({})", self.table(id), names.join(", "))
    }

    fn why(&self, why: &Why) -> String {
        let reason = match why {
            Why::Opaque(opaque) => format!("not understood ({opaque:?})"),
            Why::Kind(kind) => (*kind).to_owned(),
            Why::Relation(name) => format!("{name} is not a table"),
            Why::Catalogue => "system catalogues".to_owned(),
            Why::Function(name) => format!("function {name}"),
            Why::Operator(name) => format!("operator {name}"),
            Why::Type(name) => format!("type {name}"),
            Why::Column(name) => format!("{name} may be a function"),
            Why::Casts => "users' casts".to_owned(),
            Why::RowSecurity(id) => format!("row security of {}", self.table(*id)),
            Why::CodedTypes(id) => format!("types of {}", self.table(*id)),
            Why::Triggers(id) => format!("triggers, rules or defaults of {}", self.table(*id)),
            Why::References(id) => format!("foreign keys of {}", self.table(*id)),
        };
        format!("anything: {reason}")
    }
}

fn alternatives(all: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for (at, one) in all.enumerate() {
        let separator = if at == 0 { "" } else { " or" };
        write!(text, "{separator} {{{one}}}").expect("a String takes everything");
    }
    if text.is_empty() { " none".to_owned() } else { text }
}

fn strength(strength: Strength) -> &'static str {
    match strength {
        Strength::Share => "lock (share)",
        Strength::Update => "lock (update)",
        Strength::Exclusive => "lock (exclusive)",
    }
}
