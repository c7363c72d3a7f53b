//! Which tables, or parts of tables, only some replicas hold, over a restart: one entry of the register, a file beside the log or a
//! key of etcd.
//!
//! Example: `{"version":1,"tables":[{"table":7,"name":"public.audit","holders":["replica-1","replica-3"]}]}`. Every replica holds
//! what is not listed. A split table has `column` and `parts`, a list of holders for each part; `masters` has the tables whose updates
//! begin at some replicas. Tables go by the numbers that Onecopy gives them, which outlive a change of their names; the name is for
//! people who read it.
//!
//! Invariant: a replica in the entry has the rows of the table. One that is left out may have some; its agent empties the table there
//! before the replica serves. So the entry changes after a new holder has its rows, and before the core hears of the change.
//!
//! Non-goal: who may hold what ([`crate::membership::place_table`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use cluster::ids::{DatabaseId, ReplicaId};
use cluster::placement::{Copies, PARTS_MAX, Placement};
use commitlog::{Entry, RegisterError};
use serde::{Deserialize, Serialize};

use super::ReplicaAddress;
use super::open_error::OpenError;
use super::register::TermRegister;

/// The version of the entry's form.
const VERSION: u32 = 1;

/// The version of an entry with parts or masters. One without is still of the first, so that earlier releases read it.
const VERSION_WITH_PARTS: u32 = 2;

/// Names of replicas.
type Names = BTreeSet<String>;

/// The holders of the tables that only some replicas hold, by the number of the table.
pub(crate) type Restricted = BTreeMap<u32, PlacedTable>;

/// What the entry says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Placed {
    /// The tables that only some replicas hold.
    pub(crate) tables: Restricted,
    /// The holders of each part, for tables that are yet to be split. Empty before PLACE PARTS.
    pub(crate) parts: Vec<Names>,
    /// Where updates of a table begin, if that was chosen, by the number of the table.
    pub(crate) masters: BTreeMap<u32, Names>,
}

/// A table that only some replicas hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlacedTable {
    /// Its name when the entry was written.
    pub(crate) name: String,
    /// The names of its holders.
    pub(crate) holders: Holders,
}

/// The holders of a table, by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Holders {
    /// Of all its rows.
    Whole {
        /// Their names.
        holders: Names,
    },
    /// Of each part of its rows.
    Parts {
        /// The column by which it is split.
        column: String,
        /// The names of the holders of each part.
        parts: Vec<Names>,
    },
}

impl Holders {
    fn sets_mut(&mut self) -> &mut [Names] {
        match self {
            Self::Whole { holders } => std::slice::from_mut(holders),
            Self::Parts { parts, .. } => parts,
        }
    }

    /// Why this cannot be, if so.
    fn fault(&mut self) -> Option<&'static str> {
        let parts_max = usize::from(PARTS_MAX);
        match self.sets_mut() {
            [] => Some("has no part"),
            sets if sets.iter().any(BTreeSet::is_empty) => Some("has no holder"),
            sets if sets.len() > parts_max => Some("has too many parts"),
            _ => None,
        }
    }

    /// The same for the core.
    fn copies(&self, named: impl Fn(&String) -> Option<ReplicaId>) -> Copies {
        let set = |names: &Names| names.iter().filter_map(&named).collect();
        match self {
            Self::Whole { holders } => Copies::Whole(set(holders)),
            Self::Parts { column, parts } => {
                Copies::Parts { column: column.as_str().into(), holders: parts.iter().map(set).collect() }
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Names>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    masters: BTreeMap<u32, Names>,
    tables: Vec<TableEntry>,
}

#[derive(Serialize, Deserialize)]
struct TableEntry {
    table: u32,
    name: String,
    #[serde(flatten)]
    holders: Holders,
}

/// What each replica holds cannot be read or written.
#[derive(Debug)]
pub(crate) enum PlacementError {
    Register(RegisterError),
    /// The entry is no placement that this release knows.
    Damaged {
        location: String,
        what: String,
    },
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(error) => error.fmt(f),
            Self::Damaged { location, what } => {
                write!(f, "{location} says which replica holds which table, and cannot be read: {what}")
            }
        }
    }
}

impl std::error::Error for PlacementError {}

impl From<RegisterError> for PlacementError {
    fn from(error: RegisterError) -> Self {
        Self::Register(error)
    }
}

/// The entry of one cluster. Its calls may wait for etcd.
#[derive(Clone, Debug)]
pub(crate) struct PlacementFile {
    register: Arc<TermRegister>,
}

impl PlacementFile {
    /// The entry in this register.
    pub(crate) fn of(register: &Arc<TermRegister>) -> Self {
        Self { register: Arc::clone(register) }
    }

    /// Reads it. Without the entry every replica holds everything.
    pub(crate) fn read(&self) -> Result<Placed, PlacementError> {
        let Some(value) = self.register.read(&Entry::Placement)? else { return Ok(Placed::default()) };
        let location = self.register.location(&Entry::Placement);
        let damaged = |what: String| PlacementError::Damaged { location: location.clone(), what };
        let mut contents: Contents =
            serde_json::from_slice(&value).map_err(|error| damaged(error.to_string()))?;
        if !matches!(contents.version, VERSION | VERSION_WITH_PARTS) {
            return Err(damaged(format!(
                "it has version {}, and this is a release for versions up to {VERSION_WITH_PARTS}",
                contents.version
            )));
        }
        for entry in &mut contents.tables {
            if let Some(fault) = entry.holders.fault() {
                return Err(damaged(format!("{} {fault}", entry.name)));
            }
        }
        if contents.parts.len() > usize::from(PARTS_MAX) || contents.parts.iter().any(BTreeSet::is_empty) {
            return Err(damaged("a part has no holder, or there are too many parts".to_owned()));
        }
        let table = |TableEntry { table, name, holders }| (table, PlacedTable { name, holders });
        let tables = contents.tables.into_iter().map(table).collect();
        Ok(Placed { tables, parts: contents.parts, masters: contents.masters })
    }

    /// The placement at the start of a term, without replicas that are no members any more.
    pub(crate) fn placement(
        &self,
        members: &[ReplicaAddress],
        database: DatabaseId,
    ) -> Result<Placement, OpenError> {
        let named = |name: &String| members.iter().find(|member| member.name == *name);
        let mut placed = self.read().map_err(OpenError::kind)?;
        let mut has_left = false;
        let sets = placed.tables.values_mut().flat_map(|table| table.holders.sets_mut());
        for names in sets.chain(&mut placed.parts).chain(placed.masters.values_mut()) {
            let before = names.len();
            names.retain(|name| named(name).is_some());
            has_left |= names.len() < before;
        }
        let count = members.iter().map(|member| member.replica.0 + 1).max().unwrap_or_default();
        let mut placement = Placement::full(count);
        for (table, placed) in &mut placed.tables {
            if placed.holders.fault().is_some() {
                return Err(OpenError::NoHolder { table: placed.name.clone() });
            }
            let copies = placed.holders.copies(|name| named(name).map(|member| member.replica));
            placement.restrict(database.table(*table), copies);
        }
        for (table, masters) in &placed.masters {
            let masters = masters.iter().filter_map(named).map(|member| member.replica).collect();
            placement.set_masters(database.table(*table), masters);
        }
        if has_left {
            // A later member of the same name holds nothing of this.
            if placed.parts.iter().any(BTreeSet::is_empty) {
                placed.parts.clear();
            }
            self.write(&placed).map_err(OpenError::kind)?;
        }
        Ok(placement)
    }

    /// Replaces it, durably.
    pub(crate) fn write(&self, placed: &Placed) -> Result<(), PlacementError> {
        let entry = |(table, placed): (&u32, &PlacedTable)| TableEntry {
            table: *table,
            name: placed.name.clone(),
            holders: placed.holders.clone(),
        };
        let is_split = |placed: &PlacedTable| matches!(placed.holders, Holders::Parts { .. });
        let has_parts = !placed.parts.is_empty() || placed.tables.values().any(is_split);
        let is_new = has_parts || !placed.masters.is_empty();
        let version = if is_new { VERSION_WITH_PARTS } else { VERSION };
        let tables = placed.tables.iter().map(entry).collect();
        let (parts, masters) = (placed.parts.clone(), placed.masters.clone());
        let contents = Contents { version, parts, masters, tables };
        let mut text = serde_json::to_string_pretty(&contents).map_err(|error| {
            let location = self.register.location(&Entry::Placement);
            PlacementError::Damaged { location, what: error.to_string() }
        })?;
        text.push('\n');
        Ok(self.register.change_now(&Entry::Placement, Some(text.as_bytes()))?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const FILE: &str = "log/placement";

    #[test]
    fn what_is_written_is_read_and_a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = PlacementFile::of(&TermRegister::in_folder(folder.path()));
        assert_eq!(file.read().unwrap(), Placed::default());
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Names>();
        let whole = Holders::Whole { holders: names(&["replica-1", "replica-3"]) };
        let table = |name: &str, holders| PlacedTable { name: name.to_owned(), holders };
        let mut placed = Placed::default();
        placed.tables.insert(7, table("public.audit", whole));
        file.write(&placed).unwrap();
        assert_eq!(file.read().unwrap(), placed);
        let written = || fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert!(written().contains("\"version\": 1"), "earlier releases read a file without parts");
        placed.parts = vec![names(&["replica-1"]), names(&["replica-2"])];
        let parts = Holders::Parts { column: "w_id".to_owned(), parts: placed.parts.clone() };
        placed.tables.insert(8, table("public.stock", parts));
        placed.masters.insert(7, names(&["replica-3"]));
        file.write(&placed).unwrap();
        assert_eq!(file.read().unwrap(), placed);
        assert!(written().contains("\"version\": 2"));
        for damaged in [
            "",
            "{\"version\":1,\"tables\":[",
            "{\"version\":3,\"tables\":[]}",
            "{\"version\":1,\"tables\":[{\"table\":7,\"name\":\"t\",\"holders\":[]}]}",
            "{\"version\":2,\"tables\":[{\"table\":7,\"name\":\"t\",\"column\":\"c\",\"parts\":[[\"a\"],[]]}]}",
            "{\"version\":2,\"tables\":[{\"table\":7,\"name\":\"t\",\"column\":\"c\",\"parts\":[]}]}",
            "{\"version\":2,\"tables\":[{\"table\":7,\"name\":\"t\"}]}",
        ] {
            fs::write(folder.path().join(FILE), damaged).unwrap();
            assert!(matches!(file.read().unwrap_err(), PlacementError::Damaged { .. }), "{damaged}");
        }
    }
}
