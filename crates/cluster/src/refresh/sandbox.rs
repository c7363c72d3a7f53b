//! Statements that run in a sandbox: as the owner of the table, in a security-restricted operation of the server.
//!
//! Tables with CHECKs, indexes and the like that call code of users are written so, as the applier is a superuser. Code must
//! not run outside when values are read either, as that of domains would be. So a portal of harmless types is opened outside,
//! each of its rows with the values for one row, and a statement inside fetches them and turns them into the columns' types.
//! The former is what [`RefreshTable::sql`] gives of such tables.

use std::fmt::Write as _;

use super::statements::{Kind, Sql, rows_of_values, unnest};
use super::{Form, RefreshTable};

/// The facts that the applier needs to write a table in the sandbox of its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sandbox {
    /// One for each column of the table.
    pub columns: Vec<StagedColumn>,
}

/// A column's values on the way into a sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StagedColumn {
    /// The OID of a type that runs no code of users when it is read, at this replica.
    pub type_oid: u32,
    /// Its name, as SQL.
    pub type_name: String,
    /// The OID of the array type over it; None when its values cannot be told apart once they are array elements.
    pub array_oid: Option<u32>,
    /// The value is text, of which the sandbox reads one of the column's type.
    pub is_read_inside: bool,
    /// SQL that stands before a value of this type, and makes one of the column's type of it.
    pub before: String,
    /// The same behind it.
    pub behind: String,
}

/// A statement may not return rows without columns.
const NOTHING: &str = "SELECT 1";
const NOTHING_OF: &str = "c1 integer";

impl RefreshTable {
    /// The statement of a kind that runs in the sandbox, if the table has one.
    pub fn sandboxed_sql(&self, kind: Kind) -> Option<String> {
        let sandbox = self.sandbox.as_ref()?;
        let bound = self.bound_columns(kind);
        let source = source(sandbox, &bound);
        let value = |number: usize, at: usize| {
            let StagedColumn { before, behind, .. } = &sandbox.columns[at];
            format!("{before}u.c{}{behind}", number + 1)
        };
        let name = &self.name;
        if kind.is_insert() {
            let values: Vec<_> = bound.iter().enumerate().map(|(number, &at)| value(number, at)).collect();
            let columns = self.names(bound.iter().copied());
            let columns = if bound.is_empty() { columns } else { format!(" ({columns})") };
            let values = values.join(", ");
            return Some(format!(
                "INSERT INTO {name}{columns} OVERRIDING SYSTEM VALUE SELECT {values} FROM {source}"
            ));
        }
        let written: Vec<usize> = kind.updated().map_or_else(Vec::new, |set| self.updated_of(set).collect());
        let known = |number: usize, at: usize| value(written.len() + number, at);
        let found = if self.has_key() && self.joins() {
            self.key_condition(|number| format!("ANY (ARRAY[{}])", known(number, self.primary_key[number])))
        } else {
            self.found(known)
        };
        let mut set = String::new();
        for (number, &at) in written.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            let _ = write!(set, "{comma}{} = {}", self.columns[at].name, value(number, at));
        }
        Some(match kind {
            Kind::Delete | Kind::DeleteFew(_) | Kind::DeleteMany => {
                format!("DELETE FROM ONLY {name} AS t USING {source} WHERE {found}")
            }
            Kind::Keep | Kind::KeepMany => {
                format!("UPDATE ONLY {name} AS t SET {} FROM {source} WHERE {found}", self.kept())
            }
            _ => format!("UPDATE ONLY {name} AS t SET {set} FROM {source} WHERE {found}"),
        })
    }

    /// The statement of the portal, which gives the values.
    pub(super) fn staged(&self, sandbox: &Sandbox, kind: Kind) -> Sql {
        let bound = self.bound_columns(kind);
        if bound.is_empty() {
            return Sql { text: NOTHING.to_owned(), types: Vec::new() };
        }
        if kind.is_unnesting() {
            let types = bound.iter().map(|&at| self.array_oid(at).unwrap_or_default()).collect();
            return Sql { text: format!("SELECT * FROM {}", unnest(bound.len())), types };
        }
        let types: Vec<u32> = bound.iter().map(|&at| sandbox.columns[at].type_oid).collect();
        rows_of_values(kind.rows(), &types)
    }

    /// The columns whose values a statement of this kind takes, in the order of its parameters; see [`Self::bound`].
    pub(super) fn bound_columns(&self, kind: Kind) -> Vec<usize> {
        if kind.is_insert() {
            return self.inserted().collect();
        }
        let written = kind.updated().into_iter().flat_map(|columns| self.updated_of(columns));
        written.chain(self.identified()).collect()
    }

    /// The type by which a column's values are bound.
    pub(super) fn bound_oid(&self, at: usize) -> u32 {
        self.sandbox.as_ref().map_or(self.columns[at].type_oid, |sandbox| sandbox.columns[at].type_oid)
    }

    /// The type of arrays of them.
    pub(super) fn array_oid(&self, at: usize) -> Option<u32> {
        let column = &self.columns[at];
        match &self.sandbox {
            Some(sandbox) => sandbox.columns[at].array_oid.filter(|_| column.form == Form::Binary),
            None => column.array_oid,
        }
    }

    pub(super) fn is_read_inside(&self, at: usize) -> bool {
        self.sandbox.as_ref().is_some_and(|sandbox| sandbox.columns[at].is_read_inside)
    }
}

/// The rows of the portal, inside.
fn source(sandbox: &Sandbox, bound: &[usize]) -> String {
    let column =
        |(number, &at): (usize, &usize)| format!("c{} {}", number + 1, sandbox.columns[at].type_name);
    let columns: Vec<_> = bound.iter().enumerate().map(column).collect();
    let columns = if bound.is_empty() { NOTHING_OF.to_owned() } else { columns.join(", ") };
    format!("onecopy.staged() AS u({columns})")
}
