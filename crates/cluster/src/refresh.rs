//! Refresh: how the records of a batch are turned into work for a replica that did not execute them.
//!
//! A record names rows by their images. Here each becomes the values of a prepared statement, alone or with a few others,
//! a row of a binary COPY, or an element of arrays that one statement unnests; statements of schema changes stay what they
//! are. The images carry the type numbers of the server that wrote them, and those of user types differ between servers:
//! so parameters are declared with the numbers of the replica's own catalogue, and only the built-in ones are compared.
//! Images have text for types that do not take back the binary form that they send. The server reads it as input.
//!
//! Why this may reorder: on a replica no trigger, cascade or foreign key check fires for the applier, so changes of
//! different tables do not meet, and the whole batch becomes visible at once. Within a table a key's changes are folded
//! into their net effect, and deletes go before updates before inserts. An update that changes what another unique index
//! looks at becomes a delete and an insert, so that no such index can object on the way. Rows of a table without a key
//! are found by their image, and so are those of a table whose key is deferrable, since two rows may hold it for a while.
//!
//! A replica that holds only some tables, or parts of tables, has the definitions of all, but leaves out the other rows. A row that
//! moves between parts may come into being there, or go away.
//!
//! Invariant: every statement says how many rows it must report; any other number means that the replica has diverged.
//!
//! Not here: the connection, the transaction, the identities of what was applied.

mod digest;
mod encode;
mod fold;
mod net;
mod plan;
mod sandbox;
mod statements;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use wire::encode::Format;

use crate::ids::TableId;
use crate::record::{Image, ImageError};

pub use digest::digest;
pub use encode::{copy_footer, copy_header, copy_row, unnested};
pub use plan::{RowImages, Step, plan};
pub use sandbox::{Sandbox, StagedColumn};
pub use statements::{ColumnSet, Kind, Sql, StatementKey};

/// OIDs below this come with every server and mean the same everywhere.
const FIRST_USER_OID: u32 = 16384;
/// Of `text`.
const TEXT_OID: u32 = 25;

/// How the values of a column travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As its type sends them.
    Binary,
    /// As text, since its type does not take back in binary form all that it sends. Records of earlier releases have them in
    /// binary form, and an image says by the type of a value which form it has.
    Text,
}

/// The statements that may write a column's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// At insert and update.
    Always,
    /// At insert only: GENERATED ALWAYS AS IDENTITY.
    AtInsert,
    /// Never: the server computes it.
    Never,
}

/// A live column, as the applier sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefreshColumn {
    /// The name in quotes.
    pub name: String,
    /// The type's OID at this replica.
    pub type_oid: u32,
    /// How its values travel.
    pub form: Form,
    /// The OID of the array type over it; None when its values cannot be told apart once they are array elements.
    pub array_oid: Option<u32>,
    /// The operator of equality in the primary key's index, in a form that no search path changes.
    pub equals: String,
    /// The statements that may write it.
    pub written: Written,
}

/// A table, as the applier sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefreshTable {
    /// Our number.
    pub id: TableId,
    /// Schema and name, in quotes.
    pub name: String,
    /// Live columns in the order of their attribute numbers, which is that of the images.
    pub columns: Vec<RefreshColumn>,
    /// Indexes into `columns`; empty without a primary key.
    pub primary_key: Vec<usize>,
    /// The primary key is checked at the end of statements or transactions only: until then two rows may hold it.
    pub key_is_deferrable: bool,
    /// Indexes of the columns that matter to a unique or exclusion index beside the primary key's.
    pub other_unique: Vec<usize>,
    /// The search path of users' code that runs when rows are written (of indexes, CHECKs, domains), if there is such code.
    pub code_path: Option<String>,
    /// Writing its rows calls code that must not run with the applier's rights.
    pub sandbox: Option<Sandbox>,
}

/// The tables of one replica.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RefreshTables(BTreeMap<TableId, RefreshTable>);

impl RefreshTables {
    /// Adds a table.
    pub fn insert(&mut self, table: RefreshTable) {
        self.0.insert(table.id, table);
    }

    /// The table of a number; an error when the replica has none.
    pub fn table(&self, id: TableId) -> Result<&RefreshTable, RefreshError> {
        self.0.get(&id).ok_or(RefreshError::UnknownTable { table: id })
    }

    /// All tables, by number.
    pub fn iter(&self) -> impl Iterator<Item = &RefreshTable> {
        self.0.values()
    }
}

/// Why a record cannot be applied at this replica: its schema is not the one that the record was made with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RefreshError {
    /// There is no table of that number.
    UnknownTable {
        /// The number.
        table: TableId,
    },
    /// The bytes are no row image.
    BadImage {
        /// The table's name.
        table: String,
        /// The error.
        error: ImageError,
    },
    /// The image has other columns than the table.
    OtherColumns {
        /// The table's name.
        table: String,
        /// The difference.
        difference: String,
    },
    /// A statement stands among the rows; it has to be run between two plans.
    Statement,
    /// Items in a file have to be planned chunk by chunk, before the others.
    Spilled,
    /// The changes of one row contradict each other, as an insert of what is there.
    Inconsistent {
        /// The table's name.
        table: String,
    },
}

impl fmt::Display for RefreshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTable { table } => write!(f, "there is no table of number {}", table.number),
            Self::BadImage { table, error } => write!(f, "table {table}: {error}"),
            Self::OtherColumns { table, difference } => write!(f, "table {table}: {difference}"),
            Self::Statement => f.write_str("a statement stands among the rows of one plan"),
            Self::Spilled => f.write_str("items in a file were to be planned as one"),
            Self::Inconsistent { table } => {
                write!(f, "table {table}: changes of a row contradict each other")
            }
        }
    }
}

impl std::error::Error for RefreshError {}

/// A value of an image, checked against its column.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Value<'a> {
    /// None is NULL.
    pub bytes: Option<&'a [u8]>,
    /// How a server has to read it. That counts for NULL, too: a type may lack the function.
    pub format: Format,
}

#[cfg(test)]
impl<'a> Value<'a> {
    pub(crate) fn binary(bytes: &'a [u8]) -> Self {
        Self { bytes: Some(bytes), format: Format::Binary }
    }
}

/// The values of an image.
type Values<'a> = Vec<Value<'a>>;

impl RefreshTable {
    /// Reads an image of this table's rows.
    fn values<'a>(&self, image: &'a [u8]) -> Result<Values<'a>, RefreshError> {
        let image = Image::parse(image)
            .map_err(|error| RefreshError::BadImage { table: self.name.clone(), error })?;
        let differs = |difference| RefreshError::OtherColumns { table: self.name.clone(), difference };
        if image.width() != self.columns.len() {
            let difference = format!("{} columns instead of {}", image.width(), self.columns.len());
            return Err(differs(difference));
        }
        image
            .columns()
            .zip(&self.columns)
            .enumerate()
            .map(|(at, (column, own))| {
                // User types have other numbers elsewhere, but they are user types there, too.
                let same =
                    column.type_oid == own.type_oid || column.type_oid.min(own.type_oid) >= FIRST_USER_OID;
                let is_text = own.form == Form::Text && column.type_oid == TEXT_OID;
                if !is_text && column.value.is_some() && self.is_read_inside(at) {
                    Err(differs(format!("column {} has a value in the form of an earlier release", own.name)))
                } else if same || is_text {
                    let format = if is_text { Format::Text } else { Format::Binary };
                    Ok(Value { bytes: column.value, format })
                } else {
                    let difference = format!(
                        "column {} has type {} instead of {}",
                        own.name, column.type_oid, own.type_oid
                    );
                    Err(differs(difference))
                }
            })
            .collect()
    }

    /// Whether `values` and `others` agree on the columns that `which` chooses.
    fn agree(values: &Values<'_>, others: &Values<'_>, mut which: impl Iterator<Item = usize>) -> bool {
        which.all(|at| values[at] == others[at])
    }

    /// The primary key's values in an image.
    fn key_of<'a>(&self, image: &'a [u8]) -> Result<Values<'a>, RefreshError> {
        let values = self.values(image)?;
        Ok(self.primary_key.iter().map(|&at| values[at]).collect())
    }

    /// Whether UPDATE may turn one row into another of the same key: not if it can set nothing at all, or that changes what only
    /// an insert can write, nor, unless the row is the only one that changes, what another unique index looks at.
    fn may_update(&self, old: &[u8], new: &[u8], is_alone: bool) -> Result<bool, RefreshError> {
        if !self.is_settable() {
            return Ok(false);
        }
        let guarded: &[usize] = if is_alone { &[] } else { &self.other_unique };
        if guarded.is_empty() && self.fixed().next().is_none() {
            return Ok(true);
        }
        let (old, new) = (self.values(old)?, self.values(new)?);
        Ok(Self::agree(&old, &new, self.fixed().chain(guarded.iter().copied())))
    }

    /// The columns that UPDATE has to write to turn one row into another of the same key. Those of the same bytes stay as
    /// they are, whichever server has sent these: a value that is only stored in another form is written once more.
    fn changed(&self, old: &[u8], new: &[u8]) -> Result<ColumnSet, RefreshError> {
        let (old, new) = (self.values(old)?, self.values(new)?);
        Ok(self.updated().filter(|&at| old[at] != new[at]).collect())
    }

    /// Whether the primary key tells the rows apart at any time.
    fn has_key(&self) -> bool {
        !self.primary_key.is_empty() && !self.key_is_deferrable
    }

    /// Whether equal keys of one row have the same bytes whichever server reports them. Values of arrays and composites
    /// can be stored in several forms.
    fn has_plain_key(&self) -> bool {
        self.primary_key
            .iter()
            .all(|&at| self.columns[at].array_oid.is_some() || self.columns[at].form == Form::Text)
    }

    /// Whether rows are found by keys that stand in another table: not where the elements of arrays cannot be told apart.
    fn joins(&self) -> bool {
        self.primary_key.iter().all(|&at| self.columns[at].array_oid.is_some())
    }

    /// Whether values of all columns that an update or delete needs can be elements of arrays.
    fn unnests(&self) -> bool {
        let is_element = |at: usize| self.array_oid(at).is_some();
        (0..self.columns.len()).all(|at| self.columns[at].written == Written::Never || is_element(at))
    }

    /// Whether rows can be copied: not where some values are text, since a COPY has one format for all, nor in a sandbox.
    fn copies(&self) -> bool {
        self.sandbox.is_none()
            && self
                .columns
                .iter()
                .all(|column| column.written == Written::Never || column.form == Form::Binary)
    }

    /// Indexes of the columns that an insert writes.
    fn inserted(&self) -> impl Iterator<Item = usize> + '_ {
        self.chosen(|column| column.written != Written::Never)
    }

    /// Indexes of the columns that an update writes; it keeps the key.
    fn updated(&self) -> impl Iterator<Item = usize> + '_ {
        self.chosen(|column| column.written == Written::Always).filter(|at| !self.primary_key.contains(at))
    }

    /// Whether UPDATE can set any column, if only to what it is.
    fn is_settable(&self) -> bool {
        self.chosen(|column| column.written == Written::Always).next().is_some()
    }

    /// Indexes of the columns that only an insert can write.
    fn fixed(&self) -> impl Iterator<Item = usize> + '_ {
        self.chosen(|column| column.written == Written::AtInsert)
    }

    fn chosen(&self, which: fn(&RefreshColumn) -> bool) -> impl Iterator<Item = usize> + '_ {
        self.columns.iter().enumerate().filter(move |(_, column)| which(column)).map(|(at, _)| at)
    }
}
